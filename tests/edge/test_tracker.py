import itertools
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.tracker import Association, Link, Tracker, TrackerConfig, best_assignment
from shared.arrays import BoxesXyxy

STEP_S = 1 / 30


def boxes(*centres: tuple[float, float], size: float = 80) -> BoxesXyxy:
    """Square boxes round centres."""
    half = size / 2
    rows = [(x - half, y - half, x + half, y + half) for x, y in centres]
    return np.array(rows, np.float32).reshape(-1, 4)


def nobody_knows(track_id: int, detection: int) -> float | None:
    return None


class Scene:
    """Feeds a tracker with people whose true identity is known, as the detector would show them."""

    def __init__(self, config: TrackerConfig | None = None, step_s: float = STEP_S) -> None:
        self.tracker = Tracker(config)
        self.time_s = 0.0
        self.step_s = step_s
        self.person_of_track: dict[int, str] = {}

    def frame(
        self, people: dict[str, tuple[float, float]], confidence: float = 0.9, size: float = 80
    ) -> dict[str, Association | None]:
        names = list(people)
        self.tracker.advance(self.time_s)
        self.time_s += self.step_s

        def likeness(track_id: int, i: int) -> float | None:
            return 0.8 if self.person_of_track[track_id] == names[i] else 0.05

        found = self.tracker.associate(
            boxes(*people.values(), size=size), np.full(len(people), confidence, np.float32), likeness
        )
        for name, association in zip(names, found, strict=True):
            if association is not None and association.link is Link.NEW:
                self.person_of_track[association.track_id] = name
        return dict(zip(names, found, strict=True))

    def ids(self, people: dict[str, tuple[float, float]], confidence: float = 0.9) -> dict[str, int | None]:
        return {n: None if a is None else a.track_id for n, a in self.frame(people, confidence).items()}


# Assignment


@pytest.mark.parametrize(
    ("gain", "pairs"),
    [
        (np.zeros((0, 3)), []),
        (np.zeros((2, 2)), []),
        ([[0.9]], [(0, 0)]),
        ([[0.9, 0.8], [0.85, 0.1]], [(0, 1), (1, 0)]),  # greedy would take 0.9 and lose
        ([[0.5, 0.0], [0.6, 0.0], [0.0, 0.7]], [(1, 0), (2, 1)]),
    ],
)
def test_the_best_pairs_are_found(gain: Sequence[Sequence[float]], pairs: list[tuple[int, int]]) -> None:
    assert best_assignment(np.asarray(gain, np.float32)) == pairs


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 2**31))
def test_no_other_pairs_gain_more(rows: int, columns: int, seed: int) -> None:
    gain = np.random.default_rng(seed).random((rows, columns)).astype(np.float32)
    gain[gain < 0.3] = 0
    pairs = best_assignment(gain)
    assert len({r for r, _ in pairs}) == len({c for _, c in pairs}) == len(pairs)
    square = np.zeros((5, 5), np.float32)
    square[:rows, :columns] = gain
    best = max(sum(square[i, p] for i, p in enumerate(order)) for order in itertools.permutations(range(5)))
    assert sum(gain[r, c] for r, c in pairs) == pytest.approx(best, abs=1e-5)


# Tracks


def test_no_detection_is_no_track() -> None:
    scene = Scene()
    assert scene.frame({}) == {}
    assert scene.tracker.active == scene.tracker.lost == ()


def test_a_confident_detection_is_a_track_at_once_a_doubtful_one_never() -> None:
    scene = Scene()
    assert scene.frame({"a": (100, 100)}, confidence=0.9)["a"] == Association(0, Link.NEW)
    assert Scene().frame({"a": (100, 100)}, confidence=0.6)["a"] is None


def test_a_doubtful_detection_carries_a_track_on() -> None:
    scene = Scene()
    scene.frame({"a": (100, 100)})
    assert scene.frame({"a": (102, 100)}, confidence=0.55)["a"] == Association(0, Link.FOLLOWED)
    assert scene.frame({"a": (104, 100)}, confidence=0.4)["a"] is None
    assert len(scene.tracker.lost) == 1


def test_people_who_cross_keep_their_ids() -> None:
    scene = Scene()
    for i in range(60):
        ids = scene.ids({"a": (100 + 7 * i, 200), "b": (520 - 7 * i, 230)})
        assert ids == {"a": 0, "b": 1}


