"""The face memory as the pipeline and the commands use it: who is known, what is kept, how to be forgotten.

Everything that is written goes through one policy and one vault; everything that is forgotten goes first from
the memory of this process (index, records, whatever registered a purger), then from the vault, and is
acknowledged last. Until somebody is to be remembered, nothing exists on the disk.
"""

import hashlib
import hmac
import logging
import math
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from edge.memory.access import AskPassphrase, Notify, VaultAccess, passphrase_of_environment
from edge.memory.books import AuditEntry, Export, without
from edge.memory.bundle import Bundle, BundledPerson
from edge.memory.clock import Moment
from edge.memory.index import IdentityIndex, Match, MatchConfig, Verdict
from edge.memory.ledger import Ledger
from edge.memory.people import Consenting, KnownPerson, Person, View, check_name, same_name
from edge.memory.policy import (
    DAY_S,
    HOUR_S,
    ForgetRequest,
    MemoryPolicy,
    PolicyConfig,
    Purpose,
    Remembered,
    Subject,
    expires_at_s,
    plan_upkeep,
    strictest,
    to_forget,
)
from edge.memory.requests import RequestWatch, answer_requests, ask_to_forget
from edge.memory.rule_texts import source_name
from edge.memory.rulebook import RuleBook, new_rule_id
from edge.memory.rules import (
    Box,
    NeverRule,
    Situation,
)
from edge.memory.settings import KeyPlace, MemorySettings
from edge.vault import Item, Kind, Vault, VerifyReport, WriteDecision
from shared.arrays import Embedding
from shared.errors import (
    PolicyError,
    UsageError,
    VaultError,
    VaultIntegrityError,
    VaultLockedError,
    VaultMissingError,
)

_logger = logging.getLogger(__name__)

RECOGNISER = "mobilefacenet192"
DIMENSIONS = 192

_MATCH = {"accuracy": MatchConfig(base_cosine=0.60), "speed": MatchConfig(base_cosine=0.50, margin=0.03)}
"""Pairs of photos of one person have 0.8 on average and 0.53 at least, those of two people 0.02 on average;
but two of the five people in the packaged group photo have 0.55."""
_SURELY_SAME = 0.70
"""Below this a face may be enrolled under a name of its own, however much it is like somebody else's."""
_ANOTHER_PERSON = 0.30
"""Views less alike than this to everything known of a person are of somebody else."""
_SEEN_QUALITY = 0.5
"""Whoever is seen worse than this is not remembered as seen: they would be seen anew the next time."""
_UPKEEP_EVERY_S = 300.0
_LENGTH_TOLERANCE = 0.01
_BUNDLE = "bundle:"
"""The source of whoever comes in a bundle, for rules that go by it."""


@dataclass(frozen=True, slots=True)
class Known:
    """Somebody who was recognised.

    Attributes:
        person_id: Who, 16 bytes.
        name: What they are called; None for people who were only seen.
        similarity: Cosine to what is remembered of them.
    """

    person_id: bytes
    name: str | None
    similarity: float


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What a forget did; it exists only when the old root is destroyed.

    Attributes:
        people: How many people.
        records: How many sealed records went with them.
        level: How far it reaches, see the documentation of levels.
        generation: Of the root that took the place of the old one.
    """

    people: int
    records: int
    level: str
    generation: int


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What an import did.

    Attributes:
        added: People who are new here.
        known: People who were here already; they stay as they are.
        forgotten_before: People of the bundle who had been forgotten here, and stay so.
        forgotten_now: People here who had been forgotten where the bundle was made, and are so now.
        refused: People whom the policy does not allow to be remembered.
    """

    added: int = 0
    known: int = 0
    forgotten_before: int = 0
    forgotten_now: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class MemoryStats:
    """Counts of one run, for reports.

    Attributes:
        people: How many are remembered now.
        hits: Faces that were recognised.
        misses: Faces that were not.
        artefact_hits: Artefacts that were found.
        artefact_misses: Artefacts that were not.
        remembered: People who became known in this run.
        denied: Writes that the policy denied.
    """

    people: int
    hits: int
    misses: int
    artefact_hits: int
    artefact_misses: int
    remembered: int
    denied: int


Purger = Callable[[frozenset[bytes]], None]
"""Drops whatever a cache holds of some people; called before a forget is acknowledged."""


