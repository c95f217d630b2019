"""The first words of commands: the purpose of each, and the module with the rest of its grammar.

A module is imported when one of its commands is named, so the list of all commands imports none of them.
"""

from typing import NamedTuple


class Noun(NamedTuple):
    """The first word of commands, or the only one of a command without a verb."""

    module: str
    """Name of the module in ``waltz.cli`` whose ``register`` adds the command."""
    help_text: str


NOUNS = {
    "zookeeper": Noun(
        "zookeeper", "describe the cluster in ZooKeeper: create it, add storage nodes, assign partitions"
    ),
    "server": Noun("server", "servers: their partitions, and preferences for partitions"),
    "storage": Noun("storage", "administer storage nodes: partitions, availability, recovery, repair"),
    "disk": Noun("disk", "the files of a stopped storage node: inspect them, drain its journal, manage its volumes"),
    "cluster": Noun("cluster", "the cluster as a whole"),
    "session": Noun("write_sessions", "write sessions: show them, raise them"),
    "acl": Noun("acl", "access rules: the rights of principals, known by certificates or tokens"),
    "partition": Noun("partition", "partitions: their properties, and transactions by time"),
    "table": Noun("table", "tables on the log: read and write rows, sweep, export, import"),
    "client": Noun("client", "the cluster as clients see it: marks, and a check that all appends are kept"),
    "performance": Noun("performance", "measure the capacity of the cluster and the latency of appends"),
    "status": Noun(
        "status",
        "print servers, storages and partitions: owners, sessions, replicas and their lags, rates, health",
    ),
    "top": Noun("status", "like status, repeated until Ctrl-C; --json prints a line each time"),
    "append": Noun("transactions", "append a transaction, or one for each line, and print the ids"),
    "get": Noun("transactions", "print transactions"),
    "tail": Noun("transactions", "print the last transactions of partitions, and new ones; --json prints one per line"),
    "archive": Noun("archive", "the archive of the log in an object store: list, check, export, restore"),
    "mirror": Noun("mirror", "mirrors of other clusters: how far they are, whether they are equal, and their end"),
    "local": Noun("local", "a whole cluster on this machine: real ZooKeeper, storages, servers"),
    "bot": Noun("bot", "programs that test a cluster beside production, in a partition of their own"),
    "config": Noun("config", "check configuration files, without a cluster"),
    "completion": Noun("completion", "print a script for completion in a shell"),
    "demo": Noun(
        "demo", "the bank: transfers under locks through a real cluster, then Spark over its log and streams of it"
    ),
}
