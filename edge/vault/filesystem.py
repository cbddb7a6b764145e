"""Where the vault lies: private folders, file systems that keep its promises, a reserve for a full disk."""

import contextlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from edge.vault.disk import sync_folder
from shared.errors import VaultError, VaultLockedError

try:
    import fcntl
except ImportError:  # not a POSIX system
    fcntl = None  # type: ignore[assignment]

PRIVATE_FOLDER = 0o700
PRIVATE_FILE = 0o600
BALLAST_BYTES = 1 << 20
"""Enough pages for the commits that a forget needs on a full disk."""

MOUNTS = Path("/proc/self/mountinfo")

# Memory maps and locks of these lie elsewhere: LMDB's header says not to.
REMOTE = re.compile(
    r"nfs\d?|cifs|smb\d?|smbfs|9p|afs|ceph|glusterfs|lustre|ncpfs|coda|ocfs2|gfs2|fuse|fuse\..+"
)
# Blocks are overwritten where they lie, so an overwritten root is gone from the file system.
IN_PLACE = ("ext2", "ext3", "ext4", "xfs")

# Backup programs leave out a folder with such a tag (https://bford.info/cachedir/).
CACHE_TAG = b"Signature: 8a477f597d28d172789f06886806bc55\n# Keep this folder out of every backup.\n"


@dataclass(frozen=True, slots=True)
class Mount:
    """The file system below a folder.

    Attributes:
        kind: As the kernel calls it, empty where it cannot be known.
        options: Its options.
    """

    kind: str
    options: frozenset[str] = frozenset()

    @property
    def is_remote(self) -> bool:
        """Whether it lies on another machine, or in a program that we know nothing of."""
        return REMOTE.fullmatch(self.kind) is not None

    def overwrites(self) -> tuple[bool, str]:
        """Whether writing in place replaces the old bytes, and why."""
        if not self.kind:
            return False, "the file system is not known"
        if "data=journal" in self.options:
            return False, f"{self.kind} with data=journal keeps a second copy of what is written"
        if self.kind in IN_PLACE:
            return True, f"{self.kind} overwrites the root where it lies"
        return False, f"{self.kind} may keep old blocks of the root"


def mount_of(folder: Path, mounts: Path | None = None) -> Mount:
    """The file system that holds a folder, which need not exist yet."""
    try:
        lines = (mounts or MOUNTS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:
        return Mount("")
    path, best, depth = folder.resolve(), Mount(""), -1
    for line in lines:
        left, _, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if len(fields) < 6 or len(kind) < 3:
            continue
        point = Path(re.sub(r"\\(\d{3})", lambda code: chr(int(code[1], 8)), fields[4]))
        # Of two mounts on one point the later one is seen.
        if path.is_relative_to(point) and len(point.parts) >= depth:
            options = frozenset((*fields[5].split(","), *kind[2].split(",")))
            best, depth = Mount(kind[0], options), len(point.parts)
    return best


def require_local(folder: Path) -> None:
    """Raise VaultError where a folder lies on a remote file system."""
    mount = mount_of(folder)
    if mount.is_remote:
        raise VaultError(f"{folder}: lies on {mount.kind}; the face memory needs a disk of this machine")


def prepare_folder(folder: Path) -> None:
    """Make a folder that only its owner can look into.

    Raises:
        VaultError: It cannot be made.
    """
    try:
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
            sync_folder(folder.parent)
        if stat.S_IMODE(folder.stat().st_mode) != PRIVATE_FOLDER:
            folder.chmod(PRIVATE_FOLDER)
    except OSError as err:
        raise VaultError(f"{folder}: the face memory cannot be kept here ({err.strerror})") from err


def mark_as_cache(folder: Path) -> None:
    """Ask backup programs to leave a folder out."""
    tag = folder / "CACHEDIR.TAG"
    if not tag.exists():
        tag.write_bytes(CACHE_TAG)
        tag.chmod(PRIVATE_FILE)


class Lock:
    """The right to write to a vault, held by one process at a time and let go by the system when it dies."""

    def __init__(self, path: Path, folder: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), PRIVATE_FILE)
        try:
            if fcntl is not None:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as err:
            holder = os.pread(self._fd, 20, 0).decode("ascii", "replace").strip()
            os.close(self._fd)
            raise VaultLockedError(
                f"{folder}: process {holder or 'unknown'} writes to this face memory; "
                "wait until it is done, or stop it, and try again"
            ) from err
        os.ftruncate(self._fd, 0)
        os.pwrite(self._fd, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Let the next process write."""
        with contextlib.suppress(OSError):
            os.close(self._fd)


class Ballast:
    """A file of no use but its size: dropped when the disk is full, so that a forget can still be noted."""

    def __init__(self, path: Path, size: int = BALLAST_BYTES) -> None:
        self._path, self._size = path, size

    def load(self) -> bool:
        """Take the space if there is some; whether it is held."""
        try:
            with _made(self._path) as fd:
                if os.fstat(fd).st_size >= self._size:
                    return True
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(fd, 0, self._size)
                else:
                    os.write(fd, bytes(self._size))
        except OSError:
            self.drop()
            return False
        return True

    def drop(self) -> None:
        """Give the space back."""
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)


def forbid_core_dumps() -> None:
    """A crash must not write keys and faces to disk."""
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


def folder_bytes(folder: Path) -> int:
    """Bytes that the files of a folder take on the disk."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            total += getattr(status, "st_blocks", status.st_size // 512) * 512
    return total


@contextlib.contextmanager
def _made(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), PRIVATE_FILE)
    try:
        yield fd
    finally:
        os.close(fd)
