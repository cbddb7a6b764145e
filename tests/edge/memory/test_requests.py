"""A command has a running job forget people."""

import json
import stat
import threading
from pathlib import Path

import pytest

from edge.memory import FaceMemory
from edge.memory.requests import RequestWatch, answer_requests, ask_to_forget, requests_folder
from shared.errors import VaultError, VaultLockedError
from tests.edge.memory.conftest import Home, face

WHO = bytes(range(16))


def test_a_job_answers_when_the_forget_is_final(tmp_path: Path) -> None:
    asked: list[frozenset[bytes]] = []
    watch = RequestWatch(tmp_path, lambda people: asked.append(people) or {"people": len(people)})
    watch.start()
    try:
        assert ask_to_forget(tmp_path, [WHO]) == {"people": 1}
    finally:
        watch.stop()
    assert asked == [frozenset({WHO})]
    assert list(requests_folder(tmp_path).iterdir()) == []


def test_a_note_that_nobody_answers_stays_and_is_done_later(tmp_path: Path) -> None:
    with pytest.raises(VaultLockedError, match="nobody is forgotten yet"):
        ask_to_forget(tmp_path, [WHO], patience_s=0.1)
    (note,) = requests_folder(tmp_path).iterdir()
    assert stat.S_IMODE(note.stat().st_mode) == 0o600
    assert json.loads(note.read_text()) == [WHO.hex()]

    asked: list[frozenset[bytes]] = []
    answer_requests(tmp_path, lambda people: asked.append(people) or {})

    assert asked == [frozenset({WHO})]


def test_a_forget_that_fails_is_tried_again(tmp_path: Path) -> None:
    def fail(people: frozenset[bytes]) -> dict[str, int]:
        raise VaultError("the disk is full")

    with pytest.raises(VaultLockedError):
        ask_to_forget(tmp_path, [WHO], patience_s=0.1)
    with pytest.raises(VaultError, match="full"):
        answer_requests(tmp_path, fail)
    assert len(list(requests_folder(tmp_path).glob("*.forget"))) == 1


@pytest.mark.parametrize("content", ["", "{", "[1]", '["00"]', "7", '["zz"]'])
def test_what_is_no_note_is_removed(tmp_path: Path, content: str) -> None:
    requests_folder(tmp_path).mkdir()
    (requests_folder(tmp_path) / "a.forget").write_text(content)
    answer_requests(tmp_path, lambda people: pytest.fail("asked for nobody"))
    assert list(requests_folder(tmp_path).iterdir()) == []


def test_who_is_forgotten_by_a_command_is_unknown_to_the_running_job_at_once(home: Home) -> None:
    job = home.open()
    who = job.remember("Anna", face(1), yaw_deg=0, pitch_deg=0, quality=1)
    told: list[frozenset[bytes]] = []
    job.register_purger(told.append)

    done = ask_to_forget(home.folder, [who])

    assert (done["people"], told) == (1, [frozenset({who})])
    assert job.recognise(face(1)) is None
    home.close()
    assert all(thread.name != "lethe-memory-requests" for thread in threading.enumerate())


def test_a_note_left_behind_is_done_by_whoever_writes_next(home: Home) -> None:
    who = home.open().remember("Anna", face(1), yaw_deg=0, pitch_deg=0, quality=1)
    home.close()
    with pytest.raises(VaultLockedError):
        ask_to_forget(home.folder, [who], patience_s=0.1)

    with FaceMemory.manage(home.settings(), notify=print, writer=False) as memory:
        assert len(memory.people()) == 1
    with FaceMemory.manage(home.settings(), notify=print, writer=True) as memory:
        assert memory.people() == []
