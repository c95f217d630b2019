"""Tables written to files, and read from them."""

import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import waltz
from waltz.cli import table_files
from waltz.cli.table_files import export_rows, import_rows
from waltz.client.mock import MockDriver
from waltz.common.errors import WaltzError
from waltz.table.envelope import Row
from waltz.table.face.table import Table
from waltz.table.properties import PartitionProperties
from waltz.table.rows import TableRow, Version

TABLE = PartitionProperties(format="table", ttl_timestamp_age_ms=1000)
"""By which most rows have expired."""

PARTS = (b"", b"a", b"\xff\x00", b"hex:", '\u00e4\r\n",'.encode(), b"x" * 300)


@pytest.fixture
async def client() -> AsyncIterator[waltz.Client]:
    async with waltz.connect(MockDriver(3)) as client:
        yield client


async def state(table: Table) -> list[TableRow]:
    """All rows, but for where and when they were written."""
    await table.refresh()
    return [row._replace(version=Version(0, 0), written_at_ms=0) async for row in table.scan(raw=True)]


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
@pytest.mark.parametrize("encoding", ["utf-8", "base64", "hex"])
async def test_an_export_makes_an_equal_table(
    file_format: str, encoding: str, client: waltz.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_files, "MAX_BATCH_BYTES", 700)
    chance = random.Random(7)
    file = str(tmp_path / "rows")
    async with client.table(0, properties=TABLE) as source, client.table(1, properties=TABLE) as target:
        for _ in range(40):
            rows = []
            for _ in range(5):
                dead = chance.random() < 0.3
                value = None if dead or chance.random() < 0.2 else chance.choice(PARTS)
                timestamp_ms = chance.choice((None, chance.randrange(1, 10**6), 1 << 60))
                rows.append(Row(chance.choice(PARTS), chance.choice(PARTS), value, timestamp_ms, dead))
            await source.batch(rows, any_timestamp=True)
        before = await state(source)
        assert len(before) > 30
        assert any(row.tombstone for row in before)
        assert any(row.value is None and not row.tombstone for row in before)
        assert await export_rows(source, file, file_format, encoding, None) == len(before)
        assert list(tmp_path.iterdir()) == [Path(file)]
        assert await import_rows(target, file, file_format, 7) == len(before)
        assert await state(target) == before
        assert await client.high_water_mark(1) > len(before) / 7
        assert await import_rows(target, file, file_format, 7) == len(before)
        assert await state(target) == before
        await export_rows(source, file, file_format, encoding, b"a")
        async with client.table(2, properties=TABLE) as part:
            await import_rows(part, file, file_format, 500)
            assert await state(part) == [row for row in before if row.prefix == b"a"]


async def test_what_cannot_be_imported_is_said_with_the_line_and_with_what_was(
    client: waltz.Client, tmp_path: Path
) -> None:
    file = tmp_path / "rows.jsonl"
    properties = PartitionProperties(format="table", max_key_bytes=10)
    async with client.table(0, properties=properties) as table:
        for last, problem in (
            (b"nonsense", "line 4: Invalid JSON"),
            (b"\xff", "line 4 is not UTF-8"),
            (b'{"key":"%s"}' % (b"k" * 20), "line 4: prefix and key take more than the 10 bytes"),
            (b'{"key":"k","timestamp":-5}', "line 4: a timestamp must be positive"),
        ):
            file.write_bytes(b'{"key":"a"}\n{"key":"b"}\n{"key":"c"}\n' + last + b"\n")
            with pytest.raises(WaltzError) as raised:
                await import_rows(table, str(file), "jsonl", 2)
            assert problem in str(raised.value)
            assert str(raised.value).endswith("imported before that: 2 rows; the whole file may be imported again")
            assert "\n" not in str(raised.value)


async def test_an_export_that_fails_leaves_the_file_that_was_there(
    client: waltz.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rows"
    file.write_text("before")
    async with client.table(0, properties=TABLE) as table:
        await table.put(b"k", b"v")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(table_files, "row_writer", lambda *_: full)
        with pytest.raises(OSError, match="No space"):
            await export_rows(table, str(file), "jsonl", "utf-8", None)
    assert [path.name for path in tmp_path.iterdir()] == ["rows"]
    assert file.read_text() == "before"
