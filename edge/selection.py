"""Which source goes onto which face.

Decisions stick: a track keeps its source until another is better by a margin, several samples running, and
the largest face stays the chosen one until another is clearly larger for a while. Nothing flips because of
one noisy frame.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from shared.arrays import BoxXyxy, Embedding
from shared.errors import ConfigError


@dataclass(frozen=True, slots=True)
class SelectionConfig:
    """Which faces are fused.

    Attributes:
        faces: ``all`` of them, the ``largest``, or those that ``match`` a reference.
        match_threshold: From this likeness (cosine) a face matches a reference.
    """

    faces: Literal["all", "largest", "match"] = "all"
    match_threshold: float = 0.45

    def __post_init__(self) -> None:
        if self.faces not in ("all", "largest", "match"):
            raise ConfigError(f"faces must be all, largest or match, not {self.faces!r}")
        if not -1 <= self.match_threshold <= 1:
            raise ConfigError(f"match threshold must lie between -1 and 1, not {self.match_threshold}")


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """A face to choose from.

    Attributes:
        track_id: Its track.
        xyxy: Its box, shape ``(4,)``, frame pixels.
        embedding: Its track's vote, of length 1; None while nobody knows. A new object for every new vote.
    """

    track_id: int
    xyxy: BoxXyxy
    embedding: Embedding | None


@dataclass(slots=True, eq=False)
class _Held:
    """What a track was given, and how often in a row something else looked better."""

    pair: int | None = None
    rival: int | None = None
    times: int = 0
    seen: Embedding | None = None


class Selector:
    """Chooses, frame by frame, the source of every face of one stream.

    Args:
        config: Which faces are fused.
        references: For each source the embedding of the person it goes onto, or None for anybody.

    Raises:
        ConfigError: If faces shall match, but there is no reference.
    """

    # A held source may fall this far below the threshold, or behind another one, before it is in question,
    # and must be behind for so many samples running.
    _MARGIN = 0.08
    _SAMPLES = 3
    # Two faces may share a reference only when the weaker one is this clearly above the threshold.
    _CLEARLY = 0.1
    # Another face must be this much larger (by area), for so many frames, to become the largest; when the
    # largest is out of sight, one at least nearly as large may follow it.
    _LARGER = 1.3
    _NEARLY = 0.7
    _FRAMES = 5

    def __init__(
        self, config: SelectionConfig | None = None, references: Sequence[Embedding | None] = ()
    ) -> None:
        self.config = config or SelectionConfig()
        self._sources = tuple(references)
        self._known = [i for i, r in enumerate(references) if r is not None]
        self._references = np.stack([r for r in references if r is not None]) if self._known else None
        if self.config.faces == "match" and self._references is None:
            raise ConfigError("faces=match needs at least one reference photo")
        self._held: dict[int, _Held] = {}
        self._largest: tuple[int, float] | None = None  # track and area
        self._rival: tuple[int, int] | None = None  # track and frames running

    @property
    def needs_identity(self) -> bool:
        """Whether it looks at embeddings at all."""
        return self._references is not None

    def fresh(self) -> "Selector":
        """One with the same settings and no past."""
        return Selector(self.config, self._sources)

    def scene_changed(self) -> None:
        """Forget which face was the largest: the picture is another one."""
        self._largest = self._rival = None

    def forget(self, track_ids: Iterable[int]) -> None:
        """These tracks have ended."""
        for track_id in track_ids:
            self._held.pop(track_id, None)
            if self._largest is not None and self._largest[0] == track_id:
                self._largest = None

    def select(self, candidates: Sequence[Candidate]) -> Mapping[int, int | None]:
        """Source index for each track of this frame; None leaves the face alone.

        Args:
            candidates: All faces of the frame, each track once.
        """
        pairs = self._pairs(candidates)
        if self.config.faces != "largest":
            return pairs
        chosen = self._choose_largest([c for c in candidates if pairs[c.track_id] is not None])
        return {track_id: pair if track_id == chosen else None for track_id, pair in pairs.items()}

    def _pairs(self, candidates: Sequence[Candidate]) -> dict[int, int | None]:
        if self._references is None:
            return {c.track_id: 0 for c in candidates}
        likeness = {c.track_id: self._references @ c.embedding for c in candidates if c.embedding is not None}
        for c in candidates:
            held = self._held.setdefault(c.track_id, _Held())
            if c.embedding is not None and c.embedding is not held.seen:
                held.seen = c.embedding
                self._reconsider(held, self._wanted(held, likeness[c.track_id], likeness, c.track_id))
        return {c.track_id: self._source(self._held[c.track_id].pair) for c in candidates}

    def _source(self, reference: int | None) -> int | None:
        """Index among all sources; for a face that matches none the first source for anybody, if wanted."""
        if reference is not None:
            return self._known[reference]
        anybody = [i for i, r in enumerate(self._sources) if r is None]
        return anybody[0] if anybody and self.config.faces != "match" else None

    def _wanted(
        self,
        held: _Held,
        own: npt.NDArray[np.float32],
        likeness: Mapping[int, npt.NDArray[np.float32]],
        track_id: int,
    ) -> int | None:
        """The reference that suits a track best now, with a bonus for the one it has."""
        score = own.copy()
        if held.pair is not None:
            score[held.pair] += self._MARGIN
        for r in np.argsort(-score, kind="stable"):
            if score[r] < self.config.match_threshold:
                return None
            if own[r] >= self.config.match_threshold + self._CLEARLY or self._is_best(
                int(r), score[r], likeness, track_id
            ):
                return int(r)
        return None

    def _is_best(
        self, reference: int, score: float, likeness: Mapping[int, npt.NDArray[np.float32]], track_id: int
    ) -> bool:
        """Whether no other face of the frame suits a reference better; one that has it counts for more."""
        for other, values in likeness.items():
            if other == track_id:
                continue
            held = self._held.get(other)
            bonus = self._MARGIN if held is not None and held.pair == reference else 0.0
            if values[reference] + bonus > score:
                return False
        return True

    def _reconsider(self, held: _Held, wanted: int | None) -> None:
        """Give a track what it wants: at once when it has nothing, else only when it insists."""
        if wanted == held.pair:
            held.rival, held.times = None, 0
            return
        if held.pair is not None:
            held.times = held.times + 1 if held.rival == wanted else 1
            held.rival = wanted
            if held.times < self._SAMPLES:
                return
        held.pair, held.rival, held.times = wanted, None, 0

    def _choose_largest(self, candidates: Sequence[Candidate]) -> int | None:
        areas = {c.track_id: float(np.prod(np.maximum(c.xyxy[2:] - c.xyxy[:2], 0))) for c in candidates}
        if not areas:
            return None
        first = max(areas, key=lambda t: (areas[t], -t))
        if self._largest is None:
            self._largest = (first, areas[first])
        holder, last_area = self._largest
        present = holder in areas
        if present:
            self._largest = (holder, areas[holder])
            takes_over = first != holder and areas[first] >= self._LARGER * areas[holder]
        else:
            takes_over = areas[first] >= self._NEARLY * last_area
        times = self._rival[1] + 1 if self._rival is not None and self._rival[0] == first else 1
        self._rival = (first, times) if takes_over else None
        if takes_over and times >= self._FRAMES:
            self._largest, self._rival = (first, areas[first]), None
            return first
        return holder if present else None
