import numpy as np
import pytest

from edge.people import PeopleIndex
from shared.arrays import Embedding
from shared.counters import CacheCounters


def somebody(seed: int) -> Embedding:
    vector = np.random.default_rng(seed).normal(size=192).astype(np.float32)
    return vector / np.linalg.norm(vector)


def alike(person: Embedding, cosine: float) -> Embedding:
    """A vector of length 1 at this cosine from the person."""
    other = somebody(99)
    across = other - (other @ person) * person
    across /= np.linalg.norm(across)
    return (cosine * person + np.sqrt(1 - cosine**2) * across).astype(np.float32)


def test_nobody_was_seen_at_first() -> None:
    counters = CacheCounters()
    assert len(PeopleIndex(counters)) == 0
    assert counters.summary()["identity"] == {"hits": 0, "misses": 0, "rate": 0.0}


def test_each_person_has_one_entry_and_keeps_its_number() -> None:
    counters = CacheCounters()
    people = PeopleIndex(counters)
    assert [people.see(somebody(i)) for i in (1, 2, 1, 3, 2, 1)] == [0, 1, 0, 2, 1, 0]
    assert len(people) == 3
    assert counters.summary()["identity"] == {"hits": 3, "misses": 3, "rate": 0.5}


@pytest.mark.parametrize(("cosine", "known"), [(0.99, True), (0.52, True), (0.48, False), (-0.9, False)])
def test_who_is_alike_enough_is_the_same_person(cosine: float, known: bool) -> None:
    people = PeopleIndex(CacheCounters())
    people.see(somebody(1))
    assert (people.see(alike(somebody(1), cosine)) == 0) == known


def test_of_several_the_most_alike_is_meant() -> None:
    people = PeopleIndex(CacheCounters())
    person = somebody(1)
    far, near = alike(person, 0.6), alike(person, 0.99)
    people.see(far)
    second = people.see(alike(far, -0.2))
    assert second == 1
    assert people.see(near) == 0
