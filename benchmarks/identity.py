"""Whose face the result shows, judged by two recognisers, over source and target photos.

    python -m benchmarks.identity

``cos`` is MobileFaceNet's cosine (0.45 and above: one person), ``dlib`` the distance of dlib's ResNet, which
no part of the fusion uses (below 0.6: one person). ``out_src`` compares the result with the source,
``out_tgt`` with the person who was covered, ``src_tgt`` those two before. Pictures stay in memory.
"""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import SAMPLES, largest_face, media_folder, publish, read_image
from edge import Pair, SwapOptions, Swapper
from edge.analyser import FaceAnalyser
from edge.embedder import DlibResNet, MobileFaceNet
from edge.landmarks import five_points
from shared.arrays import Embedding, ImageBgr
from shared.mesh.shape import head_pose
from shared.ort import SessionPool

# Source>target below photos/: skin tones, ages, both sexes, spectacles, smiles, turned heads, small faces.
PAIRS = (
    "herrington_1>lu_1",
    "collins_1>whitson_1",
    "curbeam_1>herrington_1",
    "herrington_1>curbeam_1",
    "wilson_1>whitson_1",
    "whitson_1>walheim_1",
    "creamer_1>ochoa_1",
    "creamer_1>frick_2",
    "collins_1>sample_g_1",
    "lu_1>walz_2",
    "frick_1>sample_i_1",
    "frick_2>walheim_1",
    "walheim_2>creamer_1",
    "sample_b_1>ochoa_1",
    "sample_a_1>sample_c_1",
    "obama_1>biden_1",
    "sample_e_1>sample_f_1",
    "lu_1>obama_2",
    "hopper_1>collins_1",
    "ochoa_1>sample_a_2",
    "biden_1>wilson_1",
    "sample_c_1>frick_1",
    "walheim_1>herrington_2",
    "ochoa_1>shepherd_1",
    "sample_f_1>walz_1",
    "whitson_2>collins_1",
    "herrington_2>obama_1",
    "curbeam_1>biden_2",
)
# Where the collection is missing: what the package has.
PACKAGED = (("single_face.jpg", "astronaut.png"), ("astronaut.png", "single_face.jpg"),
            ("single_face.jpg", "grace_hopper.jpg"))  # fmt: skip

FRONTAL_DEG = 20.0


class _Judges:
    """Both recognisers, and the landmarks they need."""

    def __init__(self) -> None:
        sessions = SessionPool()
        self._analyser = FaceAnalyser(sessions)
        self._embedders = (MobileFaceNet(sessions), DlibResNet(sessions))

    def look(self, image: ImageBgr) -> tuple[Embedding, Embedding, float] | None:
        """Both embeddings of the largest face and its yaw in degrees; None where Lethe finds no face."""
        face = largest_face(self._analyser, image)
        if face is None:
            return None
        landmarks = face.landmarks
        cosine, distance = (judge.embed(image, five_points(landmarks)) for judge in self._embedders)
        return cosine, distance, head_pose(landmarks).yaw_deg


def measure(judges: _Judges, source: Path, target: Path) -> dict[str, Any] | None:
    """One row: a pair; None where no face is found, so that nothing is fused."""
    picture = read_image(target)
    fused = Swapper([Pair((source,))], SwapOptions(faces="largest")).swap_array(picture)
    looks = [look for image in (read_image(source), picture, fused) if (look := judges.look(image))]
    if len(looks) < 3:
        return None
    (cos_s, dlib_s, yaw_s), (cos_t, dlib_t, yaw_t), (cos_o, dlib_o, _) = looks
    return {
        "pair": f"{source.stem}>{target.stem}",
        "cos_out_src": round(float(cos_o @ cos_s), 3),
        "cos_out_tgt": round(float(cos_o @ cos_t), 3),
        "cos_src_tgt": round(float(cos_s @ cos_t), 3),
        "dlib_out_src": round(float(np.linalg.norm(dlib_o - dlib_s)), 3),
        "dlib_out_tgt": round(float(np.linalg.norm(dlib_o - dlib_t)), 3),
        "frontal": bool(max(abs(yaw_s), abs(yaw_t)) < FRONTAL_DEG),
    }


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Means, shares and the worst over all pairs."""

    def column(name: str) -> Any:
        return np.array([row[name] for row in rows])

    near_cos = column("cos_out_src") > column("cos_out_tgt")
    near_dlib = column("dlib_out_src") < column("dlib_out_tgt")
    frontal = column("frontal")
    return {
        "pairs": len(rows),
        "cos_out_src_mean": float(column("cos_out_src").mean()),
        "cos_out_src_min": float(column("cos_out_src").min()),
        "cos_out_tgt_mean": float(column("cos_out_tgt").mean()),
        "cos_src_tgt_mean": float(column("cos_src_tgt").mean()),
        "nearer_to_source_cos": float(near_cos.mean()),
        "dlib_out_src_mean": float(column("dlib_out_src").mean()),
        "dlib_out_src_worst": float(column("dlib_out_src").max()),
        "dlib_out_src_worst_frontal": float(column("dlib_out_src")[frontal].max()) if frontal.any() else None,
        "nearer_to_source_dlib": float(near_dlib.mean()),
    }


def main() -> None:
    """Measure all pairs."""
    if media := media_folder():
        by_stem = {path.stem: path for path in (media / "photos").iterdir() if path.is_file()}
        pairs = [(by_stem[source], by_stem[target]) for source, target in (p.split(">") for p in PAIRS)]
    else:
        pairs = [(SAMPLES / source, SAMPLES / target) for source, target in PACKAGED]
    judges = _Judges()
    measured = [measure(judges, source, target) for source, target in pairs]
    rows = [row for row in measured if row is not None]
    publish("identity", rows, no_face_found=len(measured) - len(rows), **summary(rows))


if __name__ == "__main__":
    main()
