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
"""The levels of appends that a partition takes, by its property."""

ACCEPTED_READS = {
    "leader": {"leader", "write_one_read_all", "none"},
    "leader_plus_one": {"leader", "leader_plus_one", "write_one_read_all", "none"},
    "leader_quorum": {"leader", "leader_quorum", "quorum", "write_one_read_all", "none"},
    "leader_all": set(WORDS),
    "quorum": {"quorum", "write_one_read_all", "none"},
    "write_all_read_one": set(WORDS),
    "write_one_read_all": {"write_one_read_all", "none"},
    "none": set(WORDS),
}
"""The levels of reads that a partition takes, by its property."""

FRESH = {"leader", "leader_plus_one", "leader_quorum", "quorum", "write_one_read_all"}
"""Levels of reads that have all that was committed before."""

BELOW_QUORUM = {"leader", "leader_plus_one", "write_one_read_all", "none"}
"""Levels that clients do not offer yet."""
