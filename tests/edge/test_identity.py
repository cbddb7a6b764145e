import numpy as np
import pytest

from edge.identity import IdentityConfig, IdentityVote, Verdict, face_quality
from shared.arrays import Embedding


def person(seed: int) -> Embedding:
    vector = np.random.default_rng(seed).normal(size=192)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def sample(who: Embedding, cosine: float = 0.8, seed: int = 0) -> Embedding:
    """A noisy picture of a person, at a chosen likeness."""
    noise = np.random.default_rng(1000 + seed).normal(size=192)
    noise -= (noise @ who) * who
    noise /= np.linalg.norm(noise)
    return (cosine * who + np.sqrt(1 - cosine**2) * noise).astype(np.float32)


ANNA, BERT = person(1), person(2)


def samples_taken(
    vote: IdentityVote, frames: int, *, quality: float = 0.8, yaw_deg: float = 0.0
) -> list[int]:
    taken = []
    for i in range(frames):
        if vote.due(i, quality, yaw_deg):
            vote.add(sample(ANNA, 0.9, i), quality, i)
            taken.append(i)
    return taken


def test_a_new_vote_knows_nobody() -> None:
    vote = IdentityVote()
    assert vote.embedding is None
    assert not vote.settled
    assert vote.likeness(ANNA) is None
    assert vote.due(0, 0.5, 0.0)


def test_a_face_is_embedded_at_once_then_often_then_rarely() -> None:
    assert samples_taken(IdentityVote(), 80) == [0, 5, 10, 40, 70]


def test_a_profile_does_not_vote() -> None:
    assert samples_taken(IdentityVote(), 20, yaw_deg=-50) == []
    assert samples_taken(IdentityVote(), 8, yaw_deg=40) == [0, 5]


def test_a_much_better_view_is_taken_before_its_turn() -> None:
    vote = IdentityVote()
    samples_taken(vote, 12, quality=0.4)
    assert vote.settled
    assert not vote.due(20, 0.45, 0.0)
    assert vote.due(20, 0.8, 0.0)


def test_a_contested_face_is_watched_closely() -> None:
    vote = IdentityVote()
    samples_taken(vote, 12)
    assert not vote.due(13, 0.8, 0.0)
    assert vote.due(13, 0.8, 0.0, contested=True)


def test_a_stream_wound_back_is_sampled_again() -> None:
    vote = IdentityVote()
    vote.add(ANNA, 0.8, 500)
    assert vote.due(3, 0.8, 0.0)


def test_the_mean_is_nearer_to_the_person_than_any_sample() -> None:
    vote = IdentityVote()
    noisy = [sample(ANNA, 0.7, i) for i in range(5)]
    for i, embedding in enumerate(noisy):
        assert vote.add(embedding, 0.8, i) is Verdict.COUNTED
    assert vote.embedding is not None
    assert np.linalg.norm(vote.embedding) == pytest.approx(1, abs=1e-5)
    assert float(vote.embedding @ ANNA) > max(float(e @ ANNA) for e in noisy) + 0.1


def test_the_best_five_samples_count() -> None:
    vote = IdentityVote()
    for i in range(10):
        vote.add(sample(ANNA, 0.5, i), 0.1, i)
    for i in range(5):
        vote.add(sample(ANNA, 0.99, i), 0.9, 10 + i)
    assert vote.embedding is not None
    assert float(vote.embedding @ ANNA) > 0.98


def test_samples_that_disagree_do_not_settle_a_vote() -> None:
    vote = IdentityVote()
    for i in range(4):
        vote.add(sample(ANNA, 0.35, i), 0.8, i)
    assert not vote.settled


def test_one_foreign_sample_changes_nothing() -> None:
    vote = IdentityVote()
    for i in range(3):
        vote.add(sample(ANNA, 0.8, i), 0.8, i)
    before = vote.embedding
    assert vote.add(sample(BERT, 0.8), 0.8, 3) is Verdict.DOUBTED
    assert vote.embedding is before
    assert vote.due(4, 0.8, 0.0)  # asked for again on the next frame
    assert vote.add(sample(ANNA, 0.8, 9), 0.8, 4) is Verdict.COUNTED
    assert vote.add(sample(BERT, 0.8), 0.8, 5) is Verdict.DOUBTED


def test_two_samples_of_somebody_else_are_a_jump() -> None:
    vote = IdentityVote()
    vote.add(sample(ANNA), 0.8, 0)
    assert vote.add(sample(BERT, 0.8, 1), 0.8, 1) is Verdict.DOUBTED
    assert vote.add(sample(BERT, 0.8, 2), 0.8, 2) is Verdict.JUMPED
    assert vote.embedding is not None
    assert float(vote.embedding @ ANNA) > 0.7


def test_two_bad_samples_that_differ_are_no_jump() -> None:
    vote = IdentityVote()
    vote.add(ANNA, 0.8, 0)
    assert vote.add(person(8), 0.8, 1) is Verdict.DOUBTED
    assert vote.add(person(9), 0.8, 2) is Verdict.DOUBTED


def test_a_poor_view_cannot_speak_for_somebody_else() -> None:
    vote = IdentityVote()
    vote.add(ANNA, 0.8, 0)
    assert vote.add(BERT, 0.2, 1) is Verdict.IGNORED
    assert vote.add(BERT, 0.2, 2) is Verdict.IGNORED
    assert not vote.due(3, 0.8, 0.0)


def test_quality_grows_with_size_clearness_and_frontality() -> None:
    best = face_quality(80, 18, 0)
    assert best == pytest.approx(1)
    assert face_quality(20, 18, 0) < best
    assert face_quality(80, 4, 0) < best
    assert face_quality(80, 18, 60) == pytest.approx(0.5)
    assert face_quality(80, -3, 0) == 0


@pytest.mark.parametrize("name", ["open_every_n", "settled_every_n", "contested_every_n", "keep"])
def test_counts_must_be_positive(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be at least 1, not 0"):
        IdentityConfig(**{name: 0})
