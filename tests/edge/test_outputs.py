import errno
import os
from pathlib import Path

import pytest

from edge.outputs import (
    atomic_output,
    ensure_distinct,
    ensure_free_space,
    free_space_bytes,
    is_folder_output,
    output_path_for,
    plan_outputs,
)
from shared.errors import OutputError, UsageError


def names_in(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


AWKWARD_NAMES = [
    "plain.png",
    "with space.png",
    "-starts-with-dash.png",
    'it\'s "quoted" & $HOME;.png',
    "ünïcode_名前_😀.png",
    "e\u0301 decomposed.png",
    "%d_%05d.png",
    "[brackets]{braces}*.png",
    "no_ending",
    "n" * 236 + ".png",
    "名" * 78 + ".png",
]


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_an_output_appears_under_any_name(tmp_path: Path, name: str) -> None:
    target = tmp_path / name
    with atomic_output(target) as part:
        assert part.parent == tmp_path
        assert part.suffix == target.suffix
        assert part.name.startswith(".")
        part.write_bytes(b"done")
        assert not target.exists()
    assert target.read_bytes() == b"done"
    assert names_in(tmp_path) == [name]


def test_missing_folders_are_made(tmp_path: Path) -> None:
    with atomic_output(tmp_path / "a" / "b" / "x.png") as part:
        part.write_bytes(b"1")
    assert (tmp_path / "a" / "b" / "x.png").read_bytes() == b"1"


@pytest.mark.parametrize("ending", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_whatever_ends_the_work_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, ending: type[BaseException]
) -> None:
    target = tmp_path / "x.png"
    target.write_bytes(b"old")

    def work() -> None:
        with atomic_output(target) as part:
            part.write_bytes(b"half")
            raise ending

    with pytest.raises(ending):
        work()
    assert target.read_bytes() == b"old"
    assert names_in(tmp_path) == ["x.png"]


@pytest.mark.parametrize(
    ("number", "words"), [(errno.ENOSPC, "disk is full"), (errno.EDQUOT, "quota"), (errno.EFBIG, "too large")]
)
def test_a_full_disk_is_said_in_one_clause_that_names_the_output(
    tmp_path: Path, number: int, words: str
) -> None:
    target = tmp_path / "x.png"

    def work() -> None:
        with atomic_output(target):
            raise OSError(number, os.strerror(number))

    with pytest.raises(OutputError, match=words) as caught:
        work()
    assert caught.value.path == target
    assert names_in(tmp_path) == []


def test_an_error_about_the_hidden_file_names_the_output(tmp_path: Path) -> None:
    target = tmp_path / "x.png"

    def work() -> None:
        with atomic_output(target) as part:
            raise OutputError(part, "no encoder")

    with pytest.raises(OutputError, match=r"x\.png: no encoder"):
        work()


def test_an_error_about_another_file_passes(tmp_path: Path) -> None:
    def work() -> None:
        with atomic_output(tmp_path / "x.png"):
            (tmp_path / "missing").read_bytes()

    with pytest.raises(FileNotFoundError):
        work()


def test_an_output_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with (
        pytest.raises(OutputError, match="is a file, not a folder"),
        atomic_output(tmp_path / "file" / "x.png"),
    ):
        pass


def test_an_output_that_is_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="is a folder"), atomic_output(tmp_path):
        pass


def test_a_name_too_long_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="too long"), atomic_output(tmp_path / ("x" * 300)):
        pytest.fail("the work began")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(OutputError, match="permission denied"), atomic_output(tmp_path / "x.png"):
        pass


def test_permission_denied_is_said_clearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "touch", refuse)
    with pytest.raises(OutputError, match="permission denied"), atomic_output(tmp_path / "x.png"):
        pass


def test_through_a_link_its_target_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "x.png", tmp_path / "link.png"
    target.write_bytes(b"old")
    link.symlink_to(target)
    with atomic_output(link) as part:
        part.write_bytes(b"new")
    assert link.is_symlink()
    assert target.read_bytes() == b"new"


@pytest.mark.parametrize("way", ["same", "dots", "symlink", "hardlink"])
def test_an_output_that_is_an_input_is_refused(tmp_path: Path, way: str) -> None:
    source = tmp_path / "in.png"
    source.write_bytes(b"x")
    output = {"same": source, "dots": tmp_path / "a" / ".." / "in.png"}.get(way, tmp_path / "other.png")
    (tmp_path / "a").mkdir()
    if way == "symlink":
        output.symlink_to(source)
    if way == "hardlink":
        output.hardlink_to(source)
    with pytest.raises(UsageError, match="is also an input"):
        ensure_distinct([source], output)


def test_different_files_are_no_matter(tmp_path: Path) -> None:
    ensure_distinct([tmp_path / "a.png", tmp_path / "missing.png"], tmp_path / "b.png")


def test_one_input_goes_to_the_file_named(tmp_path: Path) -> None:
    assert output_path_for(Path("in/a.png"), tmp_path / "b.png", many=False) == tmp_path / "b.png"


def test_a_folder_takes_the_input_name(tmp_path: Path) -> None:
    assert output_path_for(Path("in/a.png"), tmp_path, many=False) == tmp_path / "a.png"
    assert output_path_for(Path("a.png"), f"{tmp_path}/new/", many=False) == tmp_path / "new" / "a.png"
    assert output_path_for(Path("a.png"), tmp_path / "new", many=True) == tmp_path / "new" / "a.png"
    assert is_folder_output("new/", many=False)
    assert not is_folder_output(tmp_path / "new", many=False)


def test_sub_folders_of_a_folder_are_kept(tmp_path: Path) -> None:
    root = Path("photos")
    assert (
        output_path_for(root / "2020" / "a.png", tmp_path, many=True, root=root)
        == tmp_path / "2020" / "a.png"
    )


def test_inputs_of_one_name_do_not_share_an_output(tmp_path: Path) -> None:
    inputs = [Path("one/a.png"), Path("two/a.png"), Path("three/A.PNG"), Path("one/b.png")]
    outputs = plan_outputs(inputs, tmp_path)
    assert [path.name for path in outputs] == ["a.png", "a-2.png", "A-3.PNG", "b.png"]


def test_a_plan_that_would_overwrite_any_input_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    for name in ("a.png", "out/a.png"):
        (tmp_path / name).write_bytes(b"x")
    with pytest.raises(UsageError):
        plan_outputs([tmp_path / "a.png", tmp_path / "out" / "a.png"], tmp_path / "out")


def test_free_space_is_asked_of_the_nearest_folder_there_is(tmp_path: Path) -> None:
    assert free_space_bytes(tmp_path / "not" / "yet" / "x.mp4") > 0
    ensure_free_space(tmp_path / "x.mp4", 1)
    with pytest.raises(OutputError, match=r"only .* MB are free"):
        ensure_free_space(tmp_path / "x.mp4", 10**18)
