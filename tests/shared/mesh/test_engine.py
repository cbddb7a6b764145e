import dataclasses
import functools
import itertools
from typing import Any

import cv2
import numpy as np
import pytest

from shared.arrays import ImageBgr
from shared.counters import CacheCounters
from shared.faces import TrackedFace
from shared.frames import Patch
from shared.mesh.engine import MeshConfig, MeshEngine, MeshTrack, blend
from shared.mesh.shape import head_pose
from shared.mesh.topology import LIPS_INNER, MOUTH_POINTS
from tests.real_faces import clip_faces, embedding_of, faces_in, faces_of, image_of, prepared

PEOPLE = [("single_face.jpg", 0), ("astronaut.png", 0), *(("multi_face.jpg", i) for i in range(1, 5))]
"""Packaged faces without spectacles, which would be kept."""
PAIRS = [(a, b) for a in PEOPLE for b in PEOPLE if a != b]


def track(
    source: str = "astronaut.png",
    *,
    caches: bool = True,
    counters: CacheCounters | None = None,
    **config: Any,
) -> MeshTrack:
    return MeshEngine(MeshConfig(**config), counters=counters, caches=caches).open_track(prepared(source))


def altered(face: TrackedFace, **changes: Any) -> TrackedFace:
    return dataclasses.replace(face, **changes)


def fused_whole(image: ImageBgr, patch: Patch) -> ImageBgr:
    out = image.copy()
    height, width = patch.changed.shape
    out[patch.y : patch.y + height, patch.x : patch.x + width] = patch.image
    return out


def strength(image: ImageBgr, patch: Patch | None) -> float:
    """How much the patch changes the picture, in grey levels over all pixels."""
    return 0.0 if patch is None else float(np.abs(fused_whole(image, patch).astype(int) - image).mean())


def moved_by(image: ImageBgr, face: TrackedFace, x: int, y: int) -> tuple[ImageBgr, TrackedFace]:
    """The same picture and face, shifted by whole pixels; the edge is repeated."""
    shift = np.array([[1, 0, x], [0, 1, y]], np.float32)
    size = (image.shape[1], image.shape[0])
    out = cv2.warpAffine(image, shift, size, flags=cv2.INTER_NEAREST, borderMode=cv2.BORDER_REPLICATE)
    landmarks = face.landmarks + np.array([x, y, 0], np.float32)
    return out, altered(face, landmarks=landmarks, xyxy=face.xyxy + np.array([x, y, x, y], np.float32))


@functools.cache
def fused_pair(source: tuple[str, int], target: tuple[str, int]) -> Patch:
    image, face = image_of(target[0]), faces_of(target[0])[target[1]]
    patch = MeshEngine().open_track(prepared(*source)).fuse(image, face)
    assert patch is not None
    return patch


# Likeness and honesty of a single picture


def test_the_output_is_nearer_to_the_source_than_to_the_target() -> None:
    to_source, to_target = [], []
    for source, target in PAIRS:
        face = faces_of(target[0])[target[1]]
        out = fused_whole(image_of(target[0]), fused_pair(source, target))
        who = embedding_of(out, face.landmarks)
        to_source.append(
            float(who @ embedding_of(image_of(source[0]), faces_of(source[0])[source[1]].landmarks))
        )
        to_target.append(float(who @ embedding_of(image_of(target[0]), face.landmarks)))
    nearer = np.array(to_source) > np.array(to_target)
    assert nearer.mean() >= 0.95
    assert np.mean(to_source) >= 0.70
    assert np.mean(to_target) <= 0.40


@pytest.mark.parametrize(("source", "target"), PAIRS[::5])
def test_a_pixel_that_is_not_marked_as_changed_is_the_frames_own(
    source: tuple[str, int], target: tuple[str, int]
) -> None:
    patch, image = fused_pair(source, target), image_of(target[0])
    height, width = patch.changed.shape
    assert patch.image.shape == (height, width, 3)
    before = image[patch.y : patch.y + height, patch.x : patch.x + width]
    np.testing.assert_array_equal(patch.image[patch.changed == 0], before[patch.changed == 0])
    differs = (patch.image != before).any(2)
    # What is marked did change, apart from chance.
    assert (differs & (patch.changed > 0)).sum() > 0.8 * (patch.changed > 0).sum()
    assert (patch.changed == 0).any()


