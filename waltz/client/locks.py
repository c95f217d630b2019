"""Optimistic locks of one partition, and the hash that stands for a lock on the wire."""

from array import array
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import blake2b

_MASK_32 = 0xFFFF_FFFF
_SIGN = 0x8000_0000
_CACHED_NAMES = 4096


def lock_id(key: bytes) -> int:
    """The id that stands for a key: its BLAKE2b with a digest of 8 bytes, as a signed big-endian number."""
    return int.from_bytes(blake2b(key, digest_size=8).digest(), "big", signed=True)


@dataclass(frozen=True, slots=True, init=False)
class PartitionLocalLock:
    """A lock: a name (a kind of thing) and a signed 64-bit id (which one). Equal iff both are equal.

    A string as id stands for the :func:`lock_id` of its UTF-8, which is the same for ever, in every process.

    Different locks may share a hash; that can only make an append fail without need. Raises ``TypeError`` for a name
    that is no string and an id that is neither integer nor string, and ``ValueError`` for an id beyond 64 bits.

    Examples:
        ```python
        alice = waltz.PartitionLocalLock("account", "alice")
        row = waltz.PartitionLocalLock("row", 4711)
        await client.append(0, b"alice pays for 4711", write_locks=[alice], read_locks=[row])
        ```
    """

    name: str
    id: int
    hash: int = field(init=False, repr=False, compare=False)
    """The signed 32-bit hash that travels."""

    def __init__(self, name: str, id: int | str) -> None:  # noqa: A002 - the field has that name
        if not isinstance(name, str):
            raise TypeError(f"the name of a lock must be a string, not {type(name).__name__}")
        if not isinstance(id, int):
            if not isinstance(id, str):
                raise TypeError(f"the id of a lock must be an integer or a string, not {type(id).__name__}")
            id = lock_id(id.encode("utf-8", "surrogatepass"))  # noqa: A001 - as above
        if not -(1 << 63) <= id < 1 << 63:
            raise ValueError(f"the id of a lock must fit into 64 bits, not {id}")
        _set_name(self, name)
        _set_id(self, id)
        _set_hash(self, ((_name_hash(name) ^ id ^ (id >> 32)) & _MASK_32 ^ _SIGN) - _SIGN)


# What the fields are set by once: an application makes a lock for nearly every append, and this takes half of the time
# of the constructor that a frozen dataclass has by itself.
_set_name = PartitionLocalLock.__dict__["name"].__set__
_set_id = PartitionLocalLock.__dict__["id"].__set__
_set_hash = PartitionLocalLock.__dict__["hash"].__set__


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
