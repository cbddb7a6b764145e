from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.config import Flag, Loaded, load_settings
from shared.errors import ConfigError
from shared.ort import RuntimeConfig


@dataclass(frozen=True, slots=True)
class EngineConfig:
    tier: Literal["quality", "fast"] = "quality"
    strength: float = 1.0
    limit: int | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.strength <= 1.25:
            raise ValueError(f"strength must be in 0..1.25, not {self.strength}")


@dataclass(frozen=True)
class Schema:
    runtime: RuntimeConfig = field(default_factory=RuntimeConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)


def load(
    tmp_path: Path,
    toml: str | None = None,
    environ: dict[str, str] | None = None,
    flags: dict[str, Flag] | None = None,
) -> Loaded[Schema]:
    file = None
    if toml is not None:
        file = tmp_path / "config.toml"
        file.write_text(toml, encoding="utf-8")
    return load_settings(
        Schema, file=file, environ=environ or {}, flags=flags or {}, not_settings=("LETHE_CONFIG",)
    )


def test_without_file_environment_and_flags_everything_is_default(tmp_path: Path) -> None:
    loaded = load(tmp_path)
    assert loaded.values == Schema()
    assert set(loaded.origins.values()) == {"default"}


def test_flags_win_over_the_environment_and_the_environment_over_the_file(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        "[engine]\nstrength = 0.1\ntier = 'fast'\nlimit = 7\n",
        {"LETHE_ENGINE_STRENGTH": "0.2", "LETHE_ENGINE_LIMIT": "8"},
        {"engine.strength": Flag("--strength", 0.3)},
    )
    assert loaded.values.engine == EngineConfig("fast", 0.3, 8)
    assert loaded.origins["engine.strength"] == "flag --strength"
    assert loaded.origins["engine.limit"] == "environment LETHE_ENGINE_LIMIT"
    assert loaded.origins["engine.tier"] == f"file {tmp_path / 'config.toml'}"
    assert loaded.origins["runtime.providers"] == "default"


def test_a_flag_left_out_leaves_the_setting_alone(tmp_path: Path) -> None:
    loaded = load(tmp_path, flags={"engine.strength": Flag("--strength", None)})
    assert loaded.origins["engine.strength"] == "default"


def test_effective_is_plain_data_with_origins(tmp_path: Path) -> None:
    effective = load(tmp_path, environ={"LETHE_RUNTIME_INTRA_OP_THREADS": "2"}).effective()
    assert effective["runtime.providers"] == {"value": ["CPUExecutionProvider"], "origin": "default"}
    assert effective["runtime.intra_op_threads"] == {
        "value": 2,
        "origin": "environment LETHE_RUNTIME_INTRA_OP_THREADS",
    }


def test_lists_come_as_toml_arrays_and_with_commas_in_variables(tmp_path: Path) -> None:
    expected = ("CUDAExecutionProvider", "CPUExecutionProvider")
    toml = load(tmp_path, '[runtime]\nproviders = ["CUDAExecutionProvider", "CPUExecutionProvider"]')
    environ = {"LETHE_RUNTIME_PROVIDERS": "CUDAExecutionProvider, CPUExecutionProvider"}
    assert toml.values.runtime.providers == expected
    assert load(tmp_path, environ=environ).values.runtime.providers == expected


def test_other_variables_are_not_settings(tmp_path: Path) -> None:
    loaded = load(tmp_path, environ={"LETHE_CONFIG": "x", "HOME": "/", "ENGINE_TIER": "fast"})
    assert loaded.values == Schema()


@pytest.mark.parametrize(
    ("toml", "message"),
    [
        ("[engin]\n", r"unknown section \[engin\]; did you mean engine\?"),
        ("[zzz]\n", r"unknown section \[zzz\]; there are engine, runtime"),
        ("[engine]\nteir = 'fast'\n", r"unknown key engine.teir; did you mean engine.tier\?"),
        ("engine = 3\n", r"engine is a section: write \[engine\]"),
        ("[engine\n", "is not valid TOML"),
        ("[engine]\nstrength = 'much'\n", r"engine.strength = \"much\" \(file .*\): must be a valid number"),
        ("[engine]\nstrength = 3\n", r"engine.strength = 3 \(file .*\): strength must be in 0..1.25"),
        ("[engine]\nstrength = nan\n", r"engine.strength = NaN \(file .*\): must be a finite number"),
        ("[engine]\ntier = 'best'\n", r"engine.tier = \"best\" .*: must be 'quality' or 'fast'"),
        ("[engine]\nlimit = '2'\n", r"engine.limit = \"2\" .*: must be a valid integer"),
        ("[runtime]\nproviders = [1]\n", r"runtime.providers\[0\] = \[1\] .*: must be a valid string"),
        ("[runtime]\nproviders = []\n", r"runtime.providers = \[\] .*: providers must name at least one"),
    ],
)
def test_a_bad_file_is_refused_with_key_value_origin_and_what_is_allowed(
    tmp_path: Path, toml: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load(tmp_path, toml)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LETHE_ENGINE_TEIR", "fast", r"unknown environment variable LETHE_ENGINE_TEIR; did you mean "),
        ("LETHE_CONFG", "x", "did you mean LETHE_CONFIG"),
        ("LETHE_X", "x", "unknown environment variable LETHE_X; settings are called LETHE_<SECTION>_<KEY>"),
        (
            "LETHE_ENGINE_LIMIT",
            "two",
            r"engine.limit = \"two\" \(environment LETHE_ENGINE_LIMIT\): must be a valid integer",
        ),
    ],
)
def test_a_bad_variable_is_refused(tmp_path: Path, name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load(tmp_path, environ={name: value})


def test_a_bad_flag_is_named_as_the_user_typed_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"engine.tier = \"x\" \(flag --tier\): must be 'quality' or"):
        load(tmp_path, flags={"engine.tier": Flag("--tier", "x")})


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_settings(Schema, file=tmp_path / "none.toml", environ={}, flags={})


def test_a_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        load_settings(Schema, file=file, environ={}, flags={})


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=8), max_size=3))
def test_whatever_the_environment_holds_only_config_errors_escape(environ: dict[str, str]) -> None:
    prefixed = {f"LETHE_{name}": value for name, value in environ.items()}
    with pytest.raises(ConfigError) if prefixed else nullcontext():
        load_settings(Schema, file=None, environ=prefixed, flags={})
