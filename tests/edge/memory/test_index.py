"""The index finds who a face is, exactly and by sketches, and keeps no byte of whoever leaves."""

import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge.memory import index as index_module
from edge.memory.index import IdentityIndex, MatchConfig, Verdict
from tests.real_faces import clip_faces, embedding_of, faces_of, image_of

SECRET = b"s" * 32
MODEL = "mobilefacenet192"
Floats = npt.NDArray[np.float32]


def units(count: int, dimensions: int = 192, seed: int = 0) -> Floats:
    rows = np.random.default_rng(seed).standard_normal((count, dimensions)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def near(row: Floats, cosine: float, seed: int = 1) -> Floats:
    other = units(1, len(row), 10_000 + seed)[0]
    other -= (other @ row) * row
    mixed = cosine * row + math.sqrt(1 - cosine**2) * other / np.linalg.norm(other)
    return mixed.astype(np.float32)


def who(number: int) -> bytes:
    return number.to_bytes(16)


def filled(people: int, each: int = 1, config: MatchConfig | None = None) -> tuple[IdentityIndex, Floats]:
    index, rows = IdentityIndex(MODEL, 192, SECRET, config), units(people * each)
    index.put_many([who(n) for n in range(people)], MODEL, rows, [each] * people)
    return index, rows


@pytest.fixture
def by_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sketches already for small galleries, in several blocks."""
    monkeypatch.setattr(index_module, "EXACT_NUMBERS", 100 * 192)
    monkeypatch.setattr(index_module, "_BLOCK", 64)


def test_an_empty_index_knows_nobody() -> None:
    match = IdentityIndex(MODEL, 192, SECRET).search(units(1)[0])

    assert (match.verdict, match.person_id, match.score) == (Verdict.UNKNOWN, None, -1)


@pytest.mark.parametrize(
    ("cosine", "verdict"),
    [(0.9, Verdict.KNOWN), (0.46, Verdict.KNOWN), (0.44, Verdict.MAYBE), (0.38, Verdict.UNKNOWN)],
)
def test_a_face_is_known_maybe_or_unknown_by_its_likeness(cosine: float, verdict: Verdict) -> None:
    index, rows = filled(3)

    match = index.search(near(rows[1], cosine))

    assert match.verdict is verdict
    assert match.score == pytest.approx(cosine, abs=1e-3)
    assert match.person_id == (None if verdict is Verdict.UNKNOWN else who(1))


def test_as_much_like_two_people_is_maybe_and_names_both() -> None:
    first = units(1)[0]
    index = IdentityIndex(MODEL, 192, SECRET)
    index.put(who(1), MODEL, near(first, 0.8, 1)[None])
    index.put(who(2), MODEL, near(first, 0.78, 2)[None])

    match = index.search(first)

    assert match.verdict is Verdict.MAYBE
    assert (match.person_id, match.runner_up_id) == (who(1), who(2))
    assert match.margin == pytest.approx(0.02, abs=1e-3)


def test_a_persons_own_prototypes_do_not_compete() -> None:
    first = units(1)[0]
    index = IdentityIndex(MODEL, 192, SECRET)
    index.put(who(1), MODEL, np.stack([near(first, 0.8, 1), near(first, 0.79, 2)]))

    assert index.search(first).verdict is Verdict.KNOWN
    assert index.search(first).margin == math.inf


@pytest.mark.parametrize(
    ("people", "threshold"), [(0, 0.45), (10, 0.45), (100, 0.52), (10_000, 0.66), (1_000_000, 0.80)]
)
def test_the_threshold_grows_with_the_gallery(people: int, threshold: float) -> None:
    assert MatchConfig().threshold(people) == pytest.approx(threshold)
    assert MatchConfig(fixed_cosine=0.4).threshold(people) == 0.4


@pytest.mark.parametrize("bad", [{"base_cosine": 0.0}, {"fixed_cosine": 1.5}, {"base_cosine": math.nan}])
def test_a_threshold_that_is_none_is_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        MatchConfig(**bad)


def test_embeddings_of_another_recogniser_are_refused() -> None:
    index = IdentityIndex(MODEL, 192, SECRET)

    with pytest.raises(ValueError, match="cannot be compared"):
        index.put(who(1), "another", units(1))
    with pytest.raises(ValueError, match="length 1"):
        index.put(who(1), MODEL, 1.27 * units(1))
    with pytest.raises(ValueError, match="shape"):
        index.search(units(1, 128)[0])
    assert index.people == len(index) == 0


@pytest.mark.parametrize(("ids", "counts"), [([1], [2]), ([1, 2], [3]), ([1, 1], [1, 2])])
def test_people_and_prototypes_have_to_add_up(ids: list[int], counts: list[int]) -> None:
    with pytest.raises(ValueError, match=r"count|once"):
        IdentityIndex(MODEL, 192, SECRET).put_many([who(n) for n in ids], MODEL, units(3), counts)


def test_rows_stored_in_half_precision_are_brought_back_to_length_one() -> None:
    index, rows = IdentityIndex(MODEL, 192, SECRET), units(1)
    index.put(who(1), MODEL, (rows * 1.004).astype(np.float16).astype(np.float32))

    assert index.search(rows[0]).score == pytest.approx(1, abs=1e-4)


@pytest.mark.usefixtures("by_sketch")
def test_sketches_find_whom_the_exact_comparison_finds() -> None:
    index, rows = filled(400, each=2)

    for number in range(0, 800, 7):
        match = index.search(near(rows[number], 0.6, number))
        assert (match.verdict, match.person_id) == (Verdict.KNOWN, who(number // 2))
        assert match.score == pytest.approx(0.6, abs=1e-3)
    assert index.search(units(1, seed=99)[0]).verdict is Verdict.UNKNOWN


@pytest.mark.usefixtures("by_sketch")
def test_sketches_miss_few_at_the_threshold() -> None:
    index, rows = filled(500)
    looks = [near(rows[n % 500], index.threshold + 0.005, n) for n in range(1000)]

    found = sum(index.search(look).verdict is Verdict.KNOWN for look in looks)

    assert found >= 990


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("pprr"), st.integers(0, 12), st.integers(1, 4)), max_size=25))
def test_after_any_puts_and_removes_it_finds_those_who_are_there_and_no_others(
    steps: list[tuple[str, int, int]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(index_module, "EXACT_NUMBERS", 12 * 192)
        patch.setattr(index_module, "_BLOCK", 8)
        patch.setattr(index_module, "_FIRST_CAPACITY", 2)
        index, there, rows = IdentityIndex(MODEL, 192, SECRET), dict[int, Floats](), units(400)
        for turn, (step, number, count) in enumerate(steps):
            if step == "p":
                there[number] = rows[turn * 8 : turn * 8 + count]
                index.put(who(number), MODEL, there[number])
            else:
                assert index.remove([who(number)]) == len(there.pop(number, ()))
            assert index.residue() == 0
        assert (index.people, len(index)) == (len(there), sum(map(len, there.values())))
        for number in range(13):
            assert (who(number) in index) is (number in there)
            for row in there.get(number, ()):
                assert index.search(row).person_id == who(number)


def test_removing_somebody_who_is_not_here_does_nothing() -> None:
    index, _ = filled(3)

    assert index.remove([who(77)]) == 0
    assert index.people == 3


@pytest.mark.usefixtures("by_sketch")
def test_searches_and_removals_at_once_never_name_somebody_who_has_left() -> None:
    index, rows = filled(300)
    wrong = []

    def search() -> None:
        for number in range(0, 300, 3):
            match = index.search(rows[number])
            if match.person_id != who(number):
                wrong.append(number)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 300, 3):
        index.remove([who(number)])
    for thread in threads:
        thread.join()

    assert wrong == []


_CHILD = """
import sys
import numpy as np
from edge.memory import index as module
from edge.memory.index import IdentityIndex

module.EXACT_NUMBERS, module._BLOCK = int(sys.argv[1]) * 192, 1024


def tell(values):
    # Turned over before it leaves the index's own memory: telling must not leave a copy behind.
    print(np.bitwise_xor(np.ascontiguousarray(values).view(np.uint8), 255).tobytes().hex())


rng = np.random.default_rng(3)
index = IdentityIndex("m", 192, b"s" * 32)
for number in range(2000):
    row = rng.standard_normal((2, 192), dtype=np.float32)
    row /= np.linalg.norm(row, axis=1, keepdims=True)
    index.put(number.to_bytes(16), "m", row)
    index.search(row[0])
    if number in (3, 40, 1999):
        tell(index._rows[len(index) - 2, 64:68])
        tell(index._rows[len(index) - 1, :4])
        for words in index._columns if len(index._columns[0]) else ():
            tell(words[len(index) - 1 : len(index)])
    row.fill(0)
print("ready", flush=True)
sys.stdin.readline()
index.remove([number.to_bytes(16) for number in (3, 40, 1999)])
print(index.residue(), len(index), flush=True)
sys.stdin.readline()
"""


def blocks_of_memory(process_id: int) -> Iterator[bytes]:
    """All the memory a process can write to."""
    process = Path("/proc") / str(process_id)
    with (process / "maps").open() as maps, (process / "mem").open("rb", 0) as memory:
        for line in maps:
            span, access = line.split()[:2]
            if access.startswith("rw"):
                start, stop = (int(each, 16) for each in span.split("-"))
                memory.seek(start)
                yield memory.read(stop - start)


def occurrences(process_id: int, needles: list[bytes]) -> int:
    """How often the needles lie in all the memory of a process."""
    return sum(block.count(needle) for block in blocks_of_memory(process_id) for needle in needles)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process through /proc")
@pytest.mark.parametrize("limit", [10_000, 100], ids=["exact", "by sketches"])
def test_no_bytes_of_whoever_left_are_in_the_memory_of_the_process(limit: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(limit)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        told = list(iter(child.stdout.readline, "ready\n"))
        needles = [bytes(255 - byte for byte in bytes.fromhex(line)) for line in told]
        before = occurrences(child.pid, needles)
        child.stdin.write("\n")
        child.stdin.flush()
        state = child.stdout.readline()
        after = occurrences(child.pid, needles)
        child.communicate("\n")

    assert before >= 6  # the control: they were there, and this finds them
    assert after == 0
    assert state.split() == ["0", "3994"]


_BATCH_CHILD = """
import sys
import numpy as np
from edge.memory import index as module
from edge.memory.index import IdentityIndex

module.EXACT_NUMBERS = 100 * 192
rows = np.random.default_rng(3).standard_normal((3000, 192), dtype=np.float32)
rows /= np.linalg.norm(rows, axis=1, keepdims=True)
index = IdentityIndex("m", 192, b"s" * 32)
ids = [number.to_bytes(16) for number in range(3000)]
index.put_many(ids, "m", rows, [1] * 3000)
rows.fill(0)
print(np.bitwise_xor(index._rows[2900:3000].view(np.uint8), 255).tobytes().hex())
if sys.argv[1] == "remove":
    index.remove(ids[2000:])
print("ready", flush=True)
sys.stdin.readline()
"""


def share_left(action: str) -> float:
    """Share of the numbers of a batch that are anywhere in the memory of a process, in whatever order."""
    with subprocess.Popen(
        [sys.executable, "-c", _BATCH_CHILD, action], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        told = bytes(255 - byte for byte in bytes.fromhex(child.stdout.readline()))
        wanted = [told[start : start + 4] for start in range(0, len(told), 997 * 4)]
        child.stdout.readline()
        blocks = list(blocks_of_memory(child.pid))
        child.communicate("\n")
    return sum(any(number in block for block in blocks) for number in wanted) / len(wanted)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of a process through /proc")
def test_not_even_scattered_numbers_of_a_large_batch_stay_in_memory() -> None:
    assert share_left("keep") == 1  # the control

    # Some numbers of 32 bits are there by chance.
    assert share_left("remove") < 0.5


def test_real_faces_are_told_apart_and_known_again() -> None:
    index, photo = IdentityIndex(MODEL, 192, SECRET), image_of("multi_face.jpg")
    people = faces_of("multi_face.jpg")
    for number, face in enumerate(people):
        index.put(who(number), MODEL, embedding_of(photo, face.landmarks)[None])
    darker = (photo * 0.6).astype(np.uint8)

    matches = [index.search(embedding_of(darker, face.landmarks)) for face in people]

    assert [match.person_id for match in matches] == [who(number) for number in range(len(people))]
    assert {match.verdict for match in matches} == {Verdict.KNOWN}
    stranger = embedding_of(image_of("grace_hopper.jpg"), faces_of("grace_hopper.jpg")[0].landmarks)
    assert index.search(stranger).verdict is Verdict.UNKNOWN


def test_the_man_of_the_photo_is_known_in_his_clip() -> None:
    index, photo = IdentityIndex(MODEL, 192, SECRET), image_of("single_face.jpg")
    index.put(who(1), MODEL, embedding_of(photo, faces_of("single_face.jpg")[0].landmarks)[None])
    image, face = clip_faces(1)[0]

    assert index.search(embedding_of(image, face.landmarks)).verdict is Verdict.KNOWN
