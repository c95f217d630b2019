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
    "server": Noun("server", "servers: what they have, and which partitions they are to have by preference"),
    "storage": Noun("storage", "administer storage nodes: partitions, availability, recovery, repair"),
    "disk": Noun("disk", "look into the files of a storage node that is stopped; changes nothing"),
    "cluster": Noun("cluster", "the cluster as a whole"),
    "session": Noun("write_sessions", "write sessions: look at them, raise them"),
    "acl": Noun("acl", "access rules: who may do what, by the certificates of peers"),
    "partition": Noun("partition", "partitions: tables, ages of rows, appends refused, and their logs by time"),
    "table": Noun("table", "tables on the log: read and write rows, sweep, export, import"),
    "client": Noun("client", "the cluster as clients see it: marks, and whether all that is appended is kept"),
    "performance": Noun("performance", "how much the cluster takes, and how long it takes"),
    "status": Noun(
        "status",
        "print servers, storages and partitions: owners, sessions, replicas and how far they lag, rates, health",
    ),
    "top": Noun("status", "the same again and again, until Ctrl-C; --json prints a line each time"),
    "append": Noun("transactions", "append a transaction, or one for each line, and print the ids"),
    "get": Noun("transactions", "print transactions"),
    "tail": Noun(
        "transactions", "print the last transactions of partitions, and those to come; --json prints one on each line"
    ),
    "archive": Noun("archive", "the archive of the log in an object store: what it holds, whether it is whole"),
    "mirror": Noun("mirror", "mirrors of other clusters: how far they are, whether they are equal, and their end"),
    "local": Noun("local", "a whole cluster on this machine: real ZooKeeper, storages, servers"),
    "bot": Noun("bot", "programs that prove a cluster beside production, in a partition of their own"),
    "config": Noun("config", "configuration files, looked at without a cluster"),
    "completion": Noun("completion", "print what makes a shell complete commands"),
    "demo": Noun(
        "demo", "the bank: transfers under locks through a real cluster, then Spark over its log and streams of it"
    ),
}
