import numpy as np
import pytest

from edge.selection import Candidate, SelectionConfig, Selector
from shared.arrays import Embedding
from shared.errors import ConfigError


def axis(i: int) -> Embedding:
    vector = np.zeros(16, np.float32)
    vector[i] = 1
    return vector


def like(**cosines: float) -> Embedding:
    """A face with chosen likeness to the references ``r0``, ``r1``, ...; the rest points elsewhere."""
    vector = np.zeros(16, np.float32)
    for name, cosine in cosines.items():
        vector[int(name[1:])] = cosine
    vector[15] = np.sqrt(max(0.0, 1 - float(vector @ vector)))
    return vector


def face(track_id: int, embedding: Embedding | None = None, size: float = 100) -> Candidate:
    return Candidate(track_id, np.array([0, 0, size, size], np.float32), embedding)


REFERENCES = (axis(0), axis(1))
MATCH = SelectionConfig("match")


def test_no_faces_no_pairs() -> None:
    assert Selector().select([]) == {}
    assert Selector(MATCH, REFERENCES).select([]) == {}
    assert Selector(SelectionConfig("largest")).select([]) == {}


# All


def test_without_references_everybody_gets_the_first_source() -> None:
    assert Selector().select([face(3), face(7, axis(2))]) == {3: 0, 7: 0}
    assert Selector(references=(None,)).select([face(3)]) == {3: 0}


def test_with_references_each_face_gets_its_own_source_and_strangers_none() -> None:
    selector = Selector(SelectionConfig("all"), REFERENCES)
    faces = [face(0, like(r1=0.8)), face(1, like(r0=0.7)), face(2, like(r0=0.2)), face(3)]
    assert selector.select(faces) == {0: 1, 1: 0, 2: None, 3: None}


def test_a_source_for_anybody_takes_those_who_match_nobody() -> None:
    references = (None, axis(0))
    faces = [face(0, like(r0=0.8)), face(1, like(r0=0.1))]
    assert Selector(SelectionConfig("all"), references).select(faces) == {0: 1, 1: 0}
    assert Selector(MATCH, references).select(faces) == {0: 1, 1: None}


# Match


def test_matching_needs_a_reference() -> None:
    for references in ((), (None,)):
        with pytest.raises(ConfigError, match="needs at least one reference"):
            Selector(MATCH, references)


@pytest.mark.parametrize(("cosine", "pair"), [(0.44, None), (0.46, 0), (-0.9, None)])
def test_a_face_matches_from_the_threshold(cosine: float, pair: int | None) -> None:
    assert Selector(MATCH, REFERENCES).select([face(0, like(r0=cosine))]) == {0: pair}


def test_a_stricter_threshold_is_obeyed() -> None:
    assert Selector(SelectionConfig("match", 0.7), REFERENCES).select([face(0, like(r0=0.65))]) == {0: None}


def test_a_match_survives_noise_round_the_threshold() -> None:
    selector = Selector(MATCH, REFERENCES)
    for cosine in (0.5, 0.44, 0.46, 0.40, 0.39, 0.43, 0.45, 0.38):
        assert selector.select([face(0, like(r0=cosine))]) == {0: 0}


def test_a_match_ends_when_it_is_gone_for_good() -> None:
    selector = Selector(MATCH, REFERENCES)
    pairs = [selector.select([face(0, like(r0=c))])[0] for c in (0.6, 0.2, 0.2, 0.2, 0.2)]
    assert pairs == [0, 0, 0, None, None]


def test_a_vote_that_is_only_repeated_is_one_vote() -> None:
    selector = Selector(MATCH, REFERENCES)
    selector.select([face(0, like(r0=0.6))])
    poor = like(r0=0.1)
    for _ in range(20):
        assert selector.select([face(0, poor)]) == {0: 0}


def test_a_profile_without_vote_keeps_its_source() -> None:
    selector = Selector(MATCH, REFERENCES)
    selector.select([face(0, like(r0=0.6))])
    assert selector.select([face(0, None)]) == {0: 0}


def test_two_references_do_not_swap_for_a_noisy_frame() -> None:
    selector = Selector(MATCH, REFERENCES)
    clear = {0: like(r0=0.7, r1=0.3), 1: like(r0=0.3, r1=0.7)}
    noisy = {0: like(r0=0.5, r1=0.6), 1: like(r0=0.62, r1=0.5)}
    for embeddings in (clear, noisy, noisy, clear, noisy, clear):
        assert selector.select([face(t, e.copy()) for t, e in embeddings.items()]) == {0: 0, 1: 1}


