"""What the data source raises on purpose, beside ``ConfigError`` for options."""

from waltz.common.errors import WaltzError


class PlanningError(WaltzError):
    """The read cannot be planned: no cluster there, a mark that nobody told in time, or offsets that do not exist."""


class DataLossError(PlanningError):
    """What a read begins or ends with is not in the log any more: another cluster, or one that was made anew."""


class ReplicaReadError(WaltzError):
    """No replica could deliver a range of transactions; the text names the range and every node's reason."""


class PayloadError(WaltzError):
    """A payload is not what the options say; the text names the transaction."""


class SinkError(WaltzError):
    """Rows could not be appended; the text says what holds for them now."""


class SinkFencedError(SinkError):
    """Another run of the same query has taken over; this one must not append any more."""
