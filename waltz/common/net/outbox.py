"""Gathers the messages of one turn of the loop on several channels, and writes each channel once.

Batches are made at the end of a turn, after all reads of the turn. A channel alone would write a batch at the end of
the next turn, after another poll of all connections, and with a callback for each channel. Here both are one step.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol


class Gathering(Protocol):
    """The part of a channel that an outbox needs."""

    def flush(self) -> None:
        """Write the gathered messages now."""


class Outbox:
    """Shared by all senders of a process. Calls are carried out in their order."""

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
        """Write the gathered messages of a channel at the end of this turn."""
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
        """Report an error; the other channels still send."""
        self._loop.call_exception_handler({"message": "gathered frames could not be sent", "exception": error})
