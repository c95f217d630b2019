"""Encoded feed data, as it lies in the caches and goes to clients.

Every FeedData frame has the same size, so a run of frames with consecutive transaction ids is cut by multiplication,
and turning it into another version of the protocol is one strided assignment: the versions differ, for this message,
in the version field of the frame only. What is committed is encoded once, in the newest version.
"""

from waltz.common.wire.client_server import encode_feed_data
from waltz.common.wire.frames import CLIENT_SERVER

FEED_VERSION = max(CLIENT_SERVER.versions)
"""The version that feed frames are kept in."""

FEED_FRAME_SIZE_BYTES = len(encode_feed_data(FEED_VERSION, [(bytes(16), 0, 0)]))

_VERSION_OFFSET = 1  # behind the magic byte, two bytes


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
