"""``lethe memory``: every verb as a user types it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edge.cli.app import app
from shared.commandline import run_app
from tests.cli.conftest import Run, environment

VERBS = (
    *("list", "show", "enroll", "rename", "forget", "pin", "unpin", "never", "allow"),
    *("export", "import", "status", "verify-forget", "audit", "rekey"),
)


@pytest.fixture
def lethe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Like the fixture of that name, but in this process, for there are many runs."""
    for name in [name for name in os.environ if name.startswith("LETHE_")]:
        monkeypatch.delenv(name)
    for name, value in environment(tmp_path).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def run(*arguments: object, **extra: str) -> subprocess.CompletedProcess[str]:
        with monkeypatch.context() as patch:
            for name, value in extra.items():
                patch.setenv(name, value)
            code = run_app(app, "lethe", [str(each) for each in arguments])
        stdout, stderr = capfd.readouterr()
        return subprocess.CompletedProcess(arguments, code, stdout, stderr)

    return run


@pytest.fixture
def known(lethe: Run, samples: Path) -> Run:
    """Runs ``lethe`` where the man of ``single_face.jpg`` is remembered as Ben."""
    done = lethe("memory", "enroll", "--name", "Ben", samples / "single_face.jpg")
    assert done.returncode == 0, done.stderr
    return lethe


def json_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def people(lethe: Run) -> list[str | None]:
    return [person["name"] for person in json_of(lethe("memory", "list", "--json"))["people"]]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example_and_json(lethe: Run, verb: str) -> None:
    done = lethe("memory", verb, "--help")
    assert done.returncode == 0
    assert f"lethe memory {verb}" in done.stdout.split("Example")[1]
    assert "--json" in done.stdout


def test_looking_at_a_memory_that_is_not_there_makes_none(lethe: Run, tmp_path: Path) -> None:
    assert lethe("memory", "list").stdout == "nobody is remembered\n"
    assert json_of(lethe("memory", "status", "--json"))["exists"] is False
    assert json_of(lethe("memory", "audit", "--json")) == {"entries": []}
    assert lethe("memory", "never").stdout == "no rules\n"
    assert list(tmp_path.iterdir()) == []


def test_a_person_is_enrolled_shown_renamed_pinned_and_forgotten(known: Run, tmp_path: Path) -> None:
    (person,) = json_of(known("memory", "list", "--json"))["people"]
    assert person["name"] == "Ben"
    assert person["views"] == 1
    assert person["consent"]["scope"] == "fusion"
    listed = known("memory", "list").stdout
    assert listed.splitlines()[1].split()[:3] == ["Ben", person["id"][:8], "enrolled"]

    assert known("memory", "rename", "ben", "Benedict").stdout == "Benedict: renamed\n"
    assert known("memory", "pin", person["id"][:8]).stdout == "Benedict: pinned\n"
    shown = json_of(known("memory", "show", "Benedict", "--json"))
    assert (shown["pinned"], shown["expires"]) == (True, None)
    assert "single_face.jpg" in known("memory", "show", "Benedict").stdout
    assert known("memory", "unpin", "Benedict").returncode == 0

    done = known("memory", "forget", "Benedict")
    assert done.returncode == 2
    assert "--yes" in done.stderr
    done = known("memory", "forget", "Benedict", "--yes")
    assert (done.returncode, done.stdout) == (0, "forgotten: 1 person, 2 records (level L0)\n") or (
        "L0-" in done.stdout
    )
    assert people(known) == []
    found = json_of(known("memory", "verify-forget", "--json"))
    assert found["clean"] is True
    assert found["records"] > 0
    actions = [entry["action"] for entry in json_of(known("memory", "audit", "--json"))["entries"]]
    assert actions == ["forget", "unpin", "pin", "rename", "enrol"]
    assert "Benedict" not in known("memory", "audit").stdout


def test_the_first_enrolment_says_where_the_memory_is(lethe: Run, samples: Path, tmp_path: Path) -> None:
    done = lethe("memory", "enroll", "--name", "Ben", samples / "single_face.jpg", "--json")
    assert json_of(done)["person"]["name"] == "Ben"
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"note: the face memory is made in {tmp_path / '.data' / 'lethe' / 'memory'}")
    assert "key file" in line


def test_no_picture_is_kept(known: Run, samples: Path, tmp_path: Path) -> None:
    photo = (samples / "single_face.jpg").read_bytes()
    files = [path for path in (tmp_path / ".data").rglob("*") if path.is_file()]
    for path in files:
        data = path.read_bytes()
        assert b"\xff\xd8\xff" not in data[:3]
        assert photo[1000:1064] not in data
        assert b"Ben" not in data
        assert b"single_face" not in data


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Usage"),
        (["--name", "Anna"], "--from FOLDER"),
        (["multi_face.jpg"], "--name"),
        (["--name", "Anna", "multi_face.jpg"], "shows 5 faces; say which with --face N"),
        (["--name", "Anna", "multi_face.jpg", "--face", "9"], "no such face"),
        (["--name", "Anna", "none.jpg"], "none.jpg"),
        (["--name", "Anna", "multi_face.jpg", "--face", "1", "--scope", "all"], "scope"),
        (["--name", "Anna", "multi_face.jpg", "--consent-until", "soon"], "--consent-until"),
        (["--from", ".", "--name", "Anna"], "leave out --name"),
    ],
)
def test_an_enrolment_that_cannot_be_is_one_line_and_exit_2(
    lethe: Run, samples: Path, tmp_path: Path, arguments: list[str], message: str
) -> None:
    shutil.copy(samples / "multi_face.jpg", tmp_path)
    done = lethe("memory", "enroll", *arguments)
    assert done.returncode == 2
    assert message in done.stdout + done.stderr
    assert not (tmp_path / ".data").exists()


