"""Inputs for hypothesis: few keys that collide often, and numbers at the ends of their ranges."""

from hypothesis import strategies as st

from waltz.common.ids import LONG_MIN
from waltz.table.envelope import NO_BOUND, Batch, Envelope, Row, SweepMark, Truncate

LONG_MAX = -LONG_MIN - 1

longs = st.one_of(st.sampled_from((LONG_MIN, -1, 0, 1, LONG_MAX)), st.integers(LONG_MIN, LONG_MAX))
"""Any timestamp that fits."""

tricky_bytes = st.lists(st.sampled_from((b"\x00", b"\x01", b"\x02", b"\xfe", b"\xff", b"a")), max_size=4).map(b"".join)
"""Bytes that an escape may get wrong."""

clock = st.integers(0, 40)
"""Times that are close to each other."""

bounds = st.one_of(st.just(NO_BOUND), clock)


@st.composite
def rows(
    draw: st.DrawFn, timestamps: st.SearchStrategy[int] = longs, keys: st.SearchStrategy[bytes] = tricky_bytes
) -> Row:
    """A row that can be written."""
    tombstone = draw(st.booleans())
    value = None if tombstone else draw(st.none() | st.binary(max_size=20))
    return Row(draw(keys), draw(keys), value, draw(st.none() | timestamps), tombstone)


@st.composite
def batches(
    draw: st.DrawFn, timestamps: st.SearchStrategy[int] = longs, keys: st.SearchStrategy[bytes] = tricky_bytes
) -> Batch:
    """A batch, which may be empty."""
    return Batch(draw(timestamps), draw(st.lists(rows(timestamps, keys), max_size=6)))


@st.composite
def sweep_marks(draw: st.DrawFn, bound: st.SearchStrategy[int] = longs) -> SweepMark:
    """A mark with each bound or none."""
    return SweepMark(draw(clock), *(draw(bound) for _ in range(4)))


def envelopes() -> st.SearchStrategy[Envelope]:
    """Every kind."""
    return st.one_of(batches(), longs.map(Truncate), sweep_marks())


def near_envelopes() -> st.SearchStrategy[Envelope]:
    """Every kind, batches the most, with few keys and times that are close to each other."""
    few = st.sampled_from((b"", b"\x00", b"a", b"a\x00", b"b"))
    near = batches(clock, few)
    return st.one_of(near, near, near, near, clock.map(Truncate), sweep_marks(bounds))
