"""Decodes envelopes of any size without blocking the event loop."""

import asyncio

from waltz.table.envelope import Envelope, announced_body_bytes, envelope_of

LOOP_BYTES = 64 << 10
"""Largest body that is compressed or decompressed on the event loop."""


async def decoded(transaction_id: int, data: bytes, max_body_bytes: int) -> Envelope | None:
    """The envelope of a transaction; ``None`` when its data is no envelope.

    Raises:
        CodecUnavailableError: The library of its codec is not installed.
    """
    if announced_body_bytes(data) <= LOOP_BYTES:
        return envelope_of(transaction_id, data, max_body_bytes)
    return await asyncio.to_thread(envelope_of, transaction_id, data, max_body_bytes)
