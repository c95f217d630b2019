"""What the properties of a partition say to its server: about appends, where the log begins, and how much of
it is kept. Pure.

Servers use only these properties; all others are for clients.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from waltz.common.consistency import Consistency, accepts, consistency_named
from waltz.common.retention import Retention, retention_of
from waltz.common.trim_point import trim_point_of


class AppendRule(NamedTuple):
    """Which appends a partition takes."""

    disabled: bool = False
    """Whether it takes none."""
    consistency: Consistency = Consistency.LEADER_QUORUM
    required: bool = True
    """Whether appends at a level that does not go with :attr:`consistency` are refused."""
    refuses_legacy: bool = False
    """Whether writers whose protocol has no levels are refused like writers at leader_quorum."""
    first_available: int = 0
    """The trim point: the first transaction that was not trimmed. No rule about appends, but of the same node."""
    retention: Retention = Retention()
    """How much of the partition is kept. No rule about appends either."""

    def describe(self) -> str:
        """The properties, as operators set them."""
        return (
            f"consistency={self.consistency.word} requireConsistency={str(self.required).lower()} "
            f"refuseLegacyWriters={str(self.refuses_legacy).lower()}"
        )

    def refusal(self, level: Consistency | None) -> str | None:
        """The reason against appends at a level; ``None`` as the level is that of a protocol without levels."""
        if not self.required:
            return None
        if level is not None:
            if accepts(self.consistency, level):
                return None
            return f"the partition demands the consistency {self.consistency.word}, and the append has {level.word}"
        if not self.refuses_legacy or accepts(self.consistency, Consistency.LEADER_QUORUM):
            return None
        return f"the partition demands the consistency {self.consistency.word}, and the client's protocol has no levels"


DEFAULT_RULE: Final = AppendRule()
"""The rule of a partition without properties."""


def append_rule(properties: object) -> AppendRule:
    """The rule in a partition's properties. Raises ``ValueError`` for what are none."""
    if not isinstance(properties, Mapping):
        raise ValueError("the properties are no object")
    flags = [
        properties.get(key, default)
        for key, default in (("disabled", False), ("requireConsistency", True), ("refuseLegacyWriters", False))
    ]
    if not all(isinstance(flag, bool) for flag in flags):
        raise ValueError("a property that is true or false has another value")
    disabled, required, refuses_legacy = flags
    return AppendRule(
        disabled,
        consistency_named(properties.get("consistency", Consistency.LEADER_QUORUM.word)),
        required,
        refuses_legacy,
        trim_point_of(properties),
        retention_of(properties),
    )
