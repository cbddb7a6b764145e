"""What the policy allows, in what order its rules count, and what upkeep takes out."""

import ast
import copy
import dataclasses
import math
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.memory.clock import Moment
from edge.memory.policy import (
    DAY_S,
    HOUR_S,
    Consent,
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
from edge.memory.rules import (
    NeverLabel,
    NeverPerson,
    NeverRule,
    NeverSource,
    NeverTime,
    NeverZone,
    Situation,
    UnknownRule,
)
from edge.memory.sketch import Sketch, Sketcher
from edge.vault.decisions import WriteDecision
from shared.errors import PolicyError

EDGE = Path(__file__).resolve().parents[3] / "edge"
NOW_S = 1_800_000_000.0
NOW = Moment.at(NOW_S)
AGREED = Consent()
ENROLLED = Subject(consent=AGREED)
SITUATION = Situation(source="/films/party.mp4", box=(0.1, 0.1, 0.3, 0.4), utc_offset_s=0.0)
FACE = Sketch("mobilefacenet192", bytes(32))
OTHER = Sketch("mobilefacenet192", b"\xff" * 32)
PERSON_RULE = NeverPerson(rule_id="p", sketch=FACE)


def decide(
    subject: Subject = ENROLLED,
    *rules: NeverRule,
    policy: str = "consented",
    situation: Situation = SITUATION,
    moment: Moment = NOW,
    purpose: Purpose = Purpose.RECOGNISE,
) -> WriteDecision:
    return MemoryPolicy(PolicyConfig(policy), rules).decide([subject], situation, purpose, moment)


# Whom each policy remembers


@pytest.mark.parametrize(
    ("policy", "subject", "allowed", "rule_id"),
    [
        ("consented", Subject(), False, "no-consent"),
        ("consented", ENROLLED, True, "consent"),
        ("seen", Subject(), True, "seen"),
        ("seen", ENROLLED, True, "consent"),
        ("off", Subject(), False, "off"),
        ("off", Subject(consent=AGREED, pinned=True), False, "off"),
        ("everything", ENROLLED, False, "unknown-policy"),
        ("", ENROLLED, False, "unknown-policy"),
    ],
)
def test_each_policy_remembers_whom_it_should(
    policy: str, subject: Subject, allowed: bool, rule_id: str
) -> None:
    decision = decide(subject, policy=policy)

    assert (decision.allowed, decision.rule_id) == (allowed, rule_id)


@pytest.mark.parametrize("policy", ["consented", "seen"])
@pytest.mark.parametrize(
    "consent", [Consent(revoked=True), Consent(expires_at_s=NOW_S), Consent(scope=frozenset({Purpose.FUSE}))]
)
def test_consent_that_does_not_hold_denies_even_where_all_are_remembered(
    policy: str, consent: Consent
) -> None:
    decision = decide(Subject(consent=consent, pinned=True), policy=policy)

    assert (decision.allowed, decision.rule_id) == (False, "consent")


def test_what_nobody_is_in_is_not_remembered() -> None:
    assert not MemoryPolicy(PolicyConfig("seen")).decide([], SITUATION, Purpose.FUSE, NOW).allowed


def test_one_person_who_did_not_agree_is_enough_to_deny() -> None:
    policy = MemoryPolicy(PolicyConfig())

    assert policy.decide([ENROLLED, ENROLLED], SITUATION, Purpose.FUSE, NOW).allowed
    assert not policy.decide([ENROLLED, Subject()], SITUATION, Purpose.FUSE, NOW).allowed


# Rules


@pytest.mark.parametrize(
    "rule",
    [
        NeverSource(rule_id="s", pattern="/films"),
        NeverZone(rule_id="z", pattern="*.mp4", box=(0.0, 0.0, 0.2, 1.0)),
        NeverTime(rule_id="t", from_minute=0, to_minute=0),
        NeverLabel(rule_id="l", label="Guest"),
        NeverPerson(rule_id="p", sketch=FACE),
        UnknownRule(rule_id="u"),
    ],
    ids=lambda rule: rule.kind,
)
@pytest.mark.parametrize("policy", ["consented", "seen"])
def test_every_kind_of_rule_beats_consent_and_a_pin(rule: NeverRule, policy: str) -> None:
    subject = Subject(consent=AGREED, pinned=True, sketch=FACE)
    situation = dataclasses.replace(SITUATION, labels=frozenset({"guest"}))

    decision = decide(subject, rule, policy=policy, situation=situation)

    assert not decision.allowed
    assert decision.rule_id == f"never-{rule.kind}:{rule.rule_id}"


@pytest.mark.parametrize(
    ("rule", "situation"),
    [
        (NeverSource(rule_id="r", pattern="/x"), Situation(source=None)),
        (NeverZone(rule_id="r", pattern="/x", box=(0, 0, 1, 1)), Situation(source=None)),
        (NeverZone(rule_id="r", pattern="/x", box=(0, 0, 1, 1)), Situation(source="/x")),
        (NeverTime(rule_id="r", from_minute=0, to_minute=1), Situation()),
        (NeverLabel(rule_id="r", label="x"), Situation(labels=None)),
        (PERSON_RULE, SITUATION),
    ],
)
def test_a_rule_that_cannot_be_checked_denies(rule: NeverRule, situation: Situation) -> None:
    decision = decide(ENROLLED, rule, situation=situation)

    assert not decision.allowed
    assert "cannot be checked" in decision.reason


def test_a_rule_about_a_person_made_with_another_recogniser_denies() -> None:
    subject = Subject(consent=AGREED, sketch=Sketch("dlib_resnet", b"\xff" * 32))

    assert not decide(subject, PERSON_RULE).allowed


def test_a_rule_about_somebody_else_denies_nothing() -> None:
    assert decide(Subject(consent=AGREED, sketch=OTHER), PERSON_RULE).allowed


def test_rules_about_a_place_are_named_before_rules_about_a_person() -> None:
    place = NeverSource(rule_id="s", pattern="/films")

    decision = decide(Subject(consent=AGREED, sketch=FACE), PERSON_RULE, place)

    assert decision.rule_id == "never-source:s"


def test_a_rule_holds_until_its_end_has_surely_come() -> None:
    rule = NeverSource(rule_id="s", pattern="/films", expires_at_s=NOW_S)

    assert decide(ENROLLED, rule, moment=NOW).allowed
    assert not decide(ENROLLED, rule, moment=Moment(NOW_S + 1, NOW_S - 1)).allowed


def test_what_fails_is_denied_and_its_text_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(NeverSource):
        @property
        def expires_at_s(self) -> float:  # type: ignore[override]
            raise RuntimeError("Anna")

        @expires_at_s.setter
        def expires_at_s(self, value: float) -> None: ...

    broken = object.__new__(Broken)

    decision = decide(ENROLLED, broken)

    assert (decision.allowed, decision.rule_id) == (False, "policy-failure")
    assert "RuntimeError" in caplog.text
    assert "Anna" not in caplog.text


def test_a_rule_that_holds_bits_of_a_face_has_to_be_asked_for() -> None:
    policy = MemoryPolicy(PolicyConfig("off"))

    assert not policy.decide_rule(PERSON_RULE, NOW, asked=False).allowed
    assert policy.decide_rule(PERSON_RULE, NOW, asked=True).allowed
    assert policy.decide_rule(NeverLabel(rule_id="l", label="x"), NOW, asked=False).allowed


# How long


@pytest.mark.parametrize(
    ("subject", "policy", "lives_s"),
    [
        (ENROLLED, "consented", 30 * DAY_S),
        (Subject(consent=AGREED, first_seen_s=0.0, last_seen_s=0.0), "consented", 30 * DAY_S),
        (Subject(consent=Consent(expires_at_s=NOW_S + 5)), "consented", 5),
        (Subject(consent=Consent(expires_at_s=NOW_S + 5), pinned=True), "consented", 5),
        (Subject(consent=AGREED, pinned=True), "consented", math.inf),
        (Subject(consent=AGREED, keep_until_s=NOW_S + 7), "consented", 7),
        (Subject(consent=AGREED, keep_until_s=NOW_S + 7, pinned=True), "consented", math.inf),
        (Subject(), "seen", 24 * HOUR_S),
        (Subject(first_seen_s=NOW_S - 23 * HOUR_S), "seen", HOUR_S),
    ],
)
def test_a_decision_says_how_long_it_may_be_kept(subject: Subject, policy: str, lives_s: float) -> None:
    assert decide(subject, policy=policy).expires_at_s == NOW_S + lives_s


def test_somebody_only_seen_is_not_kept_for_good_by_passing_every_day() -> None:
    regular = Subject(first_seen_s=NOW_S - 25 * HOUR_S, last_seen_s=NOW_S - HOUR_S)

    assert not decide(regular, policy="seen").allowed


def test_a_decision_is_soon_out_of_date_for_consent_may_be_withdrawn() -> None:
    decision = decide()

    decision.require(NOW_S)
    with pytest.raises(PolicyError, match="out of date"):
        decision.require(NOW_S + HOUR_S)


def test_what_is_remembered_may_not_be_used_once_consent_is_withdrawn_or_time_is_over() -> None:
    policy = MemoryPolicy(PolicyConfig())
    gone = Subject(consent=AGREED, last_seen_s=NOW_S - 31 * DAY_S)

    assert policy.may_use(ENROLLED, Purpose.RECOGNISE, NOW)
    assert not policy.may_use(gone, Purpose.RECOGNISE, NOW)
    assert not policy.may_use(Subject(consent=Consent(revoked=True)), Purpose.RECOGNISE, NOW)
    assert not MemoryPolicy(PolicyConfig("off")).may_use(ENROLLED, Purpose.RECOGNISE, NOW)


@pytest.mark.parametrize("policy", ["consented", "seen", "off", "?"])
@pytest.mark.parametrize("consent", [None, AGREED, Consent(revoked=True), Consent(expires_at_s=0.0)])
def test_consent_can_be_withdrawn_and_books_be_kept_whatever_the_policy(
    policy: str, consent: Consent | None
) -> None:
    made = MemoryPolicy(PolicyConfig(policy), [UnknownRule(rule_id="u")])

    made.decide_upkeep(Subject(consent=consent, first_seen_s=0.0, last_seen_s=0.0), NOW).require(NOW_S)
    made.decide_bookkeeping(NOW).require(NOW_S)


# Nobody else makes decisions


def test_nobody_but_the_policy_can_make_a_decision_that_allows() -> None:
    with pytest.raises(PolicyError, match="only the memory's policy"):
        WriteDecision(allowed=True, rule_id="x", expires_at_s=math.inf, reason="", usable_until_s=math.inf)


def test_a_denial_turned_over_is_refused() -> None:
    denied = decide(Subject())
    for name, value in (("allowed", True), ("expires_at_s", math.inf), ("usable_until_s", math.inf)):
        object.__setattr__(denied, name, value)

    with pytest.raises(PolicyError, match="did not come from"):
        denied.require(NOW_S)


def test_a_decision_from_a_pickle_is_refused_and_a_copy_in_memory_is_not() -> None:
    decision = decide()

    copy.copy(decision).require(NOW_S)
    with pytest.raises(PolicyError, match="did not come from"):
        pickle.loads(pickle.dumps(decision)).require(NOW_S)


@pytest.mark.parametrize("now_s", [math.nan, math.inf])
def test_a_decision_does_not_hold_at_a_time_that_is_none(now_s: float) -> None:
    with pytest.raises(PolicyError):
        decide().require(now_s)


def test_only_the_policy_holds_the_proof() -> None:
    users = {
        path.relative_to(EDGE).as_posix()
        for path in EDGE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if (isinstance(node, ast.ImportFrom) and any(a.name == "POLICY_PROOF" for a in node.names))
        or (isinstance(node, ast.Attribute) and node.attr == "POLICY_PROOF")
    }

    assert users == {"memory/policy.py"}


@pytest.mark.parametrize("module", ["policy", "rules", "clock", "sketch", "index", "templates"])
def test_modules_that_decide_touch_no_file_and_no_clock(module: str) -> None:
    tree = ast.parse((EDGE / "memory" / f"{module}.py").read_text(encoding="utf-8"))
    tops = {
        name.split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in ([a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    }

    assert tops.isdisjoint({"os", "io", "pathlib", "time", "datetime", "lmdb", "cryptography", "cv2", "av"})


# Properties

times = st.floats(NOW_S - 90 * DAY_S, NOW_S + 90 * DAY_S)
consents = st.builds(
    Consent,
    scope=st.frozensets(st.sampled_from(Purpose)),
    expires_at_s=st.one_of(times, st.just(math.inf)),
    revoked=st.booleans(),
)
subjects = st.builds(
    Subject,
    consent=st.none() | consents,
    pinned=st.booleans(),
    first_seen_s=st.none() | times,
    last_seen_s=st.none() | times,
    keep_until_s=st.one_of(times, st.just(math.inf)),
    sketch=st.sampled_from([None, FACE, OTHER]),
)
rules = st.lists(
    st.sampled_from(
        [
            NeverSource(rule_id="a", pattern="/films"),
            NeverSource(rule_id="b", pattern="/elsewhere"),
            NeverZone(rule_id="c", pattern="/films", box=(0.5, 0.5, 1, 1)),
            NeverTime(rule_id="d", from_minute=0, to_minute=720),
            NeverLabel(rule_id="e", label="guest"),
            PERSON_RULE,
            UnknownRule(rule_id="f"),
        ]
    ),
    max_size=3,
)
policies = st.sampled_from(["consented", "seen", "off", "nonsense"])
purposes = st.sampled_from(Purpose)


@given(policies, rules, st.lists(subjects, min_size=1, max_size=4), purposes)
def test_the_strictest_wins_and_no_life_is_longer_than_that_of_the_shortest(
    policy: str, never: list[NeverRule], people: list[Subject], purpose: Purpose
) -> None:
    made = MemoryPolicy(PolicyConfig(policy), never)
    single = [made.decide([each], SITUATION, purpose, NOW) for each in people]

    together = made.decide(people, SITUATION, purpose, NOW)

    assert together.allowed == all(each.allowed for each in single)
    assert together.expires_at_s == min(each.expires_at_s for each in single)
    assert together.usable_until_s == min(each.usable_until_s for each in single)
    assert together == made.decide(people[::-1], SITUATION, purpose, NOW)
    assert together == strictest([together, *single])


@given(policies, rules, subjects, purposes, st.sampled_from([PERSON_RULE, UnknownRule(rule_id="more")]))
def test_one_more_rule_never_allows_what_was_denied(
    policy: str, never: list[NeverRule], subject: Subject, purpose: Purpose, more: NeverRule
) -> None:
    before = decide(subject, *never, policy=policy, purpose=purpose)
    after = decide(subject, *never, more, policy=policy, purpose=purpose)

    assert before.allowed or not after.allowed


@given(policies, rules, subjects, purposes)
def test_nobody_is_remembered_whom_the_next_tick_would_take_out(
    policy: str, never: list[NeverRule], subject: Subject, purpose: Purpose
) -> None:
    decision = decide(subject, *never, policy=policy, purpose=purpose)
    touched = Remembered(b"x" * 16, dataclasses.replace(subject, last_seen_s=NOW_S))

    if decision.allowed:
        assert decision.expires_at_s > NOW_S
        assert not plan_upkeep([touched], PolicyConfig(policy), NOW).forget
    else:
        with pytest.raises(PolicyError):
            decision.require(NOW_S)


@given(subjects, times)
def test_a_pin_never_keeps_somebody_beyond_their_consent_nor_from_a_forget(
    subject: Subject, since_s: float
) -> None:
    pinned = dataclasses.replace(subject, pinned=True)
    person = Remembered(b"x" * 16, pinned, sources=frozenset({"/films/a.mp4"}))

    for request in (
        ForgetRequest(person_ids=frozenset({person.person_id})),
        ForgetRequest(everyone=True),
        ForgetRequest(source="/films"),
    ):
        assert to_forget([person], request, NOW_S) == {person.person_id}
    if subject.consent is not None:
        assert expires_at_s(pinned, PolicyConfig(), NOW_S) <= subject.consent.expires_at_s


@given(subjects, st.integers(0, 100), st.floats(0, 400 * DAY_S))
def test_upkeep_only_forgets_what_has_surely_expired(
    subject: Subject, ahead_days: int, later_s: float
) -> None:
    moment = Moment(NOW_S + later_s + ahead_days * DAY_S, NOW_S + later_s)
    end_s = expires_at_s(subject, PolicyConfig(), moment.now_s)

    plan = plan_upkeep([Remembered(b"x" * 16, subject)], PolicyConfig(), moment)

    assert bool(plan.forget) == (end_s <= moment.sure_s)
    assert bool(plan.hidden) == (moment.sure_s < end_s <= moment.now_s)


# Upkeep and forget


def person(number: int, *, seen_days_ago: float = 0, pinned: bool = False, size: int = 10) -> Remembered:
    seen_s = NOW_S - seen_days_ago * DAY_S
    subject = Subject(consent=AGREED, pinned=pinned, first_seen_s=seen_s, last_seen_s=seen_s)
    return Remembered(number.to_bytes(16), subject, size, frozenset({f"/films/{number}.mp4"}))


def numbers(ids: frozenset[bytes]) -> set[int]:
    return {int.from_bytes(each) for each in ids}


def test_upkeep_of_nobody_does_nothing() -> None:
    plan = plan_upkeep([], PolicyConfig(), NOW)

    assert plan.forget == plan.hidden == plan.redate == frozenset()


def test_upkeep_forgets_the_expired_but_not_the_pinned() -> None:
    people = [
        person(1, seen_days_ago=31),
        person(2, seen_days_ago=29),
        person(3, seen_days_ago=99, pinned=True),
    ]

    assert numbers(plan_upkeep(people, PolicyConfig(), NOW).forget) == {1}


@pytest.mark.parametrize("config", [PolicyConfig(limit_people=2), PolicyConfig(limit_bytes=20)])
def test_beyond_a_limit_those_not_seen_for_longest_go_but_not_the_pinned(config: PolicyConfig) -> None:
    people = [person(n, seen_days_ago=n, pinned=n == 4) for n in (1, 2, 3, 4)]

    assert numbers(plan_upkeep(people, config, NOW).forget) == {2, 3}


def test_where_all_are_pinned_a_limit_takes_nobody_out() -> None:
    people = [person(n, pinned=True) for n in range(5)]

    assert not plan_upkeep(people, PolicyConfig(limit_people=2), NOW).forget


def test_after_a_leap_of_the_clock_people_are_hidden_and_not_forgotten() -> None:
    plan = plan_upkeep([person(1)], PolicyConfig(), Moment(NOW_S + 40 * DAY_S, NOW_S))

    assert numbers(plan.hidden) == {1}
    assert not plan.forget


def test_who_was_last_seen_in_the_future_is_dated_anew() -> None:
    plan = plan_upkeep([person(1, seen_days_ago=-20), person(2)], PolicyConfig(), NOW)

    assert numbers(plan.redate) == {1}
    assert not plan.forget


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ForgetRequest(), set()),
        (ForgetRequest(person_ids=frozenset({(2).to_bytes(16), bytes(15)})), {2}),
        (ForgetRequest(everyone=True), {1, 2, 3}),
        (ForgetRequest(seen_since_s=NOW_S - 2.5 * DAY_S), {1, 2}),
        (ForgetRequest(source="/films/3.MP4"), {3}),
        (ForgetRequest(source="/films"), {1, 2, 3}),
        (ForgetRequest(source="/film"), set()),
    ],
)
def test_a_forget_reaches_whom_it_names(request_: ForgetRequest, expected: set[int]) -> None:
    people = [person(n, seen_days_ago=n, pinned=True) for n in (1, 2, 3)]

    assert numbers(to_forget(people, request_, NOW_S)) == expected


def test_nothing_that_is_printed_holds_a_sketch() -> None:
    vector = np.zeros(192, np.float32)
    vector[3] = 1
    sketch = Sketcher(b"k" * 32, "mobilefacenet192", 192).sketch(vector)
    subject = Subject(consent=AGREED, sketch=sketch)

    assert sketch.bits.hex() not in repr(subject)
    assert repr(sketch.bits) not in repr(NeverPerson(rule_id="p", sketch=sketch))
