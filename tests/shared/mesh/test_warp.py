import cv2
import numpy as np
import pytest

from shared.arrays import ImageBgr
from shared.counters import CacheCounters
from shared.mesh.source import ATLAS
from shared.mesh.topology import FACE_POINTS, Floats, topology, with_ring
from shared.mesh.warp import FaceWarp, box_around, clipped

WIDTH, HEIGHT = 900, 800


def flat(side_px: float, x: float = 60, y: float = 40) -> Floats:
    """The mesh as it lies in the atlas, as large as wanted: pixel and texel are in plain proportion."""
    points = np.zeros((504, 3), np.float32)
    points[:, :2] = topology().uv * side_px + np.array([x, y], np.float32)
    return points


def face(width_px: float = 200, x: float = 300, y: float = 300) -> Floats:
    """The canonical face, from the front."""
    xyz = topology().xyz * (width_px / float(np.ptp(topology().xyz[:, 0])))
    return with_ring((xyz + np.array([x, y, 0])).astype(np.float32))


def similar(
    points: Floats, *, turn: float = 0, scale: float = 1, shift: tuple[float, float] = (0, 0)
) -> Floats:
    """The points turned (radians) and scaled about their middle, and shifted."""
    out = points.copy()
    c, s = scale * np.cos(turn), scale * np.sin(turn)
    middle = points[:, :2].mean(0)
    out[:, :2] = (
        (points[:, :2] - middle) @ np.array([[c, s], [-s, c]], np.float32)
        + middle
        + np.array(shift, np.float32)
    )
    return out


def position_atlas() -> ImageBgr:
    """An atlas whose colour tells the place: half of the column, half of the row."""
    y, x = np.mgrid[0:ATLAS, 0:ATLAS]
    return np.dstack([x / 2, y / 2, 0 * x + 128, 0 * x + 255]).astype(np.uint8)


def photo(seed: int = 0) -> ImageBgr:
    return np.random.default_rng(seed).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)


def placed_warp(placed: Floats, points: Floats | None = None) -> FaceWarp:
    warp = FaceWarp(CacheCounters(), reuse=False)
    assert warp.place(placed, placed if points is None else points, WIDTH, HEIGHT)
    return warp


def hits_and_misses(counters: CacheCounters) -> tuple[float, float]:
    level = counters.summary()["reuse"]
    return level["hits"], level["misses"]


# Boxes


def test_a_box_holds_every_point_and_is_clipped_to_the_frame() -> None:
    points = np.array([[10.2, 20.7, 0], [30.9, -5.5, 0]], np.float32)
    x0, y0, x1, y1 = box_around(points)
    assert (x0, y0) <= (10, -6)
    assert x1 > 31
    assert y1 > 21
    assert clipped((-5, 3, 2000, 9), 640, 480) == (0, 3, 640, 9)
    assert clipped((-50, -9, -20, -1), 640, 480) == (0, 0, 0, 0)
    assert clipped((700, 500, 800, 600), 640, 480) == (640, 480, 640, 480)


# The map


@pytest.mark.parametrize("side", [80, 149, 151, 300, 700])
def test_every_pixel_gets_the_texel_that_belongs_there(side: int) -> None:
    warp = placed_warp(flat(side))
    drawn, alpha = warp.draw(position_atlas())
    x0, y0, x1, y1 = warp.region
    y, x = np.mgrid[y0:y1, x0:x1]
    where = np.stack([(x - 60 + 0.0) / side * ATLAS - 0.5, (y - 40 + 0.0) / side * ATLAS - 0.5], -1)
    off = np.abs(drawn[..., :2] - where / 2)[alpha == 255]
    # Steps of a half, the atlas's and the sum's rounding: one grey level, that is two texels.
    assert off.max() <= 1.5
    assert np.abs((drawn[..., :2] - where / 2)[alpha == 255].mean(0)).max() < 0.35


def test_the_picture_covers_the_mesh_and_nothing_else() -> None:
    side = 300
    warp = placed_warp(flat(side))
    _, alpha = warp.draw(position_atlas())
    assert set(np.unique(alpha)) == {0, 255}
    share = (alpha > 0).sum() / side**2
    triangles = topology().uv[topology().triangles]
    a, b = triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0]
    area = float(np.abs(a[:, 0] * b[:, 1] - a[:, 1] * b[:, 0]).sum() / 2)
    assert area - 0.03 < share <= area


def test_a_transparent_atlas_draws_nothing() -> None:
    atlas = position_atlas()
    atlas[..., 3] = 0
    _, alpha = placed_warp(flat(300)).draw(atlas)
    assert not alpha.any()


