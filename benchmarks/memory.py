"""Peak resident memory of a 1080p clip of 10 s and of 100 s, each in a process of its own.

python -m benchmarks.memory [--long-s 100]
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.common import FPS, PORTRAIT, SOURCE, pan_clip, publish, repeated_clip

SHORT_S = 10


def measure(clip: Path, length_s: int, folder: Path) -> dict[str, Any]:
    """One row: what a fresh process needs for a clip."""
    report = folder / "report.json"
    command = [sys.executable, "-m", "edge", "swap", "-q", "-s", str(SOURCE), str(clip)]
    subprocess.run([*command, "-o", str(folder / "out.mp4"), "--report", str(report)], check=True)
    plain = json.loads(report.read_text(encoding="utf-8"))
    return {
        "seconds": length_s,
        "frames": plain["inputs"][0]["frames_out"],
        "frames_fused": plain["inputs"][0]["frames_fused"],
        "peak_mb": round(plain["peak_rss_bytes"] / 1e6, 1),
        "process_fps": plain["fps"],
    }


def main() -> None:
    """Measure the short and the long clip."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--long-s", type=int, default=100, help="length of the long clip, a multiple of 10")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        short = pan_clip(PORTRAIT, folder / "short.mp4", SHORT_S * FPS)
        long = repeated_clip(short, folder / "long.mp4", args.long_s // SHORT_S)
        rows = [measure(short, SHORT_S, folder), measure(long, args.long_s, folder)]
    publish("memory", rows, growth_mb=round(rows[1]["peak_mb"] - rows[0]["peak_mb"], 1))


if __name__ == "__main__":
    main()
