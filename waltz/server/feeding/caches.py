"""Recent feed frames and transaction data in memory, each below a number of bytes.

Both caches are shared by all partitions of a server and hold only committed transactions, so their entries cannot
become wrong; the entries of a partition are dropped when it leaves.
"""

import struct
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict, deque

from waltz.common.records import RECORD_HEADER, RECORD_OVERHEAD_BYTES, Record, decode_record
from waltz.server.feeding.feed_frames import FEED_FRAME_SIZE_BYTES

_DATA_SIZE = struct.Struct(">i")

FEED_BLOCK_COUNT = 1024
"""Transactions per block of the feed cache; blocks start at multiples of it."""

_BLOCK_OVERHEAD_BYTES = 300
_CHUNK_OVERHEAD_BYTES = 200
_MAX_GONE = 64
_LARGEST_ITEM_SHARE = 4  # a larger item would displace too many others


class _FeedBlock:
    """A contiguous part of one block's frames, beginning with transaction ``start``."""

    __slots__ = ("end", "frames", "start")

    def __init__(self, start: int, frames: bytes) -> None:
        self.start = start
        self.frames = bytearray(frames)
        self.end = start + len(frames) // FEED_FRAME_SIZE_BYTES
        """One more than the last transaction id."""

    def add(self, first: int, frames: bytes) -> None:
        """Join ``frames``; if they are not adjacent to the block, the longer part or the newer one stays."""
        behind = first + len(frames) // FEED_FRAME_SIZE_BYTES
        if self.start <= first <= self.end:
            if behind > self.end:
                self.frames += frames[(self.end - first) * FEED_FRAME_SIZE_BYTES :]
        elif first < self.start <= behind:
            self.frames[:0] = frames[: (self.start - first) * FEED_FRAME_SIZE_BYTES]
            self.start = first
        elif first > self.end or len(frames) > len(self.frames):
            self.start = first
            self.frames = bytearray(frames)
        self.end = self.start + len(self.frames) // FEED_FRAME_SIZE_BYTES

    def slice(self, first: int, max_count: int) -> bytes:
        """At most ``max_count`` frames from transaction ``first`` on; empty if it is not in the block."""
        if first < self.start:
            return b""
        offset = (first - self.start) * FEED_FRAME_SIZE_BYTES
        return bytes(memoryview(self.frames)[offset : offset + max_count * FEED_FRAME_SIZE_BYTES])


