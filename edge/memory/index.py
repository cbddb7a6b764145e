"""Who a face is, among everybody who is remembered: prototypes in memory, compared by cosine.

Up to 20,000 prototypes of 192 numbers every one is compared. Beyond, sign sketches (``edge.memory.sketch``)
are compared first, 256 bits of all of them and then 512 bits of what is left, and the exact comparison is for
the few that remain. The sketches are made at that point, with a secret of the vault, and never stored; nor is
anything else of the index: it is built anew at every start.

All of it happens in the thread that asks. A second one was tried: it halves the time where a processor is
idle, and doubles it where none is, for then one waits for the other.

A search is an approximation only there: it misses about one in 100 of those whose cosine
lies at the lower end of what counts as "maybe", one in 2000 at the threshold, and next to none above.

Whoever is removed leaves no bytes behind: rows move by direct copies, freed rows and outgrown buffers are
overwritten with zeros, and so is everything a search has gathered.
"""

import math
import threading
from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge.memory.sketch import Bits, Sketcher, radius_for, require_unit
from shared.arrays import Embedding

EXACT_NUMBERS = 20_000 * 192
"""Up to so many numbers in all prototypes a plain comparison is the fastest: they fit processors' caches."""

_FIRST_WORDS, _WORDS = 4, 8
_SIGMAS = 2.5
"""How far beyond the bits expected at the lower end of "maybe" a sketch is still looked at."""
_BLOCK = 131_072
"""Columns compared at a time: fewer spend their time in calls, more fall out of the processor's cache."""
_GATHER = 256
_ALONE = 131_072
"""Products of matrices no larger than this stay in the thread that asks for them. Beyond, the linear algebra
library wakes its other threads and waits for them: where the processors are busy that takes milliseconds."""
_FIRST_CAPACITY = 64


@dataclass(frozen=True, slots=True)
class MatchConfig:
    """How sure a match has to be.

    On photos of 30 people the packaged recogniser gave strangers cosines spread like a normal distribution of
    mean 0.01 and deviation 0.15, and one person 0.66 and more. A tail of that shape calls for such a growth,
    if the share of strangers that are taken for somebody is to stay the same.

    Attributes:
        base_cosine: From this likeness a face is known, among up to ten people.
        growth_per_decade: Added each time there are ten times as many people.
        fixed_cosine: Overrides both; None lets the threshold grow.
        margin: How much more alike than the next person the best one has to be.
        maybe_band: So far below the threshold a face is shown as "maybe", and never written.
    """

    base_cosine: float = 0.45
    growth_per_decade: float = 0.07
    fixed_cosine: float | None = None
    margin: float = 0.05
    maybe_band: float = 0.06

    def __post_init__(self) -> None:
        for name in ("base_cosine", "fixed_cosine"):
            value = getattr(self, name)
            if value is not None and not 0 < value <= 1:
                raise ValueError(f"{name} must lie between 0 and 1, not {value}")

    def threshold(self, people: int) -> float:
        """Cosine from which a face is known among so many people."""
        if self.fixed_cosine is not None:
            return self.fixed_cosine
        return min(0.95, self.base_cosine + self.growth_per_decade * math.log10(max(people, 10) / 10))


class Verdict(Enum):
    """What a search found."""

    KNOWN = "known"
    MAYBE = "maybe"
    """Nearly alike enough, or as much like somebody else: good for a hint, never for a write."""
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Match:
    """The answer to a search.

    Attributes:
        verdict: Whether the face is known.
        person_id: Whose it is or may be; None where unknown.
        score: Cosine to that person's best prototype; of the best one found where unknown, -1 where none was.
        margin: How much more alike than the next person; ``inf`` where there is no next one near.
        runner_up_id: The next person, where they are within the margin.
        threshold: The cosine that was asked for.
    """

    verdict: Verdict
    person_id: bytes | None
    score: float
    margin: float
    runner_up_id: bytes | None
    threshold: float


class _Scores(NamedTuple):
    """Cosines of some rows: all of them, or those a sketch did not rule out."""

    cosines: npt.NDArray[np.float32]
    owners: npt.NDArray[np.int32]


class _Near(NamedTuple):
    """Columns that differ little from a sketch in their first words."""

    rows: npt.NDArray[np.intp]
    distances: npt.NDArray[np.uint16]


