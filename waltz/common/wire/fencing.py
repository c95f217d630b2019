"""The failure with which a storage refuses an older session (rules S1 and S2).

Failures of the storage protocol are texts: the name of a Java class, a colon and a message. The texts of a fence are
the original's, so servers and storages of a mixed cluster understand each other.
"""

CONCURRENT_UPDATE_EXCEPTION = "com.wepay.waltz.storage.exception.ConcurrentUpdateException"
"""The class of refusals of an older session's requests."""

STORAGE_EXCEPTION = "com.wepay.waltz.storage.exception.StorageException"
"""The class of all other refusals, also of an offline recovery's requests."""

_CHANGED = "session id has changed to "
_CHANGED_OFFLINE = "partition last session id has changed to "
_FENCED = (f"{CONCURRENT_UPDATE_EXCEPTION}: {_CHANGED}", f"{STORAGE_EXCEPTION}: {_CHANGED_OFFLINE}")


def fence_message(session_id: int, requested_id: int) -> str:
    """The error for a request of session ``requested_id`` at a partition with another session."""
    return f"{_CHANGED}{session_id}, but request context contains {requested_id}"


def offline_fence_message(session_id: int, requested_id: int) -> str:
    """The error for a request of an offline recovery."""
    return f"{_CHANGED_OFFLINE}{session_id}, but request context contains {requested_id}"


def is_fence(failure_text: str) -> bool:
    """Whether a failure means that the request's session can never write to the partition again."""
    return failure_text.startswith(_FENCED)