@pytest.mark.parametrize("shift", [(-150, 0), (0, -120), (650, 0), (0, 600), (-150, -120)])
def test_a_face_partly_outside_of_the_frame_is_drawn_as_if_the_frame_were_larger(
    shift: tuple[float, float],
) -> None:
    inside, outside = placed_warp(face()), placed_warp(similar(face(), shift=shift))
    whole, part = inside.draw(position_atlas())[0], outside.draw(position_atlas())[0]
    x0, y0, x1, y1 = outside.region
    assert (x0, y0) >= (0, 0)
    assert (x1, y1) <= (WIDTH, HEIGHT)
    left, top = x0 - round(shift[0]) - inside.region[0], y0 - round(shift[1]) - inside.region[1]
    cut = whole[top : top + y1 - y0, left : left + x1 - x0]
    np.testing.assert_allclose(part.astype(int), cut.astype(int), atol=1)


@pytest.mark.parametrize("shift", [(-2000, 0), (2000, 0), (0, -2000), (0, 2000)])
def test_a_face_outside_of_the_frame_is_not_placed(shift: tuple[float, float]) -> None:
    warp = FaceWarp(CacheCounters(), reuse=True)
    away = similar(face(), shift=shift)
    assert not warp.place(away, away, WIDTH, HEIGHT)
    assert warp.place(face(), face(), WIDTH, HEIGHT)


# The target


def test_a_mesh_that_is_not_moved_leaves_the_target_bit_for_bit() -> None:
    for width in (60, 200, 500):
        warp = placed_warp(face(width))
        x0, y0, x1, y1 = warp.region
        region = photo()[y0:y1, x0:x1]
        moved, changed = warp.move_target(region)
        np.testing.assert_array_equal(moved[..., :3], region)
        assert not changed.any()


def test_the_target_moves_with_the_mesh() -> None:
    y, x = np.mgrid[0:HEIGHT, 0:WIDTH]
    image = np.dstack([x % 256, y % 256, 0 * x]).astype(np.uint8)
    points = face(300, 128, 128)  # no jump of the ramps within the face
    points = similar(points, shift=(0, 40))
    placed = points.copy()
    placed[:, :2] += np.array([4, -3], np.float32)
    warp = placed_warp(placed, points)
    x0, y0, x1, y1 = warp.region
    moved, changed = warp.move_target(np.ascontiguousarray(image[y0:y1, x0:x1]))
    middle = np.s_[168 - 60 - y0 : 168 + 40 - y0, 128 - 60 - x0 : 128 + 60 - x0]
    wanted = image[y0:y1, x0:x1].astype(int) + np.array([-4, 3, 0])
    np.testing.assert_allclose(moved[..., :3][middle].astype(int), wanted[middle], atol=1)
    assert (changed[middle] == 255).all()


@pytest.mark.parametrize("width", [70, 200, 450])
def test_what_counts_as_unchanged_is_the_frames_own_bit_for_bit(width: int) -> None:
    points = face(width)
    placed = points.copy()
    wave = np.sin(points[:FACE_POINTS, 1] / width * 20) * np.linspace(0, 0.04 * width, FACE_POINTS)
    placed[:FACE_POINTS, 0] += wave.astype(np.float32)
    warp = placed_warp(placed, points)
    x0, y0, x1, y1 = warp.region
    region = photo()[y0:y1, x0:x1]
    moved, changed = warp.move_target(region)
    assert set(np.unique(changed)) == {0, 255}
    np.testing.assert_array_equal(moved[..., :3][changed == 0], region[changed == 0])


@pytest.mark.parametrize("width", [200, 500])
def test_the_ring_takes_up_the_move_and_the_background_beyond_it_stays(width: int) -> None:
    points = face(width, 400, 400)
    placed = points.copy()
    # Wider by an eighth: the sides move by many pixels, the ring not at all.
    placed[:FACE_POINTS, 0] += 0.06 * (points[:FACE_POINTS, 0] - 400)
    warp = placed_warp(placed, points)
    x0, y0, x1, y1 = warp.region
    y, x = np.mgrid[y0:y1, x0:x1]
    # Colours that tell the place to a quarter of a pixel, in steps of 64 pixels.
    region = np.dstack([x % 64 * 4, y % 64 * 4, 0 * x]).astype(np.uint8)
    moved, changed = warp.move_target(region)
    off = np.abs(moved[..., :3].astype(int) - region)
    off = np.minimum(off, 256 - off)[..., 0] / 4
    assert off[changed > 0].max() > 0.02 * width
    _, shown = warp.draw(position_atlas())
    beyond = cv2.erode((shown == 0).astype(np.uint8), np.ones((5, 5))) > 0
    straight = (x % 64 > 2) & (x % 64 < 61)
    assert np.percentile(off[beyond & straight], 99) < 0.003 * width


