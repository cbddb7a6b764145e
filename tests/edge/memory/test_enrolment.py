"""Photos for the memory."""

import shutil
from pathlib import Path

import pytest

from edge.memory.enrolment import PhotoReader, find_people
from shared.errors import InputError, SourceError


@pytest.fixture(scope="module")
def reader() -> PhotoReader:
    return PhotoReader()


def test_the_faces_of_a_photo_come_from_left_to_right_without_pixels(
    reader: PhotoReader, samples: Path
) -> None:
    faces = reader.faces(samples / "multi_face.jpg")

    assert [face.number for face in faces] == [1, 2, 3, 4, 5]
    assert all(face.embedding.shape == (192,) for face in faces)
    assert all(0 < face.quality <= 1 for face in faces)
    assert not any(hasattr(face, "image") for face in faces)


def test_one_of_several_faces_has_to_be_chosen(reader: PhotoReader, samples: Path) -> None:
    with pytest.raises(SourceError, match="--face N"):
        reader.face(samples / "multi_face.jpg")
    chosen = reader.face(samples / "multi_face.jpg", 3)
    assert chosen.number == 3
    with pytest.raises(SourceError, match="no such face"):
        reader.face(samples / "multi_face.jpg", 6)


def test_photos_of_one_person_only(reader: PhotoReader, samples: Path) -> None:
    with pytest.raises(SourceError, match="another person"):
        reader.one_person([samples / "single_face.jpg", samples / "astronaut.png"])
    (face,) = reader.one_person([samples / "single_face.jpg"])
    assert abs(face.yaw_deg) < 30
    assert face.view.embedding is face.embedding


def test_a_photo_that_cannot_be_read_is_named(reader: PhotoReader, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\xff\xd8\xff nothing")
    with pytest.raises(SourceError, match=r"photo .*a\.jpg"):
        reader.face(tmp_path / "a.jpg")


def test_a_folder_is_grouped_by_person(reader: PhotoReader, samples: Path, tmp_path: Path) -> None:
    for place, sample in (
        ("Ben/one.jpg", "single_face.jpg"),
        ("Ben/two.jpg", "single_face.jpg"),
        ("group.jpg", "multi_face.jpg"),
        ("clip.mp4", "single_face.mp4"),
    ):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        shutil.copy(samples / sample, tmp_path / place)

    found = find_people(tmp_path, reader)

    assert found.photos == 3
    assert len(found.people) == 6
    ben = found.people[0]
    assert ben.proposal == "Ben"
    assert [path.name for path in ben.photos] == ["one.jpg", "two.jpg"]
    assert all(person.proposal is None for person in found.people[1:])


def test_an_empty_folder_is_refused(reader: PhotoReader, tmp_path: Path) -> None:
    with pytest.raises(InputError):
        find_people(tmp_path, reader)
