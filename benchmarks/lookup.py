"""How long it takes to find out who a face is, among ten thousand to a million prototypes.

The gallery is random vectors, the worst case for an index, with real people of the packaged photos among them
where the packaged recogniser's 192 dimensions are measured. Each line asks for one kind of face: ``stranger``
for random ones, ``look`` for ones at cosine 0.8 to somebody there, ``real`` for other pictures of the real
people.

Wall clock suffers on a busy machine, whose load is printed; processor time does not.

python -m benchmarks.lookup [--looks 400]
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.common import CALM_PORTRAIT, PORTRAIT, SAMPLES, SOURCE, machine, publish, read_image
from edge.analyser import FaceAnalyser
from edge.embedder import MobileFaceNet
from edge.landmarks import five_points
from edge.memory.index import IdentityIndex, Verdict
from shared.arrays import Embedding, ImageBgr
from shared.frames import Frame
from shared.ort import SessionPool

_CASES = ((192, 1_000), (192, 10_000), (192, 80_000), (192, 1_000_000), (512, 10_000), (512, 1_000_000))
_EACH = 8
"""Prototypes of a person."""
_CHUNK = 40_000
_LOOK_COSINE = 0.8

Floats = npt.NDArray[np.float32]


class Faces:
    """Embeddings of the real people: as they are enrolled, and as they are looked for."""

    def __init__(self) -> None:
        sessions = SessionPool()
        self._analyser, self._embedder = FaceAnalyser(sessions), MobileFaceNet(sessions)
        self.enrolled: list[Embedding] = []
        self.looks: list[tuple[int, Embedding]] = []
        for path in (SAMPLES / "multi_face.jpg", SOURCE, PORTRAIT, CALM_PORTRAIT):
            image = read_image(path)
            people = self._embed(image)
            first = len(self.enrolled)
            self.enrolled += people
            for other in (_darker(image), image[:, ::-1].copy()):
                self._add_looks(first, people, self._embed(other))

    def _embed(self, image: ImageBgr) -> list[Embedding]:
        faces = self._analyser.analyse_still(Frame(0, image))
        return [self._embedder.embed(image, five_points(face.landmarks)) for face in faces]

    def _add_looks(self, first: int, people: Sequence[Embedding], looks: Sequence[Embedding]) -> None:
        # Which face is whose is settled within one photo, where hardly anybody can be mixed up.
        for look in looks:
            self.looks.append((first + int(np.argmax(np.stack(people) @ look)), look))


def _darker(image: ImageBgr) -> ImageBgr:
    return (image * 0.6).astype(np.uint8)


def random_units(rng: np.random.Generator, count: int, dimensions: int) -> Floats:
    """Random directions, shape ``(count, dimensions)``."""
    rows = rng.standard_normal((count, dimensions), dtype=np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return rows


def look_at(rng: np.random.Generator, row: Floats, cosine: float) -> Floats:
    """A direction at a cosine to another."""
    other = random_units(rng, 1, len(row))[0]
    other -= (other @ row) * row
    return np.asarray(cosine * row + np.sqrt(1 - cosine**2) * other / np.linalg.norm(other), np.float32)


def gallery(
    rng: np.random.Generator, dimensions: int, prototypes: int, real: Sequence[Embedding]
) -> tuple[IdentityIndex, dict[bytes, Floats], float]:
    """An index, one prototype each of some random people in it, and the seconds it took to fill."""
    index, known, taken_s = IdentityIndex("benchmark", dimensions, bytes(32)), dict[bytes, Floats](), 0.0
    index.reserve(prototypes + len(real))
    for start in range(0, prototypes, _CHUNK):
        count = min(_CHUNK, prototypes - start)
        rows = random_units(rng, count, dimensions)
        ids = [(start + n).to_bytes(16) for n in range(0, count, _EACH)]
        known |= {ids[n]: rows[n * _EACH].copy() for n in range(0, len(ids), max(1, len(ids) // 20))}
        begin_s = time.perf_counter()
        index.put_many(ids, "benchmark", rows, [_EACH] * len(ids))
        taken_s += time.perf_counter() - begin_s
    for number, embedding in enumerate(real):
        index.put(_real_id(number), "benchmark", embedding[None])
    return index, known, taken_s


def _real_id(number: int) -> bytes:
    return b"real" + number.to_bytes(12)


def measure(index: IdentityIndex, asked: Sequence[tuple[bytes | None, Floats]]) -> dict[str, Any]:
    """Times of a search, ms, and how many came out right."""
    for _, look in asked[:10]:
        index.search(look)
    times, right = [], 0
    cpu_s = time.process_time()
    for who, look in asked:
        begin_s = time.perf_counter()
        match = index.search(look)
        times.append(1000 * (time.perf_counter() - begin_s))
        right += match.verdict is not Verdict.KNOWN if who is None else match.person_id == who
    cpu_s = time.process_time() - cpu_s
    p50, p95, p99 = (float(each) for each in np.percentile(times, (50, 95, 99)))
    cpu_ms = 1000 * cpu_s / len(asked)
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "cpu_ms": cpu_ms, "right": right / len(asked)}


def run_case(dimensions: int, prototypes: int, looks: int, faces: Faces) -> list[dict[str, Any]]:
    """The rows of one gallery."""
    rng = np.random.default_rng(0)
    real = faces.enrolled if dimensions == len(faces.enrolled[0]) else []
    index, known, build_s = gallery(rng, dimensions, prototypes, real)
    people = list(known.items())
    asked: dict[str, list[tuple[bytes | None, Floats]]] = {
        "stranger": [(None, row) for row in random_units(rng, looks, dimensions)],
        "look": [
            (who, look_at(rng, row, _LOOK_COSINE))
            for who, row in (people[n] for n in rng.integers(0, len(people), looks))
        ],
    }
    if real:
        own = [(_real_id(number), look) for number, look in faces.looks]
        asked["real"] = [own[n % len(own)] for n in range(looks)]
    head = {"d": dimensions, "prototypes": prototypes, "people": index.people, "threshold": index.threshold}
    rows = [{**head, "asked": kind, **measure(index, each)} for kind, each in asked.items()]
    begin_s = time.perf_counter()
    index.remove(list(known)[:10])
    remove_ms = 1000 * (time.perf_counter() - begin_s)
    index.close()
    return [
        {**row, "load": machine()["load"][0], "build_s": build_s, "remove_10_people_ms": remove_ms}
        for row in rows
    ]


def main() -> None:
    """Measure every size of gallery."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--looks", type=int, default=400, help="searches for each line")
    parser.add_argument("--largest", type=int, default=1_000_000, help="leave out larger galleries")
    args = parser.parse_args()
    faces = Faces()
    cases = [case for case in _CASES if case[1] <= args.largest]
    publish("lookup", [row for case in cases for row in run_case(*case, args.looks, faces)])


if __name__ == "__main__":
    main()
