"""Identities that travel between processes."""

import struct
from typing import NamedTuple, Self

_FOUR_INTS = struct.Struct(">iiii")

NO_TRANSACTION = -1
"""The transaction id that means "none": the high-water mark of an empty log."""

UNKNOWN_END = (1 << 63) - 1
"""The end of a range of transactions of which only the beginning is known."""

LONG_MIN = -(1 << 63)
"""The smallest 64-bit integer; "unresolved" in replica states, "not known yet" in high-water marks."""

SEQ_NUM_MASK = (1 << 31) - 1
"""Greatest sequence number of requests; the next one is 0."""

GENERATION_PART = slice(4, 8)
"""The generation in the bytes of a request id."""

PARTITION_PART = slice(8, 12)
"""The partition in the bytes of a request id."""

RUN_PART = slice(GENERATION_PART.start, PARTITION_PART.stop)
"""Generation and partition: the common part of requests that are handled together."""


class ReqId(bytes):
    """A request id: the 16 bytes of the wire format (client id, generation, partition id, sequence number).

    Equality and hash are those of the bytes, so the raw slice of a message can stand for it on hot paths.

    Examples:
        ```python
        transaction_id = await client.append(0, b"mine")
        async for transaction in client.feed(0, after=transaction_id - 1, until=transaction_id):
            print(waltz.ReqId(transaction.req_id).client_id == client.client_id)
        ```
    """

    __slots__ = ()

    SIZE_BYTES = 16

    @classmethod
    def of(cls, client_id: int, generation: int, partition_id: int, seq_num: int) -> Self:
        """Build a request id from its four signed 32-bit parts."""
        return cls(_FOUR_INTS.pack(client_id, generation, partition_id, seq_num))

    @property
    def client_id(self) -> int:
        """Id of the client instance; -1 for tools."""
        return int.from_bytes(self[0:4], "big", signed=True)

    @property
    def generation(self) -> int:
        """Generation of the partition that the client knew."""
        return int.from_bytes(self[GENERATION_PART], "big", signed=True)

    @property
    def partition_id(self) -> int:
        """The partition of the request."""
        return int.from_bytes(self[PARTITION_PART], "big", signed=True)

    @property
    def seq_num(self) -> int:
        """Number of the request within its client and partition."""
        return int.from_bytes(self[12:16], "big", signed=True)

    def __str__(self) -> str:
        client_id, generation, partition_id, seq_num = _FOUR_INTS.unpack(self)
        return f"ReqId(c:{client_id},g:{generation},p:{partition_id},s:{seq_num})"

    __repr__ = __str__


class Endpoint(NamedTuple):
    """A host name and port; compared by exact spelling, as everywhere in a cluster.

    Examples:
        ```python
        server = waltz.Endpoint("server-1.example.com", 42010)
        print(server.host, server.port, server)
        ```
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Parse ``host:port``; raises ``ValueError`` with the text when it is not of that form."""
        host, separator, port = text.rpartition(":")
        if not separator or not host or ":" in host or not (port.isascii() and port.isdigit()) or int(port) > 65535:
            raise ValueError(f"not of the form host:port: {text!r}")
        return cls(host, int(port))

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"
