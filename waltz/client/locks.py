"""Optimistic locks of one partition, and the hash that stands for a lock on the wire."""

from array import array
from dataclasses import dataclass, field
from functools import lru_cache

_MASK_32 = 0xFFFF_FFFF
_SIGN = 0x8000_0000
_CACHED_NAMES = 4096


@dataclass(frozen=True, slots=True, init=False)
class PartitionLocalLock:
    """A lock: a name (a kind of thing) and a signed 64-bit id (which one). Equal iff both are equal.

    Different locks may share a hash; that can only make an append fail without need. Raises ``TypeError`` for a name
    that is no string and an id that is no integer, and ``ValueError`` for an id beyond 64 bits.
    """

    name: str
    id: int
    hash: int = field(init=False, repr=False, compare=False)
    """The signed 32-bit hash that travels."""

    def __init__(self, name: str, id: int) -> None:  # noqa: A002 - the field has that name
        if not isinstance(name, str):
            raise TypeError(f"the name of a lock must be a string, not {type(name).__name__}")
        if not isinstance(id, int):
            raise TypeError(f"the id of a lock must be an integer, not {type(id).__name__}")
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
