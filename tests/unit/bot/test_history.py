"""What is written is read again, and what is no history is named."""

from pathlib import Path

import pytest

from waltz.bot.history import (
    Header,
    HistoryError,
    HistoryFile,
    Invoked,
    ReadCall,
    Returned,
    ScanCall,
    SwapCall,
    WriteCall,
    read_history,
)

HEADER = Header(type="header", format=1, bot="random", run="a", cluster="c", partition=3, began="2020-01-01T00:00:00Z")
EVENTS: list[Header | Invoked | Returned] = [
    HEADER,
    Invoked(
        type="invoke",
        op=1,
        process=0,
        time_ms=5,
        call=WriteCall(f="write", rows={"k": "v", "gone": None}, timestamp_ms=5),
    ),
    Returned(type="info", op=1, time_ms=6, error="no outcome in time"),
    Invoked(
        type="invoke", op=2, process=1, time_ms=7, call=SwapCall(f="swap", key="k", expected=None, value='"quoted"\n')
    ),
    Returned(type="ok", op=2, time_ms=8, transaction=17, stamp_ms=(7, 8)),
    Invoked(type="invoke", op=3, process=1, time_ms=7, call=ReadCall(f="read", keys=["k"])),
    Returned(type="ok", op=3, time_ms=8, rows={"k": ("v", 7, 17)}),
    Invoked(type="invoke", op=4, process=1, time_ms=7, call=ScanCall(f="scan")),
    Returned(type="ok", op=4, time_ms=8, rows={}),
    Invoked(type="invoke", op=5, process=1, time_ms=7, call=SwapCall(f="swap", key="k", expected="v", value="w")),
    Returned(type="ok", op=5, time_ms=8, conflict=True),
]


def written(path: Path, limit_bytes: int = 1 << 20) -> HistoryFile:
    file = HistoryFile(path, limit_bytes)
    for event in EVENTS:
        file.append(event)
    return file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    written(tmp_path / "h").close()
    assert list(read_history(tmp_path / "h")) == EVENTS


def test_it_can_be_read_while_it_is_written_and_a_line_that_was_cut_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "h"
    file = written(path)
    assert list(read_history(path)) == EVENTS
    file.close()
    path.write_bytes(path.read_bytes()[:-5])
    assert list(read_history(path)) == EVENTS[:-1]


def test_a_large_one_is_put_aside(tmp_path: Path) -> None:
    path = tmp_path / "h"
    file = written(path, limit_bytes=300)
    full = [file.is_full]
    for _ in range(2):
        file.begin_anew()
        full.append(file.is_full)
        file.append(HEADER)
    assert full == [True, False, False]
    file.close()
    assert list(read_history(path)) == [HEADER]
    assert list(read_history(tmp_path / "h.1")) == [HEADER]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("nonsense\n", "line 1 is not one of a bot's history: Invalid JSON"),
        ('{"type":"ok","op":1,"time_ms":2}\n', "line 1: a history has its header in the first line"),
        (HEADER.model_dump_json() + "\n" + HEADER.model_dump_json() + "\n", "line 2: a history has its header"),
        (
            HEADER.model_dump_json().replace(":1,", ":2,") + "\n",
            "line 1 is not one of a bot's history: Input should be 1",
        ),
        (HEADER.model_dump_json() + '\n{"type":"maybe"}\n', "line 2 is not one"),
        (HEADER.model_dump_json() + "\n\xff\n", "line 2 is not one"),
    ],
)
def test_what_is_no_history_is_named(lines: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "h"
    path.write_bytes(lines.encode("latin-1"))
    with pytest.raises(HistoryError, match=message):
        list(read_history(path))
