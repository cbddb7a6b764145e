import os
from pathlib import Path

import pytest

from edge.cli.parsing import (
    SourceChoice,
    check_faces,
    check_side_file,
    choose_sources,
    faces_for,
    parse_mapping,
    parse_trim,
)
from shared.errors import UsageError

ME, YOU, ANNA, BEN = (Path(f"{name}.jpg") for name in ("me", "you", "anna", "ben"))


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("2-10", (2.0, 10.0)),
        ("2.5-", (2.5, None)),
        ("-0:45", (None, 45.0)),
        ("1:30-1:02:03.5", (90.0, 3723.5)),
        (" 0 - .5 ", (0.0, 0.5)),
    ],
)
def test_a_trim_is_read_in_seconds_or_as_a_clock(
    text: str, window: tuple[float | None, float | None]
) -> None:
    assert parse_trim(text) == window


@pytest.mark.parametrize(
    "text", ["", "-", "5", "a-b", "1-2-3", "10-5", "5-5", "-0", "1:2:3:4-", "nan-", "1e3-"]
)
def test_what_is_no_trim_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--trim"):
        parse_trim(text)


def test_a_mapping_is_split_at_its_equals_sign() -> None:
    assert parse_mapping("me.jpg=anna.jpg") == (ME, ANNA)


@pytest.mark.parametrize("text", ["", "me.jpg", "=anna.jpg", "me.jpg="])
def test_what_is_no_mapping_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write SOURCE=REFERENCE"):
        parse_mapping(text)


def test_a_file_name_may_hold_an_equals_sign(tmp_path: Path) -> None:
    source, reference = tmp_path / "a=b.jpg", tmp_path / "c.jpg"
    source.touch()
    reference.touch()
    assert parse_mapping(f"{source}={reference}") == (source, reference)


def test_a_mapping_that_can_be_read_in_no_way_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no way to split"):
        parse_mapping("a=b=c")


def test_a_mapping_that_can_be_read_in_two_ways_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b=c", "a=b", "c"):
        Path(name).touch()
    with pytest.raises(UsageError, match="more than one way"):
        parse_mapping("a=b=c")


def test_several_sources_are_one_person() -> None:
    assert choose_sources([ME, YOU], None, []) == [SourceChoice((ME, YOU))]


def test_two_mappings_with_one_reference_are_one_person() -> None:
    choices = choose_sources([], None, ["me.jpg=anna.jpg", "you.jpg=ben.jpg", "me2.jpg=anna.jpg"])
    assert choices == [SourceChoice((ME, Path("me2.jpg")), ANNA), SourceChoice((YOU,), BEN)]


def test_a_source_beside_mappings_is_for_everybody_else() -> None:
    assert choose_sources([YOU], None, ["me.jpg=anna.jpg"]) == [
        SourceChoice((ME,), ANNA),
        SourceChoice((YOU,)),
    ]


@pytest.mark.parametrize(
    ("sources", "reference", "mappings"),
    [([], None, []), ([], ANNA, []), ([ME], ANNA, ["me.jpg=ben.jpg"])],
)
def test_sources_that_make_no_sense_are_refused(
    sources: list[Path], reference: Path | None, mappings: list[str]
) -> None:
    with pytest.raises(UsageError):
        choose_sources(sources, reference, mappings)


def test_references_alone_mean_match() -> None:
    assert faces_for(None, [SourceChoice((ME,), ANNA)]) == ("--reference", "match")
    assert faces_for(None, [SourceChoice((ME,), ANNA), SourceChoice((YOU,))]) == ("--faces", None)
    assert faces_for("largest", [SourceChoice((ME,), ANNA)]) == ("--faces", "largest")


@pytest.mark.parametrize(
    ("faces", "choices"),
    [
        ("match", [SourceChoice((ME,))]),
        ("match", [SourceChoice((ME,), ANNA), SourceChoice((YOU,))]),
        ("all", [SourceChoice((ME,), ANNA)]),
    ],
)
def test_faces_that_contradict_the_sources_are_refused(faces: str, choices: list[SourceChoice]) -> None:
    with pytest.raises(UsageError, match=f"--faces {faces}"):
        check_faces(faces, choices)


@pytest.mark.parametrize(
    ("faces", "choices"),
    [
        ("all", [SourceChoice((ME,))]),
        ("largest", [SourceChoice((ME,), ANNA)]),
        ("match", [SourceChoice((ME,), ANNA), SourceChoice((YOU,), BEN)]),
        ("all", [SourceChoice((ME,), ANNA), SourceChoice((YOU,))]),
    ],
)
def test_faces_that_suit_the_sources_are_taken(faces: str, choices: list[SourceChoice]) -> None:
    check_faces(faces, choices)


def test_a_report_may_not_overwrite_a_file_of_the_job(tmp_path: Path) -> None:
    photo, link = tmp_path / "a.jpg", tmp_path / "link.json"
    link.symlink_to(photo)
    check_side_file("--report", tmp_path / "report.json", [photo])
    with pytest.raises(UsageError, match="is a file of this job"):
        check_side_file("--report", link, [photo])


def test_a_report_needs_a_place_where_it_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    check_side_file("--report", tmp_path / "new" / "r.json", [])
    check_side_file("--report", Path(os.devnull), [])
    with pytest.raises(UsageError, match="nothing may be written below"):
        check_side_file("--report", tmp_path / "file" / "r.json", [])
    with pytest.raises(UsageError, match="is a folder"):
        check_side_file("--report", tmp_path, [])
