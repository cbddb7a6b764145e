import itertools
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import cv2
import numpy as np
import numpy.typing as npt
import pytest

from edge.analyser import AnalyserConfig, FaceAnalyser, _Refusals, _sighting
from edge.cuts import CutDetector
from edge.detector import FaceDetector
from edge.embedder import MobileFaceNet
from edge.landmarks import FaceMesh, MeshFit
from edge.selection import SelectionConfig, Selector
from shared.arrays import Embedding, ImageBgr
from shared.counters import CacheCounters
from shared.faces import Detections, TrackedFace
from shared.frames import Frame
from shared.geometry import box_iou
from shared.mesh.topology import inter_ocular
from shared.ort import SessionPool
from shared.timing import StageClock

POOL = SessionPool()
Faces = tuple[TrackedFace, ...]


def photo(path: Path) -> ImageBgr:
    return np.asarray(cv2.imread(str(path)), np.uint8)


def clip(path: Path, last: int = 10_000) -> Iterator[Frame]:
    with av.open(str(path)) as container:
        for i, frame in enumerate(container.decode(video=0)):
            if i >= last:
                return
            image = np.asarray(frame.to_ndarray(format="bgr24"), np.uint8)
            yield Frame(i, image, frame.pts, frame.time_base or Fraction(1, 30))


def timed(images: Iterable[ImageBgr], fps: int = 30) -> Iterator[Frame]:
    for i, image in enumerate(images):
        yield Frame(i, image, i, Fraction(1, fps))


def run(frames: Iterable[Frame], config: AnalyserConfig | None = None) -> list[Faces]:
    analyser = FaceAnalyser(POOL, config)
    return [analyser.analyse(frame) for frame in frames]


def ids(faces: Faces) -> list[int]:
    return [face.track_id for face in faces]


@pytest.fixture(scope="module")
def smile(samples: Path) -> list[Frame]:
    return list(clip(samples / "single_face.mp4"))


@pytest.fixture(scope="module")
def smile_faces(smile: list[Frame]) -> list[Faces]:
    return run(smile)


# One face


def test_one_face_has_one_id_on_every_frame(smile_faces: list[Faces]) -> None:
    assert [ids(faces) for faces in smile_faces] == [[0]] * 72
    assert [faces[0].restarted for faces in smile_faces] == [True] + [False] * 71
    assert all(faces[0].pair == 0 and faces[0].presence > 8 for faces in smile_faces)


def test_landmarks_are_fresh_on_every_frame(smile: list[Frame], smile_faces: list[Faces]) -> None:
    detector = FaceDetector(POOL)
    for i in range(3, 72, 10):  # frames on which the analyser did not run the detector
        found = detector.detect(smile[i].image)
        assert box_iou(smile_faces[i][0].xyxy[None], found.xyxy)[0, 0] > 0.7
    steps = [np.abs(b[0].landmarks - a[0].landmarks).max() for a, b in itertools.pairwise(smile_faces)]
    assert min(steps) > 0


def test_two_runs_give_the_same_numbers(smile: list[Frame], smile_faces: list[Faces]) -> None:
    for again, faces in zip(run(smile[:20]), smile_faces, strict=False):
        np.testing.assert_array_equal(again[0].landmarks, faces[0].landmarks)
        assert again[0].presence == faces[0].presence


def test_without_caches_the_result_is_as_good(smile: list[Frame], smile_faces: list[Faces]) -> None:
    for dear, cheap in zip(run(smile[:24], AnalyserConfig(caches=False)), smile_faces, strict=False):
        assert ids(dear) == ids(cheap) == [0]
        distance = np.hypot(*(dear[0].landmarks - cheap[0].landmarks)[:, :2].T).mean()
        assert distance < 0.03 * inter_ocular(cheap[0].landmarks)


def test_stages_are_timed_and_cache_hits_counted(smile: list[Frame]) -> None:
    clock, counters = StageClock(), CacheCounters()
    analyser = FaceAnalyser(POOL, clock=clock, counters=counters)
    for frame in smile[:30]:
        analyser.analyse(frame)
    times = clock.summary()
    assert times["detect"]["count"] == 3
    assert times["landmarks"]["count"] == 31  # each frame, and the detection of the first
    assert times["identity"]["count"] == 3
    track = counters.summary()["track"]
    assert (track["hits"], track["misses"]) == (29 + 27, 3)


