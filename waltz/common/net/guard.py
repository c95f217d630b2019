"""Limits the time and memory that a peer can cost a node by sending without end, or by not reading.

The guard watches unfinished work only: an incomplete frame, and a channel with more unsent bytes than its high limit. A
connection without unfinished work may be idle forever, as the protocols demand.

The guard counts ticks of the loop's timer instead of reading a clock. So if the process itself stood still (stopped,
swapped out, a long pause), the guard has seen one tick, and blames no peer.
"""

import asyncio
from typing import Protocol

from waltz.common.errors import DeadlineExceededError, WaltzError
from waltz.common.net.limits import TrafficLimits

MIN_PROGRESS_BYTES = 64 << 10
"""A peer is slow but alive if it moves this number of bytes within a time-out: so large transactions pass bad lines."""

_TICKS_PER_TIMEOUT = 4
_MAX_TICK_S = 1.0


class OverloadedError(WaltzError):
    """All connections together exceeded their limit of memory; the node closed this one."""


class Guarded(Protocol):
    """The part of a channel that the guard needs."""

    @property
    def reading_paused(self) -> bool:
        """Whether this side has paused reading."""

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes to send that the operating system has not taken yet."""

    @property
    def sent_bytes(self) -> int:
        """Number of bytes that the operating system has taken so far."""

    def give_up(self, error: Exception) -> None:
        """End the connection at once because of an error of its peer."""


class _Progress:
    """The last progress, and the ticks since then."""

    __slots__ = ("seen_bytes", "ticks")

    def __init__(self, seen_bytes: int) -> None:
        self.seen_bytes = seen_bytes
        self.ticks = 0

    def stalled(self, now_bytes: int, limit_ticks: int) -> bool:
        """Count a tick; returns whether there were too many ticks without progress."""
        self.ticks += 1
        if self.ticks <= limit_ticks:
            return False
        if now_bytes - self.seen_bytes < MIN_PROGRESS_BYTES:
            return True
        self.seen_bytes, self.ticks = now_bytes, 0
        return False


class PartialFrame:
    """The incomplete frame of one channel; receives the reports of the frame splitter."""

    __slots__ = ("_guard", "channel", "held_bytes", "progress")

    def __init__(self, guard: "TrafficGuard", channel: Guarded) -> None:
        self._guard = guard
        self.channel = channel
        self.held_bytes = 0
        self.progress = _Progress(0)

    def begun(self, size_bytes: int) -> None:
        """A frame has begun; ``size_bytes`` of it have arrived."""
        self.held_bytes = size_bytes
        self.progress = _Progress(size_bytes)
        self._guard.frame_begun(self, size_bytes)

    def grown(self, size_bytes: int) -> None:
        """``size_bytes`` more of the frame have arrived."""
        self.held_bytes += size_bytes
        self._guard.frame_grown(size_bytes)

    def ended(self) -> None:
        """The frame is complete, or its channel has ended."""
        if self.held_bytes:
            self._guard.frame_ended(self)
            self.held_bytes = 0


class TrafficGuard:
    """The guard of all ports of a node. Its timer runs while there is unfinished work."""

    def __init__(self, limits: TrafficLimits) -> None:
        self.received_bytes = 0
        """Bytes of all incomplete frames."""
        self._limits = limits
        self._tick_s = min(limits.frame_timeout_s / _TICKS_PER_TIMEOUT, limits.unread_timeout_s / _TICKS_PER_TIMEOUT)
        self._tick_s = min(self._tick_s, _MAX_TICK_S)
        self._frame_ticks = round(limits.frame_timeout_s / self._tick_s)
        self._unread_ticks = round(limits.unread_timeout_s / self._tick_s)
        self._frames: dict[PartialFrame, None] = {}  # the longest incomplete first
        self._unread: dict[Guarded, _Progress] = {}  # the longest unread first
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def close(self) -> None:
        """Stop watching. Later reports are only counted."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def partial_frame(self, channel: Guarded) -> PartialFrame:
        """The receiver of the reports of a channel's frame splitter."""
        return PartialFrame(self, channel)

    # Reports of partial frames

    def frame_begun(self, frame: PartialFrame, size_bytes: int) -> None:
        """Watch an incomplete frame from now on."""
        self._frames[frame] = None
        self._start_timer()
        self.frame_grown(size_bytes)

    def frame_grown(self, size_bytes: int) -> None:
        """Count received bytes; above the limit of memory, end the channels with the oldest incomplete frames."""
        self.received_bytes += size_bytes
        while self.received_bytes > self._limits.max_receive_bytes:
            frame = next(iter(self._frames))
            text = f"incomplete frames take {self.received_bytes} bytes, at most {self._limits.max_receive_bytes} may"
            frame.channel.give_up(OverloadedError(text))
            frame.ended()

    def frame_ended(self, frame: PartialFrame) -> None:
        """The frame takes no more memory."""
        self._frames.pop(frame, None)
        self.received_bytes -= frame.held_bytes

    # Reports of channels

    def not_read(self, channel: Guarded) -> None:
        """The unsent bytes of a channel are above its high limit."""
        self._unread[channel] = _Progress(channel.sent_bytes)
        self._start_timer()
        self._shed_unread()

    def read_again(self, channel: Guarded) -> None:
        """The unsent bytes fell below the low limit, or the channel has ended."""
        self._unread.pop(channel, None)

    # The timer

    def _start_timer(self) -> None:
        if self._timer is None and not self._closed:
            self._timer = asyncio.get_running_loop().call_later(self._tick_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        for frame in list(self._frames):
            self._look_at_frame(frame)
        for channel, progress in list(self._unread.items()):
            if progress.stalled(channel.sent_bytes, self._unread_ticks):
                text = f"the peer read nothing for {self._limits.unread_timeout_s:g} s"
                channel.give_up(DeadlineExceededError(text))
                self.read_again(channel)
        self._shed_unread()
        if self._frames or self._unread:
            self._start_timer()

    def _look_at_frame(self, frame: PartialFrame) -> None:
        if frame.channel.reading_paused:
            frame.progress = _Progress(frame.held_bytes)
        elif frame.progress.stalled(frame.held_bytes, self._frame_ticks):
            text = f"a frame was not complete after {self._limits.frame_timeout_s:g} s"
            frame.channel.give_up(DeadlineExceededError(text))
            frame.ended()

    def _shed_unread(self) -> None:
        """While all unread data exceed the limit of memory, end the channels that have been unread for longest."""
        unsent = {channel: channel.unsent_bytes for channel in self._unread}
        total = sum(unsent.values())
        for channel, size_bytes in unsent.items():
            if total <= self._limits.max_send_bytes:
                return
            text = f"unread data take {total} bytes, at most {self._limits.max_send_bytes} may"
            channel.give_up(OverloadedError(text))
            self.read_again(channel)
            total -= size_bytes
