"""Rules that say what is never remembered: by source, zone, time, label, or person.

A rule either applies to a situation or does not; where the situation does not tell what the rule has to know,
``applies`` raises, and the policy then denies. Rules are stored as plain values; what cannot be read back
becomes an ``UnknownRule``, which applies to everybody.
"""

import math
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, ClassVar, TypeAlias

from edge.memory.sketch import NEVER_RADIUS, Sketch

Box: TypeAlias = tuple[float, float, float, float]
"""``x_min, y_min, x_max, y_max`` as shares of the picture's width and height."""

_DAY_MINUTES = 24 * 60
_EPOCH_WEEKDAY = 3
"""1970 began on a Thursday; Monday is 0."""


@dataclass(frozen=True, slots=True)
class Situation:
    """Where and when somebody is seen. None means not known, and a rule that asks for it then denies.

    Attributes:
        source: File (its absolute path), camera or address the picture comes from.
        box: The face's box.
        labels: What the picture or the person is marked with; empty where it is marked with nothing.
        utc_offset_s: Of local time at this moment, seconds.
    """

    source: str | None = None
    box: Box | None = None
    labels: frozenset[str] | None = frozenset()
    utc_offset_s: float | None = None


class CannotCheckError(Exception):
    """A rule has to know something that nobody told. Never leaves the policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rule:
    """What every rule has.

    Attributes:
        rule_id: Tells it from others; holds no name.
        expires_at_s: From when it no longer holds, seconds since 1970.
    """

    kind: ClassVar[str]
    rule_id: str
    expires_at_s: float = math.inf

    def __post_init__(self) -> None:
        if not self.rule_id:
            raise ValueError("a rule needs an id")
        if math.isnan(self.expires_at_s):
            raise ValueError("expires_at_s must be a number")


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverSource(_Rule):
    """Nobody seen in some files, folders, cameras or addresses.

    Attributes:
        pattern: The source itself, a folder above it, or a pattern with ``*`` and ``?``; upper and lower case
            are one.
    """

    kind: ClassVar[str] = "source"
    pattern: str

    def __post_init__(self) -> None:
        _Rule.__post_init__(self)
        _require_text("pattern", self.pattern)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverZone(_Rule):
    """Nobody whose face touches a part of the picture.

    Attributes:
        pattern: Whose picture, as in ``NeverSource``.
        box: The part.
    """

    kind: ClassVar[str] = "zone"
    pattern: str
    box: Box

    def __post_init__(self) -> None:
        _Rule.__post_init__(self)
        _require_text("pattern", self.pattern)
        x_min, y_min, x_max, y_max = self.box
        if not (x_min < x_max and y_min < y_max):
            raise ValueError("box must be x_min, y_min, x_max, y_max with the smaller ones first")


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverTime(_Rule):
    """Nobody seen at certain hours.

    Attributes:
        from_minute: Minute of the local day at which it begins, 0..1439.
        to_minute: Minute at which it ends; before ``from_minute``: on the next day; equal to it: all day.
        weekdays: Days on which it begins, Monday is 0.
    """

    kind: ClassVar[str] = "time"
    from_minute: int
    to_minute: int
    weekdays: frozenset[int] = frozenset(range(7))

    def __post_init__(self) -> None:
        _Rule.__post_init__(self)
        for name in ("from_minute", "to_minute"):
            if not 0 <= getattr(self, name) < _DAY_MINUTES:
                raise ValueError(f"{name} must lie between 0 and {_DAY_MINUTES - 1}")
        if not self.weekdays or not self.weekdays <= set(range(7)):
            raise ValueError("weekdays must be numbers from 0 (Monday) to 6")


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverLabel(_Rule):
    """Nobody and nothing marked with a word.

    Attributes:
        label: The word; upper and lower case are one.
    """

    kind: ClassVar[str] = "label"
    label: str

    def __post_init__(self) -> None:
        _Rule.__post_init__(self)
        _require_text("label", self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class NeverPerson(_Rule):
    """One person, who asked to be recognised in order not to be remembered.

    Attributes:
        sketch: Keyed bits of their face.
    """

    kind: ClassVar[str] = "person"
    sketch: Sketch


@dataclass(frozen=True, slots=True, kw_only=True)
class UnknownRule(_Rule):
    """A rule that could not be read, damaged or of a newer version: while it is there, nobody."""

    kind: ClassVar[str] = "unknown"


NeverRule: TypeAlias = NeverSource | NeverZone | NeverTime | NeverLabel | NeverPerson | UnknownRule

_KINDS: dict[str, type[NeverRule]] = {
    rule.kind: rule for rule in (NeverSource, NeverZone, NeverTime, NeverLabel, NeverPerson)
}


def applies(rule: NeverRule, sketch: Sketch | None, situation: Situation, now_s: float) -> bool:
    """Whether a rule forbids to remember somebody; whether it has expired is not looked at.

    Args:
        rule: The rule.
        sketch: Of the person's face; None where there is none.
        situation: Where and when they are seen.
        now_s: Seconds since 1970.

    Raises:
        CannotCheckError: If what the rule has to know is not known.
    """
    match rule:
        case NeverSource(pattern=pattern):
            return source_matches(pattern, _known("source", situation.source))
        case NeverZone(pattern=pattern, box=box):
            here = source_matches(pattern, _known("source", situation.source))
            return here and _touch(box, _known("box", situation.box))
        case NeverTime():
            return _within(rule, now_s + _known("utc_offset_s", situation.utc_offset_s))
        case NeverLabel(label=label):
            return _plain(label) in {_plain(each) for each in _known("labels", situation.labels)}
        case NeverPerson(sketch=forbidden):
            return _may_be(forbidden, _known("sketch", sketch))
        case _:
            return True


def source_matches(pattern: str, source: str) -> bool:
    """Whether a source is what a pattern names, lies in a folder it names, or fits its ``*`` and ``?``."""
    wanted, there = _plain(pattern), _plain(source)
    # First as plain text: a file may well be called "[2020] a?.jpg".
    return there == wanted or there.startswith(wanted.rstrip("/") + "/") or fnmatchcase(there, wanted)


def rule_to_plain(rule: NeverRule) -> dict[str, Any]:
    """The rule as values JSON can hold; endless ones leave out their end."""
    plain: dict[str, Any] = {"kind": rule.kind}
    for each in fields(rule):
        value = getattr(rule, each.name)
        if isinstance(value, Sketch):
            plain[each.name] = {"recogniser": value.recogniser, "bits": value.bits.hex()}
        elif isinstance(value, frozenset | tuple):
            plain[each.name] = sorted(value) if isinstance(value, frozenset) else list(value)
        elif value != math.inf:
            plain[each.name] = value
    return plain


def rule_from_plain(plain: Mapping[str, Any], *, rule_id: str) -> NeverRule:
    """The rule again; what cannot be read becomes an ``UnknownRule``.

    Args:
        plain: From ``rule_to_plain``.
        rule_id: Names the rule where it does not name itself.
    """
    try:
        values = {"rule_id": rule_id, **plain}
        rule = _KINDS[values.pop("kind")]
        return rule(**{name: _read(name, value) for name, value in values.items()})
    except (KeyError, TypeError, ValueError, AttributeError):
        return UnknownRule(rule_id=rule_id)


_TYPES: dict[str, tuple[type, ...]] = {
    "rule_id": (str,),
    "expires_at_s": (int, float),
    "pattern": (str,),
    "label": (str,),
    "from_minute": (int,),
    "to_minute": (int,),
}


def _read(name: str, value: Any) -> Any:
    """One field of a rule from its plain form."""
    if name == "box":
        x_min, y_min, x_max, y_max = value
        return float(x_min), float(y_min), float(x_max), float(y_max)
    if name == "weekdays":
        return frozenset(int(day) for day in value)
    if name == "sketch":
        return Sketch(str(value["recogniser"]), bytes.fromhex(value["bits"]))
    if isinstance(value, bool) or not isinstance(value, _TYPES[name]):
        raise TypeError(name)
    return value


def _known(name: str, value: Any) -> Any:
    if value is None:
        raise CannotCheckError(name)
    return value


def _plain(text: str) -> str:
    """Text without the differences that do not count: case, spelling of accents, kind of slash."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", text).casefold()).replace("\\", "/")


def _touch(a: Box, b: Box) -> bool:
    # Turned round so that a box of no numbers touches everything.
    apart = a[2] < b[0] or b[2] < a[0] or a[3] < b[1] or b[3] < a[1]
    return not apart


def _within(rule: NeverTime, local_s: float) -> bool:
    day, second = divmod(local_s, _DAY_MINUTES * 60)
    minute, weekday = second / 60, (int(day) + _EPOCH_WEEKDAY) % 7
    if rule.from_minute < rule.to_minute:
        return weekday in rule.weekdays and rule.from_minute <= minute < rule.to_minute
    evening = weekday in rule.weekdays and minute >= rule.from_minute
    morning = (weekday - 1) % 7 in rule.weekdays and minute < rule.to_minute
    return evening or morning


def _may_be(forbidden: Sketch, seen: Sketch) -> bool:
    if forbidden.recogniser != seen.recogniser:
        raise CannotCheckError("recogniser")
    return forbidden.distance(seen) <= NEVER_RADIUS


def _require_text(name: str, value: str) -> None:
    if not value.strip():
        raise ValueError(f"{name} must not be empty")
