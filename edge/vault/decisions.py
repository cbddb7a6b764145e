"""The permission without which the vault writes nothing.

Only ``edge.memory.policy`` makes decisions that allow: it alone holds the proof. A copy from a pickle, a
denying decision with its flag turned over, an object that merely looks alike: none carries the proof, and the
vault refuses them all. This guards against mistakes in our own code, not against code that means harm.
"""

from dataclasses import dataclass, field

from shared.errors import PolicyError

POLICY_PROOF = object()
"""Carried by decisions that allow. To be imported by ``edge.memory.policy`` alone; a test sees to it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDecision:
    """Whether something may be written, why, and for how long.

    Attributes:
        allowed: Whether it may be written.
        rule_id: The rule that decided, for example ``consent`` or ``never-zone``.
        expires_at_s: When what is written must be gone, seconds since 1970; ``inf`` where it is pinned.
        reason: One clause for people; holds no name.
        usable_until_s: When this decision itself is out of date and has to be made anew, seconds since 1970.
        proof: ``POLICY_PROOF`` where the policy made it.
    """

    allowed: bool
    rule_id: str
    expires_at_s: float
    reason: str
    usable_until_s: float
    proof: object = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.allowed and self.proof is not POLICY_PROOF:
            raise PolicyError("only the memory's policy can allow a write")

    def require(self, now_s: float) -> None:
        """Return where this decision allows a write now.

        Args:
            now_s: Seconds since 1970.

        Raises:
            PolicyError: If it denies, is out of date, or did not come from the policy.
        """
        if not self.allowed:
            raise PolicyError(f"not remembered: {self.reason} (rule {self.rule_id})")
        if self.proof is not POLICY_PROOF:
            raise PolicyError("not remembered: the decision did not come from the memory's policy")
        # Both comparisons are false for a time that is not a number: refused, too.
        if not (now_s < self.expires_at_s and now_s < self.usable_until_s):
            raise PolicyError(f"not remembered: the decision of rule {self.rule_id} is out of date")
