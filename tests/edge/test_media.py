import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edge.media import list_inputs, probe_kind
from shared.errors import InputError
from tests.edge.media_makers import make_video, picture
from tests.edge.test_animations import make_animation
from tests.edge.test_stills import bomb

PICTURE = Image.fromarray(np.ascontiguousarray(picture(2)[..., ::-1]))


@pytest.mark.parametrize("ending", [".jpg", ".png", ".webp", ".avif", ".tif", ".bmp", ".jp2", ".gif"])
@pytest.mark.parametrize("name", ["right", "", "lie.mp4", "lie.txt"])
def test_a_still_is_known_by_its_content(tmp_path: Path, ending: str, name: str) -> None:
    PICTURE.save(tmp_path / f"x{ending}")
    path = tmp_path / {"right": f"right{ending}", "": "no_ending"}.get(name, name)
    path.write_bytes((tmp_path / f"x{ending}").read_bytes())
    assert probe_kind(path) == "still"


@pytest.mark.parametrize("ending", [".gif", ".webp", ".png"])
def test_an_animation_is_one_from_two_frames_on(tmp_path: Path, ending: str) -> None:
    assert probe_kind(make_animation(tmp_path / f"in{ending}")) == "animation"
    PICTURE.save(tmp_path / f"one{ending}")
    assert probe_kind(tmp_path / f"one{ending}") == "still"


@pytest.mark.parametrize("ending", [".mp4", ".mkv", ".webm", ".avi", ".ts", ".mov", ".flv"])
def test_a_video_is_known_by_its_content(tmp_path: Path, ending: str) -> None:
    codec = "libvpx-vp9" if ending == ".webm" else "mpeg4" if ending == ".avi" else "libx264"
    path = make_video(tmp_path / f"in{ending}", codec=codec)
    assert probe_kind(path) == "video"
    assert probe_kind(path.rename(tmp_path / "looks_like.jpg")) == "video"


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("empty.jpg", b"", "is empty"),
        ("text.jpg", b"this is not a picture\n" * 40, "is a text file"),
        ("page.png", b"<!doctype html><title>404</title>", "web page"),
        ("umlauts.txt", "größer".encode() * 2000, "is a text file"),
        ("list.m3u8", b"#EXTM3U\n#EXTINF:1,\nhttp://127.0.0.1:9/x.ts\n", "is a text file"),
        ("noise.jpg", np.random.default_rng(4).bytes(20000), "picture"),
        ("zeros.db", bytes(512), "is not a picture or video"),
        ("header.jpg", b"\xff\xd8\xff\xe0\0\x10JFIF\0\x01\x01\0\0\x01\0\x01\0\0", "header"),
        ("header.mp4", b"\0\0\0\x20ftypisom\0\0\x02\0isomiso2avc1mp41", "is not a picture or video"),
    ],
)
def test_what_is_neither_is_refused_in_one_clause(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=words) as caught:
        probe_kind(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / name))


def test_missing_files_and_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        probe_kind(tmp_path / "missing.jpg")
    with pytest.raises(InputError, match="is a folder"):
        probe_kind(tmp_path)


def test_sound_alone_is_refused_as_such(tmp_path: Path) -> None:
    import av

    path = tmp_path / "sound.m4a"
    with av.open(str(path), "w", format="mp4") as container:
        track = container.add_stream("aac", rate=48000, layout="mono")
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 4800), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 48000
        container.mux(track.encode(frame))
        container.mux(track.encode(None))
    with pytest.raises(InputError, match="sound but no picture"):
        probe_kind(path)


@pytest.mark.parametrize("size", [(2_000_000_000, 2_000_000_000), (30_000, 30_000)])
def test_a_bomb_is_refused_without_decoding(tmp_path: Path, size: tuple[int, int]) -> None:
    with pytest.raises(InputError, match="megapixels are refused"):
        probe_kind(bomb(tmp_path / "bomb.png", *size))


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read anything")
def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    PICTURE.save(tmp_path / "x.png")
    (tmp_path / "x.png").chmod(0)
    with pytest.raises(InputError, match="permission denied"):
        probe_kind(tmp_path / "x.png")


def test_a_folder_gives_its_media_in_natural_order(tmp_path: Path) -> None:
    for name in ("img10.png", "img2.png", "IMG1.png", "sub/a.jpg", ".hidden.png", ".git/x.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        PICTURE.save(tmp_path / name)
    (tmp_path / "plain").write_bytes((tmp_path / "img2.png").read_bytes())
    make_video(tmp_path / "clip", muxer="mp4")
    for name, data in {
        "Thumbs.db": bytes(512),
        "notes.txt": b"hello",
        "data": bytes(99),
        "broken.jpg": b"",
    }.items():
        (tmp_path / name).write_bytes(data)
    found = [str(path.relative_to(tmp_path)) for path in list_inputs([tmp_path])]
    assert found == [
        "broken.jpg",
        "clip",
        "IMG1.png",
        "img2.png",
        "img10.png",
        "plain",
        str(Path("sub", "a.jpg")),
    ]


def test_files_that_are_named_are_kept_in_their_order_and_once(tmp_path: Path) -> None:
    PICTURE.save(tmp_path / "b.png")
    named = [tmp_path / "z.txt", tmp_path / "b.png", tmp_path / "z.txt", tmp_path]
    assert list_inputs(named) == [tmp_path / "z.txt", tmp_path / "b.png"]


def test_a_folder_without_media_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"hello")
    with pytest.raises(InputError, match="without a picture or video"):
        list_inputs([tmp_path])


def test_a_folder_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(InputError, match="cannot be read"):
        list_inputs([tmp_path])
