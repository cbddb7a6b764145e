"""Makes the picture of the README: a packaged photo before and after, with the source photo in a corner.

    python scripts/make_readme_picture.py

Only people whom nobody names are shown altered.
"""

import tempfile
from pathlib import Path

import cv2
import numpy as np

from edge import swap_image
from shared.arrays import ImageBgr

REPOSITORY = Path(__file__).resolve().parent.parent
SAMPLES = REPOSITORY / "edge" / "samples"
PICTURE = REPOSITORY / "docs" / "img" / "before-after.jpg"

_ROWS = slice(0, 430)
_COLUMNS = slice(40, 830)
_INSET_PX = 190
_GAP_PX = 6
_JPEG_QUALITY = 86


def _read(path: Path) -> ImageBgr:
    image = cv2.imread(str(path))
    assert image is not None
    return image


def main() -> None:
    """Run the program and compose the result."""
    source, target = SAMPLES / "single_face.jpg", SAMPLES / "multi_face.jpg"
    with tempfile.TemporaryDirectory() as folder:
        fused = Path(folder) / "fused.png"
        swap_image(source, target, fused)
        before, after = (_read(path)[_ROWS, _COLUMNS] for path in (target, fused))
    portrait = _read(source)[70:430, 100:460]
    inset = cv2.resize(portrait, (_INSET_PX, _INSET_PX), interpolation=cv2.INTER_AREA)
    framed = cv2.copyMakeBorder(inset, 3, 3, 3, 3, cv2.BORDER_CONSTANT, value=(255, 255, 255))
    before = before.copy()
    before[8 : 8 + framed.shape[0], -8 - framed.shape[1] : -8] = framed
    gap = np.full((before.shape[0], _GAP_PX, 3), 255, np.uint8)
    cv2.imwrite(str(PICTURE), np.hstack([before, gap, after]), [int(cv2.IMWRITE_JPEG_QUALITY), _JPEG_QUALITY])
    print(f"{PICTURE.name}: {PICTURE.stat().st_size // 1024} KiB")


if __name__ == "__main__":
    main()
