from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.packet import Packet

from edge.video import Trim, VideoReader, VideoWriter
from tests.edge.media_makers import make_video, unchanged


def carry(path: Path, output: Path, trim: Trim | None = None) -> list[str]:
    """Write a video again without touching a frame; returns the messages."""
    with VideoReader(path, trim=trim or Trim()) as reader, VideoWriter(output, reader) as writer:
        for frame in reader:
            writer.write(unchanged(frame))
    return writer.messages


def packets_of(path: Path, kind: str, number: int = 0) -> list[tuple[Fraction, bytes]]:
    """Time and content of the packets of one stream."""
    with av.open(str(path)) as container:
        stream = [stream for stream in container.streams if stream.type == kind][number]
        return [
            (packet.pts * packet.time_base, bytes(packet))
            for packet in container.demux(stream)
            if packet.pts is not None
        ]


def kinds_of(path: Path) -> list[tuple[str, str]]:
    with av.open(str(path)) as container:
        return [
            (stream.type, stream.codec_context.codec.canonical_name if stream.codec_context else "")
            for stream in container.streams
        ]


def sound_span(path: Path) -> tuple[float, float]:
    """First and last moment of the first sound track that is heard, in seconds."""
    with av.open(str(path)) as container:
        frames = list(container.decode(audio=0))
    loud = [frame for frame in frames if np.abs(frame.to_ndarray().astype(float)).max() > 0]
    return float(loud[0].time), float(loud[-1].time) + loud[-1].samples / loud[-1].sample_rate


def test_sound_is_copied_packet_by_packet(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=range(50), sounds=[("aac", 0.0)])
    assert carry(path, tmp_path / "out.mp4") == []
    assert packets_of(tmp_path / "out.mp4", "audio") == packets_of(path, "audio")


