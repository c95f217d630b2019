"""A line to a port in this process, which can go dead without a word."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.smoke.proxy import Proxy

HOST = "127.0.0.1"


@asynccontextmanager
async def relay(port: int) -> AsyncIterator[Proxy]:
    """A relay before ``port``, with a port of its own."""
    line = Proxy(HOST, 0, HOST, port)
    await line.open()
    try:
        yield line
    finally:
        await line.close()