def test_people_who_cross_while_one_hides_the_other_keep_their_ids() -> None:
    scene = Scene()
    for i in range(60):
        a, b = (100 + 7 * i, 200), (520 - 7 * i, 210)
        hidden = abs(a[0] - b[0]) < 70
        ids = scene.ids({"a": a} if hidden else {"a": a, "b": b})
        assert ids["a"] == 0
        assert ids.get("b") in (1, None)
        if not hidden:
            assert ids["b"] == 1


def test_a_face_behind_a_pillar_comes_back_under_its_id() -> None:
    scene = Scene()
    for i in range(60):
        people = {} if 20 <= i < 50 else {"a": (100.0 + 5 * i, 200.0)}
        found = scene.frame(people)
        if i == 50:
            assert found["a"] == Association(0, Link.FOUND_AGAIN)
        elif people:
            assert found["a"] is not None
            assert found["a"].track_id == 0


def test_somebody_else_in_the_place_of_a_lost_face_is_a_new_track() -> None:
    scene = Scene()
    scene.frame({"a": (100, 100)})
    scene.frame({})
    assert scene.frame({"b": (100, 100)})["b"] == Association(1, Link.NEW)
    assert scene.frame({"b": (100, 100), "a": (300, 100)})["a"] == Association(0, Link.FOUND_AGAIN)


def test_whoever_stays_away_too_long_is_a_new_track() -> None:
    scene = Scene(TrackerConfig(lost_s=1.0))
    scene.frame({"a": (100, 100)})
    for _ in range(32):
        scene.frame({})
    assert scene.tracker.lost == ()
    assert scene.frame({"a": (100, 100)})["a"] == Association(1, Link.NEW)


def test_a_lost_track_without_identity_is_found_by_its_place_alone() -> None:
    tracker = Tracker()
    tracker.advance(0.0)
    tracker.associate(boxes((100, 100)), np.array([0.9], np.float32), nobody_knows)
    tracker.advance(0.1)
    tracker.associate(boxes(), np.zeros(0, np.float32), nobody_knows)
    tracker.advance(0.2)
    found = tracker.associate(boxes((104, 100), (400, 100)), np.array([0.9, 0.9], np.float32), nobody_knows)
    assert found == (Association(0, Link.FOUND_AGAIN), Association(1, Link.NEW))


def test_after_a_cut_only_likeness_counts() -> None:
    scene = Scene()
    scene.frame({"a": (100, 100), "b": (300, 100)})
    scene.tracker.cut()
    assert scene.tracker.active == ()
    found = scene.frame({"b": (100, 100), "c": (300, 100)})
    assert found == {"b": Association(1, Link.FOUND_AGAIN), "c": Association(2, Link.NEW)}
    assert [t.track_id for t in scene.tracker.lost] == [0]


def test_dropped_detections_do_not_change_ids() -> None:
    rng = np.random.default_rng(3)
    scene = Scene()
    for i in range(300):
        angle = i / 40
        everyone = {
            str(k): (320 + 220 * np.cos(angle + k * 1.256), 240 + 160 * np.sin(angle + k * 1.256))
            for k in range(5)
        }
        seen = {name: place for name, place in everyone.items() if i == 0 or rng.random() > 0.15}
        for name, track_id in scene.ids(seen).items():
            assert track_id == int(name)


def test_observed_tracks_stay_when_the_detector_misses_them() -> None:
    tracker = Tracker()
    tracker.advance(0.0)
    tracker.associate(boxes((100, 100), (300, 100)), np.array([0.9, 0.9], np.float32), nobody_knows)
    tracker.advance(STEP_S)
    tracker.observe(0, boxes((101, 100))[0])
    tracker.associate(boxes(), np.zeros(0, np.float32), nobody_knows)
    assert [t.track_id for t in tracker.active] == [0]
    assert [t.track_id for t in tracker.lost] == [1]


def test_a_steady_motion_is_predicted_and_slows_down_when_lost() -> None:
    scene = Scene()
    for i in range(30):
        scene.frame({"a": (100 + 6 * i, 100)})
    track = scene.tracker.active[0]
    scene.tracker.advance(scene.time_s)
    assert float(track.xyxy[0] + 40) == pytest.approx(100 + 6 * 30, abs=2)
    for _ in range(90):
        scene.frame({})
    # Half a second of its speed and no more.
    assert float(track.xyxy[0] + 40) < 280 + 6 * 20


