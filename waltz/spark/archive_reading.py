"""Reading archived transactions: blocks of objects, which have the form in which storages answer bulk reads."""

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple
from uuid import UUID

from waltz.archive.chain import Place
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.manifest import ArchivedRange
from waltz.archive.object_format import Block, check_block, decode_index
from waltz.archive.store import open_store
from waltz.common.errors import ProtocolError
from waltz.spark.chunk import Chunk, decode_range
from waltz.spark.offsets import OffsetRange
from waltz.storage.remote.errors import DataCorruptionError

FETCH_BYTES = 8 << 20
"""Blocks are fetched together up to this size; while they are worked on, the next ones come."""


class ArchiveSplit(NamedTuple):
    """The work of one task that reads archived transactions."""

    range: OffsetRange
    url: str
    cluster_key: UUID
    objects: tuple[ArchivedRange, ...]
    """Those that cover the range."""


class _Fetch(NamedTuple):
    """Consecutive blocks of an object."""

    path: str
    blocks: tuple[Block, ...]


def archived_chunks(split: ArchiveSplit) -> Iterator[Chunk]:
    """The records of one split, in order and without gaps.

    Raises ``ArchiveDamagedError`` rather than leaving anything out, and ``StoreUnavailableError``.
    """
    place = Place(open_store(split.url), split.cluster_key, split.range.partition_id)
    _, start, end = split.range

    def get(path: str, begin: int, behind: int) -> bytes:
        return asyncio.run(place.store.get_range(path, begin, behind))

    def fetch(wanted: _Fetch) -> bytes:
        last = wanted.blocks[-1]
        return get(wanted.path, wanted.blocks[0].offset, last.offset + last.size_bytes)

    def fetches() -> Iterator[_Fetch]:
        for each in split.objects:
            path = place.object_path(each)
            ending = get(path, each.size_bytes - each.index_bytes, each.size_bytes)
            index = decode_index(ending, each.size_bytes, path)
            _check_range(index.first, index.last, each, path)
            yield from _together(path, index.covering(max(start, each.first), min(end, each.end)))

    with ThreadPoolExecutor(1) as pool:
        ahead: tuple[_Fetch, Future[bytes]] | None = None
        for wanted in fetches():
            asked = (wanted, pool.submit(fetch, wanted))
            if ahead is not None:
                yield from _chunks(split, ahead[0], ahead[1].result())
            ahead = asked
        if ahead is not None:
            yield from _chunks(split, ahead[0], ahead[1].result())


def _check_range(first: int, last: int, each: ArchivedRange, path: str) -> None:
    if (first, last + 1) != (each.first, each.end):
        raise ArchiveDamagedError(f"{path} is damaged: it holds transactions {first} to {last} by its index")


def _together(path: str, blocks: Sequence[Block]) -> Iterator[_Fetch]:
    some: list[Block] = []
    size = 0
    for block in blocks:
        if some and size + block.size_bytes > FETCH_BYTES:
            yield _Fetch(path, tuple(some))
            some, size = [], 0
        some.append(block)
        size += block.size_bytes
    if some:
        yield _Fetch(path, tuple(some))


def _chunks(split: ArchiveSplit, fetched: _Fetch, data: bytes) -> Iterator[Chunk]:
    """The records of blocks, without those before and behind the split."""
    partition_id, start, end = split.range
    base = fetched.blocks[0].offset
    for block in fetched.blocks:
        part = data[block.offset - base : block.offset - base + block.size_bytes]
        check_block(part, block, fetched.path)
        try:
            chunk = decode_range(part, 0, len(part), partition_id=partition_id, source=fetched.path)
        except (ProtocolError, DataCorruptionError) as error:
            raise ArchiveDamagedError(str(error)) from error
        if chunk is None or (chunk.first, chunk.count) != (block.first, block.record_count):
            raise ArchiveDamagedError(f"{fetched.path} is damaged: the block from transaction {block.first} has others")
        yield chunk.part(max(start - block.first, 0), min(end - block.first, block.record_count))
