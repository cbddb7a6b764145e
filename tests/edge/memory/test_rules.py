"""When each kind of rule applies, and how rules survive being stored."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.rules import (
    NeverLabel,
    NeverPerson,
    NeverRule,
    NeverSource,
    NeverTime,
    NeverZone,
    Situation,
    UnknownRule,
    applies,
    rule_from_plain,
    rule_to_plain,
    source_matches,
)
from edge.memory.sketch import NEVER_RADIUS, Sketch

THURSDAY_S = 1_800_000_000 // 604_800 * 604_800
"""Midnight between a Wednesday and a Thursday, as 1970 began."""


def flipped(bits: int) -> Sketch:
    return Sketch("m", ((1 << bits) - 1).to_bytes(32))


@pytest.mark.parametrize(
    ("pattern", "source", "matches"),
    [
        ("/films/a.mp4", "/films/a.mp4", True),
        ("/films", "/films/2026/a.mp4", True),
        ("/films/", "/films/a.mp4", True),
        ("/films", "/filmstrip/a.mp4", False),
        ("/FILMS", "/films/a.mp4", True),
        ("camera:0", "camera:0", True),
        ("camera:0", "camera:01", False),
        ("camera:*", "camera:7", True),
        ("rtsp://door/*", "rtsp://door/main", True),
        ("*.heic", "/films/a.HEIC", True),
        ("/[2026] a?.jpg", "/[2026] a?.jpg", True),
        ("C:\\Films", "C:\\films\\a.mp4", True),
        ("/caf\u00e9", "/cafe\u0301/a.jpg", True),
        ("/STRASSE", "/straße/a.jpg", True),
    ],
)
def test_a_source_matches_as_text_as_folder_and_as_pattern(pattern: str, source: str, matches: bool) -> None:
    assert source_matches(pattern, source) is matches


@pytest.mark.parametrize(
    ("box", "touches"),
    [
        ((0.6, 0.6, 0.9, 0.9), True),
        ((0.1, 0.1, 0.5, 0.5), True),
        ((0.1, 0.1, 0.49, 0.9), False),
        ((0.6, 0.1, 0.9, 0.49), False),
        ((math.nan, math.nan, math.nan, math.nan), True),
    ],
)
def test_a_zone_applies_to_faces_that_touch_it(box: tuple[float, float, float, float], touches: bool) -> None:
    rule = NeverZone(rule_id="r", pattern="camera:0", box=(0.5, 0.5, 1.0, 1.0))

    assert applies(rule, None, Situation(source="camera:0", box=box), 0) is touches
    assert not applies(rule, None, Situation(source="camera:1", box=box), 0)


@pytest.mark.parametrize(
    ("hour", "offset_h", "applies_"),
    [
        (21.9, 0, False),
        (22, 0, True),
        (24, 0, True),
        (29.9, 0, True),
        (30, 0, False),
        (20, 2, True),
        (23, -2, False),
        (46, 0, False),
        (-2, 0, False),
    ],
)
def test_a_time_rule_runs_past_midnight_on_the_day_it_began(
    hour: float, offset_h: float, applies_: bool
) -> None:
    thursday_night = NeverTime(rule_id="r", from_minute=22 * 60, to_minute=6 * 60, weekdays=frozenset({3}))
    situation = Situation(utc_offset_s=offset_h * 3600)

    assert applies(thursday_night, None, situation, THURSDAY_S + hour * 3600) is applies_


@pytest.mark.parametrize(("hour", "applies_"), [(8.9, False), (9, True), (16.9, True), (17, False)])
def test_a_time_rule_within_a_day(hour: float, applies_: bool) -> None:
    rule = NeverTime(rule_id="r", from_minute=9 * 60, to_minute=17 * 60)

    assert applies(rule, None, Situation(utc_offset_s=0), THURSDAY_S + hour * 3600) is applies_


@given(st.floats(0, 4e9), st.integers(0, 1439))
def test_a_time_rule_that_ends_when_it_begins_holds_all_day(now_s: float, minute: int) -> None:
    rule = NeverTime(rule_id="r", from_minute=minute, to_minute=minute)

    assert applies(rule, None, Situation(utc_offset_s=0), now_s)


def test_a_label_applies_whatever_its_case() -> None:
    rule = NeverLabel(rule_id="r", label="Gäste")

    assert applies(rule, None, Situation(labels=frozenset({"child", "GÄSTE"})), 0)
    assert not applies(rule, None, Situation(labels=frozenset()), 0)


def test_a_rule_about_a_person_applies_up_to_its_radius() -> None:
    rule = NeverPerson(rule_id="r", sketch=flipped(0))

    assert applies(rule, flipped(NEVER_RADIUS), Situation(), 0)
    assert not applies(rule, flipped(NEVER_RADIUS + 1), Situation(), 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: NeverSource(rule_id="r", pattern=" "),
        lambda: NeverSource(rule_id="", pattern="/x"),
        lambda: NeverSource(rule_id="r", pattern="/x", expires_at_s=math.nan),
        lambda: NeverZone(rule_id="r", pattern="/x", box=(0.5, 0, 0.5, 1)),
        lambda: NeverZone(rule_id="r", pattern="/x", box=(math.nan, 0, 1, 1)),
        lambda: NeverTime(rule_id="r", from_minute=1440, to_minute=0),
        lambda: NeverTime(rule_id="r", from_minute=0, to_minute=1, weekdays=frozenset({7})),
        lambda: NeverTime(rule_id="r", from_minute=0, to_minute=1, weekdays=frozenset()),
        lambda: NeverLabel(rule_id="r", label=""),
    ],
)
def test_a_rule_that_means_nothing_cannot_be_made(make: Any) -> None:
    with pytest.raises(ValueError, match=r"must|needs"):
        make()


@pytest.mark.parametrize(
    "rule",
    [
        NeverSource(rule_id="a", pattern="/films", expires_at_s=12.5),
        NeverZone(rule_id="b", pattern="camera:0", box=(0.0, 0.25, 0.5, 1.0)),
        NeverTime(rule_id="c", from_minute=5, to_minute=4, weekdays=frozenset({0, 6})),
        NeverLabel(rule_id="d", label="guest"),
        NeverPerson(rule_id="e", sketch=flipped(99)),
    ],
    ids=lambda rule: rule.kind,
)
def test_a_rule_comes_back_from_json_as_it_was(rule: NeverRule) -> None:
    assert rule_from_plain(json.loads(json.dumps(rule_to_plain(rule))), rule_id="other") == rule


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"kind": "planet"},
        {"kind": "source"},
        {"kind": "source", "pattern": 7},
        {"kind": "source", "pattern": "/x", "moon": 1},
        {"kind": "source", "pattern": "/x", "expires_at_s": "soon"},
        {"kind": "time", "from_minute": True, "to_minute": 3},
        {"kind": "zone", "pattern": "/x", "box": [0, 1]},
        {"kind": "person", "sketch": {"recogniser": "m", "bits": "00"}},
        {"kind": "unknown"},
        {"kind": ["source"]},
    ],
)
def test_a_rule_that_cannot_be_read_applies_to_everybody(plain: dict[str, Any]) -> None:
    rule = rule_from_plain(plain, rule_id="r")

    assert rule == UnknownRule(rule_id="r")
    assert applies(rule, None, Situation(), 0)
