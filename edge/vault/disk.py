"""The file operations that the vault's keys rest on, behind one interface so that tests can pull the plug."""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

PRIVATE_FILE = 0o600


class Disk(Protocol):
    """Files by path; what `sync` has returned for survives a power cut."""

    def read(self, path: Path, offset: int = 0, size: int | None = None) -> bytes:
        """Bytes of a file, fewer where it ends; FileNotFoundError where there is none."""

    def write(self, path: Path, offset: int, data: bytes) -> None:
        """Overwrite in place, making the file if need be."""

    def sync(self, path: Path) -> None:
        """Return when the bytes written are on the medium."""

    def allocate(self, path: Path, size: int) -> None:
        """Make the file at least this long, with its blocks reserved."""

    def replace(self, path: Path, data: bytes) -> None:
        """Give the file this content at once and durably: the old content or the new one, never a mixture."""

    def remove(self, path: Path) -> None:
        """Remove a file; one that does not exist is removed already."""


class RealDisk:
    """The files of this machine."""

    def read(self, path: Path, offset: int = 0, size: int | None = None) -> bytes:
        """See `Disk.read`."""
        with path.open("rb") as file:
            file.seek(offset)
            return file.read(-1 if size is None else size)

    def write(self, path: Path, offset: int, data: bytes) -> None:
        """See `Disk.write`."""
        with _opened(path, os.O_WRONLY | os.O_CREAT) as fd:
            view = memoryview(data)
            while view:
                written = os.pwrite(fd, view, offset)
                view, offset = view[written:], offset + written

    def sync(self, path: Path) -> None:
        """See `Disk.sync`."""
        with _opened(path, os.O_WRONLY) as fd:
            _sync_data(fd)

    def allocate(self, path: Path, size: int) -> None:
        """See `Disk.allocate`."""
        with _opened(path, os.O_WRONLY | os.O_CREAT) as fd:
            if os.fstat(fd).st_size < size:
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, size)
                else:
                    os.ftruncate(fd, size)
                os.fsync(fd)
        sync_folder(path.parent)

    def replace(self, path: Path, data: bytes) -> None:
        """See `Disk.replace`."""
        fresh = path.with_name(f"{path.name}.new")
        self.remove(fresh)
        self.write(fresh, 0, data)
        self.sync(fresh)
        fresh.replace(path)
        sync_folder(path.parent)

    def remove(self, path: Path) -> None:
        """See `Disk.remove`."""
        path.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Return when the names in a folder are on the medium."""
    with _opened(folder, os.O_RDONLY) as fd:
        os.fsync(fd)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    """A file descriptor for the length of a block."""
    fd = os.open(path, flags | getattr(os, "O_CLOEXEC", 0), PRIVATE_FILE)
    try:
        yield fd
    finally:
        os.close(fd)


def _sync_data(fd: int) -> None:
    getattr(os, "fdatasync", os.fsync)(fd)
