"""Values as bytes, and back."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field, ValidationError

from waltz.common.serializers import BytesSerializer, JsonSerializer, ModelSerializer, StringSerializer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text("aß\0\n💧"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aß"), inner, max_size=3),
    max_leaves=10,
)


@given(JSON)
def test_json_comes_back(value: object) -> None:
    serializer = JsonSerializer()
    assert serializer.deserialize(serializer.serialize(value)) == value


@pytest.mark.parametrize("value", [math.nan, math.inf, b"bytes", object()])
def test_what_json_does_not_know(value: object) -> None:
    with pytest.raises((TypeError, ValueError)):
        JsonSerializer().serialize(value)


class Account(BaseModel):
    owner: str
    balance: int = Field(alias="amount", ge=0)


def test_models_are_documents_with_their_aliases() -> None:
    serializer = ModelSerializer(Account)
    data = serializer.serialize(Account(owner="Ann", amount=5))
    assert JsonSerializer().deserialize(data) == {"owner": "Ann", "amount": 5}
    assert serializer.deserialize(data) == Account(owner="Ann", amount=5)
    with pytest.raises(ValidationError, match="amount"):
        serializer.deserialize(b'{"owner": "Ann", "amount": -1}')


@given(st.text())
def test_strings_come_back(text: str) -> None:
    assert StringSerializer().deserialize(StringSerializer().serialize(text)) == text


def test_bytes_stay_themselves() -> None:
    data = b"data"
    assert BytesSerializer().serialize(data) is data
    assert BytesSerializer().deserialize(data) is data
