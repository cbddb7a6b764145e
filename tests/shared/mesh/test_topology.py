import numpy as np
import pytest

from shared.mesh.topology import (
    ATLAS_FILL,
    BROW_LEFT,
    BROW_RIGHT,
    CHIN,
    EYE_LEFT,
    EYE_RIGHT,
    FACE_POINTS,
    LID_POINTS_LEFT,
    LID_POINTS_RIGHT,
    LIDS_LEFT,
    LIDS_RIGHT,
    LIPS_INNER,
    LIPS_OUTER,
    NOSE_TIP,
    OVAL,
    RING_REACH,
    Ints,
    signed_areas,
    topology,
    vertex_normals,
    with_ring,
)


def test_the_mesh_has_the_documented_size() -> None:
    mesh = topology()
    assert mesh.xyz.shape == (468, 3)
    assert mesh.uv.shape == (504, 2)
    assert mesh.triangles.shape == (970, 3)
    assert mesh.face_triangles == 898
    assert mesh.mirror.shape == (468,)


def test_every_point_is_used_and_no_triangle_names_one_that_is_not_there() -> None:
    mesh = topology()
    np.testing.assert_array_equal(np.unique(mesh.triangles), np.arange(504))
    np.testing.assert_array_equal(np.unique(mesh.triangles[: mesh.face_triangles]), np.arange(468))


def test_the_mirror_is_an_involution_of_places_that_mirror_each_other() -> None:
    mesh = topology()
    np.testing.assert_array_equal(mesh.mirror[mesh.mirror], np.arange(468))
    np.testing.assert_allclose(mesh.xyz[mesh.mirror], mesh.xyz * np.array([-1, 1, 1]), atol=1e-3)
    assert mesh.mirror[NOSE_TIP] == NOSE_TIP


@pytest.mark.parametrize(
    ("right", "left"),
    [(EYE_RIGHT, EYE_LEFT), (LIDS_RIGHT, LIDS_LEFT), (BROW_RIGHT, BROW_LEFT)],
)
def test_paired_features_mirror_each_other(right: Ints, left: Ints) -> None:
    assert set(topology().mirror[right]) == set(left)
    assert topology().xyz[right, 0].mean() < 0 < topology().xyz[left, 0].mean()


@pytest.mark.parametrize("middle", [OVAL, LIPS_INNER, LIPS_OUTER])
def test_features_of_the_middle_are_their_own_mirror_image(middle: Ints) -> None:
    assert set(topology().mirror[middle]) == set(middle)


def test_the_lid_points_mirror_each_other() -> None:
    assert tuple(topology().mirror[list(LID_POINTS_RIGHT)]) == LID_POINTS_LEFT


def test_the_canonical_face_stands_upright_and_looks_at_the_camera() -> None:
    xyz = topology().xyz
    assert xyz[EYE_RIGHT, 1].mean() < xyz[NOSE_TIP, 1] < xyz[LIPS_OUTER, 1].mean() < xyz[CHIN, 1]
    assert xyz[NOSE_TIP, 2] < xyz[:, 2].min() + 0.2


def test_on_the_canonical_face_every_triangle_faces_the_camera() -> None:
    mesh = topology()
    assert (signed_areas(with_ring(mesh.xyz), mesh.triangles) > 0).all()


def test_a_mirrored_triangle_turns_its_sign() -> None:
    points = np.array([[0, 0], [4, 0], [0, 3]], np.float32)
    triangle = np.array([[0, 1, 2]])
    assert signed_areas(points, triangle)[0] == 12
    assert signed_areas(points, triangle[:, ::-1])[0] == -12
    assert signed_areas(points * np.array([-1, 1], np.float32), triangle)[0] == -12


def test_the_ring_lies_outside_of_the_oval_at_its_depth() -> None:
    points = topology().xyz
    ringed = with_ring(points)
    assert ringed.shape == (504, 3)
    np.testing.assert_array_equal(ringed[:FACE_POINTS], points)
    centre = points[OVAL, :2].mean(0)
    np.testing.assert_allclose(
        ringed[FACE_POINTS:, :2] - centre, RING_REACH * (points[OVAL, :2] - centre), atol=1e-4
    )
    np.testing.assert_array_equal(ringed[FACE_POINTS:, 2], points[OVAL, 2])


def test_iris_points_are_no_part_of_the_mesh() -> None:
    points = np.random.default_rng(0).normal(size=(478, 3)).astype(np.float32)
    np.testing.assert_array_equal(with_ring(points), with_ring(points[:468]))


def test_texture_coordinates_fill_the_atlas_and_stay_inside() -> None:
    uv = topology().uv
    assert uv.min() >= (1 - ATLAS_FILL) / 2 - 1e-6
    assert uv.max() <= (1 + ATLAS_FILL) / 2 + 1e-6
    assert np.ptp(uv, axis=0).max() == pytest.approx(ATLAS_FILL, abs=1e-5)


def test_the_texture_is_laid_out_almost_without_folds() -> None:
    mesh = topology()
    areas = signed_areas(mesh.uv, mesh.triangles)
    # Ten slivers at the mouth's corners and the nostrils are folded in MediaPipe's own layout.
    assert (areas <= 0).sum() == 10
    assert areas[areas <= 0].sum() > -1e-3 * areas.sum()


def test_normals_are_of_length_one_and_the_nose_points_at_the_camera() -> None:
    normals = vertex_normals(topology().xyz)
    np.testing.assert_allclose(np.linalg.norm(normals, axis=1), 1, atol=1e-4)
    assert normals[NOSE_TIP, 2] < -0.8
    # The sides of the face look to their sides.
    assert normals[234, 0] < -0.5
    assert normals[454, 0] > 0.5


def test_normals_turn_with_the_face() -> None:
    turn = np.array([[0, 0, 1], [0, 1, 0], [-1, 0, 0]], np.float32)
    xyz = topology().xyz
    np.testing.assert_allclose(vertex_normals(xyz @ turn.T), vertex_normals(xyz) @ turn.T, atol=1e-4)
