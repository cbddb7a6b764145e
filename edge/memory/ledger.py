"""What the memory writes down about itself: the journal, where copies went, what the clock said."""

import secrets
from collections.abc import Iterable, Iterator

from edge.memory.access import VaultAccess
from edge.memory.books import (
    CLOCK_RECORD,
    EXPORTS_RECORD,
    AuditEntry,
    Export,
    clock_from_bytes,
    clock_to_bytes,
    exports_from_bytes,
    exports_to_bytes,
)
from edge.memory.clock import ClockGuard, Moment
from edge.memory.policy import MemoryPolicy
from edge.vault import Kind, Vault
from shared.errors import VaultMissingError

_JOURNAL_LIMIT = 10_000


class Ledger:
    """Records that are about nobody. Not for several threads at once.

    Args:
        access: The vault.
        policy: Allows what is written.
    """

    def __init__(self, access: VaultAccess, policy: MemoryPolicy) -> None:
        self._access = access
        self._policy = policy
        self._notes = 0

    def note(self, moment: Moment, action: str, people: int = 0, *, rule: str = "", detail: str = "") -> None:
        """Write a line of the journal; see ``AuditEntry``."""
        self._notes += 1
        entry = AuditEntry(moment.now_s, action, people, rule, detail)
        # The number puts in order what happened in one moment.
        self._put(moment, Kind.AUDIT, self._notes.to_bytes(8) + secrets.token_bytes(8), entry.to_bytes())

    def newest(self, last: int) -> list[AuditEntry]:
        """The last lines of the journal, the newest first."""
        vault = self._access.vault
        if vault is None:
            return []
        return [entry for _, _, entry in sorted(_lines(vault), reverse=True)[:last]]

    def trim(self) -> None:
        """Drop the oldest lines where there are too many."""
        vault = self._access.vault
        if vault is None or vault.status().records["audit"] <= _JOURNAL_LIMIT:
            return
        for _, name, _ in sorted(_lines(vault))[:-_JOURNAL_LIMIT]:
            vault.delete(Kind.AUDIT, name)

    def exports(self) -> tuple[Export, ...]:
        """Bundles that left."""
        try:
            return exports_from_bytes(self._get(EXPORTS_RECORD))
        except VaultMissingError:
            return ()

    def write_exports(self, moment: Moment, exports: Iterable[Export]) -> None:
        """Replace the list of bundles that left."""
        exports = tuple(exports)
        if exports != self.exports():
            self._put(moment, Kind.META, EXPORTS_RECORD, exports_to_bytes(exports))

    def clock(self) -> ClockGuard:
        """The guard of the clock as the last start left it."""
        try:
            return ClockGuard(clock_from_bytes(self._get(CLOCK_RECORD)))
        except (VaultMissingError, ValueError, KeyError):
            return ClockGuard()

    def write_clock(self, moment: Moment, clock: ClockGuard) -> None:
        """Keep what the guard of the clock knows for the next start."""
        self._put(moment, Kind.META, CLOCK_RECORD, clock_to_bytes(clock.state))

    def _get(self, name: bytes) -> bytes:
        if self._access.vault is None:
            raise VaultMissingError("there is no face memory yet")
        return self._access.vault.get(Kind.META, name)

    def _put(self, moment: Moment, kind: Kind, name: bytes, payload: bytes) -> None:
        decision = self._policy.decide_bookkeeping(moment)
        self._access.to_write().put(decision, kind, name, [], payload)


def _lines(vault: Vault) -> Iterator[tuple[float, bytes, AuditEntry]]:
    """Lines of the journal; they sort by time. Damaged ones are left out."""
    for name, _, data in vault.iterate(Kind.AUDIT, on_damage=lambda err: None):
        entry = AuditEntry.from_bytes(data)
        yield entry.time_s, name, entry
