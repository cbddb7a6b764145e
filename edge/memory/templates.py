"""What one person looks like: a few prototypes by pose, kept up to date without being led astray.

The anchor is the mean of the photos somebody was enrolled with; it never changes. Beside it there is a
prototype for each pose, which follows its person slowly, and the two latest samples. An update has to pass
every gate: it may come once a day for each pose, from a track that is settled, well above the threshold, far
from the second most alike person, of good quality, and like the anchor.

Whoever shows a camera a face that is a little more their own each day would otherwise take a template over.
Their updates have one thing in common: they all point the same way. So the direction of each update is
compared with the way the prototype has come; when it points onwards several times in a row the prototype goes
back to where it began and stays there. And however slowly it goes, it never comes further than 35 degrees.

Vectors of different recognisers have nothing in common; templates carry the name of theirs.
"""

import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

import numpy as np
import numpy.typing as npt

from edge.memory.index import Match, Verdict
from edge.memory.sketch import require_unit
from shared.arrays import Embedding
from shared.errors import VaultIntegrityError

_VERSION = 1
_DAY_S = 86400.0
_HALF_LIFE_S = 90 * _DAY_S
"""What was learnt counts half after so long: faces change over years, not weeks."""

_TURNED_DEG = 20.0
_ABOVE_THRESHOLD = 0.10
_MARGIN = 0.10
_ANCHOR_COSINE = 0.5
"""Single photos of one person had 0.53 and more with the packaged recogniser, look-alikes less than 0.6."""

_DRIFT_COSINE = math.cos(math.radians(35))
_FIRST_QUALITY = 0.3
"""Of a sample that founds the prototype of a pose, see ``edge.identity.face_quality``."""

_ONWARD_COSINE = 0.5
_ONWARD_UPDATES = 3
"""So many updates in a row that point onwards freeze a prototype. Honest ones point anywhere."""

_KEPT_QUALITIES = 5
_RECENT = 2


class Pose(Enum):
    """Which prototype a face belongs to. Left and right are those of the picture."""

    FRONT = "front"
    LEFT = "left"
    RIGHT = "right"
    UP = "up"
    DOWN = "down"


def pose_of(yaw_deg: float, pitch_deg: float) -> Pose:
    """The pose of a head; where it is turned both ways, the greater one.

    Args:
        yaw_deg: Positive where the nose points to the right of the picture.
        pitch_deg: Positive where it points up.
    """
    if max(abs(yaw_deg), abs(pitch_deg)) < _TURNED_DEG:
        return Pose.FRONT
    if abs(yaw_deg) >= abs(pitch_deg):
        return Pose.RIGHT if yaw_deg > 0 else Pose.LEFT
    return Pose.UP if pitch_deg > 0 else Pose.DOWN


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """One look at a person: the vote of a settled track, or a photo.

    Attributes:
        embedding: Shape ``(d,)``, of length 1.
        pose: Of the head.
        quality: How well it shows who it is, 0..1, see ``edge.identity.face_quality``.
        time_s: When, seconds since 1970.
        settled: Several frames of the track agree.
    """

    embedding: Embedding = field(repr=False)
    pose: Pose
    quality: float
    time_s: float
    settled: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Prototype:
    """One person in one pose.

    Attributes:
        pose: Which.
        embedding: Shape ``(d,)``, of length 1.
        origin: Where it began, shape ``(d,)``.
        weight: What it has learnt from, as a number of samples of quality 1.
        updated_s: When it last learnt, seconds since 1970.
        qualities: Of the latest samples.
        onward: How many updates in a row pointed the way it had come.
        frozen: It no longer learns.
    """

    pose: Pose
    embedding: Embedding = field(repr=False)
    origin: Embedding = field(repr=False)
    weight: float
    updated_s: float
    qualities: tuple[float, ...]
    onward: int = 0
    frozen: bool = False


