"""Time does not run backwards, and a leap forward is not believed at once."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.clock import EARLIEST_S, LEAP_S, ClockGuard, ClockState, Moment

NOW_S = 1_800_000_000.0
DAY_S = 86400.0


def test_the_first_reading_is_believed() -> None:
    assert ClockGuard().read(NOW_S, 0) == Moment.at(NOW_S)


def test_a_first_reading_before_lethe_existed_is_not_believed() -> None:
    assert ClockGuard().read(0, 0) == Moment.at(EARLIEST_S)


def test_time_goes_on_while_the_clock_is_back_in_1970() -> None:
    guard = ClockGuard(ClockState(NOW_S))

    assert guard.read(12, 100) == Moment.at(NOW_S)
    assert guard.read(13, 100 + DAY_S) == Moment.at(NOW_S + DAY_S)
    assert guard.read(NOW_S + 3 * DAY_S, 101 + DAY_S) == Moment.at(NOW_S + 3 * DAY_S)


def test_a_clock_that_goes_back_a_little_stands_still() -> None:
    guard = ClockGuard(ClockState(NOW_S))

    assert guard.read(NOW_S - 3600, 0) == Moment.at(NOW_S)


def test_a_leap_moves_what_seems_to_be_now_but_not_what_is_sure() -> None:
    guard = ClockGuard(ClockState(NOW_S))

    assert guard.read(NOW_S + 40 * DAY_S, 0) == Moment(NOW_S + 40 * DAY_S, NOW_S)
    assert guard.state == ClockState(NOW_S, NOW_S + 40 * DAY_S)


@pytest.mark.parametrize(
    ("wait_s", "synchronised", "is_sure"),
    [
        (59, True, False),
        (60, True, True),
        (60, False, False),
        (DAY_S - 1, False, False),
        (DAY_S, False, True),
    ],
)
def test_a_leap_is_believed_once_it_is_confirmed(wait_s: float, synchronised: bool, is_sure: bool) -> None:
    leapt_s = NOW_S + 40 * DAY_S
    first = ClockGuard(ClockState(NOW_S))
    first.read(leapt_s, 0, synchronised=synchronised)

    later = ClockGuard(first.state).read(leapt_s + wait_s, 5, synchronised=synchronised)

    assert later.now_s == leapt_s + wait_s
    assert (later.sure_s == later.now_s) is is_sure


def test_a_leap_that_is_taken_back_leaves_no_trace() -> None:
    guard = ClockGuard(ClockState(NOW_S))
    guard.read(NOW_S + 4000 * DAY_S, 0)

    assert guard.read(NOW_S + 10, 10) == Moment.at(NOW_S + 10)
    assert guard.state == ClockState(NOW_S + 10)


def test_a_second_leap_back_to_less_is_doubted_anew() -> None:
    guard = ClockGuard(ClockState(NOW_S))
    guard.read(NOW_S + 4000 * DAY_S, 0)
    guard.read(NOW_S + 40 * DAY_S, 1)

    assert guard.state.leap_s == NOW_S + 40 * DAY_S


def test_a_week_without_use_is_no_leap() -> None:
    assert ClockGuard(ClockState(NOW_S)).read(NOW_S + LEAP_S, 0) == Moment.at(NOW_S + LEAP_S)


def test_a_clock_that_says_no_number_changes_nothing() -> None:
    assert ClockGuard(ClockState(NOW_S)).read(math.nan, 0) == Moment.at(NOW_S)


@given(st.lists(st.tuples(st.floats(-1e9, 5e9), st.floats(0, 1e5), st.booleans()), max_size=12))
def test_what_is_sure_never_runs_back_nor_ahead_of_now(
    readings: list[tuple[float, float, bool]],
) -> None:
    guard, sure_s, monotonic_s = ClockGuard(), 0.0, 0.0
    for clock_s, step_s, synchronised in readings:
        monotonic_s += step_s
        moment = guard.read(clock_s, monotonic_s, synchronised=synchronised)
        assert sure_s <= moment.sure_s <= moment.now_s
        sure_s = moment.sure_s
