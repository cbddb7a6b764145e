from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from edge.cuts import CutDetector
from shared.arrays import ImageBgr


def clip(path: Path) -> list[ImageBgr]:
    with av.open(str(path)) as container:
        return [np.asarray(f.to_ndarray(format="bgr24"), np.uint8) for f in container.decode(video=0)]


def photo(path: Path) -> ImageBgr:
    return np.asarray(cv2.resize(np.asarray(cv2.imread(str(path))), (960, 540)), np.uint8)


def cuts(frames: list[ImageBgr]) -> list[int]:
    detector = CutDetector()
    return [i for i, frame in enumerate(frames) if detector.is_cut(frame)]


@pytest.fixture(scope="module")
def scenes(samples: Path) -> list[ImageBgr]:
    names = ("single_face.jpg", "multi_face.jpg", "astronaut.png", "grace_hopper.jpg")
    return [photo(samples / name) for name in names]


def test_a_talking_head_has_no_cut(samples: Path) -> None:
    assert cuts(clip(samples / "single_face.mp4")) == []


def test_the_first_frame_is_no_cut(scenes: list[ImageBgr]) -> None:
    assert cuts(scenes[:1]) == []


def test_every_change_of_scene_is_a_cut(scenes: list[ImageBgr]) -> None:
    order = [0, 0, 1, 1, 2, 2, 3, 3, 0, 2, 1, 3]
    assert cuts([scenes[i] for i in order]) == [2, 4, 6, 8, 9, 10, 11]


@pytest.mark.parametrize("step", [5, 20, 60, 120, 200])
def test_a_pan_is_no_cut(scenes: list[ImageBgr], step: int) -> None:
    for scene in scenes:
        wide = cv2.resize(scene, (1600, 900))
        views = [wide[150:690, x : x + 960] for x in range(0, 640, step)]
        assert cuts([np.asarray(cv2.blur(v, (max(1, step // 2), 1)), np.uint8) for v in views]) == []


def test_a_zoom_is_no_cut(scenes: list[ImageBgr]) -> None:
    for scene in scenes:
        views = [scene[i * 9 : 540 - i * 9, i * 16 : 960 - i * 16] for i in range(14)]
        assert cuts([np.asarray(cv2.resize(v, (960, 540)), np.uint8) for v in views]) == []


@pytest.mark.parametrize(
    ("gain", "lift"), [(1.6, 0), (2.5, 20), (1, 90), (0.3, 0), (4, 60), (5, 100), (8, 120), (0, 255)]
)
def test_a_flash_is_no_cut(scenes: list[ImageBgr], gain: float, lift: float) -> None:
    for scene in scenes:
        flash = np.clip(scene * np.float32(gain) + np.float32(lift), 0, 255).astype(np.uint8)
        assert cuts([scene, scene, flash, scene, scene]) == []


def test_a_fade_through_black_is_one_cut_when_the_new_scene_shows(scenes: list[ImageBgr]) -> None:
    def faded(scene: ImageBgr, share: float) -> ImageBgr:
        return (scene * np.float32(share)).astype(np.uint8)

    shares = [1, 0.8, 0.6, 0.4, 0.2, 0.05, 0]
    there = [faded(scenes[0], s) for s in shares]
    back = [faded(scenes[0], s) for s in reversed(shares)]
    other = [faded(scenes[2], s) for s in reversed(shares)]
    assert cuts(there + back) == []
    assert len(cuts(there + other)) == 1


def test_a_hand_before_the_lens_is_no_cut(scenes: list[ImageBgr]) -> None:
    for scene in scenes:
        covered = scene.copy()
        covered[:, 100:500] = (120, 150, 200)
        assert cuts([scene, covered, scene]) == []


def test_noise_is_no_cut(scenes: list[ImageBgr]) -> None:
    rng = np.random.default_rng(0)
    noisy = [
        np.clip(scenes[1] + rng.normal(0, 25, scenes[1].shape), 0, 255).astype(np.uint8) for _ in range(4)
    ]
    assert cuts(noisy) == []


def test_another_size_is_a_cut(scenes: list[ImageBgr]) -> None:
    assert cuts([scenes[0], np.asarray(cv2.resize(scenes[0], (480, 270)), np.uint8)]) == [1]


@pytest.mark.parametrize("shape", [(1, 1), (3, 200), (200, 3), (71, 63)])
def test_the_smallest_pictures_do_not_hurt(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 255, (*shape, 3), dtype=np.uint8)] * 3
    assert cuts(frames) == []


def test_the_cut_to_a_title_is_found(shared_media: Path) -> None:
    assert cuts(clip(shared_media / "video" / "face_then_none.mov")) in ([72], [73])


def test_a_hand_that_sweeps_over_a_face_is_no_cut(shared_media: Path) -> None:
    assert cuts(clip(shared_media / "video" / "hand_over_face.mp4")[40:240]) == []
