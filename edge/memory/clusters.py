"""Puts the faces of many photos together by person, so that each is named once.

Faces join the person whose mean they are most like; persons whose means turn out alike become one. Two faces
of one photo are never one person.
"""

from collections.abc import Sequence

import numpy as np

from shared.arrays import Embedding

_SAME_PERSON = 0.6
"""Cosine of a face and a person's mean. High: who is found twice can be given one name, but two people who
were put together cannot be taken apart."""
_SAME_MEANS = 0.65
"""Means have less noise than single faces, so they must be more alike."""


def cluster_faces(
    embeddings: Sequence[Embedding], photos: Sequence[int], qualities: Sequence[float]
) -> list[list[int]]:
    """Group faces by person.

    Args:
        embeddings: One for each face, of length 1, each of shape ``(d,)``.
        photos: Number of the photo each face is in.
        qualities: How well each face shows who it is, 0..1; the best ones found the groups.

    Returns:
        For each person the indices of their faces, best first; the person with most faces first.
    """
    people: list[_Person] = []
    for face in sorted(range(len(embeddings)), key=lambda i: (-qualities[i], i)):
        _join(people, face, embeddings[face], photos[face], qualities[face])
    _merge(people)
    return [person.faces for person in sorted(people, key=lambda p: (-len(p.faces), min(p.faces)))]


class _Person:
    """One group while it grows."""

    def __init__(self, face: int, embedding: Embedding, photo: int, weight: float) -> None:
        self.faces = [face]
        self.photos = {photo}
        self.sum = embedding.astype(np.float32) * weight

    def mean(self) -> Embedding:
        return self.sum / max(float(np.linalg.norm(self.sum)), 1e-12)

    def add(self, other: "_Person") -> None:
        self.faces += other.faces
        self.photos |= other.photos
        self.sum = self.sum + other.sum


def _join(people: list[_Person], face: int, embedding: Embedding, photo: int, quality: float) -> None:
    alone = _Person(face, embedding, photo, max(quality, 1e-3))
    free = [person for person in people if photo not in person.photos]
    if free:
        alike = np.stack([person.mean() for person in free]) @ embedding
        best = int(alike.argmax())
        if alike[best] >= _SAME_PERSON:
            free[best].add(alone)
            return
    people.append(alone)


def _merge(people: list[_Person]) -> None:
    """Join the two most alike until no two are alike enough."""
    while (two := _most_alike(people)) is not None:
        first, second = two
        people[first].add(people.pop(second))


def _most_alike(people: Sequence[_Person]) -> tuple[int, int] | None:
    """The two that are most surely one person, or None."""
    if len(people) < 2:
        return None
    means = np.stack([person.mean() for person in people])
    alone = np.array([len(person.faces) == 1 for person in people])
    needed = np.where(alone[:, None] | alone[None], _SAME_PERSON, _SAME_MEANS)
    surplus = np.where(np.tri(len(people), dtype=bool), -np.inf, means @ means.T - needed)
    while True:
        first, second = divmod(int(surplus.argmax()), len(people))
        if surplus[first, second] < 0:
            return None
        if people[first].photos.isdisjoint(people[second].photos):
            return first, second
        surplus[first, second] = -np.inf
