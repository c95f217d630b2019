"""Decides which connection of a client is valid in one partition. Pure.

After a reconnect, a client may use the new connection before the server notices the end of the old connection. Later
messages of the old connection have to be ignored, because the client has replaced it.
"""

from typing import NamedTuple

from waltz.server.requests.link import ClientLink


class _Entry(NamedTuple):
    link: ClientLink
    generation: int
    session_id: bytes


class Registrations:
    """The registered connection of every client, determined by its mounts."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[int | None, _Entry] = {}

    def register(self, link: ClientLink, generation: int, session_id: bytes) -> bool:
        """Register a mount from ``link`` with the generation of its client. Returns whether the link is valid now.

        ``session_id`` is the request id of the mount.

        The larger generation wins; within a generation, the larger sequence number of the connections' first mounts.
        Equal sequence numbers come from a client that has dropped the server in between and started again: then the
        connection that was accepted later wins. A closed connection never wins.
        """
        entry = self._entries.get(link.client_id)
        if (
            entry is None
            or entry.link.channel.closed
            or (generation, *_age(link)) > (entry.generation, *_age(entry.link))
        ):
            self._entries[link.client_id] = _Entry(link, generation, session_id)
            return True
        if entry.link is link:
            self._entries[link.client_id] = entry._replace(session_id=session_id)
            return True
        return False

    def is_valid(self, link: ClientLink) -> bool:
        """Whether ``link`` may send requests that need a mount."""
        entry = self._entries.get(link.client_id)
        return entry is not None and entry.link is link

    def session_of(self, link: ClientLink) -> bytes | None:
        """The request id of the last mount of ``link``, if it may send requests that need a mount."""
        entry = self._entries.get(link.client_id)
        return entry.session_id if entry is not None and entry.link is link else None

    def sessions(self) -> list[tuple[ClientLink, bytes]]:
        """Every registered connection with the request id of its last mount."""
        return [(entry.link, entry.session_id) for entry in self._entries.values()]

    def forget(self, link: ClientLink) -> None:
        """Forget ``link``, which has closed. A later connection of the same client stays."""
        if self.is_valid(link):
            del self._entries[link.client_id]


def _age(link: ClientLink) -> tuple[int, int]:
    assert link.seq_num is not None, "a mount sets it"
    return link.seq_num, link.number
