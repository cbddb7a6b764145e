"""What hides the target's face: hands, objects and hair, seen as a departure from its own running look.

A hand is skin and a person, so neither a colour model nor a segmentation tells it from a face; its own
texture a moment ago does, finger-accurately on the 64 x 64 grid. On the first frames, and for stills,
there is no moment ago. A prior takes its place, which expects even skin outside of eyes, brows and lips,
lit alike on both halves; and until the face has been seen whole, its structure is compared with the
source's: every mouth casts about the same pattern of light and dark on the grid, and a hand in front of it
casts another.
"""

import cv2
import numpy as np
import numpy.typing as npt

from shared.arrays import ImageBgr
from shared.mesh.topology import Floats
from shared.mesh.uvgrid import GRID, face_regions

# Lab and the two slopes of L (scaled by 1/4). Starting and smallest standard deviations, per channel.
_START_STD = np.array([12, 4, 4, 7, 7], np.float32)
_FLOOR_STD = np.array([8, 2.7, 2.7, 4.2, 4.2], np.float32)
# Before anything is learned, skin may differ from the prior by this much.
_PRIOR_STD = np.array([28, 9, 9, 20, 20], np.float32)
_SLOWEST_RATE = 0.04
_LEARN_PRESENCE = 8.0
"""Below this logit something covers the face: nothing is learned."""
_PRESENCE_ALERT, _PRESENCE_DROP = 0.75, 6.0
"""Below this part of its usual logit a face may be covered; so much further down it surely is."""
_PRESENCE_RATE = 0.025
_ALERT, _STAY = 0.35, 0.35
"""How much a sure cover lowers the threshold, and how much more where a texel was hidden already."""
_SLOPE_CAP = 5.0
_FEATURE_SLACK = 1.3
"""Eyes, brows and lips move: they may depart this much more."""
_THRESHOLD = 1.9
"""Departure in standard deviations at which a texel counts as hidden."""
_SMALLEST_BLOB = 45
_ATTACK, _RELEASE = 0.8, 0.35
_PROVEN_PRESENCE = 14.0
"""Above this logit a face that was flagged from the very start is slowly accepted as it is."""
_STRUCTURE_SIGMA = 4.0
_MOUTH_DOUBTED, _MOUTH_SEEN = 0.30, 0.38
"""Correlation of the mouth with the source's mouth: 0.35..0.7 on free faces, below 0.3 behind a hand. A
face that was doubted once must reach the higher value to be believed."""
_MOUTH_GONE = 0.12
_DOUBTED_PRESENCE = 11.0
_FRAMES_TO_SETTLE = 3
_SKIN_EVERY = 4
_SKIN_FLOOR = (14, 3, 3)
_SKIN_LIMITS = (3.2, 4.5, 4.0)
"""Standard deviations darker, brighter or otherwise coloured than the cheeks, beyond which it is no skin."""
_SKIN_RATE = 0.5


def _ellipse(side: int) -> npt.NDArray[np.uint8]:
    return cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))


def look_of(seen: ImageBgr) -> Floats:
    """Colour and slopes of each texel, shape ``(64, 64, 5)``: L, a, b (8-bit scale), dL/dx, dL/dy."""
    lab = cv2.cvtColor(seen, cv2.COLOR_BGR2Lab)
    smooth = cv2.GaussianBlur(lab, (0, 0), 0.9).astype(np.float32)
    light = np.ascontiguousarray(smooth[..., 0])
    slopes = [cv2.Sobel(light, cv2.CV_32F, dx, dy, scale=0.25) for dx, dy in ((1, 0), (0, 1))]
    return np.dstack([smooth, *slopes])


def _median_of(look: Floats, where: npt.NDArray[np.bool_]) -> Floats:
    chosen = look[where][:, :3]
    return np.median(chosen, axis=0).astype(np.float32) if len(chosen) > 20 else np.zeros(3, np.float32)


def _blobs(mask: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """The mask without specks."""
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8)
    keep = stats[:, cv2.CC_STAT_AREA] >= _SMALLEST_BLOB
    keep[0] = False
    return keep[labels].astype(np.uint8) if count > 1 else mask


def _structure(seen: ImageBgr) -> Floats:
    """Light and dark detail of the face, without its lighting, shape ``(64, 64)``."""
    grey = cv2.cvtColor(seen, cv2.COLOR_BGR2GRAY).astype(np.float32)
    return grey - cv2.GaussianBlur(grey, (0, 0), _STRUCTURE_SIGMA)


