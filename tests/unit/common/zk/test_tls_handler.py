"""TLS for kazoo, against servers that send what they like, in pieces that they choose."""

import contextlib
import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.unit.common.net.certificates import Authority, write_pem
from waltz.common.config.schemas import TlsConfig
from waltz.common.net.tls import client_context, server_context
from waltz.common.zk.tls_handler import TlsHandler, TlsSocket

TIMEOUT_S = 60.0

Serve = Callable[[ssl.SSLSocket], None]


class Stores:
    """Stores of a client and of a server, of one authority."""

    def __init__(self, directory: Path, name: str = "localhost") -> None:
        self.directory = directory
        self.authority = Authority("authority")
        self.trust = write_pem(directory / "trust.pem", None, [self.authority.certificate])
        self.server = TlsConfig(key_store_location=self.key("server", name), trust_store_location=self.trust)
        self.client = TlsConfig(key_store_location=self.key("client", "client"), trust_store_location=self.trust)

    def key(self, file: str, name: str) -> str:
        return write_pem(self.directory / f"{file}.pem", self.authority.issue(name), [])


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


@contextlib.contextmanager
def serving(config: TlsConfig, serve: Serve) -> Iterator[int]:
    """Serve one connection; yields the port."""
    context = server_context(config)
    assert context is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            plain, _ = listening.accept()
            plain.settimeout(TIMEOUT_S)
            with contextlib.suppress(OSError), context.wrap_socket(plain, server_side=True) as connection:
                serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            thread.join(TIMEOUT_S)


def handler_of(config: TlsConfig) -> TlsHandler:
    context = client_context(config)
    assert context is not None
    return TlsHandler(context)


def connected(handler: TlsHandler, port: int) -> contextlib.closing[TlsSocket]:
    return contextlib.closing(handler.create_connection(("127.0.0.1", port), "localhost"))


def wait_closed(connection: ssl.SSLSocket) -> None:
    while connection.recv(1024):
        pass


def received(handler: TlsHandler, connection: TlsSocket, size: int) -> bytes:
    """As kazoo reads: wait, take some; what is at hand without waiting for the network."""
    found = b""
    while len(found) < size:
        assert handler.select([connection], [], [], TIMEOUT_S)[0] == [connection]
        chunk = connection.recv(size - len(found))
        assert chunk
        found += chunk
    return found


def test_answers_in_one_record_do_not_wait(stores: Stores) -> None:
    def serve(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"first second third ")  # one record
        wait_closed(connection)

    handler = handler_of(stores.client)
    with serving(stores.server, serve) as port, connected(handler, port) as connection:
        assert received(handler, connection, 6) == b"first "
        assert connection.pending() == len(b"second third ")
        assert handler.select([connection], [], [], TIMEOUT_S)[0] == [connection]  # nothing comes any more
        assert received(handler, connection, 13) == b"second third "
        assert handler.select([connection], [], [], 0.0)[0] == []


def test_more_than_a_record_and_than_a_look(stores: Stores) -> None:
    data = os.urandom(1 << 20)

    def serve(connection: ssl.SSLSocket) -> None:
        connection.sendall(data)
        wait_closed(connection)

    handler = handler_of(stores.client)
    with serving(stores.server, serve) as port, connected(handler, port) as connection:
        assert received(handler, connection, len(data)) == data


def test_a_part_of_a_record_is_nothing_to_read(stores: Stores) -> None:
    """kazoo would wait for the rest of an answer, and send no heartbeat meanwhile."""
    handler = handler_of(stores.client)
    go_on = threading.Event()
    context = server_context(stores.server)
    assert context is not None
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def run() -> None:
            plain, _ = listening.accept()
            incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
            engine = context.wrap_bio(incoming, outgoing, server_side=True)
            with plain:
                while True:
                    try:
                        engine.do_handshake()
                        break
                    except ssl.SSLWantReadError:
                        plain.sendall(outgoing.read())
                        incoming.write(plain.recv(1 << 16))
                plain.sendall(outgoing.read())
                engine.write(b"answer")
                record = outgoing.read()
                plain.sendall(record[:-1])
                go_on.wait(TIMEOUT_S)
                plain.sendall(record[-1:])

        thread = threading.Thread(target=run)
        thread.start()
        with contextlib.closing(handler.create_connection(listening.getsockname(), "localhost")) as connection:
            assert handler.select([connection], [], [], 0.2)[0] == []
            with pytest.raises(ssl.SSLWantReadError):
                connection.recv(6)
            go_on.set()
            assert received(handler, connection, 6) == b"answer"
        thread.join(TIMEOUT_S)