def test_a_displaced_track_is_not_found_by_place() -> None:
    scene = Scene()
    scene.frame({"a": (100, 100)})
    scene.tracker.displace(0)
    assert scene.frame({"b": (100, 100)})["b"] == Association(1, Link.NEW)


def test_a_forgotten_id_is_not_given_again() -> None:
    scene = Scene()
    scene.frame({"a": (100, 100)})
    scene.tracker.forget(0)
    assert scene.ids({"a": (100, 100)}) == {"a": 1}


def test_new_tracks_get_new_ids_however_many_were_forgotten() -> None:
    scene = Scene()
    scene.frame({"a": (100, 100), "b": (300, 100), "c": (500, 100)})
    for track_id in (0, 1, 2):
        scene.tracker.forget(track_id)
    assert scene.ids({"a": (100, 100), "b": (300, 100)}) == {"a": 3, "b": 4}


def test_after_a_cut_the_old_place_alone_finds_nobody() -> None:
    tracker = Tracker()
    for i, expected in enumerate((Association(0, Link.NEW), Association(1, Link.NEW))):
        tracker.advance(i * STEP_S)
        assert tracker.associate(boxes((100, 100)), np.array([0.9], np.float32), nobody_knows) == (expected,)
        tracker.cut()


def test_after_a_step_back_in_time_lost_tracks_still_run_out() -> None:
    tracker = Tracker()
    tracker.advance(9.0)
    tracker.associate(boxes((100, 100)), np.array([0.9], np.float32), nobody_knows)
    tracker.lose(0)
    assert tracker.advance(4.0) == ()
    assert tracker.advance(6.9) == ()
    assert tracker.advance(7.1) == (0,)


@pytest.mark.parametrize("times", [(0.0, 0.0, 0.0), (9.0, 4.0, 4.1)])
def test_time_that_stands_still_or_runs_back_loses_nobody(times: tuple[float, ...]) -> None:
    tracker = Tracker()
    for time_s in times:
        tracker.advance(time_s)
        found = tracker.associate(boxes((100, 100)), np.array([0.9], np.float32), nobody_knows)
        assert found[0] is not None
        assert found[0].track_id == 0


def test_an_observation_needs_a_time_first() -> None:
    with pytest.raises(ValueError, match="advance"):
        Tracker().associate(boxes((1, 1)), np.array([0.9], np.float32), nobody_knows)


@pytest.mark.parametrize(
    "settings",
    [{"low_confidence": 0.8}, {"high_confidence": 1.5}, {"lost_s": -1.0}],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        TrackerConfig(**settings)


Frames = list[list[tuple[float, float, float]]]
faces = st.tuples(st.floats(0, 600), st.floats(0, 400), st.floats(0.3, 1))


def run(frames: Frames, likeness: Callable[[int, int], float | None]) -> list[tuple[Association | None, ...]]:
    tracker = Tracker()
    out = []
    for i, frame in enumerate(frames):
        if i % 7 == 6:
            tracker.cut()
        tracker.advance(i * 0.4)
        confidence: npt.NDArray[np.float32] = np.array([c for *_, c in frame], np.float32)
        out.append(tracker.associate(boxes(*((x, y) for x, y, _ in frame)), confidence, likeness))
    return out


@given(st.lists(st.lists(faces, max_size=5), max_size=12), st.integers(0, 9))
def test_whatever_comes_ids_are_one_to_one_and_never_used_again(frames: Frames, salt: int) -> None:
    def likeness(track_id: int, i: int) -> float | None:
        value = (track_id * 7 + i * 3 + salt) % 10
        return None if value == 0 else value / 10

    begun: list[int] = []
    outcome = run(frames, likeness)
    for frame, found in zip(frames, outcome, strict=True):
        assert len(found) == len(frame)
        ids = [a.track_id for a in found if a is not None]
        assert len(set(ids)) == len(ids)
        new = [a.track_id for a in found if a is not None and a.link is Link.NEW]
        assert all(i not in begun for i in new)
        begun += new
        assert set(ids) <= set(begun)
        for (*_, confidence), association in zip(frame, found, strict=True):
            if np.float32(confidence) >= np.float32(0.7):
                assert association is not None
            elif association is not None:
                assert association.link is not Link.NEW
    assert outcome == run(frames, likeness)
