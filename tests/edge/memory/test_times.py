"""Moments and spans as people write and read them."""

import math
from datetime import datetime

import pytest

from edge.memory.times import ago, iso, parse_moment_s, parse_span_s, span_text, until
from shared.errors import UsageError

NOW_S = 1_800_000_000.0


@pytest.mark.parametrize(
    ("text", "span_s"), [("30m", 1800), ("2h", 7200), (" 3 D ", 259_200), ("1w", 604_800), ("1.5h", 5400)]
)
def test_spans_are_read(text: str, span_s: float) -> None:
    assert parse_span_s(text, flag="--for") == span_s


@pytest.mark.parametrize("text", ["", "h", "2", "2 years", "-2h", "2h3m", "1e400h"])
def test_what_is_no_span_is_refused_by_the_name_of_its_flag(text: str) -> None:
    with pytest.raises(UsageError, match="--for"):
        parse_span_s(text, flag="--for")


def test_a_moment_is_a_span_back_or_ahead() -> None:
    assert parse_moment_s("2h", NOW_S, flag="--seen-since") == NOW_S - 7200
    assert parse_moment_s("2h", NOW_S, flag="--consent-until", ahead=True) == NOW_S + 7200


def test_a_moment_is_a_date_of_local_time_or_one_with_its_offset() -> None:
    assert parse_moment_s("2026-05-01", NOW_S, flag="x") == datetime(2026, 5, 1).astimezone().timestamp()
    assert parse_moment_s("2026-05-01T18:30:00+02:00", NOW_S, flag="x") == 1_777_653_000


@pytest.mark.parametrize("text", ["", "yesterday", "2026-13-01", "9999999-01-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--seen-since"):
        parse_moment_s(text, NOW_S, flag="--seen-since")


def test_times_are_told_shortly() -> None:
    assert [span_text(span_s) for span_s in (0, 90, 7300, 200_000)] == ["0 min", "2 min", "2 h", "2 d"]
    assert ago(NOW_S - 5, NOW_S) == "now"
    assert ago(NOW_S - 7200, NOW_S) == "2 h ago"
    assert until(NOW_S + 10 * 86400, NOW_S) == "in 10 d"
    assert (until(NOW_S - 1, NOW_S), until(math.inf, NOW_S)) == ("now", "never")
    assert (iso(0.0), iso(math.inf)) == ("1970-01-01T00:00:00Z", None)
