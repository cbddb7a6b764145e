"""Grouping the faces of many photos by person."""

import numpy as np
import pytest

from edge.memory.clusters import cluster_faces
from shared.arrays import Embedding


def faces_of(people: int, each: int, spread: float, seed: int = 1) -> tuple[list[Embedding], list[int]]:
    """Embeddings of some people, person by person, and who each is of."""
    random = np.random.default_rng(seed)
    faces, owners = [], []
    for person in range(people):
        centre = random.normal(size=192)
        centre /= np.linalg.norm(centre)
        for _ in range(each):
            face = centre + spread * random.normal(size=192) / np.sqrt(192)
            faces.append((face / np.linalg.norm(face)).astype(np.float32))
            owners.append(person)
    return faces, owners


def test_nobody_is_in_no_photo() -> None:
    assert cluster_faces([], [], []) == []


@pytest.mark.parametrize("spread", [0.3, 0.7, 0.85])
def test_faces_of_one_person_come_together_and_of_two_do_not(spread: float) -> None:
    faces, owners = faces_of(20, 15, spread)
    order = np.random.default_rng(2).permutation(len(faces))

    groups = cluster_faces([faces[i] for i in order], list(range(300)), [0.8] * 300)

    assert len(groups) == 20
    for group in groups:
        assert len({owners[order[i]] for i in group}) == 1


def test_two_faces_of_one_photo_are_two_people_however_alike() -> None:
    (face,), _ = faces_of(1, 1, 0)

    assert cluster_faces([face, face], [0, 0], [1, 1]) == [[0], [1]]


def test_the_best_faces_come_first_and_the_person_seen_most() -> None:
    faces, _ = faces_of(2, 3, 0.2)

    groups = cluster_faces(faces[:5], [0, 1, 2, 3, 4], [0.1, 0.9, 0.5, 0.9, 0.2])

    assert groups == [[1, 2, 0], [3, 4]]


def test_people_who_began_apart_become_one_where_their_means_are_alike() -> None:
    # Two rough faces lie too far apart to meet; those between them bring their means together.
    faces, _ = faces_of(1, 30, 0.85, seed=4)

    assert len(cluster_faces(faces, list(range(30)), [0.5] * 30)) == 1
