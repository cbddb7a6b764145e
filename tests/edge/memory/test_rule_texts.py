"""Rules as people write and read them."""

import math

import pytest

from edge.memory.rule_texts import describe, parse_days, parse_hours, parse_zone, rule_json
from edge.memory.rules import (
    NeverLabel,
    NeverPerson,
    NeverRule,
    NeverSource,
    NeverTime,
    NeverZone,
    UnknownRule,
)
from edge.memory.sketch import Sketch
from shared.errors import UsageError


def test_hours_are_read_also_past_midnight() -> None:
    assert parse_hours("22:00-06:30") == (1320, 390)
    assert parse_hours(" 0:00 - 24:00 ") == (0, 0)


@pytest.mark.parametrize("text", ["", "22-6", "25:00-06:00", "10:60-11:00", "24:00-25:00", "10:00"])
def test_what_are_no_hours_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--time"):
        parse_hours(text)


def test_days_are_read() -> None:
    assert parse_days(None) == frozenset(range(7))
    assert parse_days("mon, Sunday") == {0, 6}


@pytest.mark.parametrize("text", ["", "someday", "mon,,xyz"])
def test_what_are_no_days_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--days"):
        parse_days(text)


def test_zones_are_read() -> None:
    assert parse_zone("0,0,0.5,1") == (0, 0, 0.5, 1)


@pytest.mark.parametrize("text", ["", "1,2", "0,0,0,1", "0,0,2,1", "nan,0,1,1", "a,b,c,d"])
def test_what_is_no_zone_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--zone"):
        parse_zone(text)


@pytest.mark.parametrize(
    ("rule", "words", "details"),
    [
        (NeverSource(rule_id="a", pattern="cam/*"), "anybody seen in cam/*", {"source": "cam/*"}),
        (
            NeverZone(rule_id="a", pattern="*", box=(0, 0, 0.5, 1)),
            "anybody within 0,0,0.5,1 of any picture",
            {"source": "*", "zone": [0, 0, 0.5, 1]},
        ),
        (
            NeverTime(rule_id="a", from_minute=1320, to_minute=360, weekdays=frozenset({4, 5})),
            "anybody from 22:00 to 06:00 on fri,sat",
            {"from": "22:00", "to": "06:00", "days": ["fri", "sat"]},
        ),
        (NeverLabel(rule_id="a", label="child"), "anybody marked child", {"label": "child"}),
        (NeverPerson(rule_id="a", sketch=Sketch("m", bytes(32))), "one person", {}),
        (UnknownRule(rule_id="a"), "anybody: a rule that this version cannot read", {}),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_rules_are_told_in_words_and_as_data(rule: NeverRule, words: str, details: dict[str, object]) -> None:
    assert describe(rule) == words
    assert rule_json(rule) == {"id": "a", "kind": rule.kind, **details, "expires": None}


def test_the_end_of_a_rule_is_told() -> None:
    assert (
        rule_json(NeverLabel(rule_id="a", label="x", expires_at_s=0.0))["expires"] == "1970-01-01T00:00:00Z"
    )
    assert rule_json(NeverLabel(rule_id="a", label="x", expires_at_s=math.inf))["expires"] is None
