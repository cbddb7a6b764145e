"""Who was seen in a job: one entry for each person, whatever the number of files they are in."""

import numpy as np

from shared.arrays import Embedding
from shared.counters import CacheCounters

_SAME_PERSON = 0.5


class PeopleIndex:
    """Embeddings of the people of a job, in memory only.

    Args:
        counters: Counts the level ``identity``: a hit is somebody who was seen before.
    """

    def __init__(self, counters: CacheCounters) -> None:
        self._counters = counters
        self._rows: list[Embedding] = []

    def __len__(self) -> int:
        return len(self._rows)

    def see(self, embedding: Embedding) -> int:
        """Index of the person, added if new."""
        if self._rows:
            alike = np.stack(self._rows) @ embedding
            best = int(alike.argmax())
            if alike[best] >= _SAME_PERSON:
                self._counters.hit("identity")
                return best
        self._counters.miss("identity")
        self._rows.append(embedding)
        return len(self._rows) - 1
