"""The envelopes that are read in a thread."""

import asyncio

import pytest

from waltz.table.codecs import Codec
from waltz.table.envelope import Batch, Row, announced_body_bytes, encode
from waltz.table.face.decoding import LOOP_BYTES, decoded


@pytest.mark.parametrize("codec", list(Codec))
async def test_only_large_compressed_bodies_are_read_in_a_thread(codec: Codec, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[object] = []
    to_thread = asyncio.to_thread

    async def noted(function: object, *arguments: object) -> object:
        threads.append(function)
        return await to_thread(function, *arguments)  # type: ignore[arg-type]  # whatever it is given

    monkeypatch.setattr(asyncio, "to_thread", noted)
    small = Batch(5, [Row(b"", b"k", bytes(LOOP_BYTES - 100))])
    large = Batch(5, [Row(b"", b"k", bytes(LOOP_BYTES + 100))])
    for envelope, count in ((small, 0), (large, 0 if codec is Codec.NONE else 1)):
        threads.clear()
        data = encode(envelope, codec)
        assert await decoded(3, data, 1 << 20) == envelope
        assert len(threads) == count, announced_body_bytes(data)


async def test_what_is_no_envelope_is_none() -> None:
    assert await decoded(3, b"anything", 1 << 20) is None
    assert await decoded(3, encode(Batch(5, [Row(b"", b"k", bytes(1 << 20))]), Codec.ZLIB), 1000) is None
