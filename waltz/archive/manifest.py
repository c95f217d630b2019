"""The manifest of a partition: the list of the objects that count, as a chain of entries. Pure functions.

An entry is a small object. Its name is the first transaction id of the range that the entry adds. Entries are created
once, and never changed or deleted: so the store itself decides between two archivers. The name of the next entry is
the id behind the last range: so ranges have neither gaps nor overlaps. An object without an entry does not count.

An entry repeats the ranges of earlier entries on its page, and names the last entry of the page before. So a reader
opens one entry per page.
"""

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from waltz.archive.documents import decode_document, encode_document
from waltz.archive.errors import ArchiveDamagedError
from waltz.archive.object_format import HEADER_BYTES, TAIL_BYTES, ObjectName

PAGE_RANGES = 256
"""Number of ranges on a full page."""

MANIFEST_FOLDER = "manifest"

_HEAD = b"waltz-archive 1 "
"""The beginning of an entry. Ends with the version of the format; the checksum of the rest follows."""


class ArchivedRange(NamedTuple):
    """An object with an entry in the manifest."""

    name: ObjectName
    size_bytes: int
    index_bytes: int
    """Bytes of index and tail at the end of the object."""
    first_time_ms: int | None
    """Time at which the first transaction was committed, in milliseconds since the epoch; ``None``: unknown."""
    last_time_ms: int | None
    """Time at which the last transaction was committed, likewise."""

    @property
    def first(self) -> int:
        """Id of the first transaction."""
        return self.name.first

    @property
    def end(self) -> int:
        """Id of the transaction behind the last one."""
        return self.name.last + 1


class Page(NamedTuple):
    """The content of an entry of the manifest."""

    cluster_key: UUID
    partition_id: int
    previous: int | None
    """First transaction id of the last entry of the page before; ``None`` on the first page."""
    ranges: tuple[ArchivedRange, ...]
    """Consecutive ranges; this entry adds the last one."""

    @property
    def end(self) -> int:
        """Id of the first transaction that is not archived."""
        return self.ranges[-1].end if self.ranges else 0


def empty_page(cluster_key: UUID, partition_id: int) -> Page:
    """The page of a manifest without entries."""
    return Page(cluster_key, partition_id, None, ())


def with_range(page: Page, added: ArchivedRange) -> Page:
    """The page of the entry that adds a range behind all others."""
    assert added.first == page.end, f"range {added.name} does not follow {page.end - 1}"
    if len(page.ranges) < PAGE_RANGES:
        return page._replace(ranges=(*page.ranges, added))
    return page._replace(previous=page.ranges[-1].first, ranges=(added,))


def entry_name(first: int) -> str:
    """The name of an entry within its folder."""
    return f"{first:019d}"


def encode_page(page: Page) -> bytes:
    """The bytes of an entry: a line with version and checksum, and a line of JSON."""
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
    """Decode and check an entry.

    Args:
        data: The bytes of the entry.
        cluster_key: The expected cluster.
        partition_id: The expected partition.
        first: The expected first transaction id of the range that the entry adds.
        name: Name of the entry in the text of an error.

    Raises:
        ArchiveDamagedError: The entry is damaged, or belongs elsewhere.
    """
    document = decode_document(_HEAD, data, "an entry of a manifest", name)
    ranges = tuple(ArchivedRange(ObjectName(begin, last, crc), *rest) for begin, last, crc, *rest in document["ranges"])
    page = Page(UUID(document["cluster"]), document["partition"], document["previous"], ranges)
    if (page.cluster_key, page.partition_id) != (cluster_key, partition_id):
        raise ArchiveDamagedError(
            f"{name} belongs to partition {page.partition_id} of cluster {page.cluster_key}: "
            "the entry was copied to a wrong place"
        )
    if not ranges or ranges[-1].first != first:
        raise ArchiveDamagedError(f"{name} is damaged: its last range does not begin at transaction {first}")
    check_consecutive(ranges, ranges[0].first, name)
    return page


def check_consecutive(ranges: Sequence[ArchivedRange], start: int, name: str) -> None:
    """Check that the ranges follow one another from ``start`` on; ``name`` begins the text of an error.

    Raises:
        ArchiveDamagedError: There is a gap or an overlap, or a range is impossible.
    """
    for each in ranges:
        if each.first != start or each.end <= start or each.size_bytes < HEADER_BYTES + TAIL_BYTES:
            raise ArchiveDamagedError(
                f"{name} is damaged: range {each.name} stands in the place of the range from transaction {start} on"
            )
        start = each.end


def covering(ranges: Sequence[ArchivedRange], start: int, end: int) -> list[ArchivedRange]:
    """The ranges with transactions ``start`` to ``end - 1``."""
    return [each for each in ranges if each.first < end and start < each.end]
