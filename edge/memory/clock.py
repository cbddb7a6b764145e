"""Time that cannot be made to run backwards, and that does not believe a leap at once.

Devices start in 1970 and jump to the present when a network comes up; batteries die; somebody sets the clock
to 2038 by mistake. With the bare clock, the first would keep people for ever and the last would forget all.

So there are two times. ``now_s`` is the best guess, and never runs back: who has expired by it is no longer
recognised. ``sure_s`` is a time that has surely come: only who has expired by that one is forgotten, and a
rule with an end holds until then. They differ only after a leap forward, until a later reading confirms it.
"""

from dataclasses import dataclass, replace

LEAP_S = 7 * 86400.0
"""The clock may advance by so much between two readings before it is doubted."""

_CONFIRM_SYNCHRONISED_S = 60.0
"""A clock that was set by the network confirms a leap this long after it was first seen."""

_CONFIRM_ALONE_S = 86400.0
"""A clock nobody vouches for has to go on for so long."""

EARLIEST_S = 1_767_225_600.0
"""The beginning of 2026: Lethe is not older, so any clock before it is wrong."""


@dataclass(frozen=True, slots=True)
class Moment:
    """What time it is.

    Attributes:
        now_s: The best guess, seconds since 1970.
        sure_s: A time that has surely come; not after ``now_s``.
    """

    now_s: float
    sure_s: float

    def __post_init__(self) -> None:
        if not self.sure_s <= self.now_s:
            raise ValueError("sure_s must not lie after now_s")

    @classmethod
    def at(cls, now_s: float) -> "Moment":
        """A moment without doubt."""
        return cls(now_s, now_s)


@dataclass(frozen=True, slots=True)
class ClockState:
    """What has to be kept from one start to the next.

    Attributes:
        mark_s: The latest time that has surely come, seconds since 1970.
        leap_s: Where the clock stood when it had leapt; None while it is believed.
    """

    mark_s: float = EARLIEST_S
    leap_s: float | None = None


class ClockGuard:
    """Turns readings of the clock into moments.

    Args:
        state: From the last start; None the first time, when the first reading is believed.
    """

    def __init__(self, state: ClockState | None = None) -> None:
        self._is_first = state is None
        self._state = state or ClockState()
        self._monotonic_s: float | None = None

    @property
    def state(self) -> ClockState:
        """To be kept for the next start."""
        return self._state

    def read(self, clock_s: float, monotonic_s: float, *, synchronised: bool = False) -> Moment:
        """What time it is.

        Args:
            clock_s: What the clock of the system says, seconds since 1970.
            monotonic_s: A clock that only counts on, from any beginning, seconds.
            synchronised: The system vouches for its clock, for example because the network set it.
        """
        elapsed = 0.0 if self._monotonic_s is None else max(0.0, monotonic_s - self._monotonic_s)
        self._monotonic_s = monotonic_s
        if self._is_first and clock_s >= EARLIEST_S:
            self._state = ClockState(clock_s)
        self._is_first = False
        # Time goes on where the clock stands still or lies in the past.
        mark = self._state.mark_s + elapsed
        if not clock_s > mark + LEAP_S:
            self._state = ClockState(max(mark, clock_s))
            return Moment.at(self._state.mark_s)
        self._state = self._doubt(replace(self._state, mark_s=mark), clock_s, synchronised=synchronised)
        return Moment(max(clock_s, self._state.mark_s), self._state.mark_s)

    @staticmethod
    def _doubt(state: ClockState, clock_s: float, *, synchronised: bool) -> ClockState:
        """The state after a reading far ahead of the mark."""
        if state.leap_s is None or clock_s < state.leap_s:
            return replace(state, leap_s=clock_s)
        wait_s = _CONFIRM_SYNCHRONISED_S if synchronised else _CONFIRM_ALONE_S
        return ClockState(clock_s) if clock_s - state.leap_s >= wait_s else state
