import threading

import pytest

from shared.counters import CacheCounters


def test_nothing_looked_up_gives_rates_of_zero_for_every_level() -> None:
    assert CacheCounters().summary() == {
        level: {"hits": 0, "misses": 0, "rate": 0.0} for level in ("track", "reuse", "identity", "artefacts")
    }


def test_the_rate_is_hits_over_look_ups_of_that_level_alone() -> None:
    counters = CacheCounters()
    for _ in range(3):
        counters.hit("reuse")
    counters.miss("reuse")
    counters.miss("track")
    assert counters.summary()["reuse"] == {"hits": 3, "misses": 1, "rate": 0.75}
    assert counters.summary()["track"] == {"hits": 0, "misses": 1, "rate": 0.0}
    assert counters.summary()["identity"] == {"hits": 0, "misses": 0, "rate": 0.0}


@pytest.mark.parametrize("count", [CacheCounters.hit, CacheCounters.miss])
def test_a_level_that_does_not_exist_is_a_mistake_of_ours(count: object) -> None:
    with pytest.raises(KeyError, match="reuze"):
        count(CacheCounters(), "reuze")  # type: ignore[operator]


def test_a_summary_does_not_change_afterwards() -> None:
    counters = CacheCounters()
    before = counters.summary()
    counters.hit("track")
    assert before["track"]["hits"] == 0


def test_counts_from_many_threads_add_up() -> None:
    counters = CacheCounters()

    def count() -> None:
        for _ in range(1000):
            counters.hit("track")
            counters.miss("track")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters.summary()["track"] == {"hits": 4000, "misses": 4000, "rate": 0.5}
