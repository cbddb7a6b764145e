"""Hits and misses of the caches, level by level."""

import threading


class CacheCounters:
    """Counts look-ups from any thread.

    Levels: ``track`` (landmarks and identity vote of a running track), ``reuse`` (a rendered face re-warped
    instead of rendered anew), ``identity`` (who a face is), ``artefacts`` (prepared sources).
    """

    LEVELS = ("track", "reuse", "identity", "artefacts")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects the counts
        self._counts = {level: [0, 0] for level in self.LEVELS}

    def hit(self, level: str) -> None:
        """Count a look-up that spared the work."""
        with self._lock:
            self._counts[level][0] += 1

    def miss(self, level: str) -> None:
        """Count a look-up after which the work was done."""
        with self._lock:
            self._counts[level][1] += 1

    def summary(self) -> dict[str, dict[str, float]]:
        """Per level ``hits, misses, rate`` (rate 0 where nothing was looked up)."""
        with self._lock:
            return {
                level: {
                    "hits": hits,
                    "misses": misses,
                    "rate": round(hits / (hits + misses), 4) if hits + misses else 0.0,
                }
                for level, (hits, misses) in self._counts.items()
            }
