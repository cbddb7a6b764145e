"""Sign sketches: a few hundred keyed bits that say how alike two embeddings are, and little else.

An embedding is turned by a rotation only the key's owner can repeat; the signs of what comes out are kept.
Two sketches differ in about ``bits * angle / pi`` places, so a count of differing bits estimates the angle.
The same rotation with another key gives bits that cannot be linked to these.

A sketch is still biometric: with the key and many tries a face like the original can be found. It is used in
two places: for the rule "never remember this person", which has to know the person somehow, and, made in
memory and never stored, to search large galleries.

The rotations are made from the key by SHAKE-256 and not by numpy's generators, whose streams may change from
one version to the next: a stored rule must still match in ten years.
"""

import hashlib
import math
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shared.arrays import Embedding

NEVER_BITS = 256
"""Bits of a sketch that is stored."""

NEVER_RADIUS = 100
"""Sketches that differ in no more bits than this may show one person.

Loose on purpose, for a false hit only keeps somebody from being remembered. It is a cosine of about 0.34: on
photos, two of one person differed in 70 bits at most, and two strangers in 50 came as near as this.
"""

_UNIT_TOLERANCE = 1e-2

_BATCH = 1024
"""Embeddings turned at a time; ``scrub`` turns as many zeros, for fewer would not reach all there is."""

Bits = npt.NDArray[np.uint64]
"""Sketches as words of 64 bits, shape ``(words, n)``: one column for each."""


@dataclass(frozen=True, slots=True)
class Sketch:
    """Keyed bits of one embedding.

    Attributes:
        recogniser: The model whose embedding it was made of.
        bits: ``NEVER_BITS / 8`` bytes.
    """

    recogniser: str
    bits: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.bits) != NEVER_BITS // 8:
            raise ValueError(f"a sketch has {NEVER_BITS // 8} bytes, not {len(self.bits)}")

    def distance(self, other: "Sketch") -> int:
        """In how many bits two sketches of one key differ, 0..256.

        Raises:
            ValueError: If they come from different recognisers, whose embeddings have nothing in common.
        """
        if self.recogniser != other.recogniser:
            raise ValueError(
                f"sketches of {self.recogniser} and of {other.recogniser} cannot be compared: make them anew"
            )
        return (int.from_bytes(self.bits) ^ int.from_bytes(other.bits)).bit_count()


