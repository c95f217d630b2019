"""Inputs for hypothesis: golden vectors with damage that is typical of hostile peers and failing disks."""

from collections.abc import Sequence

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

INTERESTING = (0, 1, -1, 2, 127, 128, 255, 1 << 15, 1 << 16, (1 << 31) - 1, -(1 << 31), (1 << 31) - 8, 1 << 24)
"""Counts and lengths that break what does not check them."""

EDITS = ("byte", "int", "long", "cut", "insert", "repeat", "splice", "truncate")


@st.composite
def _edited(draw: DrawFn, seeds: Sequence[bytes]) -> bytes:
    data = bytearray(draw(st.sampled_from(seeds)))
    for edit in draw(st.lists(st.sampled_from(EDITS), min_size=1, max_size=4)):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(1, 16))
        if edit == "byte":
            data[at : at + 1] = draw(st.binary(min_size=1, max_size=1))
        elif edit == "int":
            data[at : at + 4] = (draw(st.sampled_from(INTERESTING)) & 0xFFFFFFFF).to_bytes(4, "big")
        elif edit == "long":
            data[at : at + 8] = (draw(st.sampled_from((-1, 1 << 63, (1 << 63) - 1))) % (1 << 64)).to_bytes(8, "big")
        elif edit == "cut":
            del data[at : at + size]
        elif edit == "insert":
            data[at:at] = draw(st.binary(max_size=16))
        elif edit == "repeat":
            data[at:at] = data[at : at + size] * draw(st.integers(1, 20))
        elif edit == "splice":
            data[at:] = draw(st.sampled_from(seeds))[at:]
        else:
            del data[at:]
    return bytes(data)


def damaged(seeds: Sequence[bytes]) -> SearchStrategy[bytes]:
    """A seed with some edits, or any bytes at all."""
    return st.one_of(_edited(seeds), _edited(seeds), _edited(seeds), st.binary(max_size=300))
