from pathlib import Path

import pytest

from edge.settings import Settings, load, settings_file
from shared.config import Flag
from shared.errors import ConfigError


@pytest.fixture(autouse=True)
def no_settings_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the settings of whoever runs the tests out."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_without_anything_the_modules_defaults_apply() -> None:
    assert load({}).values == Settings()


def test_every_section_can_be_set_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "my.toml"
    file.write_text(
        """
        [runtime]
        intra_op_threads = 2
        [detection]
        min_confidence = 0.7
        [tracking]
        lost_s = 1
        [selection]
        faces = "largest"
        [fusion]
        tier = "fast"
        [output]
        quality = 60
        [cache]
        enabled = false
        """
    )
    settings = load({"LETHE_CONFIG": str(file)}).values
    assert settings.runtime.intra_op_threads == 2
    assert settings.detection.min_confidence == 0.7
    assert settings.tracking.lost_s == 1.0
    assert settings.selection.faces == "largest"
    assert settings.fusion.tier == "fast"
    assert settings.output.quality == 60
    assert settings.cache.enabled is False


def test_the_default_place_of_the_file_is_read_if_it_is_there() -> None:
    file = settings_file({})
    assert not file.exists()
    file.parent.mkdir(parents=True)
    file.write_text("[output]\nquality = 60\n")
    assert load({}).origins["output.quality"] == f"file {file}"


def test_a_file_asked_for_by_name_must_be_there() -> None:
    with pytest.raises(ConfigError, match=r"settings file none\.toml cannot be read"):
        load({"LETHE_CONFIG": "none.toml"})


def test_flags_are_named_in_their_origin() -> None:
    loaded = load({}, {"fusion.tier": Flag("--tier", "fast")})
    assert loaded.origins["fusion.tier"] == "flag --tier"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LETHE_FUSION_TEIR", "fast", r"did you mean LETHE_FUSION_TIER\?"),
        ("LETHE_FUSION_TIER", "best", "must be 'quality', 'balanced' or 'fast'"),
        ("LETHE_FUSION_SHAPE_STRENGTH", "9", "shape_strength must be"),
        ("LETHE_OUTPUT_CODEC", "divx", "codec must be one of auto, h264"),
        ("LETHE_OUTPUT_QUALITY", "101", "quality must lie between 0 and 100"),
        ("LETHE_SELECTION_MATCH_THRESHOLD", "7", "between -1 and 1"),
        ("LETHE_CACHE_ENABLED", "perhaps", "must be a valid boolean"),
        ("LETHE_DETECTION_MIN_CONFIDENCE", "nan", "must be a finite number"),
    ],
)
def test_a_setting_that_will_not_do_is_refused_by_its_name(name: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        load({name: value})
    assert name in str(caught.value)
