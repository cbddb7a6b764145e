"""The face memory: who is known, what is remembered of them, and for how long."""

from edge.memory.people import Consenting, KnownPerson, View
from edge.memory.service import FaceMemory, Forgotten, Known, MemoryStats
from edge.memory.settings import MemorySettings

__all__ = [
    "Consenting",
    "FaceMemory",
    "Forgotten",
    "Known",
    "KnownPerson",
    "MemorySettings",
    "MemoryStats",
    "View",
]