def test_a_face_of_a_group_is_enrolled_and_its_name_is_its_own(known: Run, samples: Path) -> None:
    done = known("memory", "enroll", "--name", "Ben", samples / "multi_face.jpg", "--face", "1")
    assert done.returncode == 2
    assert "somebody else is remembered by this name" in done.stderr
    done = known("memory", "enroll", "--name", "Benjamin", samples / "single_face.jpg")
    assert done.returncode == 2
    assert "remembered already" in done.stderr
    assert people(known) == ["Ben"]


def test_a_folder_is_searched_for_people_and_sub_folders_name_them(
    lethe: Run, samples: Path, tmp_path: Path
) -> None:
    photos = tmp_path / "photos"
    for folder, sample in (("Ben", "single_face.jpg"), ("", "multi_face.jpg")):
        (photos / folder).mkdir(parents=True, exist_ok=True)
        shutil.copy(samples / sample, photos / folder)
    (photos / "broken.jpg").write_bytes(b"\xff\xd8\xff nothing")

    found = json_of(lethe("memory", "enroll", "--from", "photos", "--json"))

    assert found["photos"] == 2
    assert len(found["people"]) == 6
    assert sorted(p["proposal"] or "" for p in found["people"]) == ["", "", "", "", "", "Ben"]
    assert [each["path"] for each in found["unreadable"]] == [str(Path("photos/broken.jpg"))]
    assert not (tmp_path / ".data").exists()
    done = lethe("memory", "enroll", "--from", "photos")
    assert done.returncode == 2
    assert "nobody to ask for names" in done.stderr

    done = lethe("memory", "enroll", "--from", "photos", "--yes")
    assert done.returncode == 0
    assert done.stdout.startswith("Ben: remembered (")
    assert people(lethe) == ["Ben"]
    assert json_of(lethe("memory", "enroll", "--from", "photos", "--json"))["people"] != []


def test_names_are_asked_for_on_a_terminal(samples: Path, tmp_path: Path) -> None:
    pty = pytest.importorskip("pty", reason="needs POSIX terminals")
    shutil.copy(samples / "single_face.jpg", tmp_path)
    inner, outer = pty.openpty()
    command = [sys.executable, "-m", "edge", "memory", "enroll", "--from", "."]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(tmp_path),
        stdin=outer,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as running:
        os.write(inner, b"Ben\n")
        stdout, stderr = running.communicate(timeout=60)
    os.close(inner)
    os.close(outer)
    assert running.returncode == 0, stderr
    assert stdout.lstrip().startswith(b"Ben: remembered (")
    assert b"single_face.jpg (face 1)" in stderr


def test_rules_are_made_listed_and_taken_back(known: Run, tmp_path: Path) -> None:
    made = [
        json_of(known("memory", "never", *arguments.split(), "--json"))["rules"][0]
        for arguments in (
            "--source clinic",
            "--time 22:00-06:00 --days fri,sat --for 30d",
            "--zone 0,0,0.5,1 --source camera:0",
            "--label child",
        )
    ]
    assert [rule["kind"] for rule in made] == ["source", "time", "zone", "label"]
    assert made[0]["source"] == str(tmp_path / "clinic")
    assert made[2]["source"] == "camera:0"
    assert made[1]["expires"] is not None
    assert "anybody from 22:00 to 06:00 on fri,sat" in known("memory", "never").stdout
    assert known("memory", "allow", made[0]["id"]).stdout == "rules taken back: 1\n"
    assert known("memory", "allow", "nonsense").returncode == 2
    assert len(json_of(known("memory", "allow", "--all", "--json"))["removed"]) == 3
    assert known("memory", "never").stdout == "no rules\n"


def test_a_person_who_is_never_to_be_remembered_is_forgotten_and_cannot_be_enrolled(
    known: Run, samples: Path
) -> None:
    photo = samples / "single_face.jpg"
    done = known("memory", "never", "--photo", photo)
    assert done.returncode == 2
    assert "--yes" in done.stderr
    assert json_of(known("memory", "never", "--photo", photo, "--yes", "--json"))["rules"][0].keys() == {
        "id",
        "kind",
        "expires",
    }
    assert people(known) == []
    done = known("memory", "enroll", "--name", "Ben", photo)
    assert done.returncode == 3
    assert "rule" in done.stderr
    assert people(known) == []