def test_without_caches_every_frame_pays_for_everything(smile: list[Frame]) -> None:
    clock, counters = StageClock(), CacheCounters()
    analyser = FaceAnalyser(POOL, AnalyserConfig(caches=False), clock=clock, counters=counters)
    for frame in smile[:10]:
        analyser.analyse(frame)
    times = clock.summary()
    assert times["detect"]["count"] == times["identity"]["count"] == 10
    assert counters.summary()["track"]["hits"] == 0


def test_the_vote_of_a_track_can_be_asked_for(smile: list[Frame]) -> None:
    analyser = FaceAnalyser(POOL)
    assert analyser.embedding(0) is None
    analyser.analyse(smile[0])
    vote = analyser.embedding(0)
    assert vote is not None
    assert np.linalg.norm(vote) == pytest.approx(1, abs=1e-5)


def test_the_light_mesh_serves_as_well(smile: list[Frame]) -> None:
    for faces in run(smile[:12], AnalyserConfig(points=468)):
        assert ids(faces) == [0]
        assert faces[0].landmarks.shape == (468, 3)


def test_frames_without_time_are_followed_all_the_same(smile: list[Frame]) -> None:
    untimed = [Frame(f.index, f.image) for f in smile[:12]]
    assert [ids(faces) for faces in run(untimed)] == [[0]] * 12


# Nothing and nonsense


@pytest.mark.parametrize("shape", [(1, 1), (2, 300), (120, 160)])
def test_frames_without_a_face_give_nothing(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    frames = timed(rng.integers(0, 255, (*shape, 3), dtype=np.uint8) for _ in range(4))
    assert run(frames) == [()] * 4
    still = Frame(0, np.full((*shape, 3), 128, np.uint8))
    assert FaceAnalyser(POOL).analyse_still(still) == ()


def test_the_frame_is_not_written_to(smile: list[Frame]) -> None:
    before = smile[0].image.copy()
    analyser = FaceAnalyser(POOL)
    analyser.analyse(smile[0])
    analyser.analyse_still(smile[0])
    np.testing.assert_array_equal(smile[0].image, before)


@pytest.mark.parametrize("settings", [{"detect_every_n": 0}, {"detector_px": 8}])
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="must be at least"):
        AnalyserConfig(**settings)  # type: ignore[arg-type]


# Losing and finding


def test_a_face_that_was_hidden_comes_back_under_its_id(smile: list[Frame]) -> None:
    images = [f.image.copy() for f in smile[:40]]
    for image in images[15:25]:
        image[0:360, 200:480] = cv2.blur(image[0:360, 200:480], (121, 121))
    faces = run(timed(images))
    assert [ids(f) for f in faces[:15]] == [[0]] * 15
    assert [ids(f) for f in faces[16:25]] == [[]] * 9
    assert [ids(f) for f in faces[25:]] == [[0]] * 15
    assert [i for i, f in enumerate(faces) if f and f[0].restarted] == [0, 25]


def test_whoever_is_still_there_right_after_a_cut_restarts(samples: Path) -> None:
    before = photo(samples / "astronaut.png")
    after = np.full((512, 512, 3), (20, 160, 200), np.uint8)  # a yellow room
    after[250:450, 40:240] = cv2.resize(before[20:220, 130:330], (200, 200))
    faces = run(timed([before] * 5 + [after] * 3))
    assert [ids(f)[0] for f in faces] == [0] * 8
    assert [i for i, f in enumerate(faces) if f[0].restarted] == [0, 5]


