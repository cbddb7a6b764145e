"""The rules of never remembering as they are kept, and the sketches they compare faces with."""

import json
import math
import secrets
from collections.abc import Collection, Sequence

import numpy as np

from edge.memory.access import VaultAccess
from edge.memory.clock import Moment
from edge.memory.policy import MemoryPolicy, PolicyConfig
from edge.memory.rules import NeverPerson, NeverRule, UnknownRule, rule_from_plain, rule_to_plain
from edge.memory.sketch import Sketch, Sketcher
from edge.vault import Kind
from shared.arrays import Embedding
from shared.errors import UsageError, VaultError


class RuleBook:
    """The rules, and the policy that minds them. Not for several threads at once.

    Args:
        access: The vault.
        config: What is remembered of whom.
        recogniser: The model all embeddings come from.
        dimensions: Length of its embeddings.
    """

    def __init__(self, access: VaultAccess, config: PolicyConfig, recogniser: str, dimensions: int) -> None:
        self._access = access
        self._config = config
        self._recogniser, self._dimensions = recogniser, dimensions
        self._owners: dict[str, bytes] = {}
        self._sketcher: Sketcher | None = None
        self.policy = MemoryPolicy(config, self._load())

    @property
    def owners(self) -> Collection[bytes]:
        """Ids under whose keys the rules about persons lie."""
        return self._owners.values()

    def in_force(self, moment: Moment) -> list[NeverRule]:
        """Rules whose end has not surely come."""
        return [rule for rule in self.policy.rules if rule.expires_at_s > moment.sure_s]

    def sketch(self, embedding: Embedding) -> Sketch | None:
        """Keyed bits of a face, where there is a rule to compare them with."""
        if not any(isinstance(rule, NeverPerson) for rule in self.policy.rules):
            return None
        return self._sketch(embedding)

    def person_rule(self, views: Sequence[Embedding], expires_at_s: float = math.inf) -> NeverPerson:
        """The rule about one person, not yet kept.

        Args:
            views: Of their face, each of length 1.
            expires_at_s: Until when, seconds since 1970.
        """
        mean: Embedding = np.sum(views, axis=0, dtype=np.float32)
        mean /= np.float32(max(float(np.linalg.norm(mean)), 1e-12))
        return NeverPerson(rule_id=new_rule_id(), sketch=self._sketch(mean), expires_at_s=expires_at_s)

    def add(self, rule: NeverRule, moment: Moment) -> None:
        """Keep a rule that somebody asked for.

        Raises:
            PolicyError: If it may not be kept.
        """
        decision = self.policy.decide_rule(rule, moment, asked=True)
        decision.require(moment.now_s)
        vault = self._access.to_write()
        owners = []
        if isinstance(rule, NeverPerson):
            # A key of its own: taken back, the bits are gone like any person's.
            owners = [vault.new_owner()]
            self._owners[rule.rule_id] = owners[0]
        payload = json.dumps(rule_to_plain(rule)).encode()
        vault.put(decision, Kind.NEVER, rule.rule_id.encode(), owners, payload)
        self._set([*self.policy.rules, rule])

    def find(self, rule_ids: Collection[str]) -> list[NeverRule]:
        """Rules by id, each once.

        Raises:
            UsageError: If there is no such rule.
        """
        rules = {rule.rule_id: rule for rule in self.policy.rules}
        for rule_id in rule_ids:
            if rule_id not in rules:
                raise UsageError(f"{rule_id}: there is no such rule; see lethe memory never")
        return [rules[rule_id] for rule_id in dict.fromkeys(rule_ids)]

    def remove(self, rules: Sequence[NeverRule]) -> None:
        """Take rules back; the keys of those about persons are destroyed when this returns."""
        if not rules:
            return
        vault = self._access.to_write()
        owners = [self._owners.pop(rule.rule_id) for rule in rules if rule.rule_id in self._owners]
        self._set([rule for rule in self.policy.rules if rule not in rules])
        for rule in rules:
            vault.delete(Kind.NEVER, rule.rule_id.encode())
        if owners:
            vault.forget(owners)

    def _load(self) -> list[NeverRule]:
        rules: list[NeverRule] = []
        vault = self._access.vault
        if vault is None:
            return rules

        def on_damage(err: VaultError) -> None:
            # Whatever it forbade: nobody is remembered while it is there.
            rules.append(UnknownRule(rule_id="damaged"))

        for name, owners, payload in vault.iterate(Kind.NEVER, on_damage=on_damage):
            rule = _rule(name.decode("ascii", "replace"), payload)
            rules.append(rule)
            if owners:
                self._owners[rule.rule_id] = owners[0]
        return rules

    def _set(self, rules: Sequence[NeverRule]) -> None:
        self.policy = MemoryPolicy(self._config, rules)

    def _sketch(self, embedding: Embedding) -> Sketch:
        if self._sketcher is None:
            vault = self._access.vault or self._access.to_write()
            self._sketcher = Sketcher(vault.secret("sketch"), self._recogniser, self._dimensions)
        return self._sketcher.sketch(embedding)


def new_rule_id() -> str:
    """An id for a rule: random, so that it says nothing."""
    return secrets.token_hex(4)


def _rule(rule_id: str, payload: bytes) -> NeverRule:
    try:
        plain = json.loads(payload)
    except ValueError:
        plain = {}
    return rule_from_plain(plain, rule_id=rule_id)