class Gate(Enum):
    """What became of a sample: it passed, or the gate that stopped it."""

    PASSED = "passed"
    NOT_ALLOWED = "the policy does not allow it"
    NOT_SETTLED = "the track is not settled"
    NOT_SURE = "the match is not sure enough"
    MARGIN = "somebody else is nearly as alike"
    ANCHOR = "it is unlike the anchor"
    FROZEN = "the prototype of this pose no longer learns"
    TOO_SOON = "this pose has learnt today"
    QUALITY = "the picture is not good enough"
    DRIFT = "the prototype would come too far from where it began"
    POISONING = "update after update points the same way"


@dataclass(frozen=True, slots=True, eq=False)
class Templates:
    """Everything that is kept of what one person looks like.

    Attributes:
        recogniser: The model all vectors come from.
        anchor: Shape ``(d,)``; never changes.
        prototypes: At most one for each pose.
        recent: The latest samples, newest first, shape ``(n, d)``, at most two.
    """

    recogniser: str
    anchor: Embedding = field(repr=False)
    prototypes: tuple[Prototype, ...] = ()
    recent: npt.NDArray[np.float32] = field(repr=False, kw_only=True)

    @property
    def dimensions(self) -> int:
        """Length of a vector."""
        return len(self.anchor)

    def of(self, pose: Pose) -> Prototype | None:
        """The prototype of a pose."""
        return next((each for each in self.prototypes if each.pose is pose), None)

    def matrix(self) -> npt.NDArray[np.float32]:
        """What the index compares with: shape ``(n, d)``, n from 1 to 8, the anchor first."""
        return np.vstack([self.anchor, *(each.embedding for each in self.prototypes), self.recent])

    def to_bytes(self) -> bytes:
        """For the vault: vectors in half precision, which costs a cosine less than 0.0001."""
        rows = [self.anchor, *(v for each in self.prototypes for v in (each.embedding, each.origin))]
        header = {
            "version": _VERSION,
            "recogniser": self.recogniser,
            "dimensions": self.dimensions,
            "prototypes": [_prototype_to_plain(each) for each in self.prototypes],
        }
        vectors = np.vstack([*rows, self.recent]).astype("<f2").tobytes()
        return json.dumps(header).encode() + b"\n" + vectors

    @classmethod
    def from_bytes(cls, data: bytes) -> "Templates":
        """Back from ``to_bytes``.

        Raises:
            VaultIntegrityError: If they cannot be read, for example because a newer version wrote them.
        """
        try:
            head, _, body = data.partition(b"\n")
            header = json.loads(head)
            if header["version"] != _VERSION:
                raise ValueError("version")
            rows = _unit(np.frombuffer(body, "<f2").reshape(-1, header["dimensions"]).astype(np.float32))
            plain = header["prototypes"]
            split = 1 + 2 * len(plain)
            prototypes = tuple(
                _prototype_from_plain(each, rows[1 + 2 * i], rows[2 + 2 * i]) for i, each in enumerate(plain)
            )
            if not split <= len(rows) <= split + _RECENT:
                raise ValueError("rows")
            return cls(str(header["recogniser"]), rows[0], prototypes, recent=rows[split:])
        except (KeyError, TypeError, ValueError, IndexError) as err:
            raise _unreadable() from err


def packed_matrix(data: bytes) -> npt.NDArray[np.float32]:
    """``Templates.matrix`` straight from ``to_bytes``, for an index of many people.

    Returns:
        Shape ``(n, d)``, the anchor first, of length 1 but for rounding; a copy.

    Raises:
        VaultIntegrityError: If they cannot be read, for example because a newer version wrote them.
    """
    try:
        head, _, body = data.partition(b"\n")
        header = json.loads(head)
        if header["version"] != _VERSION:
            raise ValueError("version")
        rows = np.frombuffer(body, "<f2").reshape(-1, header["dimensions"])
        origins = range(2, 1 + 2 * len(header["prototypes"]), 2)
        if not len(rows) > len(origins) * 2:
            raise ValueError("rows")
        return np.delete(rows, origins, axis=0).astype(np.float32)
    except (KeyError, TypeError, ValueError) as err:
        raise _unreadable() from err


