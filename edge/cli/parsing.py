"""Text the user typed, turned into values."""

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from shared.errors import UsageError

_TIME = re.compile(r"(?:(?:(\d+):)?(\d+):)?(\d+(?:\.\d*)?|\.\d+)")


@dataclass(frozen=True, slots=True)
class SourceChoice:
    """Who goes onto whom.

    Attributes:
        source: Photos of one person.
        reference: A photo of the person to be covered; None for whoever is there.
    """

    source: tuple[Path, ...]
    reference: Path | None = None

    def photos(self) -> tuple[Path, ...]:
        """Every photo that is read."""
        return self.source if self.reference is None else (*self.source, self.reference)


def parse_trim(text: str) -> tuple[float | None, float | None]:
    """Read ``START-END``, each in seconds or as ``h:mm:ss``; either may be left out.

    Returns:
        Start and end in seconds; None where the file's own is meant.

    Raises:
        UsageError: If it is not such a range.
    """
    first, dash, last = text.strip().partition("-")
    if not dash or not (first or last):
        raise UsageError(f"--trim {text}: write START-END, for example 2.5-10, 1:30- or -0:45")
    start_s = _parse_time(first, text) if first else None
    end_s = _parse_time(last, text) if last else None
    if end_s is not None and end_s <= (start_s or 0.0):
        raise UsageError(f"--trim {text}: the end must lie after the start")
    return start_s, end_s


def _parse_time(time: str, text: str) -> float:
    match = _TIME.fullmatch(time.strip())
    if not match:
        raise UsageError(f"--trim {text}: {time!r} is not a time; write seconds (12.5) or h:mm:ss (1:02:03)")
    hours, minutes, seconds = match.groups(default="0")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def choose_sources(
    sources: Sequence[Path], reference: Path | None, mappings: Sequence[str]
) -> list[SourceChoice]:
    """Bring ``--source``, ``--reference`` and ``--map`` together.

    Beside ``--map``, a ``--source`` is for everybody whom no reference shows.

    Raises:
        UsageError: If they are missing or contradict each other.
    """
    if not sources and not mappings:
        raise UsageError("nobody to fuse: give --source FILE, or --map SOURCE=REFERENCE for several people")
    if reference and mappings:
        raise UsageError("--reference and --map cannot go together: write --map SOURCE=REFERENCE for it too")
    if reference and not sources:
        raise UsageError("--reference says whom to cover: add --source FILE, the face to cover them with")
    choices = _group_by_reference([parse_mapping(text) for text in mappings])
    return [*choices, SourceChoice(tuple(sources), reference)] if sources else choices


def parse_mapping(text: str) -> tuple[Path, Path]:
    """Read ``SOURCE=REFERENCE``; file names may hold ``=`` too, then those that exist are meant.

    Raises:
        UsageError: If there is no ``=``, or not one clear way to read it.
    """
    cuts = [at for at, letter in enumerate(text) if letter == "="]
    splits = [(Path(text[:at]), Path(text[at + 1 :])) for at in cuts if text[:at] and text[at + 1 :]]
    if not splits:
        raise UsageError(f"--map {text}: write SOURCE=REFERENCE, two photos")
    if len(splits) == 1:
        return splits[0]
    existing = [split for split in splits if split[0].is_file() and split[1].is_file()]
    if len(existing) != 1:
        found = "no" if not existing else "more than one"
        raise UsageError(f"--map {text}: {found} way to split it at '=' gives two files; rename one")
    return existing[0]


def _group_by_reference(mappings: Sequence[tuple[Path, Path]]) -> list[SourceChoice]:
    """Several sources for one reference are several photos of one person."""
    groups: dict[Path, list[Path]] = {}
    for source, reference in mappings:
        groups.setdefault(reference, []).append(source)
    return [SourceChoice(tuple(sources), reference) for reference, sources in groups.items()]


def faces_for(faces: str | None, choices: Sequence[SourceChoice]) -> tuple[str, str | None]:
    """Which faces the command line means, and the flag that says so: references alone mean ``match``."""
    if faces is None and all(choice.reference for choice in choices):
        return "--reference", "match"
    return "--faces", faces


def check_faces(faces: str, choices: Sequence[SourceChoice]) -> None:
    """Refuse a choice of faces and sources that contradict each other.

    Raises:
        UsageError: If some source could go onto nobody, or a reference would say nothing.
    """
    with_reference = [choice for choice in choices if choice.reference]
    if faces == "match" and not with_reference:
        raise UsageError("--faces match needs to know whom: add --reference FILE, a photo of them")
    if faces == "match" and len(with_reference) < len(choices):
        raise UsageError("--faces match leaves nobody for --source: leave out --faces, or --source")
    if faces == "all" and len(with_reference) == len(choices):
        raise UsageError("--faces all contradicts the reference: leave out --faces, or the reference")


def check_side_file(flag: str, path: Path, taken: Iterable[Path]) -> None:
    """Refuse a report or a trace that cannot be written, before the work and not after it.

    Args:
        flag: As the user typed it.
        path: The file.
        taken: Files that it must not overwrite.

    Raises:
        UsageError: If it is a folder or one of the other files, or nothing may be written there.
    """
    if path.is_dir():
        raise UsageError(f"{flag} {path}: is a folder; name a file")
    if path.exists() and not path.is_file():
        return  # a device or a pipe, which is written to as it is
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{flag} {path}: nothing may be written below {nearest}")
    if path.resolve() in {other.resolve() for other in taken}:
        raise UsageError(f"{flag} {path}: is a file of this job already; choose another name")
