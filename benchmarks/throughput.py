"""Frames a second of the whole path, decode and encode included, with the caches on and off.

    python -m benchmarks.throughput [--frames 250] [--repeats 2] [--quick]

Each clip is run with caches (A) and without (B), A B A B, in one process. A loop is timed from the moment the
sources are ready to the finished file; ``process`` is a fresh ``lethe swap``, start-up included.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import CLIP, PORTRAIT, SOURCE, looped_clip, media_folder, pan_clip, publish
from edge import Pair, SwapOptions, swap_files
from edge.progress import Event, InputFinished, InputStarted
from shared.mesh.engine import Tier

SIGN_CLIPS = ("sign_p_again", "sign_q_bird", "sign_r_book", "sign_s_eat")
TIERS: tuple[Tier, ...] = ("quality", "balanced", "fast")


@dataclass
class _Stopwatch:
    """Times the frames of a job, without what is done once."""

    wall_s: float = 0.0
    cpu_s: float = 0.0

    def __call__(self, event: Event) -> None:
        if isinstance(event, InputStarted):
            self.wall_s, self.cpu_s = -time.perf_counter(), -time.process_time()
        elif isinstance(event, InputFinished):
            self.wall_s += time.perf_counter()
            self.cpu_s += time.process_time()


def _loop(clip: Path, source: Path, tier: Tier, *, caches: bool, folder: Path) -> tuple[float, float]:
    """Frames a second, and processor milliseconds a frame."""
    watch = _Stopwatch()
    options = SwapOptions(tier=tier, caches=caches)
    report = swap_files([Pair((source,))], [clip], folder / "out.mp4", options, events=watch)
    report.raise_for_status()
    frames = report.inputs[0].frames_out
    return frames / watch.wall_s, 1000 * watch.cpu_s / frames


def _process_fps(clip: Path, source: Path, tier: Tier, frames: int, folder: Path) -> float:
    command = [sys.executable, "-m", "edge", "swap", "-q", "-s", str(source), str(clip), "--tier", tier]
    start = time.perf_counter()
    subprocess.run([*command, "-o", str(folder / "out.mp4")], check=True)
    return frames / (time.perf_counter() - start)


def measure(
    name: str, clip: Path, source: Path, tier: Tier, frames: int, repeats: int, folder: Path
) -> dict[str, Any]:
    """One row: a clip at a tier."""
    runs = [
        (
            _loop(clip, source, tier, caches=True, folder=folder),
            _loop(clip, source, tier, caches=False, folder=folder),
        )
        for _ in range(repeats)
    ]
    fps, cpu, fps_off, cpu_off = (
        statistics.median(run[side][k] for run in runs) for side, k in ((0, 0), (0, 1), (1, 0), (1, 1))
    )
    return {
        "clip": name,
        "tier": tier,
        "fps": round(fps, 1),
        "cpu_ms": round(cpu, 1),
        "fps_no_cache": round(fps_off, 1),
        "cpu_ms_no_cache": round(cpu_off, 1),
        "fps_ratio": round(fps / fps_off, 2),
        "cpu_ratio": round(cpu_off / cpu, 2),
        "process_fps": round(_process_fps(clip, source, tier, frames, folder), 1),
    }


def main() -> None:
    """Make the clips and measure them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--frames", type=int, default=250, help="frames of each clip")
    parser.add_argument("--repeats", type=int, default=2, help="pairs of runs; the median counts")
    parser.add_argument("--quick", action="store_true", help="the quality tier only")
    args = parser.parse_args()
    tiers = TIERS[:1] if args.quick else TIERS
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        vga = looped_clip(CLIP, folder / "vga.mp4", args.frames, (640, 480))
        full_hd = pan_clip(PORTRAIT, folder / "pan.mp4", args.frames)
        jobs = [("single_face 640x480", vga, PORTRAIT, tier) for tier in tiers]
        jobs += [("pan 1920x1080", full_hd, SOURCE, tier) for tier in tiers]
        jobs.append(
            ("single_face 640x360", looped_clip(CLIP, folder / "clip.mp4", args.frames), PORTRAIT, TIERS[0])
        )
        if media := media_folder():
            for sign in SIGN_CLIPS:
                clip = looped_clip(media / "video" / f"{sign}.mkv", folder / f"{sign}.mp4", args.frames)
                jobs.append((f"{sign} 640x480", clip, SOURCE, TIERS[0]))
        _loop(vga, PORTRAIT, TIERS[0], caches=True, folder=folder)  # loads and warms every network
        rows = [measure(*job, args.frames, args.repeats, folder) for job in jobs]
    publish("throughput", rows)


if __name__ == "__main__":
    main()
