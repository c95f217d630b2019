"""TLS for kazoo, with a context of ours.

kazoo's own TLS trusts the authorities of the system beside ours, and cannot follow files. And it waits for the network
while answers lie decrypted in memory: one record of TLS may hold several of them, and a socket whose bytes have been
taken is not readable. The sockets here say that they are readable exactly when there are bytes to be taken.
"""

import contextlib
import selectors
import socket
import ssl
import time
from collections.abc import Iterable, Sequence
from typing import Protocol

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.handlers.utils import selector_select

from waltz.common.net.tls_renewal import files_of, present

_CHUNK_BYTES = 64 << 10
_CONNECT_TIMEOUT_S = 30.0


class HasFileno(Protocol):
    """What can be waited for."""

    def fileno(self) -> int:
        """The descriptor."""
        ...


class TlsSocket:
    """A connected socket with TLS, as far as kazoo uses one. It never blocks."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        self._connection = connection
        self._taken = b""
        self._is_over = False

    def fileno(self) -> int:
        """The descriptor."""
        return self._connection.fileno()

    def setblocking(self, flag: object) -> None:
        """Nothing: kazoo asks for a socket that does not block, and this one never does."""

    def pending(self) -> int:
        """How many bytes can be had without the network."""
        return len(self._taken)

    @property
    def is_readable(self) -> bool:
        """Whether :meth:`recv` has bytes, or the end, without the network."""
        return bool(self._taken) or self._is_over

    def fill(self) -> None:
        """Take what has come. Raises ``OSError``."""
        if self.is_readable:
            return
        try:
            self._taken = self._connection.recv(_CHUNK_BYTES)
            self._is_over = not self._taken
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return  # a part of a record, or a message of TLS itself
        except ssl.SSLEOFError:
            self._is_over = True

    def recv(self, size: int) -> bytes:
        """At most ``size`` bytes; ``b""`` at the end. Raises ``ssl.SSLWantReadError`` when there are none yet."""
        self.fill()
        if not self.is_readable:
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "nothing has come")
        chunk, self._taken = self._taken[:size], self._taken[size:]
        return chunk

    def send(self, data: bytes | memoryview) -> int:
        """Send some of the data; returns how much. Raises ``ssl.SSLWantWriteError`` when nothing can be sent now."""
        return self._connection.send(data)

    def sendall(self, data: bytes) -> None:
        """Not for sessions: kazoo asks plain servers for their mode with it."""
        raise OSError("a connection with TLS is for sessions")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()


class TlsHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """kazoo's threads, with connections by a context of ours. A change of the context's files counts at the next
    connection."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__()
        self._context = context

    def create_connection(
        self,
        address: tuple[str, int],
        hostname: str | None = None,
        timeout: float | None = None,
        **of_kazoo: object,
    ) -> TlsSocket:
        """Connect, and shake hands. ``timeout`` is in seconds, for both; kazoo's own settings of TLS do not count.

        Raises ``OSError``, also for certificates.
        """
        files = files_of(self._context)
        if files is not None:
            files.check()
        deadline_s = time.monotonic() + (_CONNECT_TIMEOUT_S if timeout is None else timeout)
        plain = socket.create_connection(address, max(deadline_s - time.monotonic(), 0.001))
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            plain.setblocking(False)
            connection = present(self._context).wrap_socket(
                plain, server_hostname=hostname or address[0], do_handshake_on_connect=False
            )
        except BaseException:
            plain.close()
            raise
        try:
            _shake_hands(connection, deadline_s)
        except BaseException:
            connection.close()
            raise
        return TlsSocket(connection)

    def select(
        self,
        readers: Sequence[HasFileno],
        writers: Sequence[HasFileno],
        others: Sequence[HasFileno],
        timeout: float | None = None,
    ) -> tuple[list[HasFileno], list[HasFileno], list[HasFileno]]:
        """Wait as ``select.select`` does; connections with TLS are readable when there are bytes to be taken."""
        deadline_s = None if timeout is None else time.monotonic() + timeout
        secured = [each for each in readers if isinstance(each, TlsSocket)]
        _fill(secured)
        while True:
            at_hand = [each for each in secured if each.is_readable]
            if at_hand:
                remaining_s: float | None = 0.0
            else:
                remaining_s = None if deadline_s is None else max(deadline_s - time.monotonic(), 0.0)
            readable, writable, _ = selector_select(readers, writers, others, remaining_s)
            _fill(each for each in readable if isinstance(each, TlsSocket))
            ready = [
                each for each in readers if (each.is_readable if isinstance(each, TlsSocket) else each in readable)
            ]
            is_late = deadline_s is not None and time.monotonic() >= deadline_s
            if ready or writable or is_late:
                return ready, list(writable), []


def _fill(connections: Iterable[TlsSocket]) -> None:
    for connection in connections:
        connection.fill()


def _shake_hands(connection: ssl.SSLSocket, deadline_s: float) -> None:
    """A limit for the whole, not for each of its steps. Raises ``OSError``."""
    with contextlib.closing(selectors.DefaultSelector()) as selector:
        key = selector.register(connection, selectors.EVENT_READ)
        while True:
            try:
                connection.do_handshake()
            except ssl.SSLWantReadError:
                wanted = selectors.EVENT_READ
            except ssl.SSLWantWriteError:
                wanted = selectors.EVENT_WRITE
            else:
                return
            selector.modify(key.fileobj, wanted)
            if not selector.select(max(deadline_s - time.monotonic(), 0.0)) and time.monotonic() >= deadline_s:
                raise TimeoutError("no TLS handshake in time")
