"""Checksums around an engine, since SQLite and LMDB do not notice damaged values.

A checksum covers key and value, and begins with the store's identity, so that files of another table fail, too.
"""

from collections.abc import Callable, Iterable, Sequence

from waltz.common.checksum import crc32
from waltz.table.errors import StoreDamagedError
from waltz.table.stores.engine import Engine, Space

CHECKSUM_BYTES = 4


class SealedEngine(Engine):
    """An engine whose values carry checksums, which every read verifies."""

    def __init__(self, engine: Engine, identity: bytes, on_damage: Callable[[], None]) -> None:
        """``on_damage`` is called before damage is reported, by this class or by the engine."""
        self._engine = engine
        self._seed = crc32(identity)
        self._on_damage = on_damage

    def get(self, space: Space, keys: Sequence[bytes]) -> list[bytes | None]:
        unseal = self._unseal
        try:
            found = self._engine.get(space, keys)
            return [None if sealed is None else unseal(key, sealed) for key, sealed in zip(keys, found, strict=True)]
        except StoreDamagedError:
            self._on_damage()
            raise

    def page(
        self, space: Space, start: bytes, end: bytes | None, limit: int, *, reverse: bool = False
    ) -> list[tuple[bytes, bytes]]:
        unseal = self._unseal
        try:
            page = self._engine.page(space, start, end, limit, reverse=reverse)
            return [(key, unseal(key, sealed)) for key, sealed in page]
        except StoreDamagedError:
            self._on_damage()
            raise

    def write(self, puts: Iterable[tuple[Space, bytes, bytes]], deletes: Sequence[tuple[Space, bytes]] = ()) -> None:
        seed = self._seed
        sealed = [
            (space, key, value + crc32(value, crc32(key, seed)).to_bytes(CHECKSUM_BYTES, "big"))
            for space, key, value in puts
        ]
        try:
            self._engine.write(sealed, deletes)
        except StoreDamagedError:
            self._on_damage()
            raise

    def close(self) -> None:
        self._engine.close()

    def _unseal(self, key: bytes, sealed: bytes) -> bytes:
        value = sealed[:-CHECKSUM_BYTES]
        if crc32(value, crc32(key, self._seed)) != int.from_bytes(sealed[-CHECKSUM_BYTES:], "big"):
            raise StoreDamagedError(f"the checksum of the entry {key[:40].hex()} is wrong")
        return value
