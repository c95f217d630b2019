"""Errors in the answers of a storage node."""

from waltz.common.errors import WaltzError
from waltz.common.java_text import for_people
from waltz.common.wire.fencing import is_fence


class RemoteStorageError(WaltzError):
    """A storage node answered a request with a failure; the text is the node's."""

    def __init__(self, wire_text: str) -> None:
        """``wire_text`` is the node's text: the original's class name and a message."""
        super().__init__(wire_text)
        self.wire_text = wire_text

    def __str__(self) -> str:
        return for_people(self.wire_text)

    @property
    def is_session_fenced(self) -> bool:
        """Whether a newer session has fenced the partition (rule S1). Then this session can never write to the
        partition again."""
        return is_fence(self.wire_text)


class DataCorruptionError(WaltzError):
    """The payload of a record does not match its checksum. Read the record from another replica."""