def test_a_clear_and_lasting_change_does_switch() -> None:
    selector = Selector(MATCH, REFERENCES)
    selector.select([face(0, like(r0=0.7))])
    pairs = [selector.select([face(0, like(r0=0.3, r1=0.8))])[0] for _ in range(4)]
    assert pairs == [0, 0, 1, 1]


def test_of_two_who_barely_match_only_the_better_gets_the_source() -> None:
    selector = Selector(MATCH, REFERENCES)
    assert selector.select([face(0, like(r0=0.50)), face(1, like(r0=0.52))]) == {0: None, 1: 0}


def test_twins_who_clearly_match_both_get_the_source() -> None:
    selector = Selector(MATCH, REFERENCES)
    assert selector.select([face(0, like(r0=0.7)), face(1, like(r0=0.8))]) == {0: 0, 1: 0}


def test_the_second_best_reference_serves_when_the_best_is_somebody_elses() -> None:
    selector = Selector(MATCH, REFERENCES)
    faces = [face(0, like(r0=0.54, r1=0.5)), face(1, like(r0=0.8))]
    assert selector.select(faces) == {0: 1, 1: 0}


def test_a_new_track_starts_without_the_past_of_an_old_one() -> None:
    selector = Selector(MATCH, REFERENCES)
    selector.select([face(0, like(r0=0.6))])
    selector.forget([0, 99])
    assert selector.select([face(0, like(r0=0.4))]) == {0: None}


# Largest


def test_the_largest_face_gets_the_source() -> None:
    selector = Selector(SelectionConfig("largest"))
    assert selector.select([face(0, size=80), face(1, size=120), face(2, size=20)]) == {
        0: None,
        1: 0,
        2: None,
    }


def test_two_faces_of_one_size_do_not_flicker() -> None:
    selector = Selector(SelectionConfig("largest"))
    rng = np.random.default_rng(0)
    for _ in range(200):
        a, b = 100 * (1 + 0.08 * rng.normal(size=2).clip(-1, 1))
        assert selector.select([face(0, size=101 if _ == 0 else a), face(1, size=100 if _ == 0 else b)]) == {
            0: 0,
            1: None,
        }


def test_who_grows_clearly_larger_takes_over_after_a_moment() -> None:
    selector = Selector(SelectionConfig("largest"))
    selector.select([face(0, size=100), face(1, size=90)])
    chosen = [selector.select([face(0, size=100), face(1, size=130)])[1] for _ in range(6)]
    assert chosen == [None, None, None, None, 0, 0]


def test_a_small_poster_never_wins_while_the_face_is_hidden() -> None:
    selector = Selector(SelectionConfig("largest"))
    selector.select([face(0, size=100), face(1, size=40)])
    for _ in range(60):
        assert selector.select([face(1, size=40)]) == {1: None}
    assert selector.select([face(0, size=100), face(1, size=40)]) == {0: 0, 1: None}


def test_when_the_largest_has_gone_for_good_the_next_one_is_chosen() -> None:
    selector = Selector(SelectionConfig("largest"))
    selector.select([face(0, size=100), face(1, size=40)])
    selector.forget([0])
    assert selector.select([face(1, size=40)]) == {1: 0}


def test_in_another_scene_the_largest_is_chosen_anew() -> None:
    selector = Selector(SelectionConfig("largest"))
    selector.select([face(0, size=100)])
    selector.scene_changed()
    assert selector.select([face(1, size=40), face(2, size=30)]) == {1: 0, 2: None}


def test_largest_with_references_means_the_largest_that_matches() -> None:
    selector = Selector(SelectionConfig("largest"), REFERENCES)
    faces = [face(0, like(r0=0.1), 200), face(1, like(r1=0.8), 100), face(2, like(r0=0.8), 90)]
    assert selector.select(faces) == {0: None, 1: 1, 2: None}


def test_a_fresh_selector_has_the_settings_but_no_past() -> None:
    selector = Selector(MATCH, REFERENCES)
    selector.select([face(0, like(r0=0.6))])
    fresh = selector.fresh()
    assert fresh.config == MATCH
    assert fresh.select([face(0, like(r0=0.4))]) == {0: None}


@pytest.mark.parametrize(
    ("faces", "threshold", "message"),
    [("some", 0.45, "all, largest or match, not 'some'"), ("all", 1.5, "between -1 and 1, not 1.5")],
)
def test_settings_that_make_no_sense_are_refused(faces: str, threshold: float, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SelectionConfig(faces, threshold)  # type: ignore[arg-type]