class _Scratch:
    """Work buffers for one block of columns."""

    def __init__(self) -> None:
        self.xor = np.zeros(_BLOCK, np.uint64)
        self.bits = np.zeros(_BLOCK, np.uint8)
        self.distances = np.zeros(_BLOCK, np.uint8)

    def wipe(self) -> None:
        """Overwrite what the last search left."""
        for buffer in (self.xor, self.bits, self.distances):
            buffer.fill(0)


class IdentityIndex:
    """Prototypes of everybody. Threads may share it.

    Args:
        recogniser: The model all embeddings come from.
        dimensions: Length of its embeddings.
        secret: Keys the sketches; 16 bytes or more, another one for each vault.
        config: How sure a match has to be.
    """

    def __init__(
        self, recogniser: str, dimensions: int, secret: bytes, config: MatchConfig | None = None
    ) -> None:
        self.recogniser = recogniser
        self.dimensions = dimensions
        self.config = config or MatchConfig()
        self._secret = secret
        # Protects everything below: a search must not see a row that is being moved.
        self._lock = threading.Lock()
        self._count = 0
        self._rows = np.zeros((0, dimensions), np.float32)
        self._owners = np.zeros(0, np.int32)
        self._cosines = np.zeros(0, np.float32)
        self._slots: dict[bytes, int] = {}
        self._ids: list[bytes | None] = []
        self._free: list[int] = []
        self._sketcher: Sketcher | None = None
        self._columns: Bits = np.zeros((_WORDS, 0), np.uint64)
        self._gathered = np.zeros((_GATHER, dimensions), np.float32)
        self._scratch: _Scratch | None = None

    def __len__(self) -> int:
        """How many prototypes there are."""
        return self._count

    def __contains__(self, person_id: bytes) -> bool:
        return person_id in self._slots

    @property
    def people(self) -> int:
        """How many people there are."""
        return len(self._slots)

    @property
    def threshold(self) -> float:
        """Cosine from which a face is known now."""
        return self.config.threshold(self.people)

    def reserve(self, prototypes: int) -> None:
        """Make room for so many in all, so that they can be added without moving."""
        with self._lock:
            self._grow(prototypes)

    def put(self, person_id: bytes, recogniser: str, prototypes: npt.NDArray[np.float32]) -> None:
        """Add a person, or give a person other prototypes.

        Args:
            person_id: Who.
            recogniser: The model the prototypes come from.
            prototypes: Shape ``(n, d)``, each of length 1; copied.

        Raises:
            ValueError: If they come from another model or are not of length 1: they cannot be compared.
        """
        self.put_many([person_id], recogniser, prototypes, [len(prototypes)])

    def put_many(
        self,
        person_ids: Collection[bytes],
        recogniser: str,
        prototypes: npt.NDArray[np.float32],
        counts: Collection[int],
    ) -> None:
        """Add many people at once, which is faster.

        Args:
            person_ids: Who, each once.
            recogniser: The model the prototypes come from.
            prototypes: Shape ``(n, d)``, each of length 1, those of a person one after the other; copied.
            counts: How many of them each person has.

        Raises:
            ValueError: If they come from another model, are not of length 1, or the counts do not add up.
        """
        if recogniser != self.recogniser:
            raise ValueError(f"prototypes of {recogniser} cannot be compared with those of {self.recogniser}")
        require_unit(prototypes, self.dimensions)
        if len(person_ids) != len(counts) or sum(counts) != len(prototypes):
            raise ValueError("as many counts as people, and as many prototypes as they add up to")
        if len(set(person_ids)) != len(person_ids):
            raise ValueError("a person may come only once")
        with self._lock:
            self._remove([each for each in person_ids if each in self._slots])
            start, stop = self._count, self._count + len(prototypes)
            self._grow(stop)
            self._rows[start:stop] = prototypes
            # What is stored is rounded to half precision, so its length is a little off.
            norms = np.sqrt(np.einsum("nd,nd->n", self._rows[start:stop], self._rows[start:stop]))
            self._rows[start:stop] /= norms[:, None]
            slots = np.array([self._new_slot(each) for each in person_ids], np.int32)
            self._owners[start:stop] = np.repeat(slots, list(counts))
            self._count = stop
            self._sketch(start)

    def remove(self, person_ids: Collection[bytes]) -> int:
        """Take people out and leave no bytes of them.

        Args:
            person_ids: Who; those who are not here are passed over.

        Returns:
            How many prototypes went.
        """
        with self._lock:
            gone = self._remove([each for each in person_ids if each in self._slots])
            if self._sketcher is not None and self._scratch is not None:
                self._sketcher.scrub()
                self._scratch.wipe()
            return gone

    def close(self) -> None:
        """Take everybody out and leave no bytes of them."""
        self.remove(list(self._slots))

    def residue(self) -> int:
        """How many bytes outside of the rows in use are not zero; 0 unless something is broken."""
        with self._lock:
            unused = (
                self._rows[self._count :],
                self._columns[:, self._count :],
                self._owners[self._count :],
                self._gathered,
            )
            return sum(int(np.count_nonzero(each)) * each.itemsize for each in unused)

    def search(self, embedding: Embedding) -> Match:
        """Whose face an embedding is.

        Args:
            embedding: Shape ``(d,)``, of length 1, from this index's recogniser.

        Raises:
            ValueError: If it is not of length 1 or has another shape.
        """
        require_unit(embedding[None], self.dimensions)
        with self._lock:
            threshold = self.threshold
            if len(self._columns[0]):
                scores = self._search_by_sketch(embedding, threshold - self.config.maybe_band)
            else:
                scores = self._search_all(embedding)
            return self._decide(scores, threshold)

    def _search_all(self, embedding: Embedding) -> _Scores:
        cosines = self._cosines[: self._count]
        step = max(1, _ALONE // self.dimensions)
        for start in range(0, self._count, step):
            stop = min(start + step, self._count)
            np.dot(self._rows[start:stop], embedding, out=cosines[start:stop])
        return _Scores(cosines, self._owners[: self._count])

    def _search_by_sketch(self, embedding: Embedding, floor: float) -> _Scores:
        """Cosines of those whose sketch does not say that they are less alike than ``floor``."""
        assert self._sketcher is not None
        column = np.zeros((_WORDS, 1), np.uint64)
        self._sketcher.columns(embedding[None], column)
        near = self._scan(column[:_FIRST_WORDS, 0], radius_for(floor, 64 * _FIRST_WORDS, _SIGMAS))
        rest = np.take(self._columns[_FIRST_WORDS:], near.rows, axis=1)
        rest ^= column[_FIRST_WORDS:]
        differing = near.distances + np.bitwise_count(rest).sum(0, dtype=np.uint16)
        rows = near.rows[differing <= radius_for(floor, 64 * _WORDS, _SIGMAS)]
        rest.fill(0)
        return _Scores(self._exact(rows, embedding), self._owners[rows])

    def _scan(self, words: npt.NDArray[np.uint64], radius: int) -> _Near:
        """All columns that differ in no more than ``radius`` bits from ``words``."""
        assert self._scratch is not None
        near = [
            self._scan_block(start, words, radius, self._scratch) for start in range(0, self._count, _BLOCK)
        ]
        if not near:
            return _Near(np.zeros(0, np.intp), np.zeros(0, np.uint16))
        return _Near(
            np.concatenate([each.rows for each in near]), np.concatenate([each.distances for each in near])
        )

    def _scan_block(self, start: int, words: npt.NDArray[np.uint64], radius: int, scratch: _Scratch) -> _Near:
        stop = min(start + _BLOCK, self._count)
        size = stop - start
        xor, bits, distances = scratch.xor[:size], scratch.bits[:size], scratch.distances[:size]
        np.bitwise_xor(self._columns[0, start:stop], words[0], out=xor)
        np.bitwise_count(xor, out=distances)
        for number in range(1, _FIRST_WORDS):
            np.bitwise_xor(self._columns[number, start:stop], words[number], out=xor)
            np.bitwise_count(xor, out=bits)
            # 256 bits that all differ count as none; those are opposite vectors, and only cost a comparison.
            np.add(distances, bits, out=distances)
        rows = np.flatnonzero(distances <= min(radius, 255))
        return _Near(rows + start, distances[rows].astype(np.uint16))

    def _exact(self, rows: npt.NDArray[np.intp], embedding: Embedding) -> npt.NDArray[np.float32]:
        """Cosines of some rows."""
        cosines = np.zeros(len(rows), np.float32)
        for start in range(0, len(rows), _GATHER):
            some = rows[start : start + _GATHER]
            gathered = self._gathered[: len(some)]
            # Anything but "clip" goes through a copy that is not ours to overwrite.
            np.take(self._rows, some, axis=0, out=gathered, mode="clip")
            np.dot(gathered, embedding, out=cosines[start : start + len(some)])
            gathered.fill(0)
        return cosines

    def _decide(self, scores: _Scores, threshold: float) -> Match:
        if not len(scores.cosines):
            return Match(Verdict.UNKNOWN, None, -1.0, math.inf, None, threshold)
        best = int(scores.cosines.argmax())
        score, owner = float(scores.cosines[best]), scores.owners[best]
        if score < threshold - self.config.maybe_band:
            return Match(Verdict.UNKNOWN, None, score, math.inf, None, threshold)
        # Cosines are scratch: the best person's own rows are out of the race for the second place.
        scores.cosines[scores.owners == owner] = -np.inf
        second = int(scores.cosines.argmax())
        margin = score - float(scores.cosines[second])
        is_close = margin < self.config.margin
        known = score >= threshold and not is_close
        return Match(
            Verdict.KNOWN if known else Verdict.MAYBE,
            self._ids[owner],
            score,
            margin,
            self._ids[scores.owners[second]] if is_close else None,
            threshold,
        )

    def _new_slot(self, person_id: bytes) -> int:
        slot = self._free.pop() if self._free else len(self._ids)
        if slot == len(self._ids):
            self._ids.append(None)
        self._ids[slot] = person_id
        self._slots[person_id] = slot
        return slot

    def _grow(self, wanted: int) -> None:
        """Make room for ``wanted`` rows in all; outgrown buffers are overwritten."""
        capacity = len(self._rows)
        if wanted <= capacity:
            return
        capacity = max(wanted, 2 * capacity, _FIRST_CAPACITY)
        rows, owners = np.zeros((capacity, self.dimensions), np.float32), np.zeros(capacity, np.int32)
        rows[: self._count], owners[: self._count] = self._rows[: self._count], self._owners[: self._count]
        self._rows.fill(0)
        self._rows, self._owners, self._cosines = rows, owners, np.zeros(capacity, np.float32)
        if len(self._columns[0]):
            self._grow_columns()

    def _grow_columns(self) -> None:
        columns = np.zeros((_WORDS, len(self._rows)), np.uint64)
        kept = min(len(self._columns[0]), self._count)
        columns[:, :kept] = self._columns[:, :kept]
        self._columns.fill(0)
        self._columns = columns

    def _sketch(self, start: int) -> None:
        """Write the sketches of the rows from ``start``, or of all once there are many."""
        if not len(self._columns[0]):
            if self._count * self.dimensions <= EXACT_NUMBERS:
                return
            self._sketcher = Sketcher(self._secret, self.recogniser, self.dimensions, 64 * _WORDS)
            self._scratch = _Scratch()
            self._grow_columns()
            start = 0
        assert self._sketcher is not None
        self._sketcher.columns(self._rows[start : self._count], self._columns[:, start : self._count])

    def _remove(self, person_ids: Collection[bytes]) -> int:
        slots = [self._slots.pop(each) for each in person_ids]
        if not slots:
            return 0
        gone = np.isin(self._owners[: self._count], slots)
        for slot in slots:
            self._ids[slot] = None
        self._free += slots
        kept = self._count - int(np.count_nonzero(gone))
        holes, movers = np.flatnonzero(gone[:kept]), kept + np.flatnonzero(~gone[kept:])
        # One by one, for a copy of many rows at once goes through memory that is not ours to overwrite.
        for hole, mover in zip(holes.tolist(), movers.tolist(), strict=True):
            self._rows[hole] = self._rows[mover]
            self._owners[hole] = self._owners[mover]
            if len(self._columns[0]):
                self._columns[:, hole] = self._columns[:, mover]
        removed = self._count - kept
        self._rows[kept : self._count].fill(0)
        self._owners[kept : self._count].fill(0)
        self._columns[:, kept : self._count].fill(0)
        self._count = kept
        return removed
