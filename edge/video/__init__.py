"""Video files: frames in presentation order out of one, fused frames into another."""

from edge.video.reader import Trim, VideoInfo, VideoReader
from edge.video.writer import VideoWriter

__all__ = ["Trim", "VideoInfo", "VideoReader", "VideoWriter"]
