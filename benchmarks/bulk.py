"""A folder of many pictures of few people: with the caches, and with nothing remembered between pictures.

    python -m benchmarks.bulk [--pictures 300] [--people 20]

Every picture is a crop of a photo at another size and brightness. ``same`` compares the outputs of both runs
byte by byte. Without ``../shared/media`` the people are those of the packaged photos: eight.
"""

import argparse
import filecmp
import tempfile
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.common import PORTRAIT, SAMPLES, SOURCE, media_folder, publish, read_image
from edge import JobReport, Pair, SwapOptions, swap_files
from edge.report import peak_rss_bytes
from shared.arrays import ImageBgr

# One photo each of twenty people, below photos/.
PEOPLE = (
    "herrington_1.jpg", "collins_1.png", "curbeam_1.jpg", "wilson_1.jpg", "whitson_1.jpg", "creamer_1.jpg",
    "lu_1.jpg", "frick_1.jpg", "walheim_1.jpg", "ochoa_1.jpg", "sample_a_1.jpg", "sample_b_1.jpg",
    "obama_1.jpg", "hopper_1.jpg", "shepherd_1.jpg", "biden_2.jpg", "walz_1.jpg", "sample_e_1.jpg",
    "sample_f_1.jpg", "sample_c_2.jpg",
)  # fmt: skip
_PACKAGED = ("single_face.jpg", "astronaut.png", "grace_hopper.jpg", "multi_face.jpg")
_LONGEST_PX = 640


def photos(people: int) -> list[Path]:
    """Photos of that many people, or of as many as there are."""
    media = media_folder()
    if media is None:
        return [SAMPLES / name for name in _PACKAGED]
    return [media / "photos" / name for name in PEOPLE[:people]]


def variant(image: ImageBgr, number: int) -> ImageBgr:
    """The photo once more: a little cropped, of another size and brightness."""
    rng = np.random.default_rng(number)
    height, width = image.shape[:2]
    top, left = (int(side * rng.uniform(0, 0.03)) for side in (height, width))
    crop = image[top:, left:]
    scale = _LONGEST_PX / max(crop.shape[:2]) * rng.uniform(0.9, 1.1)
    small = cv2.resize(crop, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.convertScaleAbs(small, alpha=float(rng.uniform(0.9, 1.05))), np.uint8)


def make_folder(folder: Path, pictures: int, people: int) -> int:
    """Fill a folder; gives the number of photos it was made from."""
    images = [read_image(path) for path in photos(people)]
    for number in range(pictures):
        encoded, data = cv2.imencode(".jpg", variant(images[number % len(images)], number))
        assert encoded
        (folder / f"{number:04d}.jpg").write_bytes(data.tobytes())
    return len(images)


def run(source: Path, pictures: Path, output: Path, *, caches: bool) -> tuple[float, JobReport]:
    """Seconds of the whole job, and its report."""
    began = time.perf_counter()
    report = swap_files([Pair((source,))], [pictures], output, SwapOptions(caches=caches))
    report.raise_for_status()
    return time.perf_counter() - began, report


def main() -> None:
    """Make the folder, do it twice, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--pictures", type=int, default=300)
    parser.add_argument("--people", type=int, default=20)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        people = make_folder(folder / "in", args.pictures, args.people)
        run(PORTRAIT, folder / "in" / "0000.jpg", folder / "warm.jpg", caches=True)
        for caches in (True, False):
            seconds, report = run(SOURCE, folder / "in", folder / f"{caches}", caches=caches)
            rows.append(
                {
                    "caches": caches,
                    "seconds": round(seconds, 2),
                    "ms_per_picture": round(1e3 * seconds / args.pictures, 1),
                    "people_seen": report.identities["seen"],
                    "prepared": report.cache["artefacts"]["misses"],
                }
            )
        names = [path.name for path in sorted((folder / "True").iterdir())]
        _, differing, missing = filecmp.cmpfiles(folder / "True", folder / "False", names, shallow=False)
    publish(
        "bulk",
        rows,
        photos=people,
        pictures=args.pictures,
        ratio=round(rows[1]["seconds"] / rows[0]["seconds"], 2),
        same=len(names) == args.pictures and not differing and not missing,
        peak_mb=round(peak_rss_bytes() / 1e6, 1),
    )


if __name__ == "__main__":
    main()
