"""What is known of one person, and as bytes for the vault."""

import json
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from edge.memory.index import Match
from edge.memory.policy import Consent, Purpose, Subject
from edge.memory.sketch import Sketch
from edge.memory.templates import Sample, Templates, enrol, extend, packed_matrix, pose_of, update
from shared.arrays import Embedding
from shared.errors import UsageError, VaultIntegrityError

Origin: TypeAlias = Literal["enrolled", "seen"]

SHORT_ID = 8
"""Hexadecimal digits of an id that people are shown; fewer are taken if they are unambiguous."""

_VERSION = 1
_LONGEST_NAME = 200
_MOST_SOURCES = 16
_LENGTH_BYTES = 4
_SCOPES: Mapping[str, frozenset[Purpose]] = {
    "fusion": frozenset(Purpose),
    "recognition": frozenset({Purpose.RECOGNISE}),
}


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """One look at a face.

    Attributes:
        embedding: Identity vector, shape ``(d,)``, of length 1.
        yaw_deg: Turn to the side, positive where the nose points to the right of the picture; None where
            nobody has looked, and nothing can be learnt then.
        pitch_deg: Nod, positive where the nose points up; likewise.
        quality: How well it shows who it is, 0..1.
    """

    embedding: Embedding = field(repr=False)
    yaw_deg: float | None
    pitch_deg: float | None
    quality: float

    def sample(self, time_s: float) -> Sample:
        """As templates take it; a pose nobody looked at counts as frontal."""
        return Sample(
            self.embedding, pose_of(self.yaw_deg or 0.0, self.pitch_deg or 0.0), self.quality, time_s
        )


@dataclass(frozen=True, slots=True)
class GivenConsent:
    """What somebody agreed to, and who said so.

    Attributes:
        scope: ``fusion``, or ``recognition`` only.
        given_by: Who consented; empty for the person.
        given_at_s: When, seconds since 1970.
        expires_at_s: Until when, seconds since 1970.
    """

    scope: str
    given_by: str
    given_at_s: float
    expires_at_s: float

    def for_policy(self) -> Consent:
        """As the policy takes it; a scope it does not know covers nothing."""
        return Consent(_SCOPES.get(self.scope, frozenset()), self.expires_at_s)


@dataclass(frozen=True, slots=True)
class Consenting:
    """A consent that is being given.

    Attributes:
        scope: ``fusion``, or ``recognition`` only.
        given_by: Who consents; empty for the person.
        expires_at_s: Until when, seconds since 1970; None for no end.
    """

    scope: str = "fusion"
    given_by: str = ""
    expires_at_s: float | None = None

    def __post_init__(self) -> None:
        if self.scope not in _SCOPES:
            raise UsageError(f"scope {self.scope}: must be one of {', '.join(_SCOPES)}")

    def given(self, now_s: float) -> GivenConsent:
        """The consent as it is kept."""
        ends_s = math.inf if self.expires_at_s is None else self.expires_at_s
        return GivenConsent(self.scope, self.given_by, now_s, ends_s)


class Looks:
    """What one person looks like, unpacked when somebody needs more than the rows of the index.

    At the start of a job there are thousands of people, of whom few will be met.

    Args:
        packed: As templates write themselves.
        templates: The same, unpacked; None where nobody has yet.
    """

    __slots__ = ("_packed", "_templates")

    def __init__(self, packed: bytes, templates: Templates | None = None) -> None:
        # Not bytes, which nobody could overwrite.
        self._packed = bytearray(packed)
        self._templates = templates

    @classmethod
    def of(cls, templates: Templates) -> "Looks":
        """From templates."""
        return cls(templates.to_bytes(), templates)

    @property
    def templates(self) -> Templates:
        """Unpacked.

        Raises:
            VaultIntegrityError: If they cannot be read.
        """
        if self._templates is None:
            self._templates = Templates.from_bytes(bytes(self._packed))
        return self._templates

    def to_bytes(self) -> bytes:
        """As templates write themselves."""
        return bytes(self._packed)

    def rows(self) -> npt.NDArray[np.float32]:
        """What the index compares with, shape ``(n, d)``; of length 1 but for rounding. A copy.

        Raises:
            VaultIntegrityError: If they cannot be read.
        """
        rows = packed_matrix(bytes(self._packed))
        # The mean of one photo is that photo: once is enough.
        return rows[1:] if len(rows) == 2 and np.array_equal(rows[0], rows[1]) else rows

    def wipe(self) -> None:
        """Overwrite the numbers in this process, as far as they can be."""
        self._packed[:] = bytes(len(self._packed))
        if self._templates is None:
            return
        arrays = [self._templates.anchor, self._templates.recent]
        for prototype in self._templates.prototypes:
            arrays += [prototype.embedding, prototype.origin]
        for array in arrays:
            if array.flags.writeable:
                array.fill(0)


