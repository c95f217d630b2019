"""What can be wrong with a mirror."""

from waltz.common.errors import WaltzError


class MirrorError(WaltzError):
    """A mirror cannot go on at present; another attempt may succeed."""


class MirrorStoppedError(MirrorError):
    """A mirror must not go on: no attempt can change the reason."""


class DifferentLogsError(MirrorStoppedError):
    """The target's log is no beginning of the source's; the text names the first difference that is known."""


class PromotedError(MirrorStoppedError):
    """The partition of the target is a mirror no more."""


class OtherSourceError(MirrorStoppedError):
    """The partition of the target is the mirror of another cluster."""


class SourceTrimmedError(MirrorStoppedError):
    """The source does not have transactions any more that the target lacks, or that have to be compared."""

    def __init__(self, partition_id: int, wanted: int, first_available: int, log: str = "source") -> None:
        """``wanted`` is the first transaction that the mirror needs of the ``log``."""
        super().__init__(
            f"partition {partition_id}: the mirror needs transactions of the {log} from {wanted} on, and those from "
            f"{wanted} to {first_available - 1} are trimmed there: a mirror has no gap. Begin with a target that has "
            "them, such as the restored archive of the source (waltz archive restore), or leave the partition out"
        )
