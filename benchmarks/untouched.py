"""What must not change does not, and two runs give the same.

    python -m benchmarks.untouched

Every clip is decoded twice. One copy goes through the fusion and into the native planes as the encoder would
get them; each sample outside of the patches must equal the other copy's, bit for bit. Then whole jobs are run
twice: stills must be equal in every byte, videos in every decoded frame.
"""

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import CLIP, PORTRAIT, SAMPLES, SOURCE, media_folder, publish
from edge import Pair, swap_files
from edge.analyser import FaceAnalyser
from edge.embedder import MobileFaceNet
from edge.fuser import FrameFuser
from edge.source import SourceReader
from edge.video import VideoReader
from edge.video.pixels import PatchWriter, has_alpha, plane_views, subsampling_of
from shared.frames import Frame, FusedFrame
from shared.mesh.engine import MeshEngine
from shared.mesh.source import SourcePhoto
from shared.ort import SessionPool
from shared.timing import StageClock

CLIPS = ("hand_over_face.mp4", "sign_q_bird.mkv", "face_then_none.mov")


def _changed_planes(fused: FusedFrame) -> list[Any]:
    """For each plane of the native frame, which of its samples a patch may change."""
    native = fused.frame.native
    luma = np.zeros((native.height, native.width), np.bool_)
    for patch in fused.patches:
        height, width = patch.changed.shape
        luma[patch.y : patch.y + height, patch.x : patch.x + width] |= patch.changed > 0
    step_x, step_y = subsampling_of(native.format)
    padded = np.pad(luma, ((0, -native.height % step_y), (0, -native.width % step_x)))
    chroma = padded.reshape(padded.shape[0] // step_y, step_y, padded.shape[1] // step_x, step_x).any((1, 3))
    return [luma, chroma, chroma]


def compare(clip: Path, source: Path) -> dict[str, Any]:
    """One row: how many samples outside of the patches differ."""
    sessions = SessionPool()
    photo = SourceReader(FaceAnalyser(sessions), MobileFaceNet(sessions)).read(source)
    engine = MeshEngine()
    prepared = engine.prepare([SourcePhoto(photo.image, photo.face.landmarks)])
    analyser, fuser = FaceAnalyser(sessions), FrameFuser(engine, [prepared], StageClock())
    writer = PatchWriter()
    frames = fused_frames = differing = outside = 0
    with VideoReader(clip) as reader, VideoReader(clip) as pristine:
        for frame, other in zip(reader, pristine, strict=True):
            fused = fuser.fuse(frame, analyser.analyse(frame))
            writer.apply(frame.native, frame.image, fused.patches)
            frames, fused_frames = frames + 1, fused_frames + bool(fused.patches)
            differ, total = _differing(fused, other)
            differing, outside = differing + differ, outside + total
    return {
        "clip": clip.stem,
        "frames": frames,
        "frames_fused": fused_frames,
        "samples_outside": outside,
        "of_them_changed": differing,
    }


def _differing(fused: FusedFrame, other: Frame) -> tuple[int, int]:
    native = fused.frame.native
    assert not has_alpha(native.format)
    planes = zip(plane_views(native), plane_views(other.native), _changed_planes(fused), strict=True)
    differ = total = 0
    for mine, theirs, changed in planes:
        differ += int(np.count_nonzero((mine != theirs) & ~changed))
        total += int(np.count_nonzero(~changed))
    return differ, total


def _frames_hash(path: Path) -> str:
    digest = hashlib.sha256()
    with VideoReader(path) as reader:
        for frame in reader:
            for view in plane_views(frame.native):
                digest.update(np.ascontiguousarray(view).tobytes())
    return digest.hexdigest()


def same_twice(path: Path, source: Path, folder: Path, ending: str) -> bool:
    """Whether two whole jobs give the same result."""
    outputs = [folder / f"{turn}{ending}" for turn in range(2)]
    for output in outputs:
        swap_files([Pair((source,))], [path], output).raise_for_status()
    if ending == ".mp4":
        return _frames_hash(outputs[0]) == _frames_hash(outputs[1])
    return outputs[0].read_bytes() == outputs[1].read_bytes()


def main() -> None:
    """Compare every clip that is there."""
    jobs = [(CLIP, PORTRAIT)]
    if media := media_folder():
        jobs += [(media / "video" / name, SOURCE) for name in CLIPS]
    rows = [compare(clip, source) for clip, source in jobs]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        still = same_twice(SAMPLES / "multi_face.jpg", SOURCE, folder, ".jpg")
        video = same_twice(CLIP, PORTRAIT, folder, ".mp4")
    publish("untouched", rows, two_runs_same_still_bytes=still, two_runs_same_video_frames=video)


if __name__ == "__main__":
    main()
