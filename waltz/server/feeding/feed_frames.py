"""Encoded feed data in the form of the caches and of the wire.

Every FeedData frame has the same size, so a run of frames with consecutive transaction ids is cut by multiplication,
and its conversion to another version of the protocol is one strided assignment: for this message the versions differ
only in the version field of the frame. Committed transactions are encoded once, in the newest version.
"""

from waltz.common.wire.client_server import encode_feed_data
from waltz.common.wire.frames import CLIENT_SERVER

FEED_VERSION = max(CLIENT_SERVER.versions)
"""The version of cached feed frames."""

FEED_FRAME_SIZE_BYTES = len(encode_feed_data(FEED_VERSION, [(bytes(16), 0, 0)]))

_VERSION_OFFSET = 1  # two bytes after the magic byte


def with_version(frames: bytes, version: int) -> bytes:
    """``frames``, which are in :data:`FEED_VERSION`, in another version."""
    if version == FEED_VERSION:
        return frames
    count = len(frames) // FEED_FRAME_SIZE_BYTES
    high, low = version.to_bytes(2, "big")
    changed = bytearray(frames)
    changed[_VERSION_OFFSET::FEED_FRAME_SIZE_BYTES] = bytes([high]) * count
    changed[_VERSION_OFFSET + 1 :: FEED_FRAME_SIZE_BYTES] = bytes([low]) * count
    return bytes(changed)