def test_the_frame_itself_is_only_read() -> None:
    image = image_of("single_face.jpg").copy()
    track().fuse(image, faces_of("single_face.jpg")[0])
    np.testing.assert_array_equal(image, image_of("single_face.jpg"))


def test_eyeballs_and_the_open_mouth_are_the_targets_own() -> None:
    # Without a change of shape nothing moves, so they must be the very same pixels.
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    patch = track(tier="fast").fuse(image, face)
    assert patch is not None
    out = fused_whole(image, patch)
    for place in (face.landmarks[468, :2], face.landmarks[473, :2]):
        x, y = np.rint(place).astype(int)
        np.testing.assert_allclose(
            out[y - 1 : y + 2, x - 1 : x + 2].astype(int), image[y - 1 : y + 2, x - 1 : x + 2], atol=6
        )
    assert np.ptp(face.landmarks[list(MOUTH_POINTS[:2]), 1]) > 4
    x, y = np.rint(face.landmarks[LIPS_INNER, :2].mean(0)).astype(int)
    np.testing.assert_allclose(out[y, x].astype(int), image[y, x], atol=6)


def test_the_fusion_of_a_person_with_itself_changes_little() -> None:
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    patch = track("single_face.jpg").fuse(image, face)
    other = track("astronaut.png").fuse(image, face)
    assert strength(image, patch) < 0.5 * strength(image, other)


def test_shape_strength_moves_the_outline() -> None:
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    likeness = []
    source = embedding_of(image_of("astronaut.png"), faces_of("astronaut.png")[0].landmarks)
    for amount in (0.0, 1.15):
        patch = track(shape_strength=amount).fuse(image, face)
        assert patch is not None
        likeness.append(float(embedding_of(fused_whole(image, patch), face.landmarks) @ source))
    assert likeness[1] > likeness[0] + 0.03


def test_landmarks_of_the_cheaper_network_serve_as_well() -> None:
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    few = altered(face, landmarks=face.landmarks[:468])
    one, other = track().fuse(image, face), track(tier="balanced").fuse(image, few)
    assert one is not None
    assert other is not None
    np.testing.assert_array_equal(one.image, other.image)


# Fades


def test_the_fusion_fades_with_doubt() -> None:
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    levels = [
        strength(image, track().fuse(image, altered(face, presence=p)))
        for p in (20.0, 5.0, 4.0, 3.0, 2.0, -5.0)
    ]
    assert levels[-2:] == [0, 0]
    assert all(a >= b for a, b in itertools.pairwise(levels))
    assert levels[1] > 0.6 * levels[0]
    assert 0.15 * levels[1] < levels[3] < 0.7 * levels[1]
    assert track().fuse(image, altered(face, presence=2.0)) is None


@pytest.mark.parametrize(
    ("yaw", "shows"), [(0, True), (44, True), (55, True), (64, False), (-64, False), (80, False)]
)
def test_the_fusion_fades_with_the_turn_of_the_head(yaw: float, shows: bool) -> None:
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    turn = np.radians(head_pose(face.landmarks).yaw_deg - yaw)
    about = np.array(
        [[np.cos(turn), 0, np.sin(turn)], [0, 1, 0], [-np.sin(turn), 0, np.cos(turn)]], np.float32
    )
    middle = face.landmarks.mean(0)
    turned = altered(face, landmarks=((face.landmarks - middle) @ about.T + middle).astype(np.float32))
    assert head_pose(turned.landmarks).yaw_deg == pytest.approx(yaw, abs=3)
    assert (track().fuse(image, turned) is not None) == shows


# Odd places and sizes


@pytest.mark.parametrize(("x", "y"), [(-250, 0), (270, 0), (0, -260), (0, 270), (-230, -240), (275, 270)])
def test_a_face_partly_outside_of_the_frame_is_fused_as_far_as_it_is_seen(x: int, y: int) -> None:
    image, face = moved_by(image_of("single_face.jpg"), faces_of("single_face.jpg")[0], x, y)
    patch = track().fuse(image, face)
    assert patch is not None
    height, width = patch.changed.shape
    assert patch.x >= 0
    assert patch.y >= 0
    assert patch.x + width <= image.shape[1]
    assert patch.y + height <= image.shape[0]
    before = image[patch.y : patch.y + height, patch.x : patch.x + width]
    np.testing.assert_array_equal(patch.image[patch.changed == 0], before[patch.changed == 0])


