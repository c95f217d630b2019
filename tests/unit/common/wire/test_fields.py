import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.errors import ProtocolError
from waltz.common.wire import fields


def test_strings_are_standard_utf_8() -> None:
    encoded = fields.NULLABLE_STRING.encode("h\u00e9\u0000\U0001f600")
    assert encoded == bytes.fromhex("00000008 68c3a9 00 f09f9880")
    assert fields.NULLABLE_STRING.decode(encoded, 0, len(encoded)) == ("h\u00e9\u0000\U0001f600", len(encoded))


def test_lone_surrogates_are_written_as_question_marks() -> None:
    assert fields.NULLABLE_STRING.encode("a\ud800b\udfff") == b"\0\0\0\4a?b?"


@pytest.mark.parametrize("data", [b"\xff", b"a\xc3", b"\xed\xa0\xbd", b"\xc0\x80", b"\xf0\x9f\x98"])
def test_ill_formed_utf_8_reads_as_replacement_characters(data: bytes) -> None:
    text, _ = fields.NULLABLE_STRING.decode(len(data).to_bytes(4, "big") + data, 0, 4 + len(data))
    assert text is not None
    assert "\ufffd" in text


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe", b"\x80\0\0\0"])
def test_every_negative_size_is_null(size: bytes) -> None:
    assert fields.NULLABLE_STRING.decode(size, 0, 4) == (None, 4)
    assert fields.NULLABLE_BYTES.decode(size, 0, 4) == (None, 4)
    assert fields.NULLABLE_INTS.decode(size, 0, 4) == (None, 4)


def test_null_is_written_as_minus_one() -> None:
    assert fields.NULLABLE_STRING.encode(None) == b"\xff\xff\xff\xff"
    assert fields.NULLABLE_BYTES.encode(None) == b"\xff\xff\xff\xff"
    assert fields.NULLABLE_INTS.encode(None) == b"\xff\xff\xff\xff"


def test_only_one_is_true() -> None:
    assert [value for value in range(256) if fields.BOOLEAN.decode(bytes([value]), 0, 1)[0]] == [1]
    assert (fields.BOOLEAN.encode(True), fields.BOOLEAN.encode(False)) == (b"\x01", b"\x00")


@pytest.mark.parametrize(
    ("field", "size"),
    [
        (fields.BOOLEAN, 1),
        (fields.SHORT, 2),
        (fields.INT, 4),
        (fields.LONG, 8),
        (fields.REQ_ID, 16),
        (fields.UUID_FIELD, 16),
    ],
)
def test_fixed_sizes_never_read_behind_the_end(field: fields.Field[object], size: int) -> None:
    buffer = bytes(40)
    assert field.decode(buffer, 3, 3 + size)[1] == 3 + size
    for end in range(3, 3 + size):
        with pytest.raises(ProtocolError, match="too short"):
            field.decode(buffer, 3, end)


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 40))
def test_counts_are_compared_with_the_bytes_that_are_there(count: int, room: int) -> None:
    buffer = count.to_bytes(4, "big", signed=True) + bytes(room) + b"behind"
    if 4 * count <= room:
        value, position = fields.NULLABLE_INTS.decode(buffer, 0, 4 + room)
        assert value == (None if count < 0 else (0,) * count)
        assert position == 4 + 4 * max(count, 0)
    else:
        with pytest.raises(ProtocolError, match=f"a count of {count}"):
            fields.NULLABLE_INTS.decode(buffer, 0, 4 + room)


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    encoded = b"??" + fields.NULLABLE_STRING.encode(text)
    assert encoded[6:] == codecs.encode(text, "utf-8")
    assert fields.NULLABLE_STRING.decode(encoded + b"more", 2, len(encoded)) == (text, len(encoded))
