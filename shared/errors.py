"""The exceptions of Lethe, and the exit code each one means on the command line.

::

    FaceFusionError                 1  failed
     ├─ UsageError                  2  the request itself is wrong
     │   ├─ ConfigError             2  a settings file, variable or flag
     │   └─ SourceError             2  a source photo that cannot serve
     ├─ PolicyError                 3  refused by a rule or for want of consent
     ├─ MediaError                  1
     │   ├─ InputError              1  an input cannot be read
     │   └─ OutputError             1  an output cannot be written
     ├─ ModelError                  1
     │   └─ ProviderError           1  an execution provider asked for did not load
     ├─ VaultError                  1  the face memory could not be read or written
     │   ├─ VaultIntegrityError     1  something in it is not what was written
     │   ├─ VaultLockedError        1  another process writes to it
     │   ├─ VaultMissingError       1  there is no such vault or record
     │   └─ VaultKeyError           2  the passphrase or the key does not open it
     ├─ InterruptedJobError         4  stopped by the user; nothing half-written is left
     └─ SomeInputsFailedError       5  the rest of the batch is done

Messages are one line, name the thing at fault and say what to do. They never hold an embedding, a crop,
a key or the name of a person.
"""

from pathlib import Path
from typing import ClassVar


class FaceFusionError(Exception):
    """Anything Lethe raises on purpose."""

    exit_code: ClassVar[int] = 1


class UsageError(FaceFusionError):
    """The request itself is wrong: nothing was tried."""

    exit_code = 2


class ConfigError(UsageError):
    """A settings file, an environment variable or a flag holds something we cannot take."""


class SourceError(UsageError):
    """A source photo cannot serve as a source: no face, several faces, or too poor.

    Attributes:
        path: The photo at fault, if it came from a file.
    """

    def __init__(self, message: str, *, path: Path | None = None) -> None:
        super().__init__(message)
        self.path = path


class PolicyError(FaceFusionError):
    """Refused by a rule or for want of consent."""

    exit_code = 3


class MediaError(FaceFusionError):
    """A picture, a video or a sound track could not be read or written.

    Attributes:
        path: The file at fault.
        reason: What is wrong with it, as one clause.
    """

    def __init__(self, path: Path | str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = Path(path)
        self.reason = reason


class InputError(MediaError):
    """An input cannot be read."""


class OutputError(MediaError):
    """An output cannot be written; what was there before is untouched."""


class ModelError(FaceFusionError):
    """A model is missing, damaged or not what its card says."""


class ProviderError(ModelError):
    """An execution provider that was asked for did not load.

    Attributes:
        provider: The one asked for.
        available: What this machine offers.
    """

    def __init__(self, message: str, *, provider: str, available: tuple[str, ...]) -> None:
        super().__init__(message)
        self.provider = provider
        self.available = available


class VaultError(FaceFusionError):
    """The face memory could not be read or written."""


class VaultIntegrityError(VaultError):
    """A file, table or record of the face memory is damaged, moved, put back from a copy or not ours."""


class VaultLockedError(VaultError):
    """Another process writes to the face memory."""


class VaultMissingError(VaultError):
    """There is no vault in the folder, or no such record in the vault."""


class VaultKeyError(VaultError):
    """The passphrase, key file or keyring entry does not open the face memory."""

    exit_code = 2


class InterruptedJobError(FaceFusionError):
    """The user stopped the job. Finished outputs stay, the open one is removed."""

    exit_code = 4


class SomeInputsFailedError(FaceFusionError):
    """Some inputs of a batch failed; the others are done.

    Attributes:
        failed: How many failed.
        total: How many there were.
    """

    exit_code = 5

    def __init__(self, *, failed: int, total: int) -> None:
        super().__init__(f"{failed} of {total} inputs failed; the others are done")
        self.failed = failed
        self.total = total