class Sketcher:
    """Makes sketches with one key.

    Args:
        secret: The key, 16 bytes or more.
        recogniser: The model the embeddings come from; another one gets other rotations.
        dimensions: Length of its embeddings.
        bits: How many bits, a multiple of 64.
    """

    def __init__(self, secret: bytes, recogniser: str, dimensions: int, bits: int = NEVER_BITS) -> None:
        if bits % 64 or bits < 64:
            raise ValueError(f"bits must be a multiple of 64, not {bits}")
        self.recogniser = recogniser
        self.dimensions = dimensions
        self.words = bits // 64
        turns = -(-bits // dimensions)
        stacked = np.concatenate([rotation(secret, f"{recogniser}/{i}", dimensions) for i in range(turns)])
        # In pieces so small that a single embedding is turned within one thread, see ``edge.memory.index``.
        step = max(64, 131_072 // dimensions // 64 * 64)
        self._pieces = [
            np.ascontiguousarray(stacked[low : min(low + step, bits)].T) for low in range(0, bits, step)
        ]

    def sketch(self, embedding: Embedding) -> Sketch:
        """Sketch of one embedding, shape ``(d,)``, of length 1.

        Raises:
            ValueError: If it is not of length 1 or not of this recogniser's shape.
        """
        require_unit(embedding[None], self.dimensions)
        words = np.zeros((self.words, 1), np.uint64)
        self.columns(embedding[None], words)
        return Sketch(self.recogniser, words[:, 0].astype("<u8").tobytes())

    def columns(self, embeddings: npt.NDArray[np.float32], out: Bits) -> None:
        """Write the bits of many embeddings; what lay in between is overwritten.

        Args:
            embeddings: Shape ``(n, d)``.
            out: Shape ``(words, n)``, uint64; may be a view.
        """
        for low in range(0, len(embeddings), _BATCH):
            high = min(low + _BATCH, len(embeddings))
            self._batch(embeddings[low:high], out[:, low:high])

    def _batch(self, embeddings: npt.NDArray[np.float32], out: Bits) -> None:
        word = 0
        for piece in self._pieces:
            turned = embeddings @ piece
            positive = turned > 0
            packed = np.packbits(positive, axis=1, bitorder="little").view("<u8")
            out[word : word + packed.shape[1]] = packed.T
            word += packed.shape[1]
            for scratch in (turned, positive, packed):
                scratch.fill(0)

    def scrub(self) -> None:
        """Overwrite the copies of embeddings that the linear algebra library keeps in its own work buffers.

        It puts the rows of large batches together anew there, and leaves them until the next batch.
        """
        for piece in self._pieces:
            np.dot(np.zeros((_BATCH, self.dimensions), np.float32), piece)


def rotation(secret: bytes, label: str, dimensions: int) -> npt.NDArray[np.float32]:
    """A random rotation or reflection that follows from a key, evenly spread over all of them.

    Args:
        secret: The key, 16 bytes or more.
        label: What it is for; another label gives an independent one.
        dimensions: Of the space.

    Returns:
        Orthogonal, shape ``(d, d)``.
    """
    if len(secret) < 16:
        raise ValueError(f"the key of a rotation needs 16 bytes or more, not {len(secret)}")
    q, r = np.linalg.qr(_normals(secret, label, dimensions * dimensions).reshape(dimensions, dimensions))
    # QR leaves the signs open; these make the result depend on the key alone and spread it evenly.
    return np.asarray(q * np.where(np.diag(r) < 0, -1.0, 1.0), np.float32)


def _normals(secret: bytes, label: str, count: int) -> npt.NDArray[np.float64]:
    """Normal deviates from a key, by Box and Muller."""
    seed = len(secret).to_bytes(4) + secret + b"lethe sketch rotation v1|" + label.encode()
    pairs = -(-count // 2)
    words = np.frombuffer(hashlib.shake_256(seed).digest(pairs * 8), "<u4").reshape(2, pairs)
    uniform = (words + 0.5) / 2**32
    radius = np.sqrt(-2 * np.log(uniform[0]))
    angle = 2 * np.pi * uniform[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def require_unit(embeddings: npt.NDArray[np.float32], dimensions: int) -> None:
    """Raise ``ValueError`` unless the rows are finite, of length 1 and of ``dimensions`` numbers.

    Embeddings that are not of length 1, such as dlib's, are compared by distance and not by cosine; here they
    would give wrong answers without a word.
    """
    if embeddings.ndim != 2 or embeddings.shape[1] != dimensions:
        raise ValueError(f"embeddings must have shape (n, {dimensions}), not {embeddings.shape}")
    off = np.abs(np.einsum("nd,nd->n", embeddings, embeddings) - 1)
    # Turned round so that what is not a number fails, too.
    if not (off <= 2 * _UNIT_TOLERANCE).all():
        raise ValueError("embeddings must be of length 1: they are compared by cosine")


def radius_for(cosine: float, bits: int, sigmas: float = 2.5) -> int:
    """Bits in which sketches of embeddings at ``cosine`` differ at most, but for ``sigmas``.

    Args:
        cosine: How alike the embeddings are, -1..1.
        bits: Of the sketch.
        sigmas: 2.5 loses about one pair in 150 at that very cosine, and far fewer of those more alike.
    """
    share = math.acos(max(-1.0, min(1.0, cosine))) / math.pi
    return math.ceil(bits * share + sigmas * math.sqrt(bits * share * (1 - share)))
