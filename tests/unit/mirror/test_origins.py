"""The row that says where the rows of a mirror's batch come from."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.mirror.errors import MirrorError
from waltz.mirror.origins import PREFIX, Origin, Origins, Span, origin_row, origins_in
from waltz.table.envelope import Batch, Row, decode, encode

IDS = st.integers(-1, 2**63 - 1)
SPANS = st.lists(
    st.builds(
        Span, st.builds(Origin, IDS, st.integers(0, 1000), st.sampled_from(["one", "zwei", "τρία"])), st.integers(0, 5)
    ),
    min_size=1,
    max_size=5,
)
ROW = Row(b"", b"key", b"value", 7)


@given(st.text(min_size=1, max_size=40), IDS, SPANS)
def test_round_trip_through_an_ordinary_envelope(source: str, position: int, spans: list[Span]) -> None:
    origins = Origins(source, position, spans)
    rows = [ROW] * sum(span.rows for span in spans)
    batch = decode(encode(Batch(5, [*rows, origin_row(origins, 9)])))
    assert isinstance(batch, Batch)
    assert origins_in(batch) == origins
    assert len([*origins.each()]) == len(rows)


def test_origins_of_each_row() -> None:
    origins = Origins("s", 9, [Span(Origin(7, 2, "s"), 2), Span(Origin(3, 0, "t"), 1)])
    assert [*origins.each()] == [(7, 2, "s"), (7, 3, "s"), (3, 0, "t")]


@pytest.mark.parametrize("rows", [[], [ROW], [Row(PREFIX, b"s", b"?"), ROW]])
def test_batches_of_applications(rows: list[Row]) -> None:
    assert origins_in(Batch(0, rows)) is None


GOOD = origin_row(Origins("s", 9, [Span(Origin(7, 0, "s"), 1)]), 1)


@given(st.integers(0, len(GOOD.value or b"") - 1))
def test_a_cut_row_is_refused(size: int) -> None:
    with pytest.raises(MirrorError):
        origins_in(Batch(0, [ROW, GOOD._replace(value=(GOOD.value or b"")[:size])]))


@given(st.binary(max_size=80))
def test_arbitrary_bytes_do_no_harm(value: bytes) -> None:
    with contextlib.suppress(MirrorError):
        origins_in(Batch(0, [ROW, Row(PREFIX, b"s", value)]))


@pytest.mark.parametrize(
    "last",
    [
        Row(PREFIX, b"s", None),
        Row(PREFIX, b"s", None, tombstone=True),
        Row(PREFIX, b"\xff", GOOD.value),
        GOOD._replace(value=(GOOD.value or b"") + b"\x00"),
        GOOD._replace(value=b"\x02" + (GOOD.value or b"")[1:]),
        Row(PREFIX, b"s", struct.pack(">BqHIHqII", 1, 9, 0, 1, 0, 7, 0, 1)),
        Row(PREFIX, b"s", struct.pack(">BqHI", 1, 9, 0, 0xFFFFFFFF)),
        Row(PREFIX, b"s", struct.pack(">BqHI", 1, 9, 0, 0)),
    ],
)
def test_rows_that_cannot_be_read(last: Row) -> None:
    with pytest.raises(MirrorError, match="cannot be read"):
        origins_in(Batch(0, [ROW, last]))


def test_a_row_of_another_batch_is_refused() -> None:
    with pytest.raises(MirrorError, match="all rows"):
        origins_in(Batch(0, [ROW, ROW, GOOD]))