def test_landmarks_are_smoothed(samples: Path) -> None:
    image = photo(samples / "astronaut.png")
    rng = np.random.default_rng(0)
    analyser = FaceAnalyser(POOL)
    raw, smooth = [], []
    for frame in timed(
        np.clip(image + rng.normal(0, 6, image.shape), 0, 255).astype(np.uint8) for _ in range(12)
    ):
        (face,) = analyser.analyse(frame)
        smooth.append(face.landmarks)
        raw.append(analyser._faces[0].fit.landmarks)
    assert np.diff(smooth, n=2, axis=0).std() < 0.4 * np.diff(raw, n=2, axis=0).std()


def test_after_a_large_move_the_crop_is_laid_anew(samples: Path) -> None:
    image = photo(samples / "astronaut.png")
    analyser = FaceAnalyser(POOL)
    (still,) = analyser.analyse(Frame(0, image, 0, Fraction(1, 30)))
    moved = np.asarray(
        cv2.warpAffine(image, np.array([[1, 0, 30], [0, 1, 20]], np.float32), (512, 512)), np.uint8
    )
    analyser.analyse(Frame(1, moved, 1, Fraction(1, 30)))
    error = analyser._faces[0].fit.landmarks - still.landmarks - np.array([30, 20, 0], np.float32)
    assert np.hypot(*error[:, :2].T).mean() < 0.02 * inter_ocular(still.landmarks)


def test_landmarks_thrown_off_for_a_frame_are_put_back_within_it(
    smile: list[Frame], monkeypatch: pytest.MonkeyPatch
) -> None:
    analyser = FaceAnalyser(POOL)
    (before,) = analyser.analyse(smile[0])
    thrown = MeshFit(before.landmarks + np.array([25, 10, 0], np.float32), 0.5)
    monkeypatch.setattr(FaceAnalyser, "_fit_cached", lambda *_: thrown)
    (after,) = analyser.analyse(smile[1])
    assert (after.track_id, after.restarted) == (0, False)
    assert after.presence > 8
    assert np.abs(after.landmarks - before.landmarks).max() < 0.2 * inter_ocular(before.landmarks)


def test_a_doubtful_track_the_detector_never_confirms_is_given_up(
    smile: list[Frame], monkeypatch: pytest.MonkeyPatch
) -> None:
    analyser = FaceAnalyser(POOL, AnalyserConfig(detect_every_n=1))
    analyser.analyse(smile[0])
    fit = FaceMesh.from_previous
    monkeypatch.setattr(FaceDetector, "detect", lambda *_, **__: Detections.empty())
    assert ids(analyser.analyse(smile[1])) == [0]
    monkeypatch.setattr(FaceMesh, "from_previous", lambda *a: MeshFit(fit(*a).landmarks, 4.0))
    assert [ids(analyser.analyse(f)) for f in smile[2:5]] == [[0], [], []]


def test_after_a_cut_the_same_person_restarts_under_the_same_id(smile: list[Frame], samples: Path) -> None:
    other = np.asarray(cv2.resize(photo(samples / "grace_hopper.jpg"), (640, 360)), np.uint8)
    flipped = [np.ascontiguousarray(f.image[::, ::-1]) for f in smile[20:26]]
    images = [f.image for f in smile[:8]] + [other] * 6 + flipped
    faces = run(timed(images))
    assert [ids(f) for f in faces] == [[0]] * 8 + [[1]] * 6 + [[0]] * 6
    assert [i for i, f in enumerate(faces) if f[0].restarted] == [0, 8, 14]


def test_a_turned_head_is_followed_all_the_way_round(samples: Path) -> None:
    image = photo(samples / "astronaut.png")[0:300, 60:400]
    turns = (cv2.getRotationMatrix2D((165, 125), a, 0.9) for a in range(0, 361, 9))
    frames = [
        np.asarray(cv2.warpAffine(image, t, (340, 300), borderValue=(90,) * 3), np.uint8) for t in turns
    ]
    assert [ids(f) for f in run(timed(frames))] == [[0]] * len(frames)


def test_an_upside_down_clip_is_followed_too(smile: list[Frame]) -> None:
    frames = timed(np.ascontiguousarray(f.image[::-1, ::-1]) for f in smile[:12])
    faces = run(frames)
    assert [ids(f) for f in faces] == [[0]] * 12
    assert faces[-1][0].presence > 8
    eyes, chin = faces[-1][0].landmarks[[33, 263], 1].mean(), faces[-1][0].landmarks[152, 1]
    assert chin < eyes