def test_other_sockets_are_waited_for_as_ever(stores: Stores) -> None:
    """kazoo waits for its own wake-up beside the connection."""

    def serve(connection: ssl.SSLSocket) -> None:
        connection.sendall(connection.recv(1024))
        wait_closed(connection)

    handler = handler_of(stores.client)
    with serving(stores.server, serve) as port, connected(handler, port) as connection:
        waker, sleeper = handler.create_socket_pair()
        with waker, sleeper:
            assert handler.select([connection, sleeper], [], [], 0.0)[0] == []
            waker.send(b"!")
            assert handler.select([connection, sleeper], [], [], TIMEOUT_S)[0] == [sleeper]
            assert handler.select([], [connection], [], TIMEOUT_S)[1] == [connection]
            assert connection.send(b"echo") == 4
            while connection not in (ready := handler.select([connection, sleeper], [], [], TIMEOUT_S)[0]):
                assert ready == [sleeper]
            assert connection.recv(4) == b"echo"


def test_the_end_is_readable(stores: Stores) -> None:
    handler = handler_of(stores.client)

    def serve(connection: ssl.SSLSocket) -> None:
        connection.sendall(b"bye")

    with serving(stores.server, serve) as port, connected(handler, port) as connection:
        assert received(handler, connection, 3) == b"bye"
        for _ in range(3):
            assert handler.select([connection], [], [], TIMEOUT_S)[0] == [connection]
            assert connection.recv(10) == b""


def test_another_host_name_is_refused(tmp_path: Path) -> None:
    stores = Stores(tmp_path, "another.example")
    with serving(stores.server, wait_closed) as port, pytest.raises(ssl.SSLCertVerificationError, match="localhost"):
        handler_of(stores.client).create_connection(("127.0.0.1", port), "localhost")
    unchecked = stores.client.model_copy(update={"check_hostname": False})
    with serving(stores.server, wait_closed) as port:
        handler_of(unchecked).create_connection(("127.0.0.1", port), "localhost").close()


def test_another_authority_is_refused(stores: Stores, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    strange = Stores(tmp_path / "other")
    with serving(strange.server, wait_closed) as port, pytest.raises(ssl.SSLCertVerificationError):
        handler_of(stores.client).create_connection(("127.0.0.1", port), "localhost")


def test_a_client_without_a_certificate_is_refused(stores: Stores) -> None:
    handler = handler_of(TlsConfig(trust_store_location=stores.trust))
    with (
        serving(stores.server, wait_closed) as port,
        pytest.raises(OSError, match="CERTIFICATE_REQUIRED"),
        connected(handler, port) as connection,
    ):
        received(handler, connection, 1)  # with TLS 1.3 the client hears of it later


def test_a_silent_server_is_given_up(stores: Stores) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening, pytest.raises(TimeoutError):
        handler_of(stores.client).create_connection(listening.getsockname(), "localhost", timeout=0.2)


def test_certificates_are_read_again_for_each_connection(stores: Stores) -> None:
    names: list[object] = []

    def serve(connection: ssl.SSLSocket) -> None:
        certificate = connection.getpeercert()
        assert certificate is not None
        names.append(certificate["subject"])
        wait_closed(connection)

    handler = handler_of(stores.client)
    for name in ("client", "renewed"):
        Path(stores.key("next", name)).replace(stores.directory / "client.pem")
        with serving(stores.server, serve) as port:
            handler.create_connection(("127.0.0.1", port), "localhost").close()
    assert [str(name).count("renewed") for name in names] == [0, 1]


def test_hardly_anything_but_sessions(stores: Stores) -> None:
    with serving(stores.server, wait_closed) as port, connected(handler_of(stores.client), port) as connection:
        connection.setblocking(0)
        assert connection.fileno() >= 0
        with pytest.raises(OSError, match="is for sessions"):
            connection.sendall(b"isro")
