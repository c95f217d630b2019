"""The readers' view of a log: its segments, and the end of the last one."""

from typing import NamedTuple

from waltz.storage.disk.log.group_encoder import LogEnd
from waltz.storage.disk.segment.segment import Extent, Segment


class LogView(NamedTuple):
    """The durable and published part of a log at one moment.

    ``epoch`` changes with every truncation: a read across one is repeated.
    """

    segments: tuple[Segment, ...]
    end: LogEnd
    epoch: int

    def visible(self, segment: Segment) -> Extent:
        """The visible extent of a segment."""
        if segment is self.segments[-1]:
            return Extent(self.end.next_transaction_id, self.end.offset)
        return Extent(segment.next_transaction_id, segment.end_offset)
