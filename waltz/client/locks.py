"""Optimistic locks of one partition, and their hashes on the wire."""

import struct
from array import array
from collections.abc import Iterable
from functools import lru_cache
from hashlib import blake2b

HASH_BYTES = 4
"""Size of a lock on the wire."""

NO_LOCKS = bytes(4)
"""The empty array of locks on the wire."""

_MASK_32 = 0xFFFF_FFFF
_CACHED_NAMES = 4096
_pack_hash = struct.Struct(">I").pack
_pack_count = struct.Struct(">i").pack
_FEW = 16
_FEW_COUNTS = tuple(map(_pack_count, range(_FEW)))


def lock_id(key: bytes) -> int:
    """The id of a key: its BLAKE2b with a digest of 8 bytes, as a signed big-endian number."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


class PartitionLocalLock:
    """A lock: a name (the kind of object) and a signed 64-bit id (the object). Equal iff both are equal.

    A string as id is replaced by the :func:`lock_id` of its UTF-8, which is the same for ever, in every process.

    Different locks may share a hash; that can only make an append fail needlessly. Raises ``TypeError`` for a name that
    is no string and an id that is neither integer nor string, and ``ValueError`` for an id beyond 64 bits.

    Examples:
        ```python
        alice = waltz.PartitionLocalLock("account", "alice")
        row = waltz.PartitionLocalLock("row", 4711)
        seen = await client.high_water_mark(0)  # having read the log so far
        await client.append(0, b"alice pays", write_locks=[alice], read_locks=[row], high_water_mark=seen)
        ```
    """

    # An application makes a lock for nearly every append. Properties cost only their readers; setting the fields of a
    # frozen dataclass would cost every lock a quarter more.
    __slots__ = ("_id", "_name", "_packed_hash")
    __match_args__ = ("name", "id")

    def __init__(self, name: str, id: int | str) -> None:  # noqa: A002 - the attribute has that name
        if not isinstance(name, str):
            raise TypeError(f"the name of a lock must be a string, not {type(name).__name__}")
        if not isinstance(id, int):
            if not isinstance(id, str):
                raise TypeError(f"the id of a lock must be an integer or a string, not {type(id).__name__}")
            id = lock_id(id.encode("utf-8", "surrogatepass"))  # noqa: A001 - as above
        if not -(1 << 63) <= id < 1 << 63:
            raise ValueError(f"the id of a lock must fit into 64 bits, not {id}")
        self._name = name
        self._id = id
        self._packed_hash = _pack_hash((_name_hash(name) ^ id ^ (id >> 32)) & _MASK_32)

    @property
    def name(self) -> str:
        """The kind of object."""
        return self._name

    @property
    def id(self) -> int:
        """The id of the object."""
        return self._id

    @property
    def hash(self) -> int:
        """The signed 32-bit hash on the wire."""
        return int.from_bytes(self._packed_hash, "big", signed=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PartitionLocalLock):
            return NotImplemented
        return self._id == other._id and self._name == other._name

    def __hash__(self) -> int:
        return hash((self._name, self._id))

    def __repr__(self) -> str:
        return f"PartitionLocalLock(name={self._name!r}, id={self._id!r})"


def lock_array(locks: Iterable[PartitionLocalLock]) -> bytes:
    """``locks`` on the wire: their number, and their hashes; raises ``TypeError`` for other objects."""
    pieces = [NO_LOCKS]
    try:
        for lock in locks:
            pieces.append(lock._packed_hash)  # noqa: PERF401 - quicker than a comprehension, which is a call
    except (TypeError, AttributeError):
        raise TypeError(f"locks must be a list of PartitionLocalLock, not {locks!r}") from None
    count = len(pieces) - 1
    pieces[0] = _FEW_COUNTS[count] if count < _FEW else _pack_count(count)
    return b"".join(pieces)


@lru_cache(maxsize=_CACHED_NAMES)
def _name_hash(name: str) -> int:
    """31-polynomial over the UTF-16 code units, modulo 2^32; applications use few names, so they are remembered."""
    units = array("H", name.encode("utf-16-le", "surrogatepass"))
    if units and _BIG_ENDIAN:
        units.byteswap()
    value = 0
    for unit in units:
        value = (31 * value + unit) & _MASK_32
    return value


_BIG_ENDIAN = array("H", b"\x00\x01")[0] == 1