class FaceMemory(AbstractContextManager["FaceMemory"]):
    """An open memory. Threads may share it.

    Made by ``open`` for a job and by ``manage`` for a command.

    Args:
        settings: What is remembered, where, for how long.
        access: The vault, or the place it will be made.
        notify: Told what the user should know, in one line.
        now_s: Wall clock, seconds since 1970.
        monotonic_s: A clock that only counts on, seconds.
    """

    def __init__(
        self,
        settings: MemorySettings,
        access: VaultAccess,
        notify: Notify,
        *,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._access = access
        self._notify = notify
        self._now_s, self._monotonic_s = now_s, monotonic_s
        # Protects everything below, and the order of what is written.
        self._lock = threading.RLock()
        self._people: dict[bytes, Person] = {}
        self._rules = RuleBook(access, _policy_config(settings), RECOGNISER, DIMENSIONS)
        self._ledger = Ledger(access, self._policy)
        self._clock = self._ledger.clock()
        self._purgers: list[Purger] = []
        self._touched: set[bytes] = set()
        self._counts: Counter[str] = Counter()
        self._next_upkeep_s = 0.0
        self._told: set[str] = set()
        self._is_closed = False
        self._watch: RequestWatch | None = None
        self._index = self._new_index()
        self._load()

    @classmethod
    def open(
        cls,
        settings: MemorySettings,
        *,
        notify: Notify,
        passphrase: AskPassphrase = passphrase_of_environment,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> "FaceMemory":
        """The memory for a job; where another process writes to it, this one only reads, and says so.

        Args:
            settings: What is remembered, where, for how long.
            notify: Told what the user should know, in one line.
            passphrase: Asked where the key is a passphrase.
            now_s: Wall clock, seconds since 1970.
            monotonic_s: A clock that only counts on, seconds.

        Raises:
            VaultKeyError: If the key does not open it.
            VaultError: If it cannot be read.
        """
        clocks: dict[str, Any] = {"now_s": now_s, "monotonic_s": monotonic_s}
        try:
            memory = cls.manage(settings, notify=notify, writer=True, passphrase=passphrase, **clocks)
            memory._watch_requests()
            return memory
        except VaultLockedError:
            notify(
                "another process writes to the face memory: "
                "people are recognised, but nothing new is remembered"
            )
            return cls.manage(settings, notify=notify, writer=False, passphrase=passphrase, **clocks)

    @classmethod
    def manage(
        cls,
        settings: MemorySettings,
        *,
        notify: Notify,
        writer: bool,
        passphrase: AskPassphrase = passphrase_of_environment,
        patience_s: float = 0.0,
        now_s: Callable[[], float] = time.time,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> "FaceMemory":
        """The memory for a command, to write or only to read.

        Args:
            settings: What is remembered, where, for how long.
            notify: Told what the user should know, in one line.
            writer: To write; one process at a time can.
            passphrase: Asked where the key is a passphrase.
            patience_s: How long to wait for another process to be done, seconds.
            now_s: Wall clock, seconds since 1970.
            monotonic_s: A clock that only counts on, seconds.

        Raises:
            VaultLockedError: If another process writes to it, and this one wants to.
            VaultKeyError: If the key does not open it.
            VaultError: If it cannot be read.
        """
        access = VaultAccess(
            settings,
            notify=notify,
            passphrase=passphrase,
            writer=writer,
            patience_s=patience_s,
            now_s=now_s,
        )
        try:
            return cls(settings, access, notify, now_s=now_s, monotonic_s=monotonic_s)
        except BaseException:
            access.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the memory."""
        self.close()

    def close(self) -> None:
        """Write what is waiting, let go of the vault, and leave no face in this process."""
        if self._watch is not None:
            self._watch.stop()
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            try:
                if self._access.vault is not None and self._access.is_writer:
                    self._write_touches()
                    self._ledger.write_clock(self._moment(), self._clock)
            except VaultError as err:
                # What matters was written when it was asked for; these are dates.
                self._tell_once(f"when people were last seen is not kept: {err}")
            finally:
                self._access.close()
                self._index.close()
                for person in self._people.values():
                    person.wipe()
                self._people.clear()

    # Knowing ---------------------------------------------------------------------------------------------

    def recognise(
        self,
        embedding: Embedding,
        *,
        quality: float = 1.0,
        source: str = "",
        box: Box | None = None,
        yaw_deg: float | None = None,
        pitch_deg: float | None = None,
    ) -> Known | None:
        """Who a face is; with the policy ``seen`` a stranger is remembered.

        Args:
            embedding: Of the face, shape ``(d,)``, of length 1.
            quality: How well the face shows who it is, 0..1.
            source: File, camera or address the picture comes from, for rules that go by it.
            box: The face as shares of the picture, for rules that go by it.
            yaw_deg: Turn to the side; with the pitch, a clear view may teach the memory.
            pitch_deg: Nod.
        """
        with self._lock:
            self._access.check_open()
            # What is not of length 1 is of no face.
            is_unit = abs(float(embedding @ embedding) - 1) < _LENGTH_TOLERANCE
            if self._settings.policy == "off" or not is_unit:
                return None
            moment = self._moment()
            self._upkeep_if_due()
            match = self._index.search(embedding)
            person = self._people.get(match.person_id or b"")
            situation = self._situation(source, moment, box)
            view = View(embedding, yaw_deg, pitch_deg, quality)
            if match.verdict is Verdict.KNOWN and person is not None:
                if self._policy.may_use(person.subject(), Purpose.RECOGNISE, moment):
                    self._counts["hits"] += 1
                    self._see_again(person, view, match, situation, moment)
                    return Known(person.person_id, person.name, match.score)
            elif match.verdict is Verdict.UNKNOWN and self._settings.policy == "seen":
                self._remember_stranger(view, situation, moment)
            self._counts["misses"] += 1
            return None

    def look_up(self, embedding: Embedding) -> KnownPerson | None:
        """Who a face is, for a command: changes nothing and minds neither policy nor consent."""
        with self._lock:
            match = self._index.search(embedding)
            person = self._people.get(match.person_id or b"")
            return self._shown(person) if person and match.verdict is Verdict.KNOWN else None

    def people(self) -> list[KnownPerson]:
        """Everybody who is remembered, by name; the nameless last."""
        with self._lock:
            shown = [self._shown(person) for person in self._people.values()]
        return sorted(shown, key=lambda p: (p.name is None, (p.name or "").casefold(), p.created_s))

    def person(self, name_or_id: str) -> KnownPerson | None:
        """Somebody by name, by id, or by the beginning of an id.

        Raises:
            UsageError: If several people's ids begin like this.
        """
        with self._lock:
            person = self._find(name_or_id)
            return None if person is None else self._shown(person)

    def require(self, name_or_id: str) -> KnownPerson:
        """Like ``person``, for a command.

        Raises:
            UsageError: If there is nobody, or several.
        """
        person = self.person(name_or_id)
        if person is None:
            raise UsageError(f"{name_or_id}: nobody is remembered by this name or id; see lethe memory list")
        return person

    def touch(self, person_id: bytes) -> None:
        """Note that somebody was seen now; written now and then, with others."""
        with self._lock:
            person = self._people.get(person_id)
            if person is not None and self._access.is_writer:
                moment = self._moment()
                decision = self._decide(person.subject(), self._situation("", moment), moment)
                if decision.allowed:
                    self._note_seen(person, moment)

    def stats(self) -> MemoryStats:
        """Counts of this run."""
        with self._lock:
            names = ("hits", "misses", "artefact_hits", "artefact_misses", "remembered", "denied")
            return MemoryStats(len(self._people), *(self._counts[name] for name in names))

    # Remembering -----------------------------------------------------------------------------------------

    def remember(
        self,
        name: str,
        embedding: Embedding,
        *,
        yaw_deg: float,
        pitch_deg: float,
        quality: float,
        consent_scope: str = "fusion",
        source: str = "",
    ) -> bytes:
        """Enrol one view of a person who has consented; see ``enrol``.

        Returns:
            The person's id.
        """
        view = View(embedding, yaw_deg, pitch_deg, quality)
        sources = [source] if source else []
        return self.enrol(name, [view], Consenting(scope=consent_scope), sources=sources).person_id

    def enrol(
        self, name: str, views: Sequence[View], consent: Consenting, *, sources: Sequence[str] = ()
    ) -> KnownPerson:
        """Remember a person who has consented; somebody of that name gets more views.

        Args:
            name: What to call them.
            views: Of their face, the best first impression first.
            consent: What was agreed to, by whom, until when.
            sources: Where the views come from, for rules that go by it.

        Raises:
            UsageError: If the name will not do, or belongs to somebody else, or the face to another name.
            PolicyError: If a rule or the policy forbids it.
            VaultLockedError: If another process writes to the memory.
        """
        name = check_name(name)
        with self._lock:
            moment = self._moment()
            person = self._to_enrol(name, views)
            given = consent.given(moment.now_s)
            subject = Subject(
                consent=given.for_policy(),
                pinned=person is not None and person.pinned,
                first_seen_s=moment.now_s if person is None else person.created_s,
                sketch=self._rules.sketch(views[0].embedding),
            )
            decision = strictest(
                [self._decide(subject, self._situation(each, moment), moment) for each in sources or [""]]
            )
            decision.require(moment.now_s)
            vault = self._access.to_write()
            if person is None:
                person = Person.new(vault.new_owner(), RECOGNISER, views, moment.now_s, "")
                self._counts["remembered"] += 1
            else:
                person = person.with_views(views, moment.now_s)
            for each in sources:
                person = person.seen(moment.now_s, source_name(each))
            person = replace(person, name=name, origin="enrolled", consent=given, last_seen_s=moment.now_s)
            self._put_people([person], [decision])
            self._ledger.note(self._moment(), "enrol", 1, rule=decision.rule_id)
            return self._shown(person)

    def get_artefact(self, key: str, owners: Collection[bytes] = ()) -> bytes | None:
        """Something that was prepared for fusing earlier, if everyone in it still agrees.

        Args:
            key: ``task/engine@version/source/target/params``.
            owners: Who is in it; empty to take its own word for it.
        """
        with self._lock:
            payload = self._artefact(key, owners)
            self._counts["artefact_misses" if payload is None else "artefact_hits"] += 1
            return payload

    def put_artefact(self, key: str, owners: Collection[bytes], payload: bytes, *, source: str) -> bool:
        """Keep something that was prepared for fusing, if everyone in it agreed to that.

        Args:
            key: ``task/engine@version/source/target/params``.
            owners: Who is in it, 16 bytes each; it goes with any of them.
            payload: What to keep.
            source: Where it comes from, for rules that go by it.

        Returns:
            Whether it was kept.
        """
        with self._lock:
            moment = self._moment()
            people = [self._people.get(owner) for owner in owners]
            known = [person for person in people if person is not None]
            if len(known) < len(people) or not known or not self._access.is_writer:
                return False
            subjects = [replace(p.subject(), sketch=self._rules.sketch(p.embeddings[0])) for p in known]
            decision = self._policy.decide(subjects, self._situation(source, moment), Purpose.FUSE, moment)
            if not decision.allowed:
                self._counts["denied"] += 1
                return False
            return self._put_artefact(key, owners, payload, decision)

    def artefact_counts(self) -> dict[bytes, int]:
        """For each person, how many artefacts they are in."""
        with self._lock:
            counts: Counter[bytes] = Counter()
            if self._access.vault is not None:
                for _, owners, _ in self._access.vault.iterate(Kind.ARTEFACT):
                    counts.update(owners)
            return dict(counts)

    # Changing --------------------------------------------------------------------------------------------

    def rename(self, person_id: bytes, name: str) -> KnownPerson:
        """Call somebody something else.

        Raises:
            UsageError: If the name will not do or belongs to somebody else.
        """
        name = check_name(name)
        with self._lock:
            person = self._get(person_id)
            other = self._named(name)
            if other is not None and other.person_id != person_id:
                raise UsageError(f"{name}: somebody else is remembered by this name; choose another one")
            return self._change(replace(person, name=name), "rename")

    def set_pinned(self, person_id: bytes, pinned: bool) -> KnownPerson:
        """Exempt somebody from time limits and from being pushed out, or let those apply again from now.

        Raises:
            PolicyError: If somebody who did not consent would be pinned.
        """
        with self._lock:
            person = self._get(person_id)
            if pinned and person.consent is None:
                raise PolicyError(
                    f"{person.short_id}: was only seen and did not agree to be kept; enrol the person first"
                )
            seen_s = person.last_seen_s if pinned else self._moment().now_s
            return self._change(
                replace(person, pinned=pinned, last_seen_s=seen_s), "pin" if pinned else "unpin"
            )

    # Forgetting ------------------------------------------------------------------------------------------

    def register_purger(self, purger: Purger) -> None:
        """Have a cache told who is forgotten, before the forget is acknowledged."""
        with self._lock:
            self._purgers.append(purger)

    def seen_since(self, time_s: float) -> list[KnownPerson]:
        """Whoever was seen at a moment or later."""
        return self._chosen(ForgetRequest(seen_since_s=time_s))

    def from_source(self, source: str) -> list[KnownPerson]:
        """Whoever became known by a file, a folder or a camera."""
        return self._chosen(ForgetRequest(source=source))

    def forget(self, person_ids: Collection[bytes], *, action: str = "forget") -> Forgotten:
        """Forget people, for good; returns when the key to everything about them is destroyed.

        Raises:
            VaultError: If it could not be done; whoever is still in the vault is forgotten at the next start.
        """
        with self._lock:
            gone = frozenset(person_ids)
            if not gone or self._access.vault is None:
                return Forgotten(0, 0, self._access.level, 0)
            vault = self._access.to_write()
            self._purge(gone)
            receipt = vault.forget(gone)
            self._ledger.write_exports(self._moment(), without(self._ledger.exports(), gone))
            self._ledger.note(self._moment(), action, receipt.people)
            return Forgotten(receipt.people, receipt.records, self._access.level, receipt.generation)

    def ask_to_forget(self, person_ids: Collection[bytes]) -> Forgotten:
        """Have the process that writes to this memory forget people; returns when that is final.

        Raises:
            VaultLockedError: If it does not answer; whoever writes next does it.
        """
        return Forgotten(**ask_to_forget(self._access.folder, person_ids))

    def forget_all(self) -> Forgotten:
        """Forget everybody; the rules stay.

        Raises:
            VaultError: If it could not be done.
        """
        with self._lock:
            if self._access.vault is None:
                return Forgotten(0, 0, self._access.level, 0)
            vault = self._access.to_write()
            self._purge(frozenset(self._people))
            receipt = vault.forget_all(keep=self._rules.owners)
            self._ledger.write_exports(self._moment(), ())
            self._ledger.note(self._moment(), "forget-all", receipt.people)
            return Forgotten(receipt.people, receipt.records, self._access.level, receipt.generation)

    def copies_of(self, person_ids: Collection[bytes]) -> list[str]:
        """Bundles that left with some of these people in them."""
        with self._lock:
            return [each.text() for each in self._ledger.exports() if each.people & set(person_ids)]

    # Rules -----------------------------------------------------------------------------------------------

    def rules(self) -> list[NeverRule]:
        """What is never remembered; rules whose end has come are left out."""
        with self._lock:
            return self._rules.in_force(self._moment())

    def never(self, rule: NeverRule) -> NeverRule:
        """Add a rule that somebody asked for.

        Raises:
            PolicyError: If it may not be kept.
        """
        with self._lock:
            moment = self._moment()
            self._rules.add(rule, moment)
            self._ledger.note(moment, "never", rule=f"never-{rule.kind}:{rule.rule_id}")
            return rule

    @staticmethod
    def new_rule_id() -> str:
        """An id for a rule: random, so that it says nothing."""
        return new_rule_id()

    def never_person(self, views: Sequence[Embedding], expires_at_s: float = math.inf) -> NeverRule:
        """Add the rule about one person; whether they are remembered now is another matter.

        Args:
            views: Of their face, each of length 1.
            expires_at_s: Until when, seconds since 1970.
        """
        with self._lock:
            return self.never(self._rules.person_rule(views, expires_at_s))

    def allow(self, rule_ids: Collection[str] | None) -> list[str]:
        """Take rules back.

        Args:
            rule_ids: Which; None for all.

        Returns:
            The ids of those that went.

        Raises:
            UsageError: If there is no such rule; then none goes.
        """
        with self._lock:
            gone = list(self._policy.rules) if rule_ids is None else self._rules.find(rule_ids)
            self._rules.remove(gone)
            if gone:
                self._ledger.note(self._moment(), "allow", detail=f"{len(gone)} rules")
            return [rule.rule_id for rule in gone]

    # The memory itself -----------------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Where it lies, what it holds, how it is protected; plain data that names nobody."""
        with self._lock:
            settings, vault = self._settings, self._access.vault
            people = self._people.values()
            plain: dict[str, Any] = {
                "folder": str(self._access.folder),
                "exists": vault is not None,
                "policy": settings.policy,
                "mode": settings.mode,
                "people": len(people),
                "enrolled": sum(person.origin == "enrolled" for person in people),
                "pinned": sum(person.pinned for person in people),
                "views": len(self._index),
                "recognition_score": round(self._index.threshold, 3),
                "rules": len(self.rules()),
            }
            if vault is not None:
                status = vault.status()
                plain |= {
                    "artefacts": status.records["artefact"],
                    "bytes_on_disk": status.bytes_on_disk,
                    "forgotten": status.tombstones,
                    "level": status.level,
                    "level_reason": status.level_reason,
                    "generation": status.generation,
                    "key": status.key_source,
                    "cipher": status.cipher,
                    "exports": len(self._ledger.exports()),
                    "damaged_records": self._counts["damaged"],
                }
            return plain

    def audit(self, last: int = 100) -> list[AuditEntry]:
        """What was done, the newest first."""
        with self._lock:
            return self._ledger.newest(last)

    def verify_forget(self, also: Sequence[Path] = ()) -> VerifyReport:
        """Read every byte of the real files and try every key there is.

        Args:
            also: Folders with copies, for example backups.

        Raises:
            VaultMissingError: If there is no memory yet.
        """
        with self._lock:
            if self._access.vault is None:
                raise VaultMissingError(f"{self._access.folder}: there is no face memory here yet")
            return self._access.vault.verify_forget(also=also)

    def rekey(self, place: KeyPlace, passphrase: AskPassphrase) -> None:
        """Put the memory under another key; the old one opens nothing any more.

        Args:
            place: Where the new key is kept.
            passphrase: Asked for the new one where that is in somebody's head.

        Raises:
            VaultMissingError: If there is no memory yet.
            VaultKeyError: If the new key cannot be had.
        """
        with self._lock:
            if self._access.vault is None:
                raise VaultMissingError(f"{self._access.folder}: there is no face memory here yet")
            self._access.to_write().rekey(self._access.new_key(place, passphrase))
            self._ledger.note(self._moment(), "rekey", detail=place)

    def upkeep(self, *, at_start: bool = False) -> Forgotten:
        """Forget whoever's time is over or is beyond the limits, all in one change of the root.

        Done at the start, every few minutes of a job, and at any time by calling this.

        Args:
            at_start: Leave out what takes long and can wait.
        """
        with self._lock:
            moment = self._moment()
            self._next_upkeep_s = self._monotonic_s() + _UPKEEP_EVERY_S
            if self._access.vault is None or not self._access.is_writer:
                return Forgotten(0, 0, self._access.level, 0)
            plan = plan_upkeep(self._remembered(), self._policy.config, moment)
            for who in plan.redate:
                self._note_seen(self._people[who], moment)
            self._write_touches()
            self._ledger.write_clock(self._moment(), self._clock)
            self._rules.remove([rule for rule in self._policy.rules if rule.expires_at_s <= moment.sure_s])
            self._ledger.trim()
            if not at_start:
                self._access.vault.maintenance()
            return self.forget(plan.forget, action="expire")

    # Moving ----------------------------------------------------------------------------------------------

    def give_away(self) -> Bundle:
        """Everybody who agreed to be remembered, for another machine.

        Raises:
            VaultMissingError: If there is no memory yet.
        """
        with self._lock:
            vault = self._access.vault
            if vault is None:
                raise VaultMissingError(f"{self._access.folder}: there is no face memory here yet")
            moment = self._moment()
            leaving = [
                person
                for person in self._people.values()
                if person.consent is not None
                and self._policy.may_use(person.subject(), Purpose.RECOGNISE, moment)
            ]
            people = tuple(BundledPerson(person.person_id, person.to_bytes()) for person in leaving)
            return Bundle(people, frozenset(vault.tombstones()), vault.secret("sync"), moment.now_s)

    def note_export(self, bundle: Bundle, file: str) -> None:
        """Write down that a bundle left, so that a forget can say so.

        Args:
            bundle: What is in it.
            file: Its name, without the folder.
        """
        with self._lock:
            people = frozenset(person.person_id for person in bundle.people)
            self._ledger.write_exports(
                self._moment(), [*self._ledger.exports(), Export(self._moment().now_s, file, people)]
            )
            self._ledger.note(self._moment(), "export", len(people))

    def take_over(self, bundle: Bundle) -> TakenOver:
        """Remember the people of a bundle; whoever was forgotten, here or there, stays forgotten.

        Raises:
            VaultLockedError: If another process writes to the memory.
        """
        with self._lock:
            moment = self._moment()
            dead = [who for who in self._people if tombstone(bundle.sync_key, who) in bundle.tombstones]
            self.forget(dead, action="forget-by-bundle")
            counts: Counter[str] = Counter(forgotten_now=len(dead))
            for bundled in bundle.people:
                counts[self._take_over_one(bundled, bundle, moment)] += 1
            self._ledger.note(self._moment(), "import", counts["added"])
            return TakenOver(**counts)

    def _take_over_one(self, bundled: BundledPerson, bundle: Bundle, moment: Moment) -> str:
        """What became of one person of a bundle, as the name of a count."""
        who = bundled.person_id
        if who in self._people:
            return "known"
        if tombstone(bundle.sync_key, who) in bundle.tombstones:
            return "forgotten_before"
        try:
            person = Person.from_bytes(who, bundled.record)
            recogniser = person.looks.templates.recogniser
        except VaultIntegrityError:
            return "refused"
        subject = person.subject(self._rules.sketch(person.embeddings[0]))
        # Nobody lives longer by being moved.
        decision = self._decide(subject, self._situation(_BUNDLE, moment), moment)
        end_s = expires_at_s(subject, self._policy.config, moment.now_s)
        if recogniser != RECOGNISER or not decision.allowed or end_s <= moment.now_s:
            return "refused"
        vault = self._access.to_write()
        if vault.is_forgotten(who):
            return "forgotten_before"
        vault.new_owner(who)
        name = person.name
        if name is not None and self._named(name) is not None:
            person = replace(person, name=f"{name} ({person.short_id})")
        self._put_people([person], [decision])
        return "added"

    # Inside ----------------------------------------------------------------------------------------------

    def _load(self) -> None:
        """Read everything there is into memory."""
        vault = self._access.vault
        if vault is None:
            return
        for _, owners, payload in self._records(vault, Kind.PERSON):
            with self._counting_damage():
                person = Person.from_bytes(owners[0], payload)
                self._people[person.person_id] = person
        self._index_all()
        if self._counts["damaged"]:
            self._notify(
                f"{self._counts['damaged']} records of the face memory are damaged and left out; "
                "forget and enrol those people anew"
            )
        if self._access.is_writer:
            answer_requests(self._access.folder, self._forget_on_request)
            if self._settings.policy != "off":
                self.upkeep(at_start=True)

    def _watch_requests(self) -> None:
        self._watch = RequestWatch(self._access.folder, self._forget_on_request)
        self._watch.start()

    def _forget_on_request(self, people: frozenset[bytes]) -> dict[str, Any]:
        return asdict(self.forget(people))

    def _records(self, vault: Vault, kind: Kind) -> Iterable[tuple[bytes, list[bytes], bytes]]:
        """Records of a kind; damaged ones are counted and left out."""

        def on_damage(err: VaultError) -> None:
            self._counts["damaged"] += 1

        return vault.iterate(kind, on_damage=on_damage)

    def _new_index(self) -> IdentityIndex:
        score = self._settings.recognition_score
        config = replace(_MATCH[self._settings.mode], fixed_cosine=score)
        # Nothing made with this secret is ever stored.
        return IdentityIndex(RECOGNISER, DIMENSIONS, secrets.token_bytes(32), config)

    def _index_all(self) -> None:
        """Everybody whose looks can be read; the others stay, to be forgotten or enrolled anew."""
        ids, rows = [], []
        for person in self._people.values():
            with self._counting_damage():
                embeddings = person.embeddings
                if embeddings.shape[1] == DIMENSIONS:
                    rows.append(embeddings)
                    ids.append(person.person_id)
        self._put_rows(ids, rows)

    def _put_rows(self, ids: Sequence[bytes], rows: Sequence[npt.NDArray[np.float32]]) -> None:
        if ids:
            together = np.concatenate(rows)
            self._index.put_many(ids, RECOGNISER, together, [len(each) for each in rows])
            together.fill(0)
            for each in rows:
                each.fill(0)

    @contextmanager
    def _counting_damage(self) -> Iterator[None]:
        try:
            yield
        except VaultIntegrityError:
            self._counts["damaged"] += 1

    @property
    def _policy(self) -> MemoryPolicy:
        return self._rules.policy

    def _moment(self) -> Moment:
        return self._clock.read(self._now_s(), self._monotonic_s(), synchronised=_is_clock_synchronised())

    def _situation(self, source: str, moment: Moment, box: Box | None = None) -> Situation:
        offset_s = time.localtime(moment.now_s).tm_gmtoff
        return Situation(source=source_name(source) or None, box=box, utc_offset_s=float(offset_s))

    def _decide(self, subject: Subject, situation: Situation, moment: Moment) -> WriteDecision:
        decision = self._policy.decide([subject], situation, Purpose.RECOGNISE, moment)
        self._counts["denied"] += not decision.allowed
        return decision

    def _get(self, person_id: bytes) -> Person:
        person = self._people.get(person_id)
        if person is None:
            raise UsageError("nobody of this id is remembered; see lethe memory list")
        return person

    def _named(self, name: str) -> Person | None:
        return next((p for p in self._people.values() if p.name and same_name(p.name, name)), None)

    def _find(self, name_or_id: str) -> Person | None:
        named = self._named(name_or_id)
        wanted = name_or_id.strip().lower()
        if named is not None or not wanted:
            return named
        found = [person for who, person in self._people.items() if who.hex().startswith(wanted)]
        if len(found) > 1:
            raise UsageError(f"{name_or_id}: {len(found)} ids begin like this; write more of it")
        return found[0] if found else None

    def _shown(self, person: Person) -> KnownPerson:
        ends_s = expires_at_s(person.subject(), self._policy.config, self._moment().now_s)
        return person.shown(ends_s)

    def _chosen(self, request: ForgetRequest) -> list[KnownPerson]:
        with self._lock:
            chosen = to_forget(self._remembered(), request, self._moment().now_s)
            return [person for person in self.people() if person.person_id in chosen]

    def _remembered(self) -> list[Remembered]:
        """Everybody as upkeep sees them; sizes only where the limit makes them matter."""
        sizes = self._sizes()
        return [
            Remembered(who, person.subject(), sizes[who], frozenset(person.sources))
            for who, person in self._people.items()
        ]

    def _sizes(self) -> Counter[bytes]:
        sizes: Counter[bytes] = Counter()
        vault = self._access.vault
        if vault is None or vault.status().bytes_on_disk <= self._policy.config.limit_bytes:
            return sizes
        for kind in (Kind.PERSON, Kind.ARTEFACT):
            for _, owners, payload in self._records(vault, kind):
                for owner in owners:
                    sizes[owner] += len(payload)
        return sizes

    def _to_enrol(self, name: str, views: Sequence[View]) -> Person | None:
        """Whom views under a name belong to; None for somebody new."""
        named = self._named(name)
        if named is not None:
            alike = max(float((named.embeddings @ view.embedding).max()) for view in views)
            if alike < _ANOTHER_PERSON:
                raise UsageError(
                    f"somebody else is remembered by this name ({named.short_id}); choose another one"
                )
            return named
        match = self._index.search(views[0].embedding)
        if match.verdict is not Verdict.KNOWN or match.person_id is None or match.score < _SURELY_SAME:
            return None
        person = self._people[match.person_id]
        if person.name is not None:
            raise UsageError(
                f"this person is remembered already ({person.short_id}); "
                "enrol under that name, or use lethe memory rename"
            )
        return person

    def _remember_stranger(self, view: View, situation: Situation, moment: Moment) -> None:
        """With the policy ``seen``: somebody new, if the view is good and no rule forbids it."""
        if view.quality < _SEEN_QUALITY or not self._access.is_writer:
            return
        subject = Subject(first_seen_s=moment.now_s, sketch=self._rules.sketch(view.embedding))
        decision = self._decide(subject, situation, moment)
        if not decision.allowed:
            return
        try:
            who = self._access.to_write().new_owner()
            person = Person.new(who, RECOGNISER, [view], moment.now_s, situation.source or "")
            self._put_people([person], [decision])
        except VaultError as err:
            self._tell_once(f"nobody new is remembered: {err}")
            return
        self._counts["remembered"] += 1

    def _see_again(
        self, person: Person, view: View, match: Match, situation: Situation, moment: Moment
    ) -> None:
        """Note when and where somebody was seen; a clear view may teach the memory."""
        if not self._access.is_writer:
            return
        subject = person.subject(self._rules.sketch(view.embedding))
        if not self._decide(subject, situation, moment).allowed:
            return
        learnt = person.learnt(view, match, moment.now_s)
        if learnt is not None:
            self._index.put(person.person_id, RECOGNISER, learnt.embeddings)
            person = self._people[person.person_id] = learnt
        self._note_seen(person, moment, situation.source)

    def _note_seen(self, person: Person, moment: Moment, source: str | None = None) -> None:
        self._people[person.person_id] = person.seen(moment.now_s, source)
        self._touched.add(person.person_id)

    def _write_touches(self) -> None:
        """Write who was seen since the last time, all at once."""
        people = [self._people[who] for who in self._touched if who in self._people]
        self._touched.clear()
        if people and self._access.is_writer:
            moment = self._moment()
            self._write_people(people, [self._policy.decide_upkeep(p.subject(), moment) for p in people])

    def _put_people(self, people: Sequence[Person], decisions: Sequence[WriteDecision]) -> None:
        """Write people and have them known."""
        self._write_people(people, decisions)
        self._people |= {person.person_id: person for person in people}
        self._put_rows([p.person_id for p in people], [p.embeddings for p in people])

    def _write_people(self, people: Sequence[Person], decisions: Sequence[WriteDecision]) -> None:
        items = [Item(Kind.PERSON, p.person_id, [p.person_id], p.to_bytes()) for p in people]
        self._access.to_write().put_many(list(decisions), items)

    def _change(self, person: Person, action: str) -> KnownPerson:
        """Write somebody who is remembered anew, with nothing added."""
        decision = self._policy.decide_upkeep(person.subject(), self._moment())
        self._put_people([person], [decision])
        self._ledger.note(self._moment(), action, 1, rule=decision.rule_id)
        return self._shown(person)

    def _artefact(self, key: str, owners: Collection[bytes]) -> bytes | None:
        if self._access.vault is None or self._settings.policy == "off":
            return None
        try:
            packed = self._access.vault.get(Kind.ARTEFACT, _artefact_id(key))
            inside, payload = _unpack_artefact(packed)
        except VaultMissingError:
            return None
        except (VaultError, ValueError) as err:
            self._tell_once(f"something that was prepared cannot be read and is made anew: {err}")
            return None
        people = [self._people.get(owner) for owner in inside]
        moment = self._moment()
        agreed = all(p and self._policy.may_use(p.subject(), Purpose.FUSE, moment) for p in people)
        return payload if agreed and (not owners or set(owners) == set(inside)) else None

    def _put_artefact(
        self, key: str, owners: Collection[bytes], payload: bytes, decision: WriteDecision
    ) -> bool:
        try:
            packed = _pack_artefact(owners, payload)
            self._access.to_write().put(decision, Kind.ARTEFACT, _artefact_id(key), list(owners), packed)
        except VaultError as err:
            # The memory saves work; a job goes on without.
            self._tell_once(f"what was prepared is not kept: {err}")
            return False
        return True

    def _purge(self, gone: frozenset[bytes]) -> None:
        """Take people out of everything in this process."""
        self._index.remove(gone)
        for who in gone:
            person = self._people.pop(who, None)
            if person is not None:
                person.wipe()
        self._touched -= gone
        for purger in self._purgers:
            purger(gone)

    def _upkeep_if_due(self) -> None:
        if self._monotonic_s() < self._next_upkeep_s:
            return
        try:
            self.upkeep()
        except VaultError as err:
            self._tell_once(f"the upkeep of the face memory waits: {err}")

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._notify(text)


def tombstone(sync_key: bytes, person_id: bytes) -> bytes:
    """What stands for a forgotten person in the vault with this key for tombstones."""
    return hmac.digest(sync_key, person_id, "sha256")


def _policy_config(settings: MemorySettings) -> PolicyConfig:
    return PolicyConfig(
        policy=settings.policy,
        ttl_enrolled_s=settings.ttl_enrolled_days * DAY_S,
        ttl_seen_s=settings.ttl_seen_hours * HOUR_S,
        limit_people=settings.limit_people,
        limit_bytes=settings.limit_mb * 1_000_000,
    )


def _artefact_id(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _pack_artefact(owners: Collection[bytes], payload: bytes) -> bytes:
    """Owners and payload: the vault knows them, too, and would have to be asked for all records at once."""
    return bytes([len(owners)]) + b"".join(sorted(owners)) + payload


def _unpack_artefact(packed: bytes) -> tuple[list[bytes], bytes]:
    end = 1 + 16 * packed[0]
    return [packed[at : at + 16] for at in range(1, end, 16)], packed[end:]


def _is_clock_synchronised() -> bool:
    """Whether the system says that its clock was set by the network."""
    return Path("/run/systemd/timesync/synchronized").exists()