class OcclusionModel:
    """Learns how one track's face looks and tells which texels are hidden.

    Args:
        example: A free face on the grid, shape ``(64, 64, 3)``, uint8 BGR: the source's.
    """

    def __init__(self, example: ImageBgr) -> None:
        regions = face_regions()
        self._example = _structure(example)
        self._example_power = cv2.GaussianBlur(self._example**2, (0, 0), _STRUCTURE_SIGMA)
        mouth = cv2.dilate(regions.lips, _ellipse(5))
        self._mouth = mouth / mouth.sum()
        rows = np.arange(GRID, dtype=np.float32)[:, None]
        eyes = np.flatnonzero(regions.eyes.any(1)).max()
        self._lower = (regions.face > 0) & (rows > eyes)
        self._features = np.clip(regions.eyes + regions.brows + regions.lips, 0, 1)
        self._tolerance = (1 + _FEATURE_SLACK * cv2.GaussianBlur(self._features, (0, 0), 1))[..., None]
        self._skin = regions.skin > 0
        self._sure = regions.cheeks > 0
        columns = np.abs(np.arange(GRID) + 0.5 - GRID / 2) < 0.14 * GRID
        self._middle = self._sure & columns[None]
        self._checked = (regions.face > 0).astype(np.uint8)
        self._mean: Floats | None = None
        self._hidden = np.zeros((GRID, GRID), np.float32)
        self._foreign = np.zeros((GRID, GRID), np.float32)
        self._usual_presence = 0.0
        self._seen_whole = 0
        self._doubted = False
        self._frames = 0

    @property
    def hidden_share(self) -> float:
        """Part of the face that is hidden now, 0..1."""
        return float((self._hidden * self._checked).sum() / self._checked.sum())

    def update(self, seen: ImageBgr, facing: Floats, presence: float) -> Floats:
        """Take in one frame.

        Args:
            seen: The face laid out on the grid, shape ``(64, 64, 3)``, uint8 BGR.
            facing: How squarely each texel faces the camera, shape ``(64, 64)``, 0..1.
            presence: Logit of the landmark network.

        Returns:
            How freely each texel is seen, shape ``(64, 64)``, 0..1.
        """
        look = look_of(seen)
        first = self._mean is None
        if self._mean is None:
            self._start(look, facing)
        alert = (_PRESENCE_ALERT * self._usual_presence - presence) / _PRESENCE_DROP
        alert = min(max(alert, 0.0), 1.0)
        hidden = self._departure(look, facing, alert)
        if self._seen_whole < _FRAMES_TO_SETTLE:
            hidden = np.maximum(hidden, self._cover_at_start(seen, presence))
        rate = np.where(hidden > self._hidden, 1.0 if first else _ATTACK, _RELEASE).astype(np.float32)
        self._hidden += rate * (hidden - self._hidden)
        if self._frames % _SKIN_EVERY == 0:
            self._judge_skin(look, facing, first=first)
        if presence > _LEARN_PRESENCE and alert < 0.3:
            self._learn(look, settled=presence > _PROVEN_PRESENCE)
        rising = 0.5 if presence > self._usual_presence else _PRESENCE_RATE
        self._usual_presence += rising * (presence - self._usual_presence)
        self._frames += 1
        return (1 - self._hidden) * (1 - self._foreign)

    def _start(self, look: Floats, facing: Floats) -> None:
        """Before anything is learned: even skin, no edges, the nearer half of both halves' light."""
        prior = look.copy()
        mirrored = look[:, ::-1]
        base = _median_of(look, self._sure)
        # Of a texel and its mirror image, trust the one nearer to the cheeks' colour.
        own = (((look[..., :3] - base) / _PRIOR_STD[:3]) ** 2).sum(2)
        other = (((mirrored[..., :3] - base) / _PRIOR_STD[:3]) ** 2).sum(2)
        prior[..., :3] = np.where((own <= other)[..., None], look[..., :3], mirrored[..., :3])
        prior[..., :3] = cv2.blur(prior[..., :3], (9, 9), borderType=cv2.BORDER_REPLICATE)
        prior[..., 3:] = 0
        feature = self._features[..., None] > 0
        self._mean = np.where(feature, look, prior).astype(np.float32)
        self._variance = np.where(feature, _START_STD, _PRIOR_STD).astype(np.float32) ** 2
        self._samples = np.zeros((GRID, GRID, 1), np.float32)

    def _departure(self, look: Floats, facing: Floats, alert: float) -> Floats:
        """How hidden each texel looks on this frame alone, 0..1; ``alert`` 0..1 lowers what it takes."""
        assert self._mean is not None
        off = look - self._mean
        clean = self._skin & (self._hidden < 0.15) & (facing > 0.5)
        # The lamp may have been dimmed: that is no occlusion.
        off[..., :3] -= _median_of(off, clean)
        off *= 1 / np.sqrt(self._variance)
        off *= off
        slope = np.minimum(off[..., 3:], _SLOPE_CAP**2).sum(2) / 4
        distance = np.sqrt(off[..., :3].sum(2) / 3 + slope) / self._tolerance[..., 0]
        distance = cv2.GaussianBlur(distance, (0, 0), 1.2)
        # While something covers the face, what was hidden a moment ago is given up less easily.
        stay = np.where(self._hidden > 0.5, np.float32(1 - _STAY * min(1.0, 3 * alert)), np.float32(1))
        mask = ((distance > _THRESHOLD * (1 - _ALERT * alert) * stay).astype(np.uint8)) & self._checked
        mask = cv2.morphologyEx(mask, cv2.MORPH_OPEN, _ellipse(3))
        mask = _blobs(cv2.morphologyEx(mask, cv2.MORPH_CLOSE, _ellipse(9)))
        if not mask.any():
            return np.zeros((GRID, GRID), np.float32)
        return cv2.GaussianBlur(cv2.dilate(mask, _ellipse(5)).astype(np.float32), (0, 0), 1.3)

    def _cover_at_start(self, seen: ImageBgr, presence: float) -> Floats:
        """What covers the lower face before the face was ever seen whole, ``(64, 64)``, 0..1."""
        own = _structure(seen)
        power = cv2.GaussianBlur(own * own, (0, 0), _STRUCTURE_SIGMA)
        cross = cv2.GaussianBlur(own * self._example, (0, 0), _STRUCTURE_SIGMA)
        alike = cross / np.sqrt(power * self._example_power + 30)
        mouth = float((alike * self._mouth).sum())
        doubted = (presence < _DOUBTED_PRESENCE and mouth < _MOUTH_DOUBTED) or mouth < _MOUTH_GONE
        self._doubted = doubted or (self._doubted and mouth < _MOUTH_SEEN)
        if not self._doubted:
            self._seen_whole += 1
            return np.zeros((GRID, GRID), np.float32)
        # Hidden where there is structure, in the face or in the example, and the two disagree.
        strong = power + self._example_power > 2 * float(np.median(power[self._lower]))
        mask = ((alike < 0.3) & strong & self._lower).astype(np.uint8)
        mask = _blobs(cv2.morphologyEx(mask, cv2.MORPH_CLOSE, _ellipse(9)))
        return cv2.GaussianBlur(cv2.dilate(mask, _ellipse(5)).astype(np.float32), (0, 0), 1.3)

    def _learn(self, look: Floats, *, settled: bool) -> None:
        assert self._mean is not None
        open_texels = self._hidden < 0.15
        if settled and self._seen_whole >= _FRAMES_TO_SETTLE:
            # Never seen otherwise, and plainly a face: this is how it looks (a beard's edge, a deep fold).
            open_texels |= self._samples[..., 0] < 1 / _SLOWEST_RATE
        open_texels = open_texels[..., None]
        fastest = np.where(self._hidden[..., None] < 0.15, 1 / (self._samples + 2), 0)
        rate = np.maximum(_SLOWEST_RATE, fastest) * open_texels
        off = look - self._mean
        self._mean += rate * off
        self._variance += rate * (off * off - self._variance)
        np.maximum(self._variance, _FLOOR_STD**2, out=self._variance)
        self._samples += open_texels

    def _judge_skin(self, look: Floats, facing: Floats, *, first: bool) -> None:
        """Hair and frames inside the oval: not of the colour of this person's skin."""
        sure = look[self._middle & (facing > 0.3) & (self._hidden < 0.3)][:, :3]
        if len(sure) < 30:
            return
        middle = np.median(sure, axis=0)
        spread = np.maximum(np.median(np.abs(sure - middle), axis=0) * 1.4826, _SKIN_FLOOR)
        z = (look[..., :3] - middle) / spread
        chroma = np.hypot(z[..., 1], z[..., 2])
        dark, bright, coloured = _SKIN_LIMITS
        far = np.maximum.reduce([-z[..., 0] / dark, z[..., 0] / bright, chroma / coloured]) > 1
        # Hair that hangs over a brow hangs beside it too.
        far = cv2.morphologyEx((far & self._skin).astype(np.uint8), cv2.MORPH_CLOSE, _ellipse(7))
        mask = cv2.morphologyEx(far & self._checked, cv2.MORPH_OPEN, _ellipse(3))
        foreign = cv2.GaussianBlur(cv2.dilate(mask, _ellipse(3)).astype(np.float32), (0, 0), 1.2)
        # What passes in front is hidden by itself; remembered here too, it would leave a ghost behind.
        judged = np.float32(1.0) if first else _SKIN_RATE * (self._hidden < 0.3).astype(np.float32)
        self._foreign += judged * (foreign - self._foreign)
