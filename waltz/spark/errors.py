"""Errors of the data source; wrong options raise ``ConfigError``."""

from waltz.common.errors import WaltzError


class PlanningError(WaltzError):
    """The read cannot be planned: no cluster there, a mark that nobody told in time, or offsets that do not exist."""


class DataLossError(PlanningError):
    """The first or last transaction of a read is not in the log: it is another cluster's log, or one made anew."""


class ReplicaReadError(WaltzError):
    """No replica could deliver a range of transactions; the text names the range and every node's reason."""


class PayloadError(WaltzError):
    """A payload is not what the options say; the text names the transaction."""


class SinkError(WaltzError):
    """Rows could not be appended; the text says whether they are in the log."""


class SinkFencedError(SinkError):
    """Another run of the same query has taken over; this one must not append any more."""
