"""All settings of the edge, and where they lie on this machine.

A section is the very configuration a module takes, so what can be set is documented where it is used.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from platformdirs import user_config_path

from edge.detector import DetectorConfig
from edge.memory.settings import SECRET_VARIABLES, MemorySettings
from edge.selection import SelectionConfig
from edge.tracker import TrackerConfig
from edge.video.containers import CODECS
from shared.commandline import DEBUG_VARIABLE
from shared.config import Flag, Loaded, load_settings
from shared.mesh.engine import MeshConfig
from shared.ort import RuntimeConfig

FILE_VARIABLE = "LETHE_CONFIG"

# These begin like settings and are none; the last one is for our tests.
_NOT_SETTINGS = (FILE_VARIABLE, DEBUG_VARIABLE, *SECRET_VARIABLES, "LETHE_TEST_MEDIA")


@dataclass(frozen=True, slots=True)
class OutputConfig:
    """How outputs are encoded.

    Attributes:
        codec: Video codec; ``auto`` chooses what suits the input and the container.
        quality: 0 (small) to 100 (finest); None picks what the eye cannot tell from the input.
    """

    codec: str = "auto"
    quality: int | None = None

    def __post_init__(self) -> None:
        if self.codec not in CODECS:
            raise ValueError(f"codec must be one of {', '.join(CODECS)}")
        if self.quality is not None and not 0 <= self.quality <= 100:
            raise ValueError(f"quality must lie between 0 and 100, not {self.quality}")


@dataclass(frozen=True, slots=True)
class CacheConfig:
    """What is remembered while a job runs.

    Attributes:
        enabled: False computes everything anew, to measure what the caches gain.
    """

    enabled: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that can be set.

    Attributes:
        runtime: How networks are run.
        detection: What counts as a face.
        tracking: How faces are followed from frame to frame.
        selection: Which faces are fused.
        fusion: How the mesh engine fuses.
        output: How outputs are encoded.
        cache: What is remembered while a job runs.
        memory: What is remembered of faces beyond a job.
    """

    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    detection: DetectorConfig = field(default_factory=DetectorConfig)
    tracking: TrackerConfig = field(default_factory=TrackerConfig)
    selection: SelectionConfig = field(default_factory=SelectionConfig)
    fusion: MeshConfig = field(default_factory=MeshConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    memory: MemorySettings = field(default_factory=MemorySettings)


def default_settings_file() -> Path:
    """Where the settings file lies unless ``LETHE_CONFIG`` says otherwise; it need not exist."""
    return user_config_path("lethe") / "config.toml"


def settings_file(environ: Mapping[str, str]) -> Path:
    """The settings file in force; it need not exist."""
    named = environ.get(FILE_VARIABLE)
    return Path(named) if named else default_settings_file()


def load(environ: Mapping[str, str], flags: Mapping[str, Flag] | None = None) -> Loaded[Settings]:
    """Read the settings from file, environment and flags.

    Args:
        environ: For example ``os.environ``.
        flags: By ``section.key``.

    Raises:
        ConfigError: If something in them will not do, or ``LETHE_CONFIG`` names a file that is not there.
    """
    file = settings_file(environ)
    is_named = bool(environ.get(FILE_VARIABLE))
    return load_settings(
        Settings,
        file=file if is_named or file.exists() else None,
        environ=environ,
        flags=flags or {},
        not_settings=_NOT_SETTINGS,
    )
