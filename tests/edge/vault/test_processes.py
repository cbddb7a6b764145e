"""One process writes, others read; a process that is killed loses nothing that it had acknowledged."""

import contextlib
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from edge.vault import Kind, Vault
from shared.errors import VaultError, VaultLockedError
from tests.edge.vault.tools import ALLOWED, enrol, open_vault, payloads

REPOSITORY = Path(__file__).resolve().parents[3]


def _read_on_demand(folder: Path, pipe: Connection) -> None:
    """Answers each message with what a reader sees, or with the name of the error."""
    with open_vault(folder, writer=False) as vault:
        while pipe.recv():
            pipe.send((payloads(vault), vault.status().generation))


def _try_to_write(folder: Path, pipe: Connection) -> None:
    try:
        open_vault(folder).close()
        pipe.send("")
    except VaultLockedError as err:
        pipe.send(str(err))


@contextlib.contextmanager
def _spawned(work: object, folder: Path) -> Iterator[Connection]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=work, args=(folder, theirs))  # type: ignore[arg-type]
    process.start()
    yield ours
    with contextlib.suppress(OSError):
        ours.send(False)
    process.join(20)
    assert process.exitcode == 0
    process.close()
    ours.close()
    theirs.close()


def _ask(pipe: Connection) -> tuple[set[bytes], int]:
    pipe.send(True)
    assert pipe.poll(20)
    answer: tuple[set[bytes], int] = pipe.recv()
    return answer


def test_a_reader_follows_what_the_writer_commits(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory") as vault:
        first = enrol(vault, b"first")
        with _spawned(_read_on_demand, vault.folder) as reader:
            assert _ask(reader) == ({b"first"}, 1)
            second = enrol(vault, b"second")
            assert _ask(reader) == ({b"first", b"second"}, 1)
            vault.forget([first])
            assert _ask(reader) == ({b"second"}, 2)
            vault.new_owners(300)
            vault.put(ALLOWED, Kind.PERSON, second, [second], b"second, later")
            assert _ask(reader)[0] == {b"second, later"}


def test_a_second_writer_is_told_who_writes_and_what_to_do(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory"), _spawned(_try_to_write, tmp_path / "memory") as other:
        assert other.poll(20)
        message = other.recv()

    assert f"process {os.getpid()} writes" in message
    assert "try again" in message
    open_vault(tmp_path / "memory").close()


def test_one_process_opens_a_vault_once(tmp_path: Path) -> None:
    with open_vault(tmp_path / "memory"):
        with pytest.raises(VaultLockedError):
            open_vault(tmp_path / "memory")
        with pytest.raises(VaultLockedError, match="open already"):
            open_vault(tmp_path / "memory", writer=False)


def test_a_reader_cannot_write(tmp_path: Path) -> None:
    open_vault(tmp_path / "memory").close()
    with open_vault(tmp_path / "memory", writer=False) as vault:
        for write in (vault.new_owner, vault.maintenance, vault.forget_all):
            with pytest.raises(VaultError, match="reading only"):
                write()  # type: ignore[operator]


def _kill_while_writing(folder: Path, after_s: float) -> list[tuple[str, str]]:
    """Events that a writer had reported when it was killed."""
    command = [sys.executable, "-m", "tests.edge.vault.writer", str(folder), "100000"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        lines = process.stdout.read().splitlines()
    whole = [line.split() for line in lines]
    return [(line[0], line[1]) for line in whole if len(line) == 2 and len(line[1]) == 32]


def _check(vault: Vault, events: list[tuple[str, str]]) -> None:
    present = {record_id.hex() for record_id, _, _ in vault.iterate(Kind.PERSON)}
    enrolled = {who for what, who in events if what == "enrolled"}
    maybe = {who for what, who in events if what == "forgetting"}
    forgotten = {who for what, who in events if what == "forgotten"}
    assert enrolled - maybe <= present
    assert present & forgotten == set()
    assert all(vault.is_forgotten(bytes.fromhex(who)) for who in forgotten)


def _kills(folder: Path, count: int) -> None:
    rng, events = random.Random(0), []
    for _ in range(count):
        events += _kill_while_writing(folder, rng.uniform(0.0, 0.15))
        with open_vault(folder) as vault:
            _check(vault, events)
    assert any(what == "forgotten" for what, _ in events)
    with open_vault(folder) as vault:
        vault.maintenance()
        assert vault.verify_forget().clean
        assert vault.status().keys == vault.status().people


def test_a_killed_writer_loses_nothing_it_had_acknowledged(tmp_path: Path) -> None:
    _kills(tmp_path / "memory", 4)


@pytest.mark.slow
def test_fifty_kills_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    _kills(tmp_path / "memory", 50)
