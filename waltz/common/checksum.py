"""The one checksum of the protocols and files: CRC-32 as zlib computes it, carried as a signed 32-bit integer.

``crc32`` is that of zlib-ng where it is installed: the same numbers, by the processor's own instructions.
"""

try:
    from zlib_ng.zlib_ng import crc32
except ImportError:  # PyPy has none
    from zlib import crc32

__all__ = ["checksum", "crc32"]


def checksum(data: bytes | bytearray | memoryview) -> int:
    """CRC-32 (IEEE 802.3) of ``data`` as the signed integer of the wire format."""
    value = crc32(data)
    return value - 0x1_0000_0000 if value & 0x8000_0000 else value
