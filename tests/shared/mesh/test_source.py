import cv2
import numpy as np
import pytest

from shared.mesh.source import (
    ATLAS,
    BLURS,
    PreparedSource,
    SourcePhoto,
    _views,
    frontal_alpha,
    prepare_source,
)
from shared.mesh.topology import EYE_LEFT, EYE_RIGHT, LIPS_OUTER, NOSE_TIP, inter_ocular, topology
from shared.mesh.uvgrid import GRID, face_regions
from tests.real_faces import faces_of, image_of, prepared

NAMES = ["single_face.jpg", "astronaut.png", "grace_hopper.jpg"]


def photo_of(name: str, which: int = 0) -> SourcePhoto:
    return SourcePhoto(image_of(name), faces_of(name)[which].landmarks)


def mirrored(photo: SourcePhoto) -> SourcePhoto:
    """The photo in a mirror, its points renamed."""
    landmarks = photo.landmarks[:468][topology().mirror].copy()
    landmarks[:, 0] = photo.image.shape[1] - 1 - landmarks[:, 0]
    return SourcePhoto(np.ascontiguousarray(photo.image[:, ::-1]), landmarks)


def enlarged(photo: SourcePhoto, factor: float) -> SourcePhoto:
    image = cv2.resize(photo.image, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    landmarks = photo.landmarks * np.float32(factor)
    landmarks[:, :2] = (photo.landmarks[:, :2] + 0.5) * np.float32(factor) - 0.5
    return SourcePhoto(image, landmarks)


def off(one: PreparedSource, other: PreparedSource) -> float:
    """Mean difference of two textures where both show, grey levels."""
    shown = (one.alpha > 128) & (other.alpha > 128)
    return float(np.abs(one.texture[shown].astype(int) - other.texture[shown]).mean())


@pytest.mark.parametrize("name", NAMES)
def test_a_prepared_source_has_the_documented_shapes(name: str) -> None:
    source = prepared(name)
    assert source.texture.shape == (ATLAS, ATLAS, 3)
    assert source.alpha.shape == (ATLAS, ATLAS)
    assert source.texture.dtype == source.alpha.dtype == np.uint8
    assert source.shape.shape == (468, 3)
    assert source.grid_texture.shape == (GRID, GRID, 3)
    assert source.shape.dtype == source.grid_texture.dtype == np.float32
    assert source.grid_valid.shape == (GRID, GRID)
    assert 0 <= source.grid_valid.min() <= source.grid_valid.max() <= 1


@pytest.mark.parametrize("name", NAMES)
def test_the_middle_of_the_face_shows_and_what_lies_beyond_the_oval_does_not(name: str) -> None:
    alpha = prepared(name).alpha
    x, y = np.rint(topology().uv[NOSE_TIP] * ATLAS).astype(int)
    assert alpha[y, x] == 255
    assert not alpha[face_regions(ATLAS).face == 0].max() > 8
    inner = face_regions(ATLAS).cheeks > 0
    assert (alpha[inner] > 200).mean() > 0.8


@pytest.mark.parametrize("name", NAMES)
def test_the_atlas_holds_the_photo_at_every_point(name: str) -> None:
    photo, source = photo_of(name), prepared(name)
    for group in (LIPS_OUTER, np.array([1, 4, 5, 6, 195, 197]), np.array([50, 280, 205, 425])):
        x, y = np.rint(photo.landmarks[group, :2]).astype(int).T
        u, v = np.rint(topology().uv[group] * ATLAS - 0.5).astype(int).T
        in_photo = cv2.blur(photo.image, (3, 3))[y, x].astype(float)
        in_atlas = cv2.blur(source.texture, (5, 5))[v, u].astype(float)
        assert np.abs(in_photo - in_atlas).mean() < 14


def test_the_shape_is_a_face_in_centimetres() -> None:
    for name in NAMES:
        shape = prepared(name).shape
        assert np.abs(shape - topology().xyz).mean() < 0.6
        assert np.ptp(shape[:, 0]) == pytest.approx(15.5, rel=0.12)


def test_shapes_of_two_people_differ_more_than_those_of_two_sizes_of_one_photo() -> None:
    one = prepared("single_face.jpg").shape
    large = prepare_source([enlarged(photo_of("single_face.jpg"), 1.7)]).shape
    np.testing.assert_allclose(large, one, atol=1e-2)
    assert np.abs(one - prepared("astronaut.png").shape).mean() > 0.05


@pytest.mark.parametrize("factor", [0.8, 1.7, 4.0])
def test_the_size_of_the_photo_hardly_matters(factor: float) -> None:
    name = "single_face.jpg"
    assert off(prepared(name), prepare_source([enlarged(photo_of(name), factor)])) < 4


def test_the_grain_of_a_huge_photo_does_not_reach_the_atlas() -> None:
    huge = enlarged(photo_of("single_face.jpg"), 4)
    grain = np.random.default_rng(0).normal(0, 40, huge.image.shape)
    grainy = np.clip(huge.image + grain, 0, 255).astype(np.uint8)
    assert off(prepare_source([huge]), prepare_source([SourcePhoto(grainy, huge.landmarks)])) < 14


def test_a_mirror_image_stands_in_for_the_side_that_is_turned_away() -> None:
    photo = photo_of("single_face.jpg")
    own, mirror = _views(photo)
    np.testing.assert_allclose(mirror.weight, 0.2 * own.weight[:, ::-1], atol=1e-6)
    np.testing.assert_array_equal(mirror.texture, own.texture[:, ::-1])
    np.testing.assert_array_equal(mirror.valid, own.valid[:, ::-1])


def test_of_two_photos_the_sharper_one_decides() -> None:
    good = photo_of("single_face.jpg")
    coarse = enlarged(good, 0.35)
    darker = SourcePhoto((coarse.image * 0.6).astype(np.uint8), coarse.landmarks)
    detail = [
        float(cv2.Laplacian(source.texture, cv2.CV_32F)[150:300, 100:280].std())
        for source in (prepared("single_face.jpg"), prepare_source([good, darker]), prepare_source([darker]))
    ]
    assert detail[1] > 0.9 * detail[0]
    assert detail[2] < 0.6 * detail[0]


def test_a_mirrored_photo_gives_the_mirrored_atlas() -> None:
    source, other = prepared("single_face.jpg"), prepare_source([mirrored(photo_of("single_face.jpg"))])
    shown = (source.alpha > 128) & (other.alpha[:, ::-1] > 128)
    assert shown.sum() > 0.9 * (source.alpha > 128).sum()
    difference = np.abs(source.texture.astype(int) - other.texture[:, ::-1])[shown]
    assert difference.mean() < 4


def test_the_same_photo_twice_is_the_photo_once() -> None:
    photo = photo_of("astronaut.png")
    twice = prepare_source([photo, photo])
    assert off(prepared("astronaut.png"), twice) < 1.5
    np.testing.assert_allclose(twice.shape, prepared("astronaut.png").shape, atol=1e-4)


def test_a_tiny_second_photo_spoils_nothing() -> None:
    good = photo_of("single_face.jpg")
    small = enlarged(good, 0.12)
    assert off(prepared("single_face.jpg"), prepare_source([good, small])) < 3


def test_preparing_is_deterministic_and_leaves_the_photo_alone() -> None:
    photo = photo_of("single_face.jpg")
    before = photo.image.copy()
    one, two = prepare_source([photo]), prepare_source([photo])
    np.testing.assert_array_equal(one.texture, two.texture)
    np.testing.assert_array_equal(one.alpha, two.alpha)
    np.testing.assert_array_equal(photo.image, before)


def test_a_face_at_the_edge_of_its_photo_can_be_prepared() -> None:
    photo = photo_of("single_face.jpg")
    left = int(photo.landmarks[:, 0].mean())
    landmarks = photo.landmarks - np.array([left, 0, 0], np.float32)
    source = prepare_source([SourcePhoto(np.ascontiguousarray(photo.image[:, left:]), landmarks)])
    assert np.isfinite(source.grid_texture).all()


def test_the_statistics_are_those_of_the_texture() -> None:
    source = prepared("astronaut.png")
    blocks = source.texture.reshape(GRID, 6, GRID, 6, 3).mean((1, 3))
    np.testing.assert_allclose(source.grid_texture, blocks, atol=1)


def test_blurred_textures_are_kept_and_get_softer() -> None:
    source = prepared("astronaut.png")
    assert source.blurred(0) is source.texture
    assert source.blurred(3) is source.blurred(3)
    detail = [cv2.Laplacian(source.blurred(i), cv2.CV_32F).std() for i in range(len(BLURS))]
    assert detail == sorted(detail, reverse=True)


def test_the_edge_of_the_mask_is_soft_and_the_same_on_both_sides() -> None:
    alpha = frontal_alpha()
    assert alpha.min() == 0
    assert alpha.max() == 1
    assert np.abs(alpha - alpha[:, ::-1]).mean() < 0.005
    assert np.abs(np.diff(alpha, axis=1)).max() < 0.35


def test_the_distance_of_the_eyes_is_that_of_their_middles() -> None:
    points = np.zeros((468, 3), np.float32)
    points[EYE_RIGHT] = (10, 20, 5)
    points[EYE_LEFT] = (13, 24, 17)
    assert inter_ocular(points) == pytest.approx(13)


def test_a_prepared_source_comes_back_from_its_bytes_as_it_was() -> None:
    source = prepared("single_face.jpg")
    again = PreparedSource.from_bytes(source.to_bytes())
    for name in ("texture", "alpha", "shape", "grid_texture", "grid_valid"):
        np.testing.assert_array_equal(getattr(again, name), getattr(source, name))
        assert getattr(again, name).dtype == getattr(source, name).dtype


@pytest.mark.parametrize("data", [b"", b"not an archive", b"PK\x03\x04 cut off"])
def test_bytes_that_are_no_prepared_source_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="prepared source"):
        PreparedSource.from_bytes(data)
