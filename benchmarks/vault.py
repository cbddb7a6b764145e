"""The vault at several sizes: putting, opening with decryption, forgetting until nothing is left.

python -m benchmarks.vault [--people 1000 10000 20001]
"""

import argparse
import math
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.common import publish
from edge.vault import Item, KeyFile, Kind, PersonId, Vault, WriteDecision
from edge.vault.decisions import POLICY_PROOF

# A name, dates, consent and two prototypes of 192 values in float16.
PERSON_BYTES = 1150
FORGETS = 60
SINGLE_PUTS = 100

ALLOWED = WriteDecision(
    allowed=True,
    rule_id="benchmark",
    expires_at_s=math.inf,
    reason="random bytes, nobody's",
    usable_until_s=math.inf,
    proof=POLICY_PROOF,
)


def _open(folder: Path) -> Vault:
    return Vault.open(folder, KeyFile(folder.with_name("key")))


def _percentiles_ms(times_s: list[float]) -> tuple[float, float]:
    ordered = sorted(times_s)
    return round(statistics.median(ordered) * 1e3, 2), round(ordered[int(len(ordered) * 0.95)] * 1e3, 2)


def _fill(vault: Vault, count: int) -> tuple[list[PersonId], float]:
    """People with a record each; seconds for the records."""
    people = vault.new_owners(count)
    items = [Item(Kind.PERSON, person, [person], os.urandom(PERSON_BYTES)) for person in people]
    started = time.perf_counter()
    for start in range(0, count, 1000):
        vault.put_many(ALLOWED, items[start : start + 1000])
    return people, time.perf_counter() - started


def _read_all(folder: Path) -> float:
    """Seconds from a closed vault to every record in clear, best of three."""
    times = []
    for _ in range(3):
        started = time.perf_counter()
        with _open(folder) as vault:
            for _ in vault.iterate(Kind.PERSON):
                pass
            times.append(time.perf_counter() - started)
    return min(times)


def _single_puts(vault: Vault, people: list[PersonId]) -> list[float]:
    times = []
    for person in people:
        started = time.perf_counter()
        vault.put(ALLOWED, Kind.PERSON, person, [person], os.urandom(PERSON_BYTES))
        times.append(time.perf_counter() - started)
    return times


def _enrolments(vault: Vault, count: int) -> list[float]:
    times = []
    for _ in range(count):
        started = time.perf_counter()
        vault.new_owner()
        times.append(time.perf_counter() - started)
    return times


def _forgets(vault: Vault, people: list[PersonId]) -> tuple[list[float], list[float]]:
    """Seconds until the root is destroyed, and until the remains are removed as well."""
    acknowledged, complete = [], []
    for person in people:
        started = time.perf_counter()
        receipt = vault.forget([person])
        complete.append(time.perf_counter() - started)
        acknowledged.append(receipt.seconds)
    return acknowledged, complete


def measure(count: int, folder: Path) -> dict[str, Any]:
    """One row: a vault of so many people."""
    with _open(folder) as vault:
        people, put_s = _fill(vault, count)
    open_s = _read_all(folder)
    with _open(folder) as vault:
        single = _percentiles_ms(_single_puts(vault, people[-SINGLE_PUTS:]))
        enrolment = _percentiles_ms(_enrolments(vault, SINGLE_PUTS))
        acknowledged, complete = _forgets(vault, people[:FORGETS])
        megabytes = vault.status().bytes_on_disk / 1e6
        started = time.perf_counter()
        report = vault.verify_forget()
        verify_s = time.perf_counter() - started
        assert report.clean, report.problems
    return {
        "people": count,
        "put_batched_us": round(put_s / count * 1e6, 1),
        "put_durable_p50_ms": single[0],
        "new_owner_p50_ms": enrolment[0],
        "open_decrypt_s": round(open_s, 3),
        "forget_acknowledged_p50_ms": _percentiles_ms(acknowledged)[0],
        "forget_p50_ms": _percentiles_ms(complete)[0],
        "forget_p95_ms": _percentiles_ms(complete)[1],
        "verify_forget_s": round(verify_s, 2),
        "disk_mb": round(megabytes, 1),
    }


def main() -> None:
    """Measure each size in a folder of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--people", type=int, nargs="+", default=[1000, 10_000, 20_001])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        rows = [measure(count, Path(name) / str(count) / "memory") for count in args.people]
    publish("vault", rows)


if __name__ == "__main__":
    main()
