import hashlib
from pathlib import Path

import pytest

from shared import models
from shared.errors import ModelError
from shared.models import ModelCard, model_card, packaged_models, weights_path


def test_every_packaged_model_is_there_with_the_hash_of_its_card() -> None:
    assert packaged_models()
    for card in packaged_models().values():
        card.verify()


def test_every_card_says_where_from_and_under_which_terms() -> None:
    for card in packaged_models().values():
        assert card.name
        assert card.task
        assert card.source
        assert card.licence
        assert card.contract


def test_everything_in_the_package_may_be_used_by_a_business() -> None:
    assert all(card.commercial for card in packaged_models().values())


def test_every_network_in_the_package_has_a_card() -> None:
    on_disk = {path.name for path in models.WEIGHTS_DIR.glob("*.onnx")}
    assert on_disk == {c.file for c in packaged_models().values() if c.file.endswith(".onnx")}


def test_a_name_nobody_knows_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ModelError, match=r"no model is called 'yolo'; there are .*mobilefacenet192"):
        model_card("yolo")


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModelCard:
    """A model of six bytes in a folder of its own."""
    monkeypatch.setattr(models, "WEIGHTS_DIR", tmp_path)
    card = ModelCard(
        "tiny", "detector", "tiny.onnx", 6, hashlib.sha256(b"abcdef").hexdigest(), "here", "MIT", True, "none"
    )
    card.path.write_bytes(b"abcdef")
    monkeypatch.setattr(models, "packaged_models", lambda: {"tiny": card})
    return card


def test_a_whole_model_passes(card: ModelCard, tmp_path: Path) -> None:
    card.verify()
    assert weights_path("tiny") == tmp_path / "tiny.onnx"


def test_a_model_that_is_missing_is_named(card: ModelCard) -> None:
    card.path.unlink()
    with pytest.raises(ModelError, match=r"model tiny is missing \(tiny.onnx\): reinstall lethe"):
        card.verify()
    with pytest.raises(ModelError, match=r"model tiny is missing \(tiny.onnx\): reinstall lethe"):
        weights_path("tiny")


def test_a_model_that_is_cut_short_is_noticed_without_reading_it(card: ModelCard) -> None:
    card.path.write_bytes(b"abc")
    with pytest.raises(ModelError, match=r"model tiny is damaged \(3 bytes, not 6\): reinstall lethe"):
        weights_path("tiny")
    with pytest.raises(ModelError, match=r"3 bytes, not 6"):
        card.verify()


def test_a_model_with_one_wrong_byte_does_not_verify(card: ModelCard) -> None:
    card.path.write_bytes(b"abcdeF")
    with pytest.raises(ModelError, match=r"model tiny is damaged \(wrong SHA-256\)"):
        card.verify()