class FeedCache:
    """Feed frames of all partitions, in aligned blocks; the least recently used block goes first.

    The newest block always stays, whatever the limit.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._blocks: OrderedDict[tuple[int, int], _FeedBlock] = OrderedDict()
        self._numbers: dict[int, set[int]] = {}  # of each partition's blocks
        self.size_bytes = 0

    def add(self, partition_id: int, first: int, frames: bytes) -> None:
        """Keep the frames of ``first`` and its successors, made by :mod:`~waltz.server.feeding.feed_frames`."""
        position, behind = first, first + len(frames) // FEED_FRAME_SIZE_BYTES
        key = partition_id, first // FEED_BLOCK_COUNT
        block = self._blocks.get(key)
        if block is not None and block.end == first and behind <= (key[1] + 1) * FEED_BLOCK_COUNT:
            # New commits follow former ones.
            block.frames += frames
            block.end = position = behind
            self.size_bytes += len(frames)
            self._blocks.move_to_end(key)
        while position < behind:
            number = position // FEED_BLOCK_COUNT
            block_end = min((number + 1) * FEED_BLOCK_COUNT, behind)
            part = frames[(position - first) * FEED_FRAME_SIZE_BYTES : (block_end - first) * FEED_FRAME_SIZE_BYTES]
            self._add_to_block((partition_id, number), position, part)
            position = block_end
        while self.size_bytes > self._limit_bytes and len(self._blocks) > 1:
            (oldest_id, number), block = self._blocks.popitem(last=False)
            self._numbers[oldest_id].remove(number)
            self.size_bytes -= len(block.frames) + _BLOCK_OVERHEAD_BYTES

    def get(self, partition_id: int, first: int, max_count: int) -> bytes:
        """At most ``max_count`` frames from ``first`` on, at most to the end of its block; empty if they are not
        cached."""
        key = (partition_id, first // FEED_BLOCK_COUNT)
        block = self._blocks.get(key)
        if block is None:
            return b""
        self._blocks.move_to_end(key)
        return block.slice(first, max_count)

    def forget(self, partition_id: int) -> None:
        """Drop everything of a partition."""
        for number in self._numbers.pop(partition_id, ()):
            self.size_bytes -= len(self._blocks.pop((partition_id, number)).frames) + _BLOCK_OVERHEAD_BYTES

    def _add_to_block(self, key: tuple[int, int], first: int, frames: bytes) -> None:
        block = self._blocks.get(key)
        if block is None:
            self._blocks[key] = _FeedBlock(first, frames)
            self._numbers.setdefault(key[0], set()).add(key[1])
            self.size_bytes += len(frames) + _BLOCK_OVERHEAD_BYTES
            return
        before = len(block.frames)
        block.add(first, frames)
        self.size_bytes += len(block.frames) - before
        self._blocks.move_to_end(key)


class _Chunk:
    """Encoded records of consecutive transactions, in one piece."""

    __slots__ = ("_offsets", "count", "first_id", "partition_id", "records")

    def __init__(self, partition_id: int, first_id: int, count: int, records: bytes) -> None:
        self.partition_id = partition_id
        self.first_id = first_id
        self.count = count
        self.records = records
        self._offsets: array[int] | None = None

    @property
    def size_bytes(self) -> int:
        return len(self.records) + _CHUNK_OVERHEAD_BYTES

    def offsets(self) -> "array[int]":
        """The offset of each record, and the end of the last one; computed at the first use."""
        if self._offsets is None:
            self._offsets = array("Q", record_offsets(self.records, self.count))
        return self._offsets

    def record(self, transaction_id: int) -> Record:
        """The record of one transaction of the chunk."""
        offset = self.offsets()[transaction_id - self.first_id]
        return decode_record(self.records, offset, len(self.records))[0]

    def slice(self, first_id: int, max_count: int, max_bytes: int) -> tuple[int, bytes]:
        """The records from ``first_id`` on within both limits, perhaps none, and their number."""
        if first_id == self.first_id and self.count <= max_count and len(self.records) <= max_bytes:
            return self.count, self.records
        offsets = self.offsets()
        start = first_id - self.first_id
        end = min(start + max_count, self.count)
        end = max(start, bisect_right(offsets, offsets[start] + max_bytes, start, end + 1) - 1)
        return end - start, self.records[offsets[start] : offsets[end]]


def record_offsets(records: bytes, count: int) -> list[int]:
    """The offsets of ``count`` encoded records, and the end of the last one."""
    offsets = [0]
    position = 0
    for _ in range(count):
        (size,) = _DATA_SIZE.unpack_from(records, position + RECORD_HEADER.size)
        position += size + RECORD_OVERHEAD_BYTES
        offsets.append(position)
    return offsets


class Chunks:
    """The chunks of one partition in order of their first ids. Chunks at the front may be removed already."""

    __slots__ = ("_chunks", "_first_ids", "_head")

    def __init__(self) -> None:
        self._first_ids: list[int] = []
        self._chunks: list[_Chunk] = []
        self._head = 0

    def __len__(self) -> int:
        """Places in use, also by removed chunks."""
        return len(self._chunks)

    def add(self, chunk: _Chunk) -> bool:
        """Put a chunk in its place; false if there is already one with this first id."""
        first_ids = self._first_ids
        if not first_ids or first_ids[-1] < chunk.first_id:
            first_ids.append(chunk.first_id)
            self._chunks.append(chunk)
            return True
        position = bisect_right(first_ids, chunk.first_id, self._head)
        if position > self._head and first_ids[position - 1] == chunk.first_id:
            return False
        first_ids.insert(position, chunk.first_id)
        self._chunks.insert(position, chunk)
        return True

    def find(self, transaction_id: int) -> _Chunk | None:
        """The chunk that holds the transaction, if there is one."""
        position = bisect_right(self._first_ids, transaction_id, self._head) - 1
        if position < self._head:
            return None
        chunk = self._chunks[position]
        return chunk if transaction_id < chunk.first_id + chunk.count else None

    def remove(self, chunk: _Chunk) -> None:
        """Remove a chunk, if it is present. The removal of the first one is fast for any number of chunks."""
        position = bisect_left(self._first_ids, chunk.first_id, self._head)
        if position == len(self._chunks) or self._chunks[position] is not chunk:
            return
        if position > self._head:
            del self._first_ids[position], self._chunks[position]
            return
        self._chunks[position] = _GONE
        self._head += 1
        if self._head > _MAX_GONE and self._head > len(self._chunks) // 2:
            del self._first_ids[: self._head], self._chunks[: self._head]
            self._head = 0


_GONE = _Chunk(-1, -1, 0, b"")


class TransactionCache:
    """Transactions of all partitions with their data, encoded as in the storage protocol; first in, first out.

    A committed batch is one piece, which costs the same for any content. Pieces larger than a quarter of the cache are
    split, and a transaction larger than that is not kept. A forgotten piece cannot be found any more, but leaves, and
    counts, in its turn: the cache may hold hundreds of thousands of pieces, and a pass over them would block the loop.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self.chunks: dict[int, Chunks] = {}
        self._in_order: deque[_Chunk] = deque()
        self.size_bytes = 0
        """Memory of the cache, including dropped chunks that are not freed yet."""

    def add(self, partition_id: int, first_id: int, count: int, records: bytes) -> None:
        """Keep the records of transaction ``first_id`` and its successors. Present records stay unchanged."""
        size_bytes = len(records) + _CHUNK_OVERHEAD_BYTES
        if size_bytes <= self._limit_bytes // _LARGEST_ITEM_SHARE:
            chunks = self.chunks.get(partition_id)
            if chunks is None:
                chunks = self.chunks[partition_id] = Chunks()
            chunk = _Chunk(partition_id, first_id, count, records)
            if chunks.add(chunk):
                self._in_order.append(chunk)
                self.size_bytes += size_bytes
                if self.size_bytes > self._limit_bytes:
                    self._shrink()
        elif count > 1:
            offsets = record_offsets(records, count)
            for index in range(count):
                self.add(partition_id, first_id + index, 1, records[offsets[index] : offsets[index + 1]])

    def get(self, partition_id: int, transaction_id: int) -> Record | None:
        """One transaction, or None if it is not cached."""
        chunks = self.chunks.get(partition_id)
        chunk = None if chunks is None else chunks.find(transaction_id)
        return None if chunk is None else chunk.record(transaction_id)

    def slice(self, partition_id: int, first_id: int, max_count: int, max_bytes: int) -> tuple[int, list[bytes]]:
        """Consecutive cached records from ``first_id`` on, within both limits.

        The first one is delivered even if it is larger than ``max_bytes``. Returns their number and the pieces.
        """
        chunks = self.chunks.get(partition_id)
        count = 0
        pieces: list[bytes] = []
        while chunks is not None and count < max_count:
            chunk = chunks.find(first_id + count)
            if chunk is None:
                break
            found, piece = chunk.slice(first_id + count, max_count - count, max_bytes)
            if not found and not count:
                found, piece = chunk.slice(first_id, 1, len(chunk.records))
            if not found:
                break
            count += found
            max_bytes -= len(piece)
            pieces.append(piece)
        return count, pieces

    def forget(self, partition_id: int) -> None:
        """Forget all present entries of a partition."""
        self.chunks.pop(partition_id, None)

    def _shrink(self) -> None:
        while self.size_bytes > self._limit_bytes:
            oldest = self._in_order.popleft()
            self.size_bytes -= oldest.size_bytes
            chunks = self.chunks.get(oldest.partition_id)
            if chunks is not None:  # otherwise the partition was forgotten
                chunks.remove(oldest)
