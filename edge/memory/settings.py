"""What can be set about the face memory."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from platformdirs import user_data_path

MemoryPolicy: TypeAlias = Literal["consented", "seen", "off"]
MatchMode: TypeAlias = Literal["accuracy", "speed"]
KeyPlace: TypeAlias = Literal["file", "keyring", "passphrase"]

PASSPHRASE_VARIABLE = "LETHE_MEMORY_PASSPHRASE"
"""Holds the passphrase for programs; never a setting, so that no report can show it."""
NEW_PASSPHRASE_VARIABLE = "LETHE_MEMORY_NEW_PASSPHRASE"
BUNDLE_PASSPHRASE_VARIABLE = "LETHE_BUNDLE_PASSPHRASE"
SECRET_VARIABLES = (PASSPHRASE_VARIABLE, NEW_PASSPHRASE_VARIABLE, BUNDLE_PASSPHRASE_VARIABLE)


def default_memory_folder() -> Path:
    """Where the memory lies unless ``memory.folder`` says otherwise; it need not exist."""
    return user_data_path("lethe") / "memory"


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """What is remembered of faces, where, and for how long.

    Attributes:
        policy: ``consented`` remembers people who were enrolled, ``seen`` everyone, ``off`` nobody.
        mode: How sure a match must be: ``accuracy`` or ``speed``.
        recognition_score: Cosine from which a face is a known person; None follows mode and number of people.
        ttl_enrolled_days: Enrolled people, if not pinned, are forgotten so long after they were seen.
        ttl_seen_hours: The same for people who were only seen.
        limit_people: Beyond so many, those not seen for longest are forgotten.
        limit_mb: Beyond so many megabytes of records, those not seen for longest are forgotten.
        folder: Where the memory lies; on a disk of this machine.
        key: What opens it: a key ``file`` beside it, the ``keyring`` of the desktop, or a ``passphrase``.
    """

    policy: MemoryPolicy = "consented"
    mode: MatchMode = "accuracy"
    recognition_score: float | None = None
    ttl_enrolled_days: float = 30.0
    ttl_seen_hours: float = 24.0
    limit_people: int = 10_000
    limit_mb: int = 2048
    folder: Path = field(default_factory=default_memory_folder)
    key: KeyPlace = "file"

    def __post_init__(self) -> None:
        for name, kind in (("policy", MemoryPolicy), ("mode", MatchMode), ("key", KeyPlace)):
            if getattr(self, name) not in get_args(kind):
                raise ValueError(f"{name} must be one of {', '.join(get_args(kind))}")
        if self.recognition_score is not None and not 0 < self.recognition_score <= 1:
            raise ValueError(f"recognition_score must lie between 0 and 1, not {self.recognition_score}")
        for name in ("ttl_enrolled_days", "ttl_seen_hours"):
            if not 0 < getattr(self, name) < math.inf:
                raise ValueError(f"{name} must be a positive number, not {getattr(self, name)}")
        for name in ("limit_people", "limit_mb"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, not {getattr(self, name)}")
