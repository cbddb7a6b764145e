import cv2
import numpy as np
import pytest

from shared.arrays import ImageBgr
from shared.mesh.light import LightField, LightState, lit_atlas, masked_lowpass, soften_chroma
from shared.mesh.source import ATLAS, PreparedSource
from shared.mesh.topology import Floats, topology
from shared.mesh.uvgrid import GRID, face_regions
from tests.real_faces import prepared

ONES = np.ones((GRID, GRID), np.float32)


def smooth_noise(seed: int, sigma: float = 2.0) -> Floats:
    rng = np.random.default_rng(seed)
    return cv2.GaussianBlur(rng.normal(0, 40, (GRID, GRID, 3)).astype(np.float32), (0, 0), sigma)


def source_with(grid_texture: Floats, valid: Floats = ONES) -> PreparedSource:
    """A made-up source whose statistics are given."""
    texture = np.clip(cv2.resize(grid_texture, (ATLAS, ATLAS)), 0, 255).astype(np.uint8)
    alpha = np.full((ATLAS, ATLAS), 255, np.uint8)
    return PreparedSource(texture, alpha, topology().xyz, grid_texture.astype(np.float32), valid)


def lit(light: LightState, texture: Floats) -> Floats:
    return light.gain * texture + light.field


# Masked low-pass


@pytest.mark.parametrize(
    "part", [np.s_[:, :], np.s_[:, :32], np.s_[30:33, 40:42]], ids=["all", "half", "spot"]
)
def test_a_constant_stays_that_constant_under_any_mask(part: tuple[slice, slice]) -> None:
    mask = np.zeros((GRID, GRID), np.float32)
    mask[part] = 1
    planes = np.zeros((GRID, GRID, 2), np.float32) + np.array([120, -7], np.float32)
    np.testing.assert_allclose(masked_lowpass(planes, mask), planes, rtol=1e-3)


def test_nothing_seen_gives_nothing() -> None:
    assert not masked_lowpass(np.full((GRID, GRID, 2), 9, np.float32), ONES * 0).any()


@pytest.mark.parametrize("count", [1, 2, 6])
def test_as_many_planes_come_out_as_go_in(count: int) -> None:
    assert masked_lowpass(np.ones((GRID, GRID, count), np.float32), ONES).shape == (GRID, GRID, count)


def test_what_the_mask_hides_has_no_influence() -> None:
    rng = np.random.default_rng(0)
    mask = (rng.random((GRID, GRID)) > 0.4).astype(np.float32)
    planes = rng.normal(100, 30, (GRID, GRID, 3)).astype(np.float32)
    other = np.where(mask[..., None] > 0, planes, np.float32(-500))
    np.testing.assert_allclose(masked_lowpass(other, mask), masked_lowpass(planes, mask), atol=1e-2)


def test_planes_do_not_mix() -> None:
    planes = np.dstack([ONES * 10, smooth_noise(0)[..., 0]])
    np.testing.assert_allclose(masked_lowpass(planes, ONES)[..., 0], 10, atol=1e-3)


def test_a_slow_slope_survives_and_fine_detail_does_not() -> None:
    slope = np.tile(np.linspace(50, 200, GRID, dtype=np.float32), (GRID, 1))
    checks = np.indices((GRID, GRID)).sum(0) % 2 * 2 - 1
    low = masked_lowpass((slope + 30 * checks).astype(np.float32)[..., None], ONES)
    np.testing.assert_allclose(low[20:44, 20:44, 0], slope[20:44, 20:44], atol=1)


def test_far_from_anything_seen_the_mean_of_all_takes_over() -> None:
    mask = np.zeros((GRID, GRID), np.float32)
    mask[:16, :16] = mask[:16, -16:] = 1
    planes = np.zeros((GRID, GRID, 1), np.float32)
    planes[:, :32], planes[:, 32:] = 40, 80
    low = masked_lowpass(planes, mask)
    assert low[6, 6, 0] == pytest.approx(40, abs=1)
    assert low[-1, 32, 0] == pytest.approx(60, abs=1)


# The field


@pytest.mark.parametrize("k", [0.6, 1.0, 1.25])
def test_a_dimmed_source_is_reached_exactly_by_its_gain_alone(k: float) -> None:
    source = prepared("astronaut.png")
    light = LightField(source).update(source.grid_texture * np.float32(k), ONES)
    np.testing.assert_allclose(light.gain, k, rtol=0.02)
    np.testing.assert_allclose(lit(light, source.grid_texture), source.grid_texture * k, atol=3)
    assert light.chroma == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("shade", [0, 60, -40])
def test_a_target_that_is_the_source_under_another_light_is_reached(shade: float) -> None:
    source = prepared("astronaut.png")
    across = np.linspace(-1, 1, GRID, dtype=np.float32)[None, :, None]
    target = np.float32(0.8) * source.grid_texture + 20 + np.float32(shade) * across
    light = LightField(source).update(target, ONES)
    mask = face_regions().skin * source.grid_valid
    wanted = masked_lowpass(target, mask)
    reached = masked_lowpass(lit(light, source.grid_texture), mask)
    inner = face_regions().cheeks > 0
    np.testing.assert_allclose(reached[inner], wanted[inner], atol=4)
    # Texel by texel what differs is fine detail times the small difference of the gains.
    assert np.abs(lit(light, source.grid_texture) - target)[inner].mean() < 4
    np.testing.assert_allclose(light.gain, 0.85, atol=0.1)


