"""Moments and spans of time, as people write them and as they read them."""

import math
import re
from datetime import UTC, datetime

from shared.errors import UsageError

_UNITS_S = {"m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)\s*([mhdw])")


def parse_span_s(text: str, *, flag: str) -> float:
    """Read a length of time: ``30m``, ``2h``, ``3d``, ``1w``.

    Args:
        text: As typed.
        flag: The option it was typed for, to be named in the message.

    Returns:
        Seconds.

    Raises:
        UsageError: If it is none.
    """
    match = _SPAN.fullmatch(text.strip().lower())
    if not match:
        raise UsageError(f"{flag} {text}: write a length of time, for example 30m, 2h, 3d or 1w")
    return float(match[1]) * _UNITS_S[match[2]]


def parse_moment_s(text: str, now_s: float, *, flag: str, ahead: bool = False) -> float:
    """Read a moment: a date or date and time as ISO 8601 has it (local time), or a span from now.

    Args:
        text: As typed.
        now_s: Seconds since 1970.
        flag: The option it was typed for, to be named in the message.
        ahead: Spans count from now into the future, not into the past.

    Returns:
        Seconds since 1970.

    Raises:
        UsageError: If it is none.
    """
    match = _SPAN.fullmatch(text.strip().lower())
    if match:
        span_s = float(match[1]) * _UNITS_S[match[2]]
        return now_s + span_s if ahead else now_s - span_s
    try:
        return datetime.fromisoformat(text.strip()).astimezone().timestamp()
    except (ValueError, OverflowError, OSError) as err:
        raise UsageError(
            f"{flag} {text}: write a moment, for example 2h, 3d, 2026-05-01 or 2026-05-01T18:30"
        ) from err


def iso(time_s: float) -> str | None:
    """A moment as ISO 8601 in UTC, to the second; None for never."""
    if not math.isfinite(time_s):
        return None
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def span_text(span_s: float) -> str:
    """A length of time in its largest whole unit: ``3 d``, ``5 h``, ``12 min``."""
    if span_s >= 2 * _UNITS_S["d"]:
        return f"{span_s / _UNITS_S['d']:.0f} d"
    if span_s >= 2 * _UNITS_S["h"]:
        return f"{span_s / _UNITS_S['h']:.0f} h"
    return f"{max(span_s, 0) / _UNITS_S['m']:.0f} min"


def ago(time_s: float, now_s: float) -> str:
    """How long ago a moment was."""
    return "now" if now_s - time_s < _UNITS_S["m"] else f"{span_text(now_s - time_s)} ago"


def until(time_s: float, now_s: float) -> str:
    """How far ahead a moment lies; ``never`` where it never comes."""
    if not math.isfinite(time_s):
        return "never"
    return "now" if time_s <= now_s else f"in {span_text(time_s - now_s)}"
