"""The table of levels and properties, as the definition of consistency has it, in words."""

WORDS = (
    "leader",
    "leader_plus_one",
    "leader_quorum",
    "leader_all",
    "quorum",
    "write_all_read_one",
    "write_one_read_all",
    "none",
)
"""The levels, in the order of their numbers in the protocol, from 1 on."""

ACCEPTED = {
    "leader": {"leader", "leader_plus_one", "leader_quorum", "leader_all", "write_all_read_one"},
    "leader_plus_one": {"leader_plus_one", "leader_quorum", "leader_all", "write_all_read_one"},
    "leader_quorum": {"leader_quorum", "leader_all", "write_all_read_one"},
    "leader_all": {"leader_all", "write_all_read_one"},
    "quorum": {"leader_quorum", "leader_all", "quorum", "write_all_read_one"},
    "write_all_read_one": {"leader_all", "write_all_read_one"},
    "write_one_read_all": set(WORDS),
    "none": set(WORDS),
}
"""The levels that a partition takes, by its property."""

BELOW_QUORUM = {"leader", "leader_plus_one", "write_one_read_all", "none"}
"""Levels that clients do not offer yet."""
