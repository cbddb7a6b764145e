"""Where outputs go and how they appear: whole or not at all, and never on top of an input.

An output is written under a hidden name beside its place and renamed when it is finished, so a reader of the
folder sees the old file or the new one and nothing between. The hidden name does not contain the output's, so
it is short enough for any file system.
"""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from shared.errors import OutputError, UsageError

_LONGEST_ENDING = 16
_REASONS = {
    errno.ENOSPC: "the disk is full; make room or choose another output folder",
    errno.EDQUOT: "the disk quota is used up; make room or choose another output folder",
    errno.EFBIG: "is too large for this file system",
    errno.EACCES: "may not be written (permission denied); choose another output folder",
    errno.EPERM: "may not be written (permission denied); choose another output folder",
    errno.EROFS: "lies on a read-only file system; choose another output folder",
    errno.ENOTDIR: "a part of its path is a file, not a folder",
    errno.EEXIST: "a part of its path is a file, not a folder",
    errno.ENAMETOOLONG: "has a name that is too long for this file system",
    errno.EISDIR: "is a folder; give a file name",
    errno.ENOENT: "its folder does not exist and cannot be made",
}


def output_reason(err: OSError) -> str:
    """One clause on what kept a file from being written."""
    return _REASONS.get(err.errno or 0, f"could not be written ({err.strerror or err})")


@contextmanager
def atomic_output(path: Path) -> Iterator[Path]:
    """A place to write an output to, which becomes ``path`` when the block ends well.

    Missing folders are made. Whatever ends the block otherwise, the user's interrupt included, removes the
    file and leaves an older ``path`` untouched.

    Args:
        path: The output. Of a link the target is replaced.

    Yields:
        A hidden file in the same folder with the same ending; it exists and is empty.

    Raises:
        OutputError: The file cannot be written; the message names ``path``.
    """
    final = Path(os.path.realpath(path)) if os.path.islink(path) else path  # noqa: PTH114 - does not raise
    temporary = _claim(path, final)
    try:
        yield temporary
        _finish(temporary, final)
    except OutputError as err:
        raise OutputError(path, err.reason) if err.path == temporary else err from err
    except OSError as err:
        if _is_about(err, temporary):
            raise OutputError(path, output_reason(err)) from err
        raise
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _claim(path: Path, final: Path) -> Path:
    """Make the hidden file, and with it find out now what would otherwise fail after all the work."""
    ending = final.suffix if len(os.fsencode(final.suffix)) <= _LONGEST_ENDING else ""
    temporary = final.with_name(f".lethe-{secrets.token_hex(8)}{ending}")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        if final.is_dir():
            raise OutputError(path, _REASONS[errno.EISDIR])
        if final.exists() and not final.is_file():
            raise OutputError(path, "is a device or a pipe; give the name of a file")
        with contextlib.suppress(FileNotFoundError):
            os.lstat(final)
        temporary.touch(exist_ok=False)
    except OSError as err:
        raise OutputError(path, output_reason(err)) from err
    return temporary


def _finish(temporary: Path, final: Path) -> None:
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    temporary.replace(final)
    _sync_folder(final.parent)


def _sync_folder(folder: Path) -> None:
    """Make the new name itself durable, where the system can."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _is_about(err: OSError, temporary: Path) -> bool:
    if err.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return True
    names = (err.filename, err.filename2)
    return any(name is not None and Path(os.fsdecode(name)) == temporary for name in names)


def ensure_distinct(inputs: Sequence[Path], output: Path) -> None:
    """Refuse an output that is one of the inputs, also by way of a link or another spelling.

    Raises:
        UsageError: It is.
    """
    for path in inputs:
        if _same_file(path, output):
            raise UsageError(f"{output}: is also an input; choose another output, nothing was changed")


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return os.path.realpath(one) == os.path.realpath(other)


def is_folder_output(output: Path | str, *, many: bool) -> bool:
    """Whether an output names a folder: it is one, is written like one, or there are many inputs."""
    return many or str(output).endswith(("/", os.sep)) or Path(output).is_dir()


def output_path_for(path: Path, output: Path | str, *, many: bool, root: Path | None = None) -> Path:
    """Where the output of one input goes.

    Args:
        path: The input.
        output: As the user gave it; a closing separator, which `Path` would lose, makes it a folder.
        many: Whether there are several inputs.
        root: The folder that ``path`` was found in; its sub-folders are kept.
    """
    if not is_folder_output(output, many=many):
        return Path(output)
    return Path(output) / (path.relative_to(root) if root is not None else path.name)


def plan_outputs(inputs: Sequence[Path], output: Path | str, *, roots: Sequence[Path] = ()) -> list[Path]:
    """Where the outputs of all inputs go; no two share a place.

    Two inputs of one name from different folders get a number behind the name, in the order of the inputs.
    Names are compared without regard to case, as some file systems do.

    Args:
        inputs: Files, as `edge.media.list_inputs` gives them.
        output: As the user gave it.
        roots: The folders the user gave; files below one keep their sub-folders.

    Raises:
        UsageError: An output is also an input, or one file is meant to hold several outputs.
    """
    many = len(inputs) > 1 or bool(roots)
    place = Path(output)
    written_as_folder = str(output).endswith(("/", os.sep)) or not place.suffix
    if many and not place.is_dir() and (place.is_file() or not written_as_folder):
        raise UsageError(f"{output}: several outputs need a folder; end its name with a slash if it is one")
    taken: set[str] = set()
    outputs = []
    for path in inputs:
        root = next((root for root in roots if path.is_relative_to(root)), None)
        place = _free_name(output_path_for(path, output, many=many, root=root), taken)
        taken.add(str(place).casefold())
        ensure_distinct(inputs, place)
        outputs.append(place)
    return outputs


def _free_name(place: Path, taken: set[str]) -> Path:
    candidate, number = place, 1
    while str(candidate).casefold() in taken:
        number += 1
        candidate = place.with_name(f"{place.stem}-{number}{place.suffix}")
    return candidate


def free_space_bytes(path: Path) -> int:
    """Free space where ``path`` is or will be."""
    folder = path.absolute()
    while not folder.is_dir() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def ensure_free_space(path: Path, needed_bytes: int) -> None:
    """Refuse to begin a job that cannot end.

    Raises:
        OutputError: There is less room than ``needed_bytes``.
    """
    free = free_space_bytes(path)
    if free < needed_bytes:
        raise OutputError(
            path,
            f"needs about {needed_bytes / 1e6:.0f} MB, but only {free / 1e6:.0f} MB are free on that disk",
        )