# Reuse


@pytest.mark.parametrize(
    "move",
    [
        {"shift": (0.37, 5.81)},
        {"turn": 0.02},
        {"scale": 1.015},
        {"turn": -0.008, "scale": 0.99, "shift": (-12.25, 3.5)},
        {"shift": (-260.0, -200.0)},  # half of it leaves the frame
    ],
)
def test_a_carried_grid_gives_the_picture_of_a_new_one(move: dict[str, float]) -> None:
    counters = CacheCounters()
    first = face(240)
    first[:FACE_POINTS, 0] += 3 * np.sin(first[:FACE_POINTS, 1] / 30)
    later = similar(first, **move)  # type: ignore[arg-type]
    warp = FaceWarp(counters, reuse=True)
    warp.place(first, face(240), WIDTH, HEIGHT)
    warp.place(later, similar(face(240), **move), WIDTH, HEIGHT)  # type: ignore[arg-type]
    assert hits_and_misses(counters) == (1, 1)
    anew = placed_warp(later, similar(face(240), **move))  # type: ignore[arg-type]
    assert warp.region == anew.region
    (carried, shown), (drawn, whole) = warp.draw(position_atlas()), anew.draw(position_atlas())
    both = (shown == 255) & (whole == 255)
    assert both.sum() > 0.97 * (whole == 255).sum()
    off = np.abs(carried[both].astype(int) - drawn[both])
    # Near the folds of mouth and nostrils neighbouring pixels lie far apart in the atlas.
    assert np.percentile(off, 99) <= 1
    assert off.mean() < 0.2
    x0, y0, x1, y1 = warp.region
    y, x = np.mgrid[y0:y1, x0:x1]
    smooth = np.dstack([x // 4, y // 4, 0 * x]).astype(np.uint8)
    np.testing.assert_allclose(
        warp.move_target(smooth)[0].astype(int), anew.move_target(smooth)[0].astype(int), atol=1
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda p: similar(p, turn=0.2),
        lambda p: similar(p, scale=1.1),
        lambda p: p * np.array([1.02, 1, 1], np.float32),
        lambda p: p + np.where(np.arange(504)[:, None] == 14, np.array([0, 3, 0]), 0).astype(np.float32),
    ],
    ids=["turned", "nearer", "squeezed", "one point moved"],
)
def test_a_large_deformation_is_drawn_anew(change: object) -> None:
    counters = CacheCounters()
    warp = FaceWarp(counters, reuse=True)
    warp.place(face(), face(), WIDTH, HEIGHT)
    later = change(face())  # type: ignore[operator]
    warp.place(later, later, WIDTH, HEIGHT)
    assert hits_and_misses(counters) == (0, 2)
    anew = placed_warp(later)
    np.testing.assert_array_equal(warp.draw(position_atlas())[0], anew.draw(position_atlas())[0])


def test_a_grid_does_not_serve_for_ever() -> None:
    counters = CacheCounters()
    warp = FaceWarp(counters, reuse=True)
    for _ in range(15):
        warp.place(face(), face(), WIDTH, HEIGHT)
    hits, misses = hits_and_misses(counters)
    assert (hits, misses) == (12, 3)


def test_slow_changes_do_not_add_up() -> None:
    counters = CacheCounters()
    warp = FaceWarp(counters, reuse=True)
    points = face()
    for number in range(5):
        squeezed = points * np.array([1 + 0.003 * number, 1, 1], np.float32)
        warp.place(squeezed, squeezed, WIDTH, HEIGHT)
    assert hits_and_misses(counters)[1] >= 2


def test_without_caches_every_frame_is_drawn_anew() -> None:
    counters = CacheCounters()
    warp = FaceWarp(counters, reuse=False)
    for _ in range(3):
        warp.place(face(), face(), WIDTH, HEIGHT)
    assert hits_and_misses(counters) == (0, 3)


def test_after_it_was_out_of_the_frame_a_face_is_drawn_anew() -> None:
    counters = CacheCounters()
    warp = FaceWarp(counters, reuse=True)
    warp.place(face(), face(), WIDTH, HEIGHT)
    away = similar(face(), shift=(5000, 0))
    warp.place(away, away, WIDTH, HEIGHT)
    warp.place(face(), face(), WIDTH, HEIGHT)
    assert hits_and_misses(counters)[0] == 0