def _unreadable() -> VaultIntegrityError:
    return VaultIntegrityError("templates of a person cannot be read: damaged, or written by a newer version")


def enrol(recogniser: str, samples: Sequence[Sample]) -> Templates:
    """Templates of somebody from photos that are surely theirs.

    Args:
        recogniser: The model the embeddings come from.
        samples: One or more.

    Raises:
        ValueError: If there is none, or one is not of length 1.
    """
    if not samples:
        raise ValueError("templates need at least one sample")
    require_unit(np.stack([each.embedding for each in samples]), len(samples[0].embedding))
    anchor = _mean([each.embedding for each in samples], [each.quality for each in samples])
    empty = np.zeros((0, len(anchor)), np.float32)
    return _founded(Templates(recogniser, anchor, recent=empty), samples)


def extend(templates: Templates, recogniser: str, samples: Sequence[Sample]) -> Templates:
    """Templates with more photos that are surely theirs: poses without a prototype get one.

    The anchor stays. A pose whose prototype is frozen begins anew from these photos.

    Raises:
        ValueError: If the samples come from another recogniser, or one is not of length 1.
    """
    if recogniser != templates.recogniser:
        raise ValueError(f"samples of {recogniser} cannot be added to templates of {templates.recogniser}")
    require_unit(np.stack([each.embedding for each in samples]), templates.dimensions)
    return _founded(templates, samples)


def update(templates: Templates, sample: Sample, match: Match, *, allowed: bool) -> tuple[Templates, Gate]:
    """Learn from a sample, if it passes every gate.

    Args:
        templates: Of the person that was matched.
        sample: What was seen.
        match: How the index matched it.
        allowed: The policy's decision allows the write.

    Returns:
        The templates to be kept from now on, and what became of the sample. They may differ from those given
        even where it did not pass: a prototype that was led astray goes back to where it began.
    """
    gate = _refusal(templates, sample, match, allowed=allowed)
    if gate is not None:
        return templates, gate
    before = templates.of(sample.pose)
    if before is None:
        return _with_recent(_founded(templates, [sample]), sample), Gate.PASSED
    after = _moved(before, sample)
    if after.onward >= _ONWARD_UPDATES:
        frozen = replace(reset(before, sample.time_s), frozen=True)
        return _replaced(replace(templates, recent=templates.recent[:0]), frozen), Gate.POISONING
    if float(after.embedding @ after.origin) < _DRIFT_COSINE:
        return templates, Gate.DRIFT
    return _with_recent(_replaced(templates, after), sample), Gate.PASSED


def reset(prototype: Prototype, now_s: float) -> Prototype:
    """A prototype as it began, with nothing learnt since."""
    return replace(
        prototype,
        embedding=prototype.origin,
        weight=1.0,
        updated_s=now_s,
        qualities=prototype.qualities[:1],
        onward=0,
    )


def _refusal(templates: Templates, sample: Sample, match: Match, *, allowed: bool) -> Gate | None:
    """The first gate that stops a sample, or None."""
    prototype = templates.of(sample.pose)
    checks = (
        (allowed, Gate.NOT_ALLOWED),
        (sample.settled, Gate.NOT_SETTLED),
        (match.verdict is Verdict.KNOWN and match.score >= match.threshold + _ABOVE_THRESHOLD, Gate.NOT_SURE),
        (match.margin >= _MARGIN, Gate.MARGIN),
        (float(sample.embedding @ templates.anchor) >= _ANCHOR_COSINE, Gate.ANCHOR),
        (prototype is None or not prototype.frozen, Gate.FROZEN),
        (prototype is None or sample.time_s - prototype.updated_s >= _DAY_S, Gate.TOO_SOON),
        (sample.quality >= _least_quality(prototype), Gate.QUALITY),
    )
    # Not "is False": what numpy says is no Python bool.
    return next((gate for passed, gate in checks if not passed), None)


