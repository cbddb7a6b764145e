from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest

from edge.fuser import FrameFuser
from shared.arrays import ImageBgr
from shared.engines import EngineCard
from shared.faces import TrackedFace
from shared.frames import Frame, Patch
from shared.mesh.source import SourcePhoto
from shared.timing import StageClock


class Painter:
    """An engine that paints a face's box in the colour of its source."""

    card = EngineCard("painter", "1", "frame", "photos", "uint8", "MIT")

    def __init__(self) -> None:
        self.opened: list[str] = []

    def prepare(self, photos: Sequence[SourcePhoto]) -> int:
        raise NotImplementedError

    def open_track(self, source: int) -> "PainterTrack":
        self.opened.append(f"track of {source}")
        return PainterTrack(source)


class PainterTrack:
    """Counts its frames into the second channel, so that its memory can be seen."""

    def __init__(self, source: int) -> None:
        self._source = source
        self._frames = 0

    def fuse(self, image: ImageBgr, face: TrackedFace) -> Patch | None:
        if face.presence < 0:
            return None
        self._frames += 1
        x0, y0, x1, y1 = face.xyxy.astype(int)
        colour = np.array([self._source, self._frames, image[y0, x0, 0]], np.uint8)
        part = np.tile(colour, (y1 - y0, x1 - x0, 1))
        return Patch(int(x0), int(y0), part, np.full(part.shape[:2], 255, np.uint8))


def frame(index: int = 0, time_s: float | None = None) -> Frame:
    pts = index if time_s is None else round(time_s * 25)
    return Frame(index, np.full((60, 80, 3), 9, np.uint8), pts, Fraction(1, 25))


def face(
    track_id: int = 0,
    pair: int | None = 0,
    *,
    box: tuple[int, int, int, int] = (10, 10, 30, 30),
    restarted: bool = False,
    presence: float = 20.0,
) -> TrackedFace:
    landmarks = np.zeros((478, 3), np.float32)
    return TrackedFace(track_id, landmarks, presence, np.array(box, np.float32), 0.9, restarted, pair)


@pytest.fixture
def engine() -> Painter:
    return Painter()


@pytest.fixture
def fuser(engine: Painter) -> FrameFuser[int]:
    return FrameFuser(engine, [100, 200], StageClock())


def count_at(fused: Frame) -> int:
    """For how many frames the track at (15, 15) has run."""
    return int(fused.image[15, 15, 1])


def test_a_frame_without_faces_is_passed_on_untouched(fuser: FrameFuser[int]) -> None:
    given = frame()
    fused = fuser.fuse(given, [])
    assert fused.frame is given
    assert fused.patches == ()
    assert (given.image == 9).all()


def test_a_face_nobody_chose_is_left_alone(fuser: FrameFuser[int], engine: Painter) -> None:
    fused = fuser.fuse(frame(), [face(pair=None)])
    assert fused.patches == ()
    assert (fused.frame.image == 9).all()
    assert engine.opened == []


def test_a_patch_is_written_where_it_belongs_and_nowhere_else(fuser: FrameFuser[int]) -> None:
    fused = fuser.fuse(frame(), [face(pair=1)])
    (patch,) = fused.patches
    assert (patch.x, patch.y) == (10, 10)
    wanted = np.full((60, 80, 3), 9, np.uint8)
    wanted[10:30, 10:30] = (200, 1, 9)
    np.testing.assert_array_equal(fused.frame.image, wanted)


def test_a_face_that_cannot_be_fused_gives_no_patch(fuser: FrameFuser[int]) -> None:
    fused = fuser.fuse(frame(), [face(presence=-1.0), face(1, box=(40, 10, 60, 30))])
    assert [patch.x for patch in fused.patches] == [40]
    assert (fused.frame.image[:, :40] == 9).all()


def test_each_track_keeps_its_own_memory(fuser: FrameFuser[int], engine: Painter) -> None:
    for index in range(3):
        fused = fuser.fuse(frame(index), [face(0), face(1, 1, box=(40, 10, 60, 30))])
    assert engine.opened == ["track of 100", "track of 200"]
    assert count_at(fused.frame) == 3
    assert tuple(fused.frame.image[15, 50, :2]) == (200, 3)


def test_a_track_that_gets_another_source_begins_anew(fuser: FrameFuser[int], engine: Painter) -> None:
    fuser.fuse(frame(0), [face(pair=0)])
    fused = fuser.fuse(frame(1), [face(pair=1)])
    assert engine.opened == ["track of 100", "track of 200"]
    assert count_at(fused.frame) == 1


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_nearer_face_lies_over_the_farther_one(fuser: FrameFuser[int], order: tuple[int, int]) -> None:
    both = [face(0, 0, box=(20, 20, 40, 40)), face(1, 1, box=(30, 10, 70, 50))]
    fused = fuser.fuse(frame(), [both[i] for i in order])
    assert [patch.x for patch in fused.patches] == [20, 30]
    assert fused.frame.image[35, 35, 0] == 200
    # The nearer one was fused into a picture that already held the other.
    assert fused.frame.image[15, 35, 2] == 9


def test_a_track_that_begins_anew_is_forgotten_even_while_nobody_has_chosen_it(
    fuser: FrameFuser[int],
) -> None:
    for index in range(3):
        fuser.fuse(frame(index), [face()])
    # A cut: who this is now is not known at once, so no source is chosen yet.
    fuser.fuse(frame(3), [face(pair=None, restarted=True)])
    fused = fuser.fuse(frame(4), [face()])
    assert count_at(fused.frame) == 1


def test_a_restart_of_one_track_leaves_the_others_alone(fuser: FrameFuser[int]) -> None:
    for index in range(3):
        fused = fuser.fuse(frame(index), [face(0), face(1, 1, box=(40, 10, 60, 30), restarted=index == 2)])
    assert count_at(fused.frame) == 3
    assert fused.frame.image[15, 50, 1] == 1


@pytest.mark.parametrize(("gap_s", "count"), [(0.04, 2), (9.0, 2), (11.0, 1)])
def test_a_track_not_fused_for_ten_seconds_takes_its_memory_with_it(
    fuser: FrameFuser[int], gap_s: float, count: int
) -> None:
    fuser.fuse(frame(0, 1.0), [face()])
    fused = fuser.fuse(frame(1, 1.0 + gap_s), [face()])
    assert count_at(fused.frame) == count


def test_old_tracks_are_dropped_also_while_there_is_no_face(fuser: FrameFuser[int]) -> None:
    fuser.fuse(frame(0, 0.0), [face(i) for i in range(5)])
    fuser.fuse(frame(1, 20.0), [])
    assert fuser._tracks == {}
    assert fuser._last_seen_s == {}


def test_only_frames_with_work_are_timed(engine: Painter) -> None:
    clock = StageClock()
    fuser = FrameFuser(engine, [100], clock)
    fuser.fuse(frame(0), [])
    fuser.fuse(frame(1), [face(pair=None)])
    fuser.fuse(frame(2), [face(), face(1)])
    assert clock.summary()["fuse"]["count"] == 1


def test_a_still_without_a_time_is_fused_too(fuser: FrameFuser[int]) -> None:
    fused = fuser.fuse(Frame(0, np.zeros((60, 80, 3), np.uint8)), [face(restarted=True)])
    assert len(fused.patches) == 1
