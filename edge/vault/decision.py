"""The one pass that lets a record into the vault: a decision, which only the policy can make an allowing one."""

import dataclasses
from dataclasses import dataclass
from typing import Final

from shared.errors import PolicyError

POLICY_TOKEN: Final = object()
"""For ``edge.memory.policy`` alone; a test proves that nobody else imports it."""


@dataclass(frozen=True, slots=True)
class WriteDecision:
    """Whether something may be kept, by which rule, and how long that answer holds.

    Attributes:
        allowed: False for everything that was not made by the policy.
        rule_id: The rule that decided.
        expires_at_s: Wall clock after which the decision is void; None where it does not expire.
        reason: One clause for the report and the audit.
        token: Proof that the policy made it; needed where ``allowed``.
    """

    allowed: bool
    rule_id: str
    expires_at_s: float | None
    reason: str
    token: dataclasses.InitVar[object] = None

    def __post_init__(self, token: object) -> None:
        if self.allowed and token is not POLICY_TOKEN:
            raise PolicyError("only the policy can allow something to be remembered")

    def require(self, now_s: float) -> None:
        """Raise PolicyError unless this allows a write at that time."""
        if not self.allowed:
            raise PolicyError(f"not remembered: {self.reason} (rule {self.rule_id})")
        if self.expires_at_s is not None and not now_s < self.expires_at_s:
            raise PolicyError(f"not remembered: the decision of rule {self.rule_id} has expired")