def test_what_is_hidden_in_the_target_does_not_colour_the_face() -> None:
    source = prepared("astronaut.png")
    visible = ONES.copy()
    visible[36:52, 10:30] = 0
    target = source.grid_texture.copy()
    target[36:52, 10:30] = (255, 0, 0)
    clean = LightField(source).update(source.grid_texture, visible)
    covered = LightField(source).update(target, visible)
    np.testing.assert_allclose(covered.field, clean.field, atol=1e-2)
    np.testing.assert_allclose(covered.gain, clean.gain, atol=1e-4)


def test_what_is_not_skin_in_the_source_does_not_colour_the_face() -> None:
    valid = ONES.copy()
    valid[36:52, 10:30] = 0
    texture = 120 + smooth_noise(1)
    fringe = texture.copy()
    fringe[36:52, 10:30] = (255, 0, 0)
    clean, hairy = (LightField(source_with(t, valid)).update(texture, ONES) for t in (texture, fringe))
    elsewhere = np.s_[:, 34:]
    np.testing.assert_allclose(hairy.field[elsewhere], clean.field[elsewhere], atol=1)
    np.testing.assert_allclose(hairy.gain, clean.gain, atol=1e-4)


def test_contrast_is_bounded() -> None:
    texture = 120 + smooth_noise(1)
    flat = LightField(source_with(texture)).update(np.full_like(texture, 30), ONES)
    assert (flat.gain >= 0.45).all()
    wild = LightField(source_with(texture)).update(120 + 6 * smooth_noise(2), ONES)
    assert (wild.gain <= 1.3).all()


def test_a_sudden_change_of_light_is_followed_step_by_step() -> None:
    source = prepared("astronaut.png")
    field = LightField(source)
    before = field.update(source.grid_texture, ONES).field.copy()
    darker = source.grid_texture - 40
    first = field.update(darker, ONES).field.copy()
    for _ in range(30):
        last = field.update(darker, ONES).field
    goal = LightField(source).update(darker, ONES).field
    np.testing.assert_allclose(first - before, 0.3 * (goal - before), atol=0.1)
    np.testing.assert_allclose(last, goal, atol=0.1)


def test_make_up_is_toned_down_on_a_grey_target() -> None:
    texture = 120 + smooth_noise(1)
    grey = np.repeat(texture.mean(2, keepdims=True), 3, 2)
    assert LightField(source_with(texture)).update(grey, ONES).chroma == pytest.approx(0.25)
    assert LightField(source_with(grey)).update(texture, ONES).chroma == 1


def test_a_target_of_which_nothing_is_seen_gives_finite_light() -> None:
    source = prepared("astronaut.png")
    light = LightField(source).update(source.grid_texture, ONES * 0)
    assert np.isfinite(light.field).all()
    assert np.isfinite(light.gain).all()
    assert np.isfinite(light.chroma)


# Colouring the atlas


def test_a_neutral_light_leaves_the_texture_as_it_is() -> None:
    texture = prepared("astronaut.png").texture
    alpha = np.random.default_rng(0).integers(0, 256, (ATLAS, ATLAS)).astype(np.uint8)
    neutral = LightState(np.ones(3, np.float32), np.zeros((GRID, GRID, 3), np.float32), 1)
    out = np.zeros((ATLAS, ATLAS, 4), np.uint8)
    atlas = lit_atlas(texture, alpha, neutral, out)
    np.testing.assert_array_equal(atlas[..., :3], texture)
    np.testing.assert_array_equal(atlas[..., 3], alpha)
    assert atlas is out


def test_gain_and_field_are_applied_per_channel_and_saturate() -> None:
    texture = np.full((ATLAS, ATLAS, 3), 100, np.uint8)
    texture[0, 0] = (250, 5, 100)
    field = np.zeros((GRID, GRID, 3), np.float32) + np.array([30, -40, 0], np.float32)
    light = LightState(np.array([1.0, 0.5, 1.3], np.float32), field, 1)
    atlas = lit_atlas(texture, texture[..., 0], light, np.zeros((ATLAS, ATLAS, 4), np.uint8))
    np.testing.assert_allclose(atlas[200, 200, :3], [130, 10, 130], atol=1)
    np.testing.assert_allclose(atlas[0, 0, :3], [255, 0, 130], atol=1)


def chroma_and_luma_detail(texture: ImageBgr) -> tuple[Floats, Floats]:
    """What a blur takes from the middle of a texture: the two colours, and the lightness."""
    ycc = cv2.cvtColor(texture, cv2.COLOR_BGR2YCrCb).astype(np.float32)
    detail = (ycc - cv2.blur(ycc, (31, 31)))[100:280, 100:280]
    return detail[..., 1:], detail[..., 0]


def test_keeping_all_chroma_changes_nothing() -> None:
    texture = prepared("single_face.jpg").texture
    assert soften_chroma(texture, 1.0) is texture


def test_less_chroma_leaves_less_coloured_detail_and_the_lightness_as_it_was() -> None:
    texture = prepared("single_face.jpg").texture
    chroma, luma = chroma_and_luma_detail(texture)
    strength = [np.abs(chroma).mean()]
    for keep in (0.6, 0.25, 0.0):
        softer, same = chroma_and_luma_detail(soften_chroma(texture, keep))
        strength.append(np.abs(softer).mean())
        assert np.abs(same - luma).mean() < 0.5
    assert strength == sorted(strength, reverse=True)
    assert strength[-1] < 0.4 * strength[0]
