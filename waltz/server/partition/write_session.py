"""The write session of one partition: its number and its holder decide which clients may append. Pure.

The number W is the id of a store session, plus one: of the store session opened at the start of the present owner, or
by the last fence. Other store sessions of the owner do not change W. So W grows over all owners, and need not be
stored.
"""

from waltz.common.access import EVERYTHING, Rights
from waltz.common.wire.write_sessions import NO_WRITE_SESSION, SessionFlag


class WriteSession:
    """The number and the holder. Clients are identified by the ids of their connections."""

    __slots__ = ("holder", "noted", "number", "peer", "rights")

    def __init__(self) -> None:
        self.number = NO_WRITE_SESSION
        """The number W; "none" before the first store session."""
        self.holder: int | None = None
        """The client of an exclusive session; None if the session is not exclusive."""
        self.rights = EVERYTHING
        """The holder's rights when the session began, which change with the rules: they hold while it is away, too."""
        self.peer = ""
        """The place from which the holder has asked for the session."""
        self.noted = False
        """Whether the audit has noted that the holder may not append any more."""

    def begin(
        self, store_session_id: int, holder: int | None = None, rights: Rights = EVERYTHING, peer: str = ""
    ) -> None:
        """Begin a session: all appends under older numbers are before all later ones.

        Args:
            store_session_id: The store session that was opened for it.
            holder: The client that writes alone, if there is one.
            rights: The holder's rights.
            peer: Where it is.
        """
        self.number = store_session_id + 1
        self.holder = holder
        self.rights = rights
        self.peer = peer
        self.noted = False

    def admits(self, client_id: int | None, write_session: int) -> bool:
        """Whether an append with this number, or without a number, may be processed."""
        if write_session == NO_WRITE_SESSION:
            return self.holder is None
        return write_session == self.number and self.holder in (None, client_id)

    def is_open_to(self, client_id: int | None) -> bool:
        """Whether a client may learn the number: no other client holds the session."""
        return self.holder in (None, client_id)

    def flags(self, client_id: int | None) -> SessionFlag:
        """The flags of the session for a client, in addition to the number."""
        if self.holder is None:
            return SessionFlag(0)
        return SessionFlag.EXCLUSIVE | (SessionFlag.HELD_BY_YOU if self.holder == client_id else SessionFlag(0))
