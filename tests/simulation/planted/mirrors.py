"""Bugs to plant in mirrors: where they go on, who else may append, and in which order appends arrive."""

import contextlib
from collections.abc import Iterator
from unittest import mock

from waltz.common.errors import WaltzError
from waltz.common.wire.client_server import MountRequest, MountResponse
from waltz.common.wire.mark_feed import MarkFeedRequest
from waltz.common.wire.write_sessions import FenceOption
from waltz.mirror.merging import Merged, Standing
from waltz.mirror.partition_mirror import PartitionMirror
from waltz.mirror.target_link import TargetLink
from waltz.mirror.window import Window

_sent: dict[PartitionMirror, int] = {}


async def go_on_behind_what_was_sent(mirror: PartitionMirror, link: TargetLink, window: Window) -> None:
    """What was sent is taken for appended, whatever became of it."""
    position = max(_sent.get(mirror, -1), window.committed_id)
    async with contextlib.aclosing(mirror._source.following(position)) as batches:
        async for records in batches:
            for record in records:
                while not (link.may_send and window.admits(len(record.data))):
                    link.hurry.clear()
                    await link.hurry.wait()
                window.sent(len(record.data))
                link.append(record)
                _sent[mirror] = record.transaction_id


async def share_the_session(link: TargetLink) -> int:
    """The session is open to all: it only keeps off those with an older one."""
    answer = await link._last(FenceOption.FENCE)
    link._session = answer.write_session
    return answer.transaction_id


@contextlib.contextmanager
def go_on_behind_what_was_refused() -> Iterator[None]:
    """Appends get the ids that come next, also behind one that the server could not keep."""
    fail = TargetLink.fail

    def fail_otherwise(link: TargetLink, error: WaltzError) -> None:
        if "refused an append" not in str(error) or "write session" in str(error):
            fail(link, error)

    with mock.patch.object(TargetLink, "begin", _begin), mock.patch.object(TargetLink, "fail", fail_otherwise):
        yield


async def _begin(link: TargetLink, last_id: int, connection_number: int) -> None:
    """Ask for no order."""
    mount_id = link._req_id(link._seq_num)
    await link._ask(lambda req_id: MountRequest(req_id, last_id, connection_number), MountResponse)
    link._send(MarkFeedRequest(mount_id, last_id))


def leave_ties(merged: Merged, key: bytes, row: Standing) -> None:
    """Of equal timestamps the one wins that is the later one in the log."""
    merged._standing[key] = row


def begin_numbers_anew(link: TargetLink) -> int:
    """Each connection of a process numbers its requests from 0."""
    return 0
