"""Where the rows come from that a mirror has appended to a table: an ordinary row, the last one of each batch. Pure.

The envelope of tables has no room for an origin, and every reader, also of an earlier version, reads nothing but that
envelope. So the batch of a mirror is an ordinary batch, and its last row is an ordinary row of the table, in the prefix
:data:`PREFIX`, with the key of the source. It says up to which transaction of the source everything is copied, and of
which write each row of the batch is the copy. A batch without such a row was written by an application.

The value, big endian: u8 version; i64 position; u16 number of clusters, and for each u16 size, key; u32 number of
spans, and for each u16 cluster, i64 version, u32 first row, u32 rows.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from waltz.mirror.errors import MirrorError
from waltz.table.envelope import Batch, Row

PREFIX = b"waltz.mirror"
_VERSION = 1

_HEAD = struct.Struct(">BqH")
_SIZE = struct.Struct(">H")
_COUNT = struct.Struct(">I")
_SPAN = struct.Struct(">HqII")


class Origin(NamedTuple):
    """The write of an application that a row is, or is a copy of. Of two writes with equal timestamps the greater one
    wins, in all clusters alike."""

    version: int
    """Greater than those of all rows before it in the log of its cluster, copies included."""
    row: int
    """Its index in the batch of its transaction."""
    cluster: str
    """The key of the cluster that it was written to."""


class Span(NamedTuple):
    """Consecutive rows of a batch, which are copies of consecutive rows of one other batch."""

    first: Origin
    rows: int


class Origins(NamedTuple):
    """What the last row of a mirror's batch says."""

    source: str
    """The key of the cluster that the mirror reads."""
    position: int
    """The last transaction of the source that is in the target, with all before it."""
    spans: Sequence[Span]
    """The origins of the rows before the last one, in their order."""

    def each(self) -> Iterator[Origin]:
        """The origin of each row."""
        for (version, row, cluster), rows in self.spans:
            for number in range(rows):
                yield Origin(version, row + number, cluster)


def origin_row(origins: Origins, timestamp_ms: int) -> Row:
    """The last row of a mirror's batch."""
    clusters = list(dict.fromkeys(span.first.cluster for span in origins.spans))
    parts = [_HEAD.pack(_VERSION, origins.position, len(clusters))]
    for cluster in clusters:
        name = cluster.encode()
        parts += _SIZE.pack(len(name)), name
    parts.append(_COUNT.pack(len(origins.spans)))
    numbers = {cluster: number for number, cluster in enumerate(clusters)}
    for (version, row, cluster), rows in origins.spans:
        parts.append(_SPAN.pack(numbers[cluster], version, row, rows))
    return Row(PREFIX, origins.source.encode(), b"".join(parts), timestamp_ms)


def origins_in(batch: Batch) -> Origins | None:
    """What the last row of a batch says; ``None``: an application has written the batch.

    Raises ``MirrorError`` for a row of a mirror that cannot be read: of a newer version, or an application's.
    """
    if not batch.rows or batch.rows[-1].prefix != PREFIX:
        return None
    last = batch.rows[-1]
    try:
        origins = _decoded(last.key.decode(), last.value or b"")
    except (ValueError, IndexError, struct.error) as error:
        raise MirrorError(f"the row of a mirror in the prefix {PREFIX.decode()} cannot be read: {error}") from None
    if sum(span.rows for span in origins.spans) != len(batch.rows) - 1:
        raise MirrorError(f"the row of a mirror in the prefix {PREFIX.decode()} does not tell of all rows of its batch")
    return origins


def _decoded(source: str, value: bytes) -> Origins:
    version, position, cluster_count = _HEAD.unpack_from(value)
    if version != _VERSION:
        raise ValueError(f"it has version {version}")
    at = _HEAD.size
    clusters: list[str] = []
    for _ in range(cluster_count):
        (size,) = _SIZE.unpack_from(value, at)
        at += _SIZE.size + size
        if at > len(value):
            raise ValueError("it ends inside a name")
        clusters.append(value[at - size : at].decode())
    (span_count,) = _COUNT.unpack_from(value, at)
    at += _COUNT.size
    if span_count * _SPAN.size != len(value) - at:
        raise ValueError(f"{len(value) - at} bytes for {span_count} spans")
    if not span_count:
        raise ValueError("it tells of no rows")
    spans: list[Span] = []
    for cluster, row_version, row, rows in _SPAN.iter_unpack(value[at:]):
        spans.append(Span(Origin(row_version, row, clusters[cluster]), rows))
    return Origins(source, position, spans)