def test_several_tracks_on_one_face_become_one(smile: list[Frame]) -> None:
    analyser = FaceAnalyser(POOL)
    (face,) = analyser.analyse(smile[0])
    fit = MeshFit(face.landmarks, face.presence)
    apart = np.array([[x, 0, x + 50, 50] for x in (0, 200, 400)], np.float32)
    links = analyser._tracker.associate(apart, np.ones(3, np.float32), lambda track_id, i: None)
    for link in links:
        assert link is not None
        analyser._take_up(_sighting(fit, 0.9), link, 0)
    analyser._tracker.observe(0, face.xyxy)
    assert len(analyser._tracker.active) == 4
    assert ids(analyser.analyse(smile[1])) == [0]
    assert ids(analyser.analyse(smile[2])) == [0]


def test_the_confidence_is_the_detectors(smile: list[Frame], smile_faces: list[Faces]) -> None:
    found = FaceDetector(POOL).detect(smile[0].image)
    assert smile_faces[0][0].confidence == smile_faces[5][0].confidence == pytest.approx(found.confidence[0])


def test_a_hopeless_detection_is_tried_again_after_a_pause_only() -> None:
    refusals = _Refusals()
    box = np.array([10, 10, 50, 60], np.float32)
    assert not refusals.hold(0, box, _Refusals.PAUSE_FRAMES)
    refusals.add(0, box)
    assert refusals.hold(4, box + 3, _Refusals.PAUSE_FRAMES)
    assert not refusals.hold(4, box + 40, _Refusals.PAUSE_FRAMES)
    assert not refusals.hold(5, box, _Refusals.PAUSE_FRAMES)
    assert refusals.hold(29, box, _Refusals.TURN_PAUSE_FRAMES)
    assert not refusals.hold(30, box, _Refusals.TURN_PAUSE_FRAMES)


