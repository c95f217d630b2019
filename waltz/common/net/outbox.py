"""Gathers the messages of one turn of the loop on several channels, and writes each channel once.

A batch is made at the end of a turn, when all reads of the turn are handled; a channel on its own would write it at the
end of the next turn, after another poll of all connections, with a callback for each channel. Here both are one step.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Gathering(Protocol):
    """The part of a channel that an outbox needs."""

    def flush(self) -> None:
        """Write the gathered messages now."""


class Outbox:
    """Shared by all senders on the same channels of a process. Calls are carried out in their order."""

    __slots__ = ("_channels", "_loop", "_preparations", "_scheduled")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._preparations: list[Callable[[], None]] = []
        self._channels: dict[Gathering, None] = {}
        self._scheduled = False

    def prepare(self, prepare: Callable[[], None]) -> None:
        """Have ``prepare`` called at the end of this turn, before the channels are written."""
        self._preparations.append(prepare)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def add(self, channel: Gathering) -> None:
        """A channel has gathered something, to be written at the end of this turn."""
        self._channels[channel] = None
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        preparations, self._preparations = self._preparations, []
        for prepare in preparations:
            try:
                prepare()
            except Exception as error:
                self._report(error)
        channels, self._channels = self._channels, {}
        for channel in channels:
            try:
                channel.flush()
            except Exception as error:
                self._report(error)
        self._scheduled = bool(self._preparations or self._channels)
        if self._scheduled:
            self._loop.call_soon(self._send)

    def _report(self, error: Exception) -> None:
        """What fails must keep nothing else from being sent."""
        self._loop.call_exception_handler({"message": "what was to be sent could not be", "exception": error})