@pytest.mark.parametrize(("x", "y"), [(-2000, 0), (2000, 0), (0, -2000), (0, 2000)])
def test_a_face_outside_of_the_frame_is_left_alone(x: int, y: int) -> None:
    image, face = moved_by(image_of("single_face.jpg"), faces_of("single_face.jpg")[0], x, y)
    assert track().fuse(image, face) is None


@pytest.mark.parametrize("scale", [0.02, 0.06, 0.15, 3.0])
def test_tiny_and_large_faces_are_fused_or_left_alone_without_trouble(scale: float) -> None:
    image = cv2.resize(image_of("single_face.jpg"), None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    face = faces_of("single_face.jpg")[0]
    face = altered(face, landmarks=face.landmarks * np.float32(scale), xyxy=face.xyxy * np.float32(scale))
    patch = track().fuse(image, face)
    if scale > 0.05:
        assert patch is not None
        assert strength(image, patch) > 0.5


# From frame to frame


def run(clip: tuple[tuple[ImageBgr, TrackedFace], ...], **options: Any) -> list[ImageBgr]:
    running = track(**options)
    out = []
    for image, face in clip:
        patch = running.fuse(image, face)
        assert patch is not None
        out.append(fused_whole(image, patch))
    return out


def test_two_runs_are_equal() -> None:
    for one, two in zip(run(clip_faces(12)), run(clip_faces(12)), strict=True):
        np.testing.assert_array_equal(one, two)


def test_without_caches_the_picture_is_about_the_same() -> None:
    counters = CacheCounters()
    with_caches = run(clip_faces(12), counters=counters)
    for (image, face), one, two in zip(
        clip_faces(12), with_caches, run(clip_faces(12), caches=False), strict=True
    ):
        x0, y0, x1, y1 = face.xyxy.astype(int)
        inside = np.s_[y0:y1, x0:x1]
        assert np.abs(one[inside].astype(int) - two[inside]).mean() < 1.5
        assert np.abs(one[inside].astype(int) - image[inside]).mean() > 4
    level = counters.summary()["reuse"]
    assert level["hits"] + level["misses"] == 12


def test_a_still_face_is_reused() -> None:
    image, face = clip_faces(12)[0]
    counters = CacheCounters()
    running = track(counters=counters)
    for number in range(7):
        running.fuse(image, altered(face, restarted=number == 0))
    # The shape settles on the first frames, and then nothing moves.
    assert counters.summary()["reuse"]["hits"] >= 3


def test_the_output_does_not_flicker_where_the_target_does_not() -> None:
    image, face = clip_faces(12)[0]
    running = track()
    frames = []
    for number in range(12):
        patch = running.fuse(image, altered(face, restarted=number == 0))
        assert patch is not None
        frames.append(fused_whole(image, patch).astype(int))
    steps = [np.abs(b - a)[frames[0] != image].mean() for a, b in itertools.pairwise(frames[3:])]
    assert max(steps) < 1.0


def test_a_face_that_comes_nearer_gets_the_sharpness_it_has_there() -> None:
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    soft = cv2.resize(cv2.GaussianBlur(image, (0, 0), 6), None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
    small = altered(face, landmarks=face.landmarks * np.float32(0.5), restarted=True)

    def skin_detail(running: MeshTrack) -> float:
        patch = running.fuse(image, altered(face, restarted=False))
        assert patch is not None
        fine = cv2.Laplacian(cv2.cvtColor(fused_whole(image, patch), cv2.COLOR_BGR2GRAY), cv2.CV_32F)
        spots = [np.rint(face.landmarks[i, :2]).astype(int) for i in (50, 280, 151)]
        return float(np.mean([fine[y - 10 : y + 10, x - 10 : x + 10].std() for x, y in spots]))

    running, same_size = track(), track()
    running.fuse(soft, small)
    same_size.fuse(cv2.GaussianBlur(image, (0, 0), 6), altered(face, restarted=True))
    fresh = skin_detail(track())
    assert skin_detail(running) == pytest.approx(fresh, rel=0.15)
    # While the size stays, so does the texture: searching anew on every frame would cost too much.
    assert skin_detail(same_size) < 0.88 * fresh


def test_what_a_track_has_learned_does_not_leak_into_a_restarted_one() -> None:
    running = track()
    for image, face in clip_faces(12):
        running.fuse(image, face)
    # Somebody else, under another light, on the same track.
    image, face = image_of("multi_face.jpg"), faces_of("multi_face.jpg")[3]
    again, anew = running.fuse(image, altered(face, restarted=True)), track().fuse(image, face)
    assert again is not None
    assert anew is not None
    np.testing.assert_array_equal(again.image, anew.image)
    np.testing.assert_array_equal(again.changed, anew.changed)


def test_two_tracks_of_one_source_do_not_disturb_each_other() -> None:
    engine = MeshEngine()
    one, other = (engine.open_track(prepared("astronaut.png")) for _ in range(2))
    group, woman = image_of("multi_face.jpg"), faces_of("multi_face.jpg")[3]
    for number, ((image, face), alone) in enumerate(zip(clip_faces(12), run(clip_faces(12)), strict=True)):
        patch = one.fuse(image, face)
        other.fuse(group, altered(woman, restarted=number == 0))
        assert patch is not None
        np.testing.assert_array_equal(fused_whole(image, patch), alone)


def test_a_hand_before_the_face_stays_in_front() -> None:
    running = track()
    for image, face in clip_faces(20)[:16]:
        running.fuse(image, face)
    image, face = clip_faces(20)[16]
    x, y = np.rint(face.landmarks[50, :2]).astype(int)  # a cheek
    covered = image.copy()
    cv2.rectangle(covered, (int(x) - 18, int(y) - 14), (int(x) + 18, int(y) + 24), (150, 60, 40), -1)
    for _ in range(2):
        patch = running.fuse(covered, face)
    assert patch is not None
    out = fused_whole(covered, patch)
    spot = np.s_[y - 4 : y + 10, x - 8 : x + 8]
    assert np.abs(out[spot].astype(int) - covered[spot]).mean() < 8
    free = run(clip_faces(20)[:17])[-1]
    assert np.abs(free[spot].astype(int) - image[spot]).mean() > 8


def test_the_expression_follows_the_target() -> None:
    image, face = image_of("single_face.jpg"), faces_of("single_face.jpg")[0]
    patch = track().fuse(image, face)
    assert patch is not None
    (found,) = faces_in(fused_whole(image, patch))

    def gap(landmarks: np.ndarray[Any, np.dtype[np.float32]]) -> float:
        return float(np.hypot(*(landmarks[13, :2] - landmarks[14, :2])))

    assert gap(found.landmarks) == pytest.approx(gap(face.landmarks), rel=0.35)


# Blending and settings


def test_blending_is_exact_at_the_ends_and_off_by_one_level_between() -> None:
    rng = np.random.default_rng(0)
    below, above = rng.integers(0, 256, (2, 40, 50, 4)).astype(np.uint8)
    alpha = rng.integers(0, 256, (40, 50)).astype(np.uint8)
    alpha[:10], alpha[10:20] = 0, 255
    out = blend(below, above, alpha)
    np.testing.assert_array_equal(out[:10], below[:10])
    np.testing.assert_array_equal(out[10:20], above[10:20])
    share = alpha[..., None] / 255
    np.testing.assert_allclose(out, above * share + below * (1 - share), atol=1.01)


@pytest.mark.parametrize(
    ("tier", "points", "shape"), [("quality", 478, 1.0), ("balanced", 468, 1.0), ("fast", 468, 0.0)]
)
def test_a_tier_says_what_it_costs(tier: Any, points: int, shape: float) -> None:
    config = MeshConfig(tier, 1.0)
    assert (config.points, config.shape) == (points, shape)


def test_settings_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="tier must be quality, balanced or fast, not 'best'"):
        MeshConfig("best")  # type: ignore[arg-type]
    for amount in (-0.1, 1.3, float("nan")):
        with pytest.raises(ValueError, match=r"shape_strength must be within 0 and 1\.25"):
            MeshConfig(shape_strength=amount)


def test_the_engine_declares_itself() -> None:
    card = MeshEngine.card
    assert (card.name, card.works_on, card.source_needs, card.licence) == (
        "mesh",
        "frame",
        "photos",
        "Apache-2.0",
    )
