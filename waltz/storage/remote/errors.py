"""What can be wrong with the answers of a storage node."""

from waltz.common.errors import WaltzError
from waltz.common.java_text import for_people

_FENCED = (
    "com.wepay.waltz.storage.exception.ConcurrentUpdateException: session id has changed to ",
    "com.wepay.waltz.storage.exception.StorageException: partition last session id has changed to ",
)


class RemoteStorageError(WaltzError):
    """A storage node answered a request with a failure; the text is the node's."""

    def __init__(self, wire_text: str) -> None:
        """``wire_text`` is what the node sent: the original's class name and a message."""
        super().__init__(wire_text)
        self.wire_text = wire_text

    def __str__(self) -> str:
        return for_people(self.wire_text)

    @property
    def is_session_fenced(self) -> bool:
        """A newer session has spoken to the partition (rule S1); this session can never write to it again."""
        return self.wire_text.startswith(_FENCED)

    @property
    def is_unavailable(self) -> bool:
        """The partition is not assigned to the node, or is switched off there (by an operator or a disk failure)."""
        return self.wire_text.endswith(
            (" have been disabled on storage node", " is not assigned.", " is not assigned to storage node.")
        )


class DataCorruptionError(WaltzError):
    """A storage delivered a record whose payload does not match its checksum; another replica should be asked."""