@dataclass(frozen=True, slots=True, eq=False)
class KnownPerson:
    """Somebody who is remembered, for whoever asks; changing it changes nothing.

    Attributes:
        person_id: Random, 16 bytes.
        name: What they are called; None for people who were only seen.
        origin: ``enrolled`` or ``seen``.
        embeddings: What the index compares with, shape ``(n, d)``.
        consent: What they agreed to; None where they were never asked.
        created_s: When they became known, seconds since 1970.
        last_seen_s: When they were last seen.
        expires_at_s: When they will be forgotten unless they are seen again; ``inf`` for never.
        pinned: Exempt from time limits and from being pushed out.
        sources: Where they were seen, the newest last.
    """

    person_id: bytes
    name: str | None
    origin: Origin
    embeddings: npt.NDArray[np.float32] = field(repr=False)
    consent: GivenConsent | None
    created_s: float
    last_seen_s: float
    expires_at_s: float
    pinned: bool
    sources: tuple[str, ...]

    @property
    def views(self) -> int:
        """How many looks at them are kept, beside the mean of all where there are several."""
        return max(1, len(self.embeddings) - 1)

    @property
    def short_id(self) -> str:
        """The id as people are shown it."""
        return self.person_id.hex()[:SHORT_ID]


@dataclass(frozen=True, slots=True, eq=False)
class Person:
    """One person as the memory keeps them.

    Attributes:
        person_id: Random, 16 bytes.
        looks: What they look like.
        created_s: When they became known, seconds since 1970.
        last_seen_s: When they were last seen.
        name: What they are called; None for people who were only seen.
        origin: ``enrolled`` or ``seen``.
        consent: What they agreed to; None where they were never asked.
        pinned: Exempt from time limits and from being pushed out.
        keep_until_s: An end that came with a bundle; ``inf`` for none.
        sources: Where they were seen, the newest last.
    """

    person_id: bytes
    looks: Looks
    created_s: float
    last_seen_s: float
    name: str | None = None
    origin: Origin = "seen"
    consent: GivenConsent | None = None
    pinned: bool = False
    keep_until_s: float = math.inf
    sources: tuple[str, ...] = ()

    @classmethod
    def new(
        cls, person_id: bytes, recogniser: str, views: Sequence[View], now_s: float, source: str
    ) -> "Person":
        """Somebody nobody knew before."""
        templates = enrol(recogniser, [view.sample(now_s) for view in views])
        return cls(person_id, Looks.of(templates), now_s, now_s, sources=(source,) if source else ())

    @property
    def short_id(self) -> str:
        """The id as people are shown it."""
        return self.person_id.hex()[:SHORT_ID]

    @property
    def embeddings(self) -> npt.NDArray[np.float32]:
        """What the index compares with, shape ``(n, d)``; a copy."""
        return self.looks.rows()

    def subject(self, sketch: Sketch | None = None) -> Subject:
        """As the policy takes them."""
        return Subject(
            consent=None if self.consent is None else self.consent.for_policy(),
            pinned=self.pinned,
            first_seen_s=self.created_s,
            last_seen_s=self.last_seen_s,
            keep_until_s=self.keep_until_s,
            sketch=sketch,
        )

    def with_views(self, views: Sequence[View], now_s: float) -> "Person":
        """With more photos that are surely theirs."""
        samples, templates = [view.sample(now_s) for view in views], self.looks.templates
        return replace(self, looks=Looks.of(extend(templates, templates.recogniser, samples)))

    def learnt(self, view: View, match: Match, now_s: float) -> "Person | None":
        """After a look at them that may teach something; None where it did not."""
        if view.yaw_deg is None or view.pitch_deg is None:
            return None
        before = self.looks.templates
        after, _ = update(before, view.sample(now_s), match, allowed=True)
        return None if after is before else replace(self, looks=Looks.of(after))

    def seen(self, now_s: float, source: str | None) -> "Person":
        """As they are after having been seen once more."""
        sources = self.sources
        if source and source not in sources[-1:]:
            sources = (*(each for each in sources if each != source), source)[-_MOST_SOURCES:]
        return replace(self, last_seen_s=now_s, sources=sources)

    def shown(self, expires_at_s: float) -> KnownPerson:
        """For whoever asks."""
        return KnownPerson(
            person_id=self.person_id,
            name=self.name,
            origin=self.origin,
            embeddings=self.embeddings,
            consent=self.consent,
            created_s=self.created_s,
            last_seen_s=self.last_seen_s,
            expires_at_s=expires_at_s,
            pinned=self.pinned,
            sources=self.sources,
        )

    def wipe(self) -> None:
        """Overwrite the numbers of their face in this process."""
        self.looks.wipe()

    def to_bytes(self) -> bytes:
        """For the vault: what is plain as JSON, what is a face as templates write themselves."""
        consent = self.consent
        plain = {
            "version": _VERSION,
            "name": self.name,
            "origin": self.origin,
            "created_s": self.created_s,
            "last_seen_s": self.last_seen_s,
            "pinned": self.pinned,
            "keep_until_s": _finite(self.keep_until_s),
            "sources": self.sources,
            "consent": None
            if consent is None
            else [consent.scope, consent.given_by, consent.given_at_s, _finite(consent.expires_at_s)],
        }
        head = json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass")
        return len(head).to_bytes(_LENGTH_BYTES) + head + self.looks.to_bytes()

    @classmethod
    def from_bytes(cls, person_id: bytes, data: bytes) -> "Person":
        """Back from ``to_bytes``.

        Whether the looks can be read is found out when they are.

        Raises:
            VaultIntegrityError: If they cannot be read, for example because a newer version wrote them.
        """
        try:
            end = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES])
            plain = json.loads(data[_LENGTH_BYTES:end].decode("utf-8", "surrogatepass"))
            if plain["version"] != _VERSION or plain["origin"] not in get_args(Origin):
                raise ValueError("version")
            return cls(
                person_id,
                Looks(data[end:]),
                float(plain["created_s"]),
                float(plain["last_seen_s"]),
                None if plain["name"] is None else check_name(plain["name"]),
                plain["origin"],
                _consent(plain["consent"]),
                plain["pinned"] is True,
                _endless(plain["keep_until_s"]),
                tuple(str(source) for source in plain["sources"])[-_MOST_SOURCES:],
            )
        except (KeyError, TypeError, ValueError, RecursionError, UsageError) as err:
            raise VaultIntegrityError(
                "the record of a person cannot be read: damaged, or written by a newer version"
            ) from err


def check_name(name: str) -> str:
    """A name as it is kept.

    Raises:
        UsageError: If it is empty, too long, or holds control characters.
    """
    name = unicodedata.normalize("NFC", name).strip()
    if not name or len(name) > _LONGEST_NAME:
        raise UsageError(f"a name has 1 to {_LONGEST_NAME} characters")
    if any(unicodedata.category(letter) in ("Cc", "Cs") for letter in name):
        raise UsageError("a name holds no line breaks or other control characters")
    return name


def same_name(first: str, second: str) -> bool:
    """Whether two names are one, but for case and the spelling of accents."""
    return _folded(first) == _folded(second)


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold()).strip()


def _finite(time_s: float) -> float | None:
    """JSON has no infinity."""
    return time_s if math.isfinite(time_s) else None


def _endless(time_s: Any) -> float:
    return math.inf if time_s is None else float(time_s)


def _consent(plain: Any) -> GivenConsent | None:
    if plain is None:
        return None
    scope, given_by, given_at_s, expires_at_s = plain
    return GivenConsent(str(scope), str(given_by), float(given_at_s), _endless(expires_at_s))