@pytest.mark.parametrize(
    "arguments",
    ["--source a --label b", "--days mon", "--face 2", "--time 9-5", "--zone 1,1,0,0", "--for x --label y"],
)
def test_a_rule_that_makes_no_sense_is_refused(lethe: Run, tmp_path: Path, arguments: str) -> None:
    assert lethe("memory", "never", *arguments.split()).returncode == 2
    assert not (tmp_path / ".data").exists()


@pytest.mark.parametrize(
    "arguments", ["", "Ben --all", "--all --source x", "Nobody", "--seen-since tomorrow"]
)
def test_a_forget_of_nobody_in_particular_is_refused(known: Run, arguments: str) -> None:
    done = known("memory", "forget", *arguments.split(), "--yes")
    assert done.returncode == 2
    assert people(known) == ["Ben"]


def test_people_are_forgotten_by_when_and_where_and_all(lethe: Run, samples: Path) -> None:
    # The last two are as alike as some photos of one person.
    for number in (1, 2, 3, 4, 5):
        done = lethe("memory", "enroll", "--name", f"P{number}", samples / "multi_face.jpg", "--face", number)
        assert done.returncode == 0, done.stderr
    assert json_of(lethe("memory", "forget", "--source", "elsewhere", "--yes", "--json"))["people"] == 0
    assert json_of(lethe("memory", "forget", "P1", "P2", "--yes", "--json"))["people"] == 2
    assert lethe("memory", "forget", "--seen-since", "1h", "--yes").returncode == 0
    assert people(lethe) == []
    lethe("memory", "enroll", "--name", "P1", samples / "multi_face.jpg", "--face", "1")
    assert json_of(lethe("memory", "forget", "--all", "--yes", "--json"))["people"] == 1


def test_people_move_to_another_machine_in_a_bundle(known: Run, tmp_path: Path) -> None:
    pytest.importorskip("pyrage", reason='the extra "age" is not installed')
    there = {"LETHE_MEMORY_FOLDER": str(tmp_path / "there")}

    exported = json_of(known("memory", "export", "people.age", "--json"))
    assert exported == {"file": "people.age", "people": 1, "key_file": "people.age.key"}
    taken = json_of(
        known("memory", "import", "people.age", "--identity", "people.age.key", "--json", **there)
    )

    assert taken["added"] == 1
    assert [p["name"] for p in json_of(known("memory", "list", "--json", **there))["people"]] == ["Ben"]
    assert "people.age of 2" in known("memory", "show", "Ben").stdout
    done = known("memory", "forget", "Ben", "--yes")
    assert "copies that left this machine cannot be recalled: people.age" in done.stderr
    back = json_of(known("memory", "import", "people.age", "--identity", "people.age.key", "--json"))
    assert (back["added"], back["forgotten_before"]) == (0, 1)
    assert known("memory", "export", "people.age").returncode == 2


def test_the_key_is_changed_for_a_passphrase(known: Run) -> None:
    old, new = {"LETHE_MEMORY_NEW_PASSPHRASE": "correct horse"}, {"LETHE_MEMORY_KEY": "passphrase"}
    assert known("memory", "rekey", "--key", "nonsense").returncode == 2
    done = known("memory", "rekey", "--key", "passphrase", **old)
    assert done.returncode == 0, done.stderr
    done = known("memory", "list")
    assert done.returncode == 2
    done = known("memory", "list", **new)
    assert done.returncode == 2
    assert "LETHE_MEMORY_PASSPHRASE" in done.stderr
    done = known("memory", "list", **new, LETHE_MEMORY_PASSPHRASE="wrong")
    assert done.returncode == 2
    assert "does not open" in done.stderr
    done = known("memory", "list", **new, LETHE_MEMORY_PASSPHRASE="correct horse")
    assert done.stdout.splitlines()[1].startswith("Ben")
    assert "correct horse" not in known("config", "show", LETHE_MEMORY_PASSPHRASE="correct horse").stdout


def test_while_a_job_writes_others_can_look_but_not_change(known: Run, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from edge.memory import FaceMemory, MemorySettings\n"
        "with FaceMemory.open(MemorySettings(folder=Path(sys.argv[1])), notify=print):\n"
        "    print('open', flush=True); sys.stdin.read()"
    )
    folder = tmp_path / ".data" / "lethe" / "memory"
    with subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        env=environment(tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as job:
        assert job.stdout is not None
        assert job.stdout.readline() == "open\n"
        assert people(known) == ["Ben"]
        done = known("memory", "pin", "Ben")
        assert done.returncode == 1
        assert str(job.pid) in done.stderr
        assert json_of(known("memory", "verify-forget", "--json"))["clean"] is True
        # What matters most does not have to wait: the job does it.
        assert json_of(known("memory", "forget", "Ben", "--yes", "--json"))["people"] == 1
        assert people(known) == []
        job.communicate("", timeout=30)
    assert known("memory", "pin", "Ben").returncode == 2