def test_every_sound_track_comes_along_with_its_language(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mkv", stamps=range(25), sounds=[("aac", 0.0), ("libopus", 0.0)])
    tagged = tmp_path / "tagged.mkv"
    with av.open(str(path)) as source, av.open(str(tagged), "w") as target:
        streams = [target.add_stream_from_template(stream, opaque=True) for stream in source.streams]
        for stream, language in zip(streams, ("und", "eng", "deu"), strict=True):
            stream.metadata["language"] = language
        for packet in source.demux():
            if packet.dts is not None:
                packet.stream = streams[packet.stream_index]
                target.mux(packet)
    carry(tagged, tmp_path / "out.mkv")
    with av.open(str(tmp_path / "out.mkv")) as container:
        assert [stream.metadata.get("language") for stream in container.streams.audio] == ["eng", "deu"]
    for number in (0, 1):
        before, after = packets_of(tagged, "audio", number), packets_of(tmp_path / "out.mkv", "audio", number)
        assert [data for _, data in after] == [data for _, data in before]


def test_sound_that_starts_late_stays_late(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=range(50), sounds=[("aac", 0.7)])
    carry(path, tmp_path / "out.mp4")
    before, after = packets_of(path, "audio"), packets_of(tmp_path / "out.mp4", "audio")
    assert [data for _, data in after] == [data for _, data in before]
    assert all(abs(a - b) < Fraction(1, 1000) for (a, _), (b, _) in zip(after, before, strict=True))
    assert after[0][0] > 0.6


def test_sound_longer_than_the_picture_stays(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=range(10), sounds=[("aac", 0.0)], sound_s=3.0)
    carry(path, tmp_path / "out.mp4")
    assert packets_of(tmp_path / "out.mp4", "audio") == packets_of(path, "audio")


def test_sound_a_container_does_not_take_is_re_encoded_and_said(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mkv", stamps=range(50), sounds=[("pcm_s16le", 0.3)])
    for ending, codec in ((".mp4", "aac"), (".webm", "opus"), (".wmv", "wmav2"), (".mpg", "mp2")):
        messages = carry(path, tmp_path / f"out{ending}")
        assert any("re-encoded from pcm_s16le" in message for message in messages)
        assert kinds_of(tmp_path / f"out{ending}")[1] == ("audio", codec)
    start, end = sound_span(tmp_path / "out.mp4")
    assert 0.2 < start < 0.4
    assert 2.1 < end < 2.5


def test_a_trim_cuts_the_sound_to_match(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mkv", stamps=range(100), sounds=[("pcm_s16le", 0.0)])
    carry(path, tmp_path / "out.mkv", Trim(1.02, 2.02))
    before, after = packets_of(path, "audio"), packets_of(tmp_path / "out.mkv", "audio")
    expected = [
        (time - Fraction("1.02"), data)
        for time, data in before
        if Fraction("1.02") <= time < Fraction("2.02")
    ]
    assert [data for _, data in after] == [data for _, data in expected]
    assert all(abs(a - b) <= Fraction(1, 1000) for (a, _), (b, _) in zip(after, expected, strict=True))


def test_a_video_without_sound_stays_without(tmp_path: Path) -> None:
    path = make_video(tmp_path / "in.mp4")
    carry(path, tmp_path / "out.mp4")
    assert kinds_of(tmp_path / "out.mp4") == [("video", "h264")]


def with_subtitles(path: Path, output: Path, codec: str, texts: list[tuple[float, float, bytes]]) -> Path:
    """Add a subtitle stream to a video."""
    with av.open(str(path)) as source, av.open(str(output), "w") as target:
        picture = target.add_stream_from_template(source.streams.video[0], opaque=True)
        words: Any = target.add_stream(codec)
        words.time_base = Fraction(1, 1000)
        words.codec_context.subtitle_header = (
            b"[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\nFormat: Name, Fontname, Fontsize\n"
            b"Style: Default,Arial,16\n\n[Events]\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, "
            b"MarginV, Effect, Text\n"
        )
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = picture
                target.mux(packet)
        for start, length, text in texts:
            line: Any = Packet(text)
            line.time_base, line.pts, line.dts = Fraction(1, 1000), int(start * 1000), int(start * 1000)
            line.duration, line.stream = int(length * 1000), words
            target.mux(line)
    return output


def test_subtitles_are_copied_or_put_into_the_containers_own_form(tmp_path: Path) -> None:
    plain = make_video(tmp_path / "plain.mkv", stamps=range(50))
    german = "grüß dich".encode()
    path = with_subtitles(plain, tmp_path / "in.mkv", "subrip", [(0.2, 0.5, b"hello"), (1.0, 0.5, german)])
    for ending, codec in ((".mkv", "subrip"), (".mp4", "mov_text"), (".webm", "webvtt")):
        carry(path, tmp_path / f"out{ending}")
        assert ("subtitle", codec) in kinds_of(tmp_path / f"out{ending}")
        lines = packets_of(tmp_path / f"out{ending}", "subtitle")
        spoken = [(time, data) for time, data in lines if b"hello" in data or "grüß".encode() in data]
        assert [round(float(time), 2) for time, _ in spoken] == [0.2, 1.0]
    back = tmp_path / "back.mkv"
    carry(tmp_path / "out.mp4", back)
    assert [data.strip() for _, data in packets_of(back, "subtitle")] == [b"hello", "grüß dich".encode()]


def test_a_subtitle_that_reaches_into_a_trim_is_kept(tmp_path: Path) -> None:
    plain = make_video(tmp_path / "plain.mkv", stamps=range(50))
    path = with_subtitles(plain, tmp_path / "in.mkv", "subrip", [(0.1, 0.2, b"gone"), (0.5, 1.0, b"stays")])
    carry(path, tmp_path / "out.mkv", Trim(1.0))
    assert packets_of(tmp_path / "out.mkv", "subtitle") == [(0, b"stays")]


def test_subtitles_a_container_does_not_take_are_named_as_dropped(tmp_path: Path) -> None:
    plain = make_video(tmp_path / "plain.mkv", stamps=range(25))
    path = with_subtitles(plain, tmp_path / "in.mkv", "subrip", [(0.2, 0.5, b"hello")])
    assert any("subtitles 1 (subrip) dropped" in message for message in carry(path, tmp_path / "out.avi"))


def test_chapters_and_tags_come_along_and_follow_a_trim(tmp_path: Path) -> None:
    path = make_video(tmp_path / "plain.mkv", stamps=range(100))
    chaptered = tmp_path / "in.mkv"
    with av.open(str(path)) as source, av.open(str(chaptered), "w") as target:
        stream = target.add_stream_from_template(source.streams.video[0], opaque=True)
        target.metadata["title"] = "a title"
        target.set_chapters(
            [
                {
                    "id": n,
                    "start": n * 1000,
                    "end": n * 1000 + 1000,
                    "time_base": Fraction(1, 1000),
                    "metadata": {"title": f"part {n}"},
                }
                for n in range(4)
            ]
        )
        for packet in source.demux(source.streams.video[0]):
            if packet.dts is not None:
                packet.stream = stream
                target.mux(packet)
    for ending in (".mkv", ".mp4"):
        carry(chaptered, tmp_path / f"whole{ending}")
        carry(chaptered, tmp_path / f"cut{ending}", Trim(1.5, 2.5))
        with (
            av.open(str(tmp_path / f"whole{ending}")) as whole,
            av.open(str(tmp_path / f"cut{ending}")) as cut,
        ):
            assert whole.metadata["title"] == "a title"
            assert [chapter["metadata"]["title"] for chapter in whole.chapters()] == [
                f"part {n}" for n in range(4)
            ]
            spans = [
                (chapter["start"] * (chapter["time_base"] or 0), chapter["end"] * (chapter["time_base"] or 0))
                for chapter in cut.chapters()
            ]
            # MP4 keeps chapters in a track of their own, which ends with the last picture.
            np.testing.assert_allclose(np.asarray(spans, float), [(0, 0.5), (0.5, 1.0)], atol=0.05)


def two_pictures(path: Path, *, cover: bool) -> Path:
    """A video with a second picture stream: another video, or a cover."""
    first = make_video(path.parent / "first.mp4", stamps=range(20))
    second = make_video(
        path.parent / "second.mp4",
        stamps=range(1 if cover else 20),
        size=(96, 80),
        codec="mjpeg" if cover else "libx264",
        pixel_format="yuvj420p" if cover else "yuv420p",
    )
    with av.open(str(first)) as one, av.open(str(second)) as other, av.open(str(path), "w") as target:
        streams = [target.add_stream_from_template(c.streams.video[0], opaque=True) for c in (one, other)]
        if cover:
            streams[1].disposition = av.stream.Disposition.attached_pic
        for container, stream in zip((one, other), streams, strict=True):
            for packet in container.demux(container.streams.video[0]):
                if packet.dts is not None:
                    packet.stream = stream
                    target.mux(packet)
    return path


def test_a_cover_is_no_video_and_comes_along(tmp_path: Path) -> None:
    path = two_pictures(tmp_path / "in.mp4", cover=True)
    with VideoReader(path) as reader:
        assert (reader.info.width, reader.info.frame_count) == (64, 20)
    assert carry(path, tmp_path / "out.mp4") == []
    with av.open(str(tmp_path / "out.mp4")) as container:
        assert container.streams.video[1].disposition & av.stream.Disposition.attached_pic
    assert any("cover picture" in message for message in carry(path, tmp_path / "out.webm"))


def test_a_second_video_is_carried_over_as_it_is_and_named(tmp_path: Path) -> None:
    path = two_pictures(tmp_path / "in.mp4", cover=False)
    messages = carry(path, tmp_path / "out.mp4")
    assert any("without any fusion" in message for message in messages)
    assert [data for _, data in packets_of(tmp_path / "out.mp4", "video", 1)] == [
        data for _, data in packets_of(path, "video", 1)
    ]


def test_the_packaged_clip_keeps_its_mp3_sound(samples: Path, tmp_path: Path) -> None:
    path = samples / "single_face.mp4"
    carry(path, tmp_path / "out.mp4")
    assert packets_of(tmp_path / "out.mp4", "audio") == packets_of(path, "audio")


def test_two_sound_and_two_subtitle_tracks_of_a_real_file_come_along(
    shared_media: Path, tmp_path: Path
) -> None:
    path = shared_media / "video" / "multi_stream.mp4"
    carry(path, tmp_path / "out.mp4", Trim(0.0, 2.0))
    kinds = [kind for kind, _ in kinds_of(tmp_path / "out.mp4")]
    assert (kinds.count("audio"), kinds.count("subtitle"), kinds.count("video")) == (2, 2, 2)


@pytest.mark.parametrize("ending", [".mp4", ".mkv", ".webm"])
def test_packets_are_interleaved_so_that_a_player_need_not_wait(tmp_path: Path, ending: str) -> None:
    path = make_video(tmp_path / "in.mp4", stamps=range(150), sounds=[("aac", 0.0)])
    carry(path, tmp_path / f"out{ending}")
    latest = {0: 0.0, 1: 0.0}
    with av.open(str(tmp_path / f"out{ending}")) as container:
        for packet in container.demux():
            if packet.dts is not None:
                latest[packet.stream_index] = float(packet.dts * packet.time_base)
                assert abs(latest[0] - latest[1]) < 1.5 or min(latest.values()) == 0.0
