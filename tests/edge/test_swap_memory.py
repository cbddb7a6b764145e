"""The main job with a face memory: people known across jobs, sources kept, nothing of those under a rule."""

import base64
import dataclasses
import json
import math
from pathlib import Path

import numpy as np
import pytest

from edge import Pair, SwapOptions, swap_files
from edge.memory import FaceMemory, MemorySettings
from edge.memory.rules import NeverSource
from edge.progress import Event, InputStarted, Progress
from edge.report import JobReport, write_report
from shared.arrays import Embedding
from shared.errors import PolicyError, SourceError
from tests.real_faces import embedding_of, faces_of, image_of

NAME = "somebody"


@pytest.fixture
def settings(tmp_path: Path) -> MemorySettings:
    return MemorySettings(folder=tmp_path / "home" / "memory")


def memory(settings: MemorySettings) -> FaceMemory:
    return FaceMemory.open(settings, notify=lambda _text: None)


def fuse(
    settings: MemorySettings, pair: Pair, photo: Path, output: Path, options: SwapOptions | None = None
) -> JobReport:
    """One job with the memory open for it and closed after."""
    with memory(settings) as opened:
        report = swap_files([pair], [photo], output, options, memory=opened)
    report.raise_for_status()
    return report


def test_a_source_remembered_once_serves_by_name_with_the_same_result(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    source, group = samples / "single_face.jpg", samples / "multi_face.jpg"
    first = fuse(settings, Pair((source,)), group, tmp_path / "a.png", SwapOptions(remember_as=NAME))
    again = fuse(settings, Pair(person=NAME), group, tmp_path / "b.png")
    assert (tmp_path / "a.png").read_bytes() == (tmp_path / "b.png").read_bytes()
    assert first.cache["artefacts"]["misses"] == 1
    assert again.cache["artefacts"]["misses"] == 0
    assert "landmarks" in again.stages
    assert again.stages["detect"]["count"] == 1  # of the group; the source needed none


def test_a_known_person_is_recognised_in_another_job_and_counted(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    man, clip = samples / "single_face.jpg", samples / "single_face.mp4"
    fuse(
        settings, Pair((man,)), samples / "multi_face.jpg", tmp_path / "a.png", SwapOptions(remember_as=NAME)
    )
    report = fuse(settings, Pair((samples / "astronaut.png",)), clip, tmp_path / "b.mp4")
    assert report.identities == {"seen": 1, "remembered": 1}
    assert report.cache["identity"]["hits"] == 1


def test_somebody_remembered_can_be_the_person_to_be_covered(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    man = samples / "single_face.jpg"
    fuse(
        settings, Pair((man,)), samples / "multi_face.jpg", tmp_path / "a.png", SwapOptions(remember_as=NAME)
    )
    pair = Pair((samples / "astronaut.png",), covers=NAME)
    match = SwapOptions(faces="match")
    assert fuse(settings, pair, man, tmp_path / "b.png", match).inputs[0].frames_fused == 1
    assert (
        fuse(settings, pair, samples / "grace_hopper.jpg", tmp_path / "c.png", match).inputs[0].frames_fused
        == 0
    )


def test_a_forgotten_person_is_no_source_any_more(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    source, group = samples / "single_face.jpg", samples / "multi_face.jpg"
    fuse(settings, Pair((source,)), group, tmp_path / "a.png", SwapOptions(remember_as=NAME))
    with memory(settings) as opened:
        opened.forget([opened.require(NAME).person_id])
    with pytest.raises(SourceError, match="nobody of that name"):
        fuse(settings, Pair(person=NAME), group, tmp_path / "b.png")
    report = fuse(settings, Pair((source,)), group, tmp_path / "c.png")
    assert report.cache["artefacts"]["misses"] == 1  # what had been kept went with the person
    assert report.identities["remembered"] == 0


def test_a_source_forgotten_while_the_job_runs_ends_it_and_nothing_is_written(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    group, clip = samples / "multi_face.jpg", samples / "single_face.mp4"
    fuse(
        settings, Pair((samples / "astronaut.png",)), group, tmp_path / "a.png", SwapOptions(remember_as=NAME)
    )
    with memory(settings) as opened:

        def forget_at_once(event: Event) -> None:
            if isinstance(event, InputStarted):
                opened.forget([opened.require(NAME).person_id])

        report = swap_files(
            [Pair(person=NAME)], [clip], tmp_path / "b.mp4", events=forget_at_once, memory=opened
        )
    assert report.inputs[0].status == "refused"
    assert "forgotten while the job ran" in (report.inputs[0].error or "")
    assert not (tmp_path / "b.mp4").exists()


def test_a_known_face_forgotten_while_it_is_tracked_is_known_no_more(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    man, clip = samples / "single_face.jpg", samples / "single_face.mp4"
    fuse(
        settings, Pair((man,)), samples / "multi_face.jpg", tmp_path / "a.png", SwapOptions(remember_as=NAME)
    )
    with memory(settings) as opened:

        def forget_later(event: Event) -> None:
            if isinstance(event, Progress) and opened.person(NAME) is not None:
                opened.forget([opened.require(NAME).person_id])

        pair = Pair((samples / "astronaut.png",))
        report = swap_files([pair], [clip], tmp_path / "b.mp4", events=forget_later, memory=opened)
    assert report.inputs[0].frames_fused == 72
    assert report.identities == {"seen": 1, "remembered": 0}


def test_without_consent_a_job_leaves_nothing_behind(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    fuse(settings, Pair((samples / "single_face.jpg",)), samples / "multi_face.jpg", tmp_path / "a.png")
    with memory(settings) as opened:
        assert opened.people() == []
        assert opened.artefact_counts() == {}


def test_a_rule_forbids_remembering_and_the_job_says_so(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    source = samples / "single_face.jpg"
    with memory(settings) as opened:
        opened.never(NeverSource(rule_id=opened.new_rule_id(), pattern=str(samples / "*")))
    with pytest.raises(PolicyError):
        fuse(
            settings,
            Pair((source,)),
            samples / "multi_face.jpg",
            tmp_path / "a.png",
            SwapOptions(remember_as=NAME),
        )
    assert not (tmp_path / "a.png").exists()
    with memory(settings) as opened:
        assert opened.people() == []


def encodings(embedding: Embedding) -> list[bytes]:
    """What a leaked embedding could look like: long enough to be no accident."""
    raw = [np.asarray(embedding, dtype).tobytes() for dtype in (np.float32, np.float16, np.float64)]
    plain = [data[:24] for data in raw]
    texts = [",".join(f"{value:.4f}" for value in embedding[:4]), str(float(embedding[0])), str(embedding[1])]
    return [
        *plain,
        *(data.hex().encode()[:48] for data in plain),
        *(base64.b64encode(data)[:30] for data in plain),
        *(text.encode() for text in texts),
    ]


def test_a_person_under_a_never_rule_is_found_nowhere(
    settings: MemorySettings,
    samples: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    seen = dataclasses.replace(settings, policy="seen")
    canary = embedding_of(image_of("single_face.jpg"), faces_of("single_face.jpg")[0].landmarks)
    with memory(seen) as opened:
        opened.never_person([canary], expires_at_s=math.inf)
    report = fuse(seen, Pair((samples / "astronaut.png",)), samples / "single_face.jpg", tmp_path / "a.png")
    write_report(tmp_path / "report.json", report)
    with memory(seen) as opened:
        assert opened.people() == []
        assert opened.artefact_counts() == {}
    needles = encodings(canary)
    for path in [p for p in tmp_path.rglob("*") if p.is_file() and p.suffix != ".png"]:
        data = path.read_bytes()
        assert not any(needle in data for needle in needles), path
    text = caplog.text.encode()
    assert not any(needle in text for needle in needles)


def test_the_same_job_would_have_remembered_a_stranger_without_the_rule(
    settings: MemorySettings, samples: Path, tmp_path: Path
) -> None:
    seen = dataclasses.replace(settings, policy="seen")
    fuse(seen, Pair((samples / "astronaut.png",)), samples / "single_face.jpg", tmp_path / "a.png")
    with memory(seen) as opened:
        assert len(opened.people()) >= 1
        assert all(person.name is None for person in opened.people())


def test_a_report_names_nobody(settings: MemorySettings, samples: Path, tmp_path: Path) -> None:
    group = samples / "multi_face.jpg"
    pair = Pair((samples / "single_face.jpg",))
    report = fuse(settings, pair, group, tmp_path / "a.png", SwapOptions(remember_as="Zebulon Quux"))
    assert "Zebulon" not in json.dumps(report.to_json())
