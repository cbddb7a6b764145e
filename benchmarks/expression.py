"""Whether mouth and eyes of the result do what the target's do: correlation over the frames of a clip.

    python -m benchmarks.expression

Openings are gaps of the landmarks, in distances between the eyes. Frames are left out where the target's face
is not plainly seen, because then its landmarks are guesses. Where the eyes or the mouth hardly move, noise is
all that is left to correlate: ``std`` says how much they do. Each clip gets a calm and a smiling source: a
smile that is baked into the source's skin is the harder case.
"""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import CALM_PORTRAIT, CLIP, PORTRAIT, SOURCE, media_folder, publish
from edge import Pair, swap_files
from edge.analyser import AnalyserConfig, FaceAnalyser
from edge.video import VideoReader
from shared.arrays import MeshLandmarks
from shared.mesh.topology import LID_POINTS_LEFT, LID_POINTS_RIGHT, MOUTH_POINTS, inter_ocular
from shared.ort import SessionPool

CLIPS = ("hand_over_face.mp4", "sign_p_again.mkv", "sign_q_bird.mkv", "sign_r_book.mkv", "sign_s_eat.mkv")
_PLAINLY_SEEN = 12.0
"""Presence logit; 9..21 on clear faces."""


def _gap(points: MeshLandmarks, upper: int, lower: int) -> float:
    return float(np.linalg.norm(points[upper, :2] - points[lower, :2])) / inter_ocular(points)


def openings(clip: Path) -> dict[int, tuple[float, float]]:
    """Mouth and mean eye opening of the largest face, by frame."""
    analyser = FaceAnalyser(SessionPool(), AnalyserConfig(caches=False))
    found = {}
    with VideoReader(clip) as reader:
        for frame in reader:
            faces = analyser.analyse(frame)
            if not faces:
                continue
            face = max(faces, key=lambda face: float(face.xyxy[2] - face.xyxy[0]))
            if face.presence >= _PLAINLY_SEEN:
                eyes = [_gap(face.landmarks, *lids[:2]) for lids in (LID_POINTS_LEFT, LID_POINTS_RIGHT)]
                found[frame.index] = (_gap(face.landmarks, *MOUTH_POINTS[:2]), sum(eyes) / 2)
    return found


def measure(clip: Path, source: Path, folder: Path) -> dict[str, Any]:
    """One row: a clip."""
    output = folder / f"{clip.stem}.mp4"
    swap_files([Pair((source,))], [clip], output).raise_for_status()
    before, after = openings(clip), openings(output)
    both = sorted(before.keys() & after.keys())
    old, new = (np.array([found[index] for index in both]) for found in (before, after))
    mouth, eyes = (float(np.corrcoef(old[:, k], new[:, k])[0, 1]) for k in (0, 1))
    return {
        "clip": clip.stem,
        "source": "calm" if source == CALM_PORTRAIT else "smiling",
        "frames": len(both),
        "mouth": round(mouth, 3),
        "eyes": round(eyes, 3),
        "mouth_std": round(float(old[:, 0].std()), 3),
        "eyes_std": round(float(old[:, 1].std()), 3),
    }


def main() -> None:
    """Measure every clip that is there."""
    jobs = [(CLIP, CALM_PORTRAIT), (CLIP, PORTRAIT)]
    if media := media_folder():
        jobs += [(media / "video" / name, source) for name in CLIPS for source in (CALM_PORTRAIT, SOURCE)]
    with tempfile.TemporaryDirectory() as name:
        rows = [measure(clip, source, Path(name)) for clip, source in jobs]
    publish("expression", rows)


if __name__ == "__main__":
    main()
