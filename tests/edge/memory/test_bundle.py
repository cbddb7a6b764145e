"""Bundles: sealed, checked, and nothing in them that is not meant to travel."""

import os
import stat
from pathlib import Path

import pytest

from edge.memory.bundle import Bundle, BundledPerson, read_bundle, write_bundle
from shared.errors import InputError, UsageError

pyrage = pytest.importorskip("pyrage", reason='the extra "age" is not installed')

BUNDLE = Bundle(
    (BundledPerson(bytes(range(16)), b"a canary of a record"),), frozenset({b"stone" * 6}), b"k" * 32, 1.5e9
)


def test_a_bundle_comes_back_as_it_was_with_the_key_made_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "people.age"

    key_file = write_bundle(file, BUNDLE)

    assert key_file == tmp_path / "people.age.key"
    assert read_bundle(file, identity=key_file) == BUNDLE


@pytest.mark.skipif(os.name == "nt", reason="permissions are a matter of POSIX")
def test_bundle_and_key_are_for_the_user_alone_and_say_nothing_in_clear(tmp_path: Path) -> None:
    key_file = write_bundle(tmp_path / "people.age", BUNDLE)
    assert key_file is not None
    for file in (key_file, tmp_path / "people.age"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert b"canary" not in file.read_bytes()


def test_only_whom_it_is_for_can_open_a_bundle(tmp_path: Path) -> None:
    mine, other = pyrage.x25519.Identity.generate(), pyrage.x25519.Identity.generate()
    file = tmp_path / "people.age"
    (tmp_path / "mine").write_text(f"# a comment\n{mine}\n")
    (tmp_path / "other").write_text(str(other))

    assert write_bundle(file, BUNDLE, recipients=[str(mine.to_public())]) is None

    assert read_bundle(file, identity=tmp_path / "mine") == BUNDLE
    with pytest.raises(InputError, match="does not open"):
        read_bundle(file, identity=tmp_path / "other")


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "people.age"
    file.write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        write_bundle(file, BUNDLE)
    assert file.read_text() == "mine"
    (tmp_path / "new.age.key").write_text("mine")
    with pytest.raises(UsageError, match="exists already"):
        write_bundle(tmp_path / "new.age", BUNDLE)
    assert not (tmp_path / "new.age").exists()


@pytest.mark.parametrize("text", ["age1nonsense", "ssh-ed25519 nonsense", ""])
def test_a_recipient_that_is_no_key_is_refused_before_anything_is_written(tmp_path: Path, text: str) -> None:
    with pytest.raises(UsageError, match="--recipient"):
        write_bundle(tmp_path / "people.age", BUNDLE, recipients=[text])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", ["", "# nothing\n", "AGE-SECRET-KEY-1NONSENSE", "-----BEGIN NONSENSE"])
def test_an_identity_without_a_key_is_refused(tmp_path: Path, content: str) -> None:
    write_bundle(tmp_path / "people.age", BUNDLE)
    (tmp_path / "key").write_text(content)
    with pytest.raises(UsageError, match="--identity"):
        read_bundle(tmp_path / "people.age", identity=tmp_path / "key")


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"[]",
        b"{}",
        b'{"format": "other", "version": 1}',
        b'{"format": "lethe-memory-bundle", "version": 1, "people": [{"id": "00", "record": ""}],'
        b' "tombstones": [], "sync_key": "", "made_at_s": 1}',
        b'{"format": "lethe-memory-bundle", "version": 1, "people": [], "tombstones": ["!"],'
        b' "sync_key": "", "made_at_s": 1}',
        b'{"format": "lethe-memory-bundle", "version": 9}',
        b"[" * 100_000,
    ],
)
def test_what_opens_and_is_no_bundle_is_refused(tmp_path: Path, plain: bytes) -> None:
    key = pyrage.x25519.Identity.generate()
    (tmp_path / "key").write_text(str(key))
    (tmp_path / "people.age").write_bytes(pyrage.encrypt(plain, [key.to_public()]))
    with pytest.raises(InputError, match=r"no bundle of a face memory|newer Lethe"):
        read_bundle(tmp_path / "people.age", identity=tmp_path / "key")


def test_a_bundle_that_was_changed_or_cut_does_not_open(tmp_path: Path) -> None:
    file = tmp_path / "people.age"
    key_file = write_bundle(file, BUNDLE)
    whole = file.read_bytes()
    for broken in (whole[:-1], whole[:50], whole[:-1] + bytes([whole[-1] ^ 1]), b""):
        file.write_bytes(broken)
        with pytest.raises(InputError, match="does not open"):
            read_bundle(file, identity=key_file)


def test_a_bundle_that_is_not_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(str(pyrage.x25519.Identity.generate()))
    with pytest.raises(InputError, match=r"none\.age"):
        read_bundle(tmp_path / "none.age", identity=tmp_path / "key")


@pytest.mark.slow
def test_a_passphrase_opens_a_bundle(tmp_path: Path) -> None:
    file = tmp_path / "people.age"
    assert write_bundle(file, BUNDLE, passphrase="correct horse") is None
    assert read_bundle(file, passphrase="correct horse") == BUNDLE
    with pytest.raises(InputError, match="wrong passphrase"):
        read_bundle(file, passphrase="wrong horse")
