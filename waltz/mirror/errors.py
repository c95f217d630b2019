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
