"""Rules of never remembering as people write them and read them."""

import math
import re
from pathlib import Path
from typing import Any

from edge.memory.rules import Box, NeverLabel, NeverPerson, NeverRule, NeverSource, NeverTime, NeverZone
from edge.memory.times import iso
from shared.errors import UsageError

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_HOURS = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})")
_DAY_MINUTES = 24 * 60
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
"""``camera:0``, ``rtsp://…``; one letter alone is a drive."""


def parse_hours(text: str) -> tuple[int, int]:
    """Read ``HH:MM-HH:MM``.

    Returns:
        Minutes of the day it begins and ends.

    Raises:
        UsageError: If it is no such range.
    """
    match = _HOURS.fullmatch(text.strip())
    numbers = [int(part) for part in match.groups()] if match else []
    if not match or max(numbers[1], numbers[3]) > 59:
        raise UsageError(f"--time {text}: write HH:MM-HH:MM, for example 22:00-06:00")
    begin, end = numbers[0] * 60 + numbers[1], numbers[2] * 60 + numbers[3]
    if begin >= _DAY_MINUTES or end > _DAY_MINUTES:
        raise UsageError(f"--time {text}: a day has 24 hours")
    return begin, end % _DAY_MINUTES


def parse_days(text: str | None) -> frozenset[int]:
    """Read ``mon,tue``; None is every day. Monday is 0.

    Raises:
        UsageError: If one is no day.
    """
    if text is None:
        return frozenset(range(7))
    days = [part.strip().lower()[:3] for part in text.split(",")]
    if any(day not in _DAYS for day in days):
        raise UsageError(f"--days {text}: write days as {','.join(_DAYS)}")
    return frozenset(_DAYS.index(day) for day in days)


def parse_zone(text: str) -> Box:
    """Read ``X0,Y0,X1,Y1`` as shares of the picture.

    Raises:
        UsageError: If it is no such box.
    """
    try:
        x0, y0, x1, y1 = (float(part) for part in text.split(","))
    except ValueError as err:
        raise UsageError(
            f"--zone {text}: write X0,Y0,X1,Y1 from 0 to 1, for example 0,0,0.5,1 for the left half"
        ) from err
    if not (0 <= x0 < x1 <= 1 and 0 <= y0 < y1 <= 1):
        raise UsageError(f"--zone {text}: must lie within 0 and 1, with X0 < X1 and Y0 < Y1")
    return x0, y0, x1, y1


def source_name(text: str) -> str:
    """A source as the memory knows it: files and folders by their absolute path, cameras as they are.

    Args:
        text: A path, perhaps with ``*`` and ``?``, or an address such as ``camera:0``.
    """
    if not text or text.startswith("*") or (_ADDRESS.match(text) and not Path(text).exists()):
        return text
    return str(Path(text).expanduser().absolute())


def describe(rule: NeverRule) -> str:
    """A rule in words; of a person it says no more than that it is one."""
    match rule:
        case NeverSource():
            return f"anybody seen in {rule.pattern}"
        case NeverZone():
            where = "any picture" if rule.pattern == "*" else rule.pattern
            return f"anybody within {','.join(f'{edge:g}' for edge in rule.box)} of {where}"
        case NeverTime():
            on = (
                ""
                if len(rule.weekdays) == 7
                else " on " + ",".join(_DAYS[day] for day in sorted(rule.weekdays))
            )
            return f"anybody from {_clock(rule.from_minute)} to {_clock(rule.to_minute)}{on}"
        case NeverLabel():
            return f"anybody marked {rule.label}"
        case NeverPerson():
            return "one person"
        case _:
            return "anybody: a rule that this version cannot read"


def rule_json(rule: NeverRule) -> dict[str, Any]:
    """A rule as plain data for programs."""
    expires = None if math.isinf(rule.expires_at_s) else iso(rule.expires_at_s)
    return {"id": rule.rule_id, "kind": rule.kind, **_details(rule), "expires": expires}


def _details(rule: NeverRule) -> dict[str, Any]:
    match rule:
        case NeverSource():
            return {"source": rule.pattern}
        case NeverZone():
            return {"source": rule.pattern, "zone": list(rule.box)}
        case NeverTime():
            days = [_DAYS[day] for day in sorted(rule.weekdays)]
            return {"from": _clock(rule.from_minute), "to": _clock(rule.to_minute), "days": days}
        case NeverLabel():
            return {"label": rule.label}
        case _:
            return {}


def _clock(minute: int) -> str:
    return f"{minute // 60:02}:{minute % 60:02}"
