"""What may be remembered, for how long, and what has to go: decided here, done elsewhere.

Nothing in this module reads a clock, a file or a setting; time and state are handed in, values come out. It
is the only place where decisions that allow a write are made, and it denies whatever it does not understand:
an unknown policy, an unknown kind of rule, a rule that cannot be checked, any failure.

The order, strictest first: the policy ``off``; rules by source, zone, time and label; rules about a person;
consent; and what the policy says of everybody else. What several people are in takes the strictest decision
of them all and the shortest life.
"""

import logging
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum

from edge.memory.clock import Moment
from edge.memory.rules import CannotCheckError, NeverPerson, NeverRule, Situation, applies, source_matches
from edge.memory.sketch import Sketch
from edge.vault.decisions import POLICY_PROOF, WriteDecision

logger = logging.getLogger(__name__)

HOUR_S = 3600.0
DAY_S = 86400.0

_USABLE_S = 300.0
"""After so long a decision has to be made anew: consent may have been withdrawn."""

_FUTURE_S = HOUR_S
"""Records dated further ahead than this were written under a wrong clock."""


class Purpose(Enum):
    """What something is remembered for; consent names the purposes it covers."""

    RECOGNISE = "recognise"
    """Templates, a name, when somebody was seen."""
    FUSE = "fuse"
    """What was prepared for fusing: textures, latents, colours."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """What is remembered of whom.

    Attributes:
        policy: ``consented`` remembers people who agreed, ``seen`` everyone, ``off`` nobody.
        ttl_enrolled_s: People who agreed are forgotten so long after they were last seen, unless pinned.
        ttl_seen_s: Everybody else is forgotten so long after they were first seen. Not last: who passes every
            day would be kept for good without having agreed.
        limit_people: Beyond so many, those not seen for longest are forgotten, but for the pinned.
        limit_bytes: The same for the size of all that is kept.
    """

    policy: str = "consented"
    ttl_enrolled_s: float = 30 * DAY_S
    ttl_seen_s: float = 24 * HOUR_S
    limit_people: int = 10_000
    limit_bytes: int = 2 << 30


@dataclass(frozen=True, slots=True)
class Consent:
    """What somebody agreed to.

    Attributes:
        scope: The purposes they agreed to.
        expires_at_s: Until when, seconds since 1970.
        revoked: They took it back.
    """

    scope: frozenset[Purpose] = frozenset(Purpose)
    expires_at_s: float = math.inf
    revoked: bool = False


@dataclass(frozen=True, slots=True)
class Subject:
    """A person, as far as the policy has to know them.

    Attributes:
        consent: What they agreed to; None where they were never asked.
        pinned: Exempt from time to live and from the limits, never from a forget nor from the end of consent.
        first_seen_s: Seconds since 1970; None if that is now.
        last_seen_s: Seconds since 1970; None if that is now.
        keep_until_s: An end set by hand, seconds since 1970; a pin overrides it.
        sketch: Keyed bits of their face; needed once there is a rule about a person.
    """

    consent: Consent | None = None
    pinned: bool = False
    first_seen_s: float | None = None
    last_seen_s: float | None = None
    keep_until_s: float = math.inf
    sketch: Sketch | None = None


@dataclass(frozen=True, slots=True)
class Remembered:
    """Somebody in the vault, as far as upkeep and forget have to know them.

    Attributes:
        person_id: 16 bytes.
        subject: What the policy has to know.
        size_bytes: Of all their records.
        sources: Where they were seen.
    """

    person_id: bytes
    subject: Subject
    size_bytes: int = 0
    sources: frozenset[str] = field(default=frozenset(), repr=False)


@dataclass(frozen=True, slots=True)
class Upkeep:
    """What a maintenance tick has to do.

    Attributes:
        forget: Expired, revoked, or beyond the limits: to be forgotten in one epoch change.
        hidden: Expired unless the clock has leapt: not to be recognised, not yet to be forgotten.
        redate: Last seen in the future, which a wrong clock wrote: last seen is to be set to now.
    """

    forget: frozenset[bytes]
    hidden: frozenset[bytes]
    redate: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class ForgetRequest:
    """Who is to be forgotten; whoever meets any of these.

    Attributes:
        person_ids: These.
        everyone: All.
        seen_since_s: Whoever was seen at this moment or later, seconds since 1970.
        source: Whoever was seen in such a source, a pattern as in ``NeverSource``.
    """

    person_ids: frozenset[bytes] = frozenset()
    everyone: bool = False
    seen_since_s: float | None = None
    source: str | None = None


class MemoryPolicy:
    """Decides what may be written.

    Args:
        config: What is remembered of whom.
        rules: What is never remembered.
    """

    def __init__(self, config: PolicyConfig, rules: Iterable[NeverRule] = ()) -> None:
        self.config = config
        self.rules = tuple(rules)

    def decide(
        self, subjects: Sequence[Subject], situation: Situation, purpose: Purpose, moment: Moment
    ) -> WriteDecision:
        """Whether something that these people are in may be remembered. Never raises: what fails is denied.

        Args:
            subjects: Everyone in it; with nobody in it, nobody agreed, and it is denied.
            situation: Where and when they are seen.
            purpose: What it is to be remembered for.
            moment: From ``ClockGuard``.
        """
        try:
            return strictest([self._decide_one(each, situation, purpose, moment) for each in subjects])
        except Exception as err:
            return _failed(err)

    def decide_upkeep(self, subject: Subject, moment: Moment) -> WriteDecision:
        """Whether the record of somebody who is remembered may be written again with nothing added to it.

        To withdraw consent, to unpin, to rename, to shorten a life: that has to work whatever the rules say.
        """
        try:
            # At least long enough to be written: upkeep takes out what has expired, this does not.
            end_s = max(expires_at_s(subject, self.config, moment.now_s), moment.now_s + _USABLE_S)
            return _allow("upkeep", end_s, moment)
        except Exception as err:
            return _failed(err)

    def decide_bookkeeping(self, moment: Moment) -> WriteDecision:
        """Permission for what holds nothing of a person: the audit log, the state of the clock."""
        return _allow("bookkeeping", math.inf, moment)

    def decide_rule(self, rule: NeverRule, moment: Moment, *, asked: bool) -> WriteDecision:
        """Whether a rule may be kept. One about a person holds bits of a face.

        Args:
            rule: The rule.
            moment: From ``ClockGuard``.
            asked: The rule was asked for in so many words, and does not follow from something else.
        """
        if isinstance(rule, NeverPerson) and not asked:
            return _deny("person-rule", "a rule that holds bits of a face has to be asked for")
        return _allow("rule", rule.expires_at_s, moment)

    def may_use(self, subject: Subject, purpose: Purpose, moment: Moment) -> bool:
        """Whether what is remembered of somebody may be used now: to know them again, to fuse.

        To be asked for every decision, so that withdrawn consent takes effect on the next frame.
        """
        try:
            consent = self._decide_consent(subject, purpose, moment)
            return consent.allowed and expires_at_s(subject, self.config, moment.now_s) > moment.now_s
        except Exception as err:
            return _failed(err).allowed

    def _decide_one(
        self, subject: Subject, situation: Situation, purpose: Purpose, moment: Moment
    ) -> WriteDecision:
        denied = self._deny_by_policy()
        if denied is not None:
            return denied
        for rule in sorted(self.rules, key=lambda rule: isinstance(rule, NeverPerson)):
            # An end is believed only when it has surely come.
            if rule.expires_at_s > moment.sure_s:
                forbidden = _forbidden(rule, subject, situation, moment)
                if forbidden is not None:
                    return forbidden
        return self._decide_consent(replace(subject, last_seen_s=None), purpose, moment)

    def _deny_by_policy(self) -> WriteDecision | None:
        match self.config.policy:
            case "consented" | "seen":
                return None
            case "off":
                return _deny("off", "the memory is off")
            case _:
                return _deny("unknown-policy", "the policy is unknown")

    def _decide_consent(self, subject: Subject, purpose: Purpose, moment: Moment) -> WriteDecision:
        denied = self._deny_by_policy()
        if denied is not None:
            return denied
        consent = subject.consent
        end_s = expires_at_s(subject, self.config, moment.now_s)
        if consent is None:
            if self.config.policy == "seen":
                return _allow("seen", end_s, moment)
            return _deny("no-consent", "the person was not enrolled")
        if consent.revoked or not moment.now_s < consent.expires_at_s:
            return _deny("consent", "the person's consent has ended")
        if purpose not in consent.scope:
            return _deny("consent", f"the person did not agree to this use ({purpose.value})")
        return _allow("consent", end_s, moment)


def strictest(decisions: Collection[WriteDecision]) -> WriteDecision:
    """One decision for what several decisions are about: any denial denies, the shortest life counts.

    In whatever order they come; none at all is a denial.
    """
    if not decisions:
        return _deny("nobody", "nobody is in it who agreed")
    first = min(decisions, key=lambda each: (each.allowed, each.expires_at_s, each.rule_id, each.reason))
    if not first.allowed:
        return first
    return replace(first, usable_until_s=min(each.usable_until_s for each in decisions))


def expires_at_s(subject: Subject, config: PolicyConfig, now_s: float) -> float:
    """When somebody has to be forgotten, seconds since 1970; ``inf`` where pinned.

    Args:
        subject: The person.
        config: For the times to live.
        now_s: Seconds since 1970, for a subject that is seen now.
    """
    consent = subject.consent
    if consent is not None and consent.revoked:
        return -math.inf
    agreed_s = math.inf if consent is None else consent.expires_at_s
    if subject.pinned:
        return agreed_s
    if consent is None:
        start_s, ttl_s = subject.first_seen_s, config.ttl_seen_s
    else:
        start_s, ttl_s = subject.last_seen_s, config.ttl_enrolled_s
    return min(agreed_s, subject.keep_until_s, (now_s if start_s is None else start_s) + ttl_s)


def plan_upkeep(people: Iterable[Remembered], config: PolicyConfig, moment: Moment) -> Upkeep:
    """Who has to go now, who is to be hidden, whose date is wrong."""
    people = list(people)
    ends = {each.person_id: expires_at_s(each.subject, config, moment.now_s) for each in people}
    # Turned round so that an end that is no number has come.
    expired = {who for who, end_s in ends.items() if not end_s > moment.sure_s}
    hidden = {who for who, end_s in ends.items() if not end_s > moment.now_s} - expired
    staying = [each for each in people if each.person_id not in expired]
    evicted = _beyond_limits(staying, config, moment.now_s)
    redate = {
        each.person_id for each in staying if _last_seen_s(each, moment.now_s) > moment.now_s + _FUTURE_S
    }
    return Upkeep(frozenset(expired | evicted), frozenset(hidden - evicted), frozenset(redate - evicted))


def to_forget(people: Iterable[Remembered], request: ForgetRequest, now_s: float) -> frozenset[bytes]:
    """Ids of those a forget is about, pinned or not.

    Args:
        people: All in the vault.
        request: Who is meant.
        now_s: Seconds since 1970.
    """

    def meant(each: Remembered) -> bool:
        since_s, source = request.seen_since_s, request.source
        return (
            request.everyone
            or each.person_id in request.person_ids
            or (since_s is not None and _last_seen_s(each, now_s) >= since_s)
            or (source is not None and any(source_matches(source, seen) for seen in each.sources))
        )

    return frozenset(each.person_id for each in people if meant(each))


def _beyond_limits(people: Sequence[Remembered], config: PolicyConfig, now_s: float) -> set[bytes]:
    """Those not seen for longest, until the rest is within the limits; never the pinned."""
    count, size = len(people), sum(each.size_bytes for each in people)
    evicted = set()
    for each in sorted(people, key=lambda each: (_last_seen_s(each, now_s), each.person_id)):
        if count <= config.limit_people and size <= config.limit_bytes:
            break
        if not each.subject.pinned:
            evicted.add(each.person_id)
            count, size = count - 1, size - each.size_bytes
    return evicted


def _last_seen_s(each: Remembered, now_s: float) -> float:
    return now_s if each.subject.last_seen_s is None else each.subject.last_seen_s


def _forbidden(
    rule: NeverRule, subject: Subject, situation: Situation, moment: Moment
) -> WriteDecision | None:
    """The denial that follows from a rule, or None."""
    rule_id = f"never-{rule.kind}:{rule.rule_id}"
    try:
        if not applies(rule, subject.sketch, situation, moment.now_s):
            return None
    except CannotCheckError as err:
        return _deny(rule_id, f"a rule by {rule.kind} cannot be checked: {err} is not known")
    return _deny(rule_id, f"forbidden by a rule by {rule.kind}")


def _allow(rule_id: str, end_s: float, moment: Moment) -> WriteDecision:
    if not end_s > moment.now_s:
        return _deny(rule_id, "the time to remember the person is over")
    return WriteDecision(
        allowed=True,
        rule_id=rule_id,
        expires_at_s=end_s,
        reason="allowed",
        usable_until_s=moment.now_s + _USABLE_S,
        proof=POLICY_PROOF,
    )


def _deny(rule_id: str, reason: str) -> WriteDecision:
    return WriteDecision(
        allowed=False, rule_id=rule_id, expires_at_s=-math.inf, reason=reason, usable_until_s=-math.inf
    )


def _failed(err: Exception) -> WriteDecision:
    # Its text may quote what it failed on.
    logger.warning("memory policy failed, so nothing is remembered error=%s", type(err).__name__)
    return _deny("policy-failure", "the policy could not be evaluated")
