"""What an application fills in."""

import pytest

from waltz.client.builder import TransactionBuilder
from waltz.client.errors import ClientError
from waltz.client.locks import NO_LOCKS, PartitionLocalLock, lock_array
from waltz.common.serializers import BytesSerializer, JsonSerializer, StringSerializer


def test_defaults_and_last_calls() -> None:
    builder = TransactionBuilder(5)
    builder.set_data(b"")
    assert builder.fields() == (b"", 0, 5, NO_LOCKS, NO_LOCKS, NO_LOCKS)
    builder = TransactionBuilder(5)
    assert (builder.client_high_water_mark, builder.header, builder.data) == (5, 0, None)
    for number in (1, 2):
        lock = PartitionLocalLock("", number)
        builder.set_write_locks([lock])
        builder.set_read_locks([lock, lock])
        builder.set_append_locks(iter([lock]))
        builder.set_transaction_data(str(number), StringSerializer())
    assert builder.fields() == (b"2", 0, 5, lock_array([lock]), lock_array([lock, lock]), lock_array([lock]))
    builder.set_transaction_data(b"bytes", BytesSerializer())
    assert builder.data == b"bytes"
    assert StringSerializer().deserialize(StringSerializer().serialize("ü")) == "ü"
    assert BytesSerializer().deserialize(b"x") == b"x"


def test_headers_are_32_bits() -> None:
    builder = TransactionBuilder(0)
    for header in (-(1 << 31), (1 << 31) - 1):
        builder.set_header(header)
        assert builder.header == header
    for header in (-(1 << 31) - 1, 1 << 31):
        with pytest.raises(ValueError, match="32 bits"):
            builder.set_header(header)


def test_data_is_checked() -> None:
    builder = TransactionBuilder(0)
    with pytest.raises(ClientError, match="without setting transaction data"):
        builder.fields()
    builder.set_data(b"")
    assert builder.fields().data == b""


def test_the_serializer_of_the_client_is_for_values_without_one() -> None:
    builder = TransactionBuilder(0, JsonSerializer())
    builder.set_transaction_data({"a": 1})
    assert builder.data == b'{"a":1}'
    builder.set_transaction_data("text", StringSerializer())
    assert builder.data == b"text"
    with pytest.raises(ClientError, match="neither set_transaction_data nor open_client was given a serializer"):
        TransactionBuilder(0).set_transaction_data("text")