def test_a_face_beyond_recognition_is_left_alone_and_costs_little(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The detector still boxes it, the landmarks do not accept it.
    tiny = cv2.resize(photo(samples / "astronaut.png"), (25, 25), interpolation=cv2.INTER_AREA)
    image = np.asarray(cv2.resize(tiny, (512, 512)), np.uint8)
    assert len(FaceDetector(POOL).detect(image)) == 1
    runs = 0
    fit = FaceMesh._fit

    def counted(mesh: FaceMesh, *args: Any) -> MeshFit:
        nonlocal runs
        runs += 1
        return fit(mesh, *args)

    monkeypatch.setattr(FaceMesh, "_fit", counted)
    analyser = FaceAnalyser(POOL)
    for frame in timed([image] * 60):
        assert analyser.analyse(frame) == ()
    assert 0 < runs <= 45


# Two people


def cut_out(image: ImageBgr, xywh: tuple[int, int, int, int]) -> tuple[ImageBgr, npt.NDArray[np.bool_]]:
    """An oval of a photo, 140 pixels wide, 190 high."""
    x, y, w, h = xywh
    part = np.asarray(cv2.resize(image[y : y + h, x : x + w], (140, 190)), np.uint8)
    mask = np.zeros((190, 140), np.uint8)
    cv2.ellipse(mask, (70, 95), (68, 93), 0, 0, 360, 255, -1)
    return part, mask[..., None] > 0


def people_at(samples: Path, hopper_x: int, astronaut_x: int) -> ImageBgr:
    """Two people on a plain wall; the astronaut stands in front."""
    image = np.full((320, 640, 3), 110, np.uint8)
    hopper = cut_out(photo(samples / "grace_hopper.jpg"), (130, 60, 260, 360))
    astronaut = cut_out(photo(samples / "astronaut.png"), (155, 20, 140, 190))
    for (part, mask), x in ((hopper, hopper_x), (astronaut, astronaut_x)):
        np.copyto(image[60:250, x : x + 140], part, where=mask)
    return image


def crossing(samples: Path, frames: int) -> Iterator[ImageBgr]:
    """They walk past each other, the astronaut from the left."""
    for i in range(frames):
        way = round(420 * i / (frames - 1))
        yield people_at(samples, 460 - way, 40 + way)


@pytest.mark.parametrize(("frames", "caches"), [(12, True), (40, True), (20, False)])
def test_people_who_walk_past_each_other_keep_their_ids(samples: Path, frames: int, caches: bool) -> None:
    faces = run(timed(crossing(samples, frames)), AnalyserConfig(caches=caches))
    assert ids(faces[0]) == ids(faces[-1]) == [0, 1]
    assert {i for f in faces for i in ids(f)} == {0, 1}
    for f in faces:
        middle = {face.track_id: float(face.xyxy[[0, 2]].mean()) for face in f}
        assert 0 in middle
    first, last = ({f.track_id: f.xyxy[0] for f in faces[k]} for k in (0, -1))
    assert first[0] < first[1]
    assert last[0] > last[1]


def test_tracks_that_slipped_onto_each_other_are_put_right(samples: Path) -> None:
    # The two change places between two frames: to the landmarks it looks as if nobody had moved.
    frames = [people_at(samples, 180, 325)] * 12 + [people_at(samples, 325, 180)] * 5
    faces = run(timed(frames))
    assert {i for f in faces for i in ids(f)} == {0, 1}
    before, after = ({f.track_id: f.xyxy[0] for f in faces[k]} for k in (11, -1))
    assert len(before) == len(after) == 2
    for track_id, x in before.items():
        assert abs(after[track_id] - x) > 100
    assert all(f.restarted for f in next(f for f in faces[12:] if any(g.restarted for g in f)))


def test_a_partner_that_was_not_looked_at_is_put_right_too(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.analyser._reshaped", lambda *_: False)
    analyser = FaceAnalyser(POOL)
    frames = list(timed([people_at(samples, 180, 325)] * 14 + [people_at(samples, 325, 180)] * 2))
    before = [analyser.analyse(frame) for frame in frames[:14]][-1]
    analyser._faces[0].suspect = True
    after = [analyser.analyse(frame) for frame in frames[14:]][-1]
    places = {face.track_id: face.xyxy[0] for face in after}
    assert ids(after) == [0, 1]
    assert all(abs(places[face.track_id] - face.xyxy[0]) > 100 for face in before)


def test_a_passer_by_in_front_does_not_throw_the_landmarks_off(samples: Path) -> None:
    assert all(face.presence > 2 for faces in run(timed(crossing(samples, 20))) for face in faces)


def test_the_largest_face_of_a_new_scene_is_chosen_at_once(samples: Path) -> None:
    small = np.asarray(cv2.resize(photo(samples / "grace_hopper.jpg"), (128, 150)), np.uint8)
    scene = np.full((512, 512, 3), (90, 40, 20), np.uint8)
    scene[200:350, 200:328] = small
    analyser = FaceAnalyser(POOL, selector=Selector(SelectionConfig("largest")))
    faces = [analyser.analyse(f) for f in timed([photo(samples / "astronaut.png")] * 4 + [scene] * 3)]
    assert [[face.pair for face in f] for f in faces] == [[0]] * 7
    assert ids(faces[-1]) == [1]


def test_when_the_largest_face_has_left_the_other_one_follows(
    samples: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CutDetector, "is_cut", lambda *_: False)
    both = people_at(samples, 40, 325)
    both[60:250, 40:180] = 110
    both[100:176, 60:116] = cv2.resize(people_at(samples, 40, 500)[60:250, 40:180], (56, 76))
    alone = both.copy()
    alone[:, 300:] = 110
    analyser = FaceAnalyser(POOL, selector=Selector(SelectionConfig("largest")))
    faces = [analyser.analyse(f) for f in timed([both] * 3 + [alone] * 12, fps=2)]
    pairs = [{face.track_id: face.pair for face in f} for f in faces]
    assert len(pairs[0]) == 2
    small = next(iter(pairs[-1]))
    assert [p[small] for p in pairs[:8]] == [None] * 8
    assert pairs[-1] == {small: 0}


def test_each_person_gets_the_source_of_the_matching_reference(samples: Path) -> None:
    selector = Selector(
        SelectionConfig("match"), [embed(samples / "grace_hopper.jpg"), embed(samples / "astronaut.png")]
    )
    analyser = FaceAnalyser(POOL, selector=selector)
    for i, image in enumerate(crossing(samples, 30)):
        faces = analyser.analyse(Frame(i, image, i, Fraction(1, 30)))
        assert all(face.pair == {0: 1, 1: 0}[face.track_id] for face in faces)


def embed(path: Path) -> Embedding:
    image = photo(path)
    return MobileFaceNet(POOL).embed(image, FaceDetector(POOL).detect_still(image).landmarks[0])


# Stills


@pytest.mark.parametrize(
    ("name", "count"),
    [("single_face.jpg", 1), ("multi_face.jpg", 5), ("astronaut.png", 1), ("grace_hopper.jpg", 1)],
)
def test_all_faces_of_a_photo_are_analysed(samples: Path, name: str, count: int) -> None:
    faces = FaceAnalyser(POOL).analyse_still(Frame(0, photo(samples / name)))
    assert ids(faces) == list(range(count))
    assert all(face.restarted and face.pair == 0 and face.presence > 8 for face in faces)


def test_a_photo_does_not_disturb_the_stream(smile: list[Frame], samples: Path) -> None:
    analyser = FaceAnalyser(POOL)
    analyser.analyse(smile[0])
    analyser.analyse_still(Frame(0, photo(samples / "multi_face.jpg")))
    assert ids(analyser.analyse(smile[1])) == [0]


def test_one_photo_does_not_influence_the_next(samples: Path) -> None:
    selector = Selector(SelectionConfig("match"), [embed(samples / "astronaut.png")])
    analyser = FaceAnalyser(POOL, selector=selector)
    names = ("astronaut.png", "grace_hopper.jpg", "astronaut.png")
    pairs = [analyser.analyse_still(Frame(0, photo(samples / name)))[0].pair for name in names]
    assert pairs == [0, None, 0]


def test_only_the_matching_face_of_a_photo_is_chosen(samples: Path) -> None:
    image = photo(samples / "multi_face.jpg")
    found = FaceDetector(POOL).detect_still(image)
    leftmost = int(found.xyxy[:, 0].argmin())
    reference = MobileFaceNet(POOL).embed(image, found.landmarks[leftmost])
    analyser = FaceAnalyser(POOL, selector=Selector(SelectionConfig("match"), [reference]))
    faces = analyser.analyse_still(Frame(0, image))
    chosen = [face for face in faces if face.pair == 0]
    assert len(chosen) == 1
    assert chosen[0].xyxy[0] == min(face.xyxy[0] for face in faces)


# The larger collection


@pytest.mark.parametrize(
    ("name", "people"),
    [("headpose_two.gif", 2), ("walk_and_pause.gif", 3), ("headpose_woman.gif", 1), ("headpose_man.gif", 1)],
)
def test_people_in_real_clips_keep_their_ids_on_every_frame(
    shared_media: Path, name: str, people: int
) -> None:
    for faces in run(clip(shared_media / "video" / name)):
        assert ids(faces) == list(range(people))


def test_an_id_survives_a_hand_over_the_face(shared_media: Path) -> None:
    faces = run(f for f in clip(shared_media / "video" / "hand_over_face.mp4", 180) if f.index >= 50)
    assert all(ids(f) == [0] for f in faces)


def test_after_the_cut_to_a_title_there_is_no_face(shared_media: Path) -> None:
    faces = run(clip(shared_media / "video" / "face_then_none.mov", 110))
    assert [ids(f) for f in faces] == [[0]] * 72 + [[]] * 38


def test_a_crew_that_floats_in_all_directions_is_found(shared_media: Path) -> None:
    for name, count in (("crew_of_13.jpg", 13), ("crew_of_6_rotated.jpg", 6)):
        faces = FaceAnalyser(POOL).analyse_still(Frame(0, photo(shared_media / "group" / name)))
        assert len(faces) == count
