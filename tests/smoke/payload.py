"""What the transactions of the workload carry: all that the checker has to know about them."""

import struct
from hashlib import blake2b
from typing import NamedTuple

_HEAD = struct.Struct(">iiiqqBBB")
_DIGEST_SIZE_BYTES = 8


class Payload(NamedTuple):
    """One attempt of one transaction."""

    client: int
    """Number of the journal of its client."""
    number: int
    """Of the transaction among those of its client; also its header."""
    attempt: int
    """From 0; every attempt is a transaction of its own to the log."""
    built_on: int
    """High-water mark of the client: what its locks are checked against."""
    session: int
    """Number of the write session that it is appended in, or -1."""
    write_locks: tuple[int, ...]
    read_locks: tuple[int, ...]
    append_locks: tuple[int, ...]

    def encode(self, filling: bytes) -> bytes:
        """As transaction data, which ends with ``filling``."""
        locks = (*self.write_locks, *self.read_locks, *self.append_locks)
        counts = (len(self.write_locks), len(self.read_locks), len(self.append_locks))
        return (
            _HEAD.pack(self.client, self.number, self.attempt, self.built_on, self.session, *counts)
            + struct.pack(f">{len(locks)}i", *locks)
            + filling
        )

    @classmethod
    def decode(cls, data: bytes) -> "Payload":
        """Inverse of :meth:`encode`. Raises ``struct.error`` for what is no such data."""
        client, number, attempt, built_on, session, writes, reads, appends = _HEAD.unpack_from(data)
        locks = struct.unpack_from(f">{writes + reads + appends}i", data, _HEAD.size)
        return cls(
            client,
            number,
            attempt,
            built_on,
            session,
            locks[:writes],
            locks[writes : writes + reads],
            locks[writes + reads :],
        )


def digest(header: int, data: bytes) -> int:
    """64 bits that stand for a transaction's content."""
    hashed = blake2b(struct.pack(">i", header), digest_size=_DIGEST_SIZE_BYTES)
    hashed.update(data)
    return int.from_bytes(hashed.digest(), "big")