def _least_quality(prototype: Prototype | None) -> float:
    return _FIRST_QUALITY if prototype is None else statistics.median(prototype.qualities)


def _moved(prototype: Prototype, sample: Sample) -> Prototype:
    """A prototype that has learnt from one more sample."""
    age_s = sample.time_s - prototype.updated_s
    weight = prototype.weight * 0.5 ** (age_s / _HALF_LIFE_S)
    moved = _mean([prototype.embedding, sample.embedding], [weight, sample.quality])
    return replace(
        prototype,
        embedding=moved,
        weight=weight + sample.quality,
        updated_s=sample.time_s,
        qualities=(*prototype.qualities, sample.quality)[-_KEPT_QUALITIES:],
        onward=prototype.onward + 1 if _points_onward(prototype, sample.embedding) else 0,
    )


def _points_onward(prototype: Prototype, embedding: Embedding) -> bool:
    """Whether a sample would lead a prototype further the way it has come since it began."""
    here = prototype.embedding
    come, ahead = here - prototype.origin, embedding - here
    # Both as directions along the sphere, seen from where the prototype is.
    come, ahead = come - (come @ here) * here, ahead - (ahead @ here) * here
    lengths = float(np.linalg.norm(come)) * float(np.linalg.norm(ahead))
    return lengths > 1e-6 and float(come @ ahead) / lengths >= _ONWARD_COSINE


def _founded(templates: Templates, samples: Sequence[Sample]) -> Templates:
    """Templates with a prototype for each pose of the samples that has none, or a frozen one."""
    for pose in Pose:
        here = [each for each in samples if each.pose is pose]
        before = templates.of(pose)
        if not here or (before is not None and not before.frozen):
            continue
        mean = _mean([each.embedding for each in here], [each.quality for each in here])
        weight = max(sum(each.quality for each in here), 1e-3)
        qualities = tuple(each.quality for each in here)[-_KEPT_QUALITIES:]
        founded = Prototype(pose, mean, mean, weight, max(each.time_s for each in here), qualities)
        templates = _replaced(templates, founded)
    return templates


def _replaced(templates: Templates, prototype: Prototype) -> Templates:
    others = tuple(each for each in templates.prototypes if each.pose is not prototype.pose)
    return replace(templates, prototypes=(*others, prototype))


def _with_recent(templates: Templates, sample: Sample) -> Templates:
    return replace(templates, recent=np.vstack([sample.embedding, templates.recent])[:_RECENT])


def _mean(embeddings: Sequence[Embedding], weights: Sequence[float]) -> Embedding:
    """Weighted mean on the sphere, shape ``(d,)``, of length 1."""
    total = np.sum([max(w, 1e-3) * e for e, w in zip(embeddings, weights, strict=True)], axis=0)
    return np.asarray(total / max(float(np.linalg.norm(total)), 1e-12), np.float32)


def _unit(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.linalg.norm(rows, axis=1, keepdims=True)
    # Turned round so that what is not a number is refused, too.
    if not (np.abs(norms - 1) < 0.01).all():
        raise ValueError("a vector is not of length 1")
    return rows / norms


def _prototype_to_plain(prototype: Prototype) -> dict[str, object]:
    return {
        "pose": prototype.pose.value,
        "weight": prototype.weight,
        "updated_s": prototype.updated_s,
        "qualities": prototype.qualities,
        "onward": prototype.onward,
        "frozen": prototype.frozen,
    }


def _prototype_from_plain(plain: dict[str, object], embedding: Embedding, origin: Embedding) -> Prototype:
    values = {**plain, "pose": Pose(plain["pose"])}
    qualities = plain["qualities"]
    if not isinstance(qualities, list) or not qualities:
        raise ValueError("qualities")
    return Prototype(**{**values, "qualities": tuple(qualities), "embedding": embedding, "origin": origin})  # type: ignore[arg-type]
