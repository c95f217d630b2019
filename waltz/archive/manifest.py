"""The manifest of a partition: which objects count, as a chain of entries that are created once. Pure.

An entry is a small object named by the first transaction id of the range that it adds. It is only ever created, never
changed or deleted, so the store itself decides between two archivers, and the ranges have neither gaps nor overlaps:
the next entry has the name of the id behind the last range. What has no entry does not count.

So that a reader does not have to open all entries, an entry repeats those before it on its page, and names the entry
that ends the page before.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from waltz.archive.documents import decode_document, encode_document
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.object_format import HEADER_BYTES, TAIL_BYTES, ObjectName

PAGE_RANGES = 256
"""Ranges of a full page."""

MANIFEST_FOLDER = "manifest"

_HEAD = b"waltz-archive 1 "
"""Ends with the version of the form."""


class ArchivedRange(NamedTuple):
    """An object that counts."""

    name: ObjectName
    size_bytes: int
    index_bytes: int
    """Bytes of the last part of the object, which has the index."""
    first_time_ms: int | None
    """The first transaction was committed by this time, in milliseconds since the epoch; ``None``: unknown."""
    last_time_ms: int | None
    """Likewise the last one."""

    @property
    def first(self) -> int:
        """Its first transaction."""
        return self.name.first

    @property
    def end(self) -> int:
        """The transaction behind its last one."""
        return self.name.last + 1


class Page(NamedTuple):
    """What an entry of the manifest holds."""

    cluster_key: UUID
    partition_id: int
    previous: int | None
    """Name of the entry that ends the page before; ``None`` on the first page."""
    ranges: tuple[ArchivedRange, ...]
    """Consecutive, the last of them added by this entry."""

    @property
    def end(self) -> int:
        """The first transaction that is not archived."""
        return self.ranges[-1].end if self.ranges else 0


def empty_page(cluster_key: UUID, partition_id: int) -> Page:
    """What precedes the first entry."""
    return Page(cluster_key, partition_id, None, ())


def with_range(page: Page, added: ArchivedRange) -> Page:
    """The entry that adds a range behind all others."""
    assert added.first == page.end, f"range {added.name} does not follow {page.end - 1}"
    if len(page.ranges) < PAGE_RANGES:
        return page._replace(ranges=(*page.ranges, added))
    return page._replace(previous=page.ranges[-1].first, ranges=(added,))


def entry_name(first: int) -> str:
    """The name of an entry within its folder."""
    return f"{first:019d}"


def encode_page(page: Page) -> bytes:
    """The bytes of an entry: a line with the checksum, and a line of JSON."""
    document = {
        "cluster": str(page.cluster_key),
        "partition": page.partition_id,
        "previous": page.previous,
        "ranges": [
            [*each.name, each.size_bytes, each.index_bytes, each.first_time_ms, each.last_time_ms]
            for each in page.ranges
        ],
    }
    return encode_document(_HEAD, document)


def decode_page(data: bytes, cluster_key: UUID, partition_id: int, first: int, name: str) -> Page:
    """The entry whose range begins at ``first``; ``name`` begins the text. Raises ``ArchiveDamagedError``."""
    document = decode_document(_HEAD, data, "entry of a manifest", name)
    ranges = tuple(ArchivedRange(ObjectName(begin, last, crc), *rest) for begin, last, crc, *rest in document["ranges"])
    page = Page(UUID(document["cluster"]), document["partition"], document["previous"], ranges)
    if (page.cluster_key, page.partition_id) != (cluster_key, partition_id):
        raise ArchiveDamagedError(
            f"{name} is of partition {page.partition_id} of cluster {page.cluster_key}: it was copied to a wrong place"
        )
    if not ranges or ranges[-1].first != first:
        raise ArchiveDamagedError(f"{name} is damaged: the range it adds does not begin at {first}")
    check_consecutive(ranges, ranges[0].first, name)
    return page


def check_consecutive(ranges: Sequence[ArchivedRange], start: int, name: str) -> None:
    """Raise ``ArchiveDamagedError`` unless the ranges follow one another from ``start`` on."""
    for each in ranges:
        if each.first != start or each.end <= start or each.size_bytes < HEADER_BYTES + TAIL_BYTES:
            raise ArchiveDamagedError(f"{name} is damaged: range {each.name} stands where {start} should begin")
        start = each.end


def covering(ranges: Sequence[ArchivedRange], start: int, end: int) -> list[ArchivedRange]:
    """The ranges with transactions ``start`` to ``end - 1``."""
    return [each for each in ranges if each.first < end and start < each.end]
