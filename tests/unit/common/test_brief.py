"""Whatever is shown is short, and one line."""

from hypothesis import given
from hypothesis import strategies as st

from waltz.common.brief import SHOWN_LENGTH, one_line, shown, shown_key

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(VALUES)
def test_values(value: object) -> None:
    text = shown(value)
    assert len(text) <= SHOWN_LENGTH + 3
    assert text.isprintable()


def test_a_number_that_python_does_not_write() -> None:
    assert shown(1 << 100_000) == "a very large int"


@given(st.text())
def test_keys(key: str) -> None:
    text = shown_key(key)
    assert text.isprintable()
    assert text == key or len(key) > 2 * SHOWN_LENGTH or not key.isprintable()


@given(st.text())
def test_lines(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert line.split() == text.split() or line.endswith("...")
