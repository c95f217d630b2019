"""The write session of one partition: who may append, and under which number. Pure.

The number W is one more than the id of the store session that was opened when the present owner came, or when the
number was last raised. Store sessions that an owner opens for reasons of its own, one after the other, leave it. So it
grows over all owners, and needs no place of its own to be stored in.
"""

from waltz.common.wire.write_sessions import NO_WRITE_SESSION, SessionFlag


class WriteSession:
    """Number and holder. Clients are known by the ids of their connections."""

    __slots__ = ("holder", "number")

    def __init__(self) -> None:
        self.number = NO_WRITE_SESSION
        """W; "none" before the first store session."""
        self.holder: int | None = None
        """The client of an exclusive session; None if the session is not exclusive."""

    def begin(self, store_session_id: int, holder: int | None = None) -> None:
        """Whatever was appended under older numbers comes before what is appended from now on."""
        self.number = store_session_id + 1
        self.holder = holder

    def admits(self, client_id: int | None, write_session: int) -> bool:
        """Whether an append with this number, or without one, may be processed."""
        if write_session == NO_WRITE_SESSION:
            return self.holder is None
        return write_session == self.number and self.holder in (None, client_id)

    def is_open_to(self, client_id: int | None) -> bool:
        """Whether a client may be told the number: no other one holds the session."""
        return self.holder in (None, client_id)

    def flags(self, client_id: int | None) -> SessionFlag:
        """Flags of the session for a client, beside its number."""
        if self.holder is None:
            return SessionFlag(0)
        return SessionFlag.EXCLUSIVE | (SessionFlag.HELD_BY_YOU if self.holder == client_id else SessionFlag(0))
