"""What readers of a log see: its segments, and where the last one ends."""

from typing import NamedTuple

from waltz.storage.disk.log.group_encoder import LogEnd
from waltz.storage.disk.segment.segment import Extent, Segment


class LogView(NamedTuple):
    """What is durable and published at some moment.

    ``epoch`` changes with every truncation: what was read across one is read again.
    """

    segments: tuple[Segment, ...]
    end: LogEnd
    epoch: int

    def visible(self, segment: Segment) -> Extent:
        """As much of a segment as there is to be seen."""
        if segment is self.segments[-1]:
            return Extent(self.end.next_transaction_id, self.end.offset)
        return Extent(segment.next_transaction_id, segment.end_offset)
