"""What the memory notes of itself: a journal that names nobody, where copies went, what the clock said."""

import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from edge.memory.clock import ClockState
from edge.memory.times import iso

CLOCK_RECORD = b"clock"
EXPORTS_RECORD = b"exports"


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One thing that was done.

    Attributes:
        time_s: When, seconds since 1970.
        action: What, for example ``forget``.
        people: How many people it was about.
        rule: The rule that allowed it or asked for it.
        detail: Anything else worth knowing; holds no name, no path, no id of a person.
    """

    time_s: float
    action: str
    people: int = 0
    rule: str = ""
    detail: str = ""

    def to_bytes(self) -> bytes:
        """As it is stored."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> "AuditEntry":
        """Back from ``to_bytes``."""
        return cls(**json.loads(data))

    def to_json(self) -> dict[str, Any]:
        """For people and programs."""
        plain = asdict(self)
        return {"when": iso(plain.pop("time_s")), **plain}


@dataclass(frozen=True, slots=True)
class Export:
    """One bundle that left.

    Attributes:
        time_s: When, seconds since 1970.
        file: The name it was given, without its folder.
        people: Ids of whoever was in it and has not been forgotten since.
    """

    time_s: float
    file: str
    people: frozenset[bytes]

    def text(self) -> str:
        """For people."""
        return f"{self.file} of {iso(self.time_s)}"


def exports_to_bytes(exports: Iterable[Export]) -> bytes:
    """The ledger as it is stored."""
    return json.dumps(
        [[each.time_s, each.file, sorted(who.hex() for who in each.people)] for each in exports]
    ).encode()


def exports_from_bytes(data: bytes) -> tuple[Export, ...]:
    """Back from ``exports_to_bytes``."""
    return tuple(
        Export(time_s, file, frozenset(bytes.fromhex(who) for who in people))
        for time_s, file, people in json.loads(data)
    )


def without(exports: Iterable[Export], people: Collection[bytes]) -> tuple[Export, ...]:
    """The ledger without some people; bundles of which nobody is left go."""
    left = (replace(each, people=each.people - frozenset(people)) for each in exports)
    return tuple(each for each in left if each.people)


def clock_to_bytes(state: ClockState) -> bytes:
    """The state of the clock as it is stored."""
    return json.dumps(asdict(state)).encode()


def clock_from_bytes(data: bytes) -> ClockState:
    """Back from ``clock_to_bytes``."""
    plain: Mapping[str, Any] = json.loads(data)
    leap_s = plain["leap_s"]
    mark_s = float(plain["mark_s"])
    if not math.isfinite(mark_s):
        raise ValueError("mark_s must be a number")
    return ClockState(mark_s, None if leap_s is None else float(leap_s))
