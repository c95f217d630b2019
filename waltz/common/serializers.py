"""Conversion of applications' objects into transaction data and back."""

import json
from typing import Generic, Protocol, TypeVar

from pydantic import BaseModel

T = TypeVar("T")
Model = TypeVar("Model", bound=BaseModel)
Made = TypeVar("Made", covariant=True)


class Deserializer(Protocol[Made]):
    """Turns bytes into objects. Must be a pure function of its argument.

    Examples:
        ```python
        from decimal import Decimal


        class Amounts:
            def deserialize(self, data: bytes) -> Decimal:
                return Decimal(data.decode())


        amounts: waltz.Deserializer[Decimal] = Amounts()


        async def apply_transaction(transaction: waltz.Transaction) -> None:  # as a callback does it
            print(await transaction.data(amounts))
        ```
    """

    def deserialize(self, data: bytes) -> Made:
        """The object of ``data``."""
        ...


class Serializer(Protocol[T]):
    """Turns objects into bytes and back. Must be a pure function of its argument.

    Examples:
        ```python
        from decimal import Decimal


        class Amounts:
            def serialize(self, value: Decimal) -> bytes:
                return str(value).encode()

            def deserialize(self, data: bytes) -> Decimal:
                return Decimal(data.decode())


        await client.with_serializer(Amounts()).append(0, Decimal("3.20"))
        ```
    """

    def serialize(self, value: T) -> bytes:
        """The bytes that are appended to the log."""
        ...

    def deserialize(self, data: bytes) -> T:
        """The object that :meth:`serialize` turned into ``data``."""
        ...


class BytesSerializer:
    """For applications whose values are bytes.

    Examples:
        ```python
        await client.with_serializer(waltz.BytesSerializer()).append(0, b"as it is")
        ```
    """

    def serialize(self, value: bytes) -> bytes:
        """``value`` itself."""
        return value

    def deserialize(self, data: bytes) -> bytes:
        """``data`` itself."""
        return data


class StringSerializer:
    """Strings as UTF-8; raises ``UnicodeError`` for other bytes.

    Examples:
        ```python
        texts = client.with_serializer(waltz.StringSerializer())
        await texts.append(0, "zwölf Boxkämpfer")
        ```
    """

    def serialize(self, value: str) -> bytes:
        """UTF-8 bytes."""
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        """The string of UTF-8 bytes."""
        return data.decode()


class JsonSerializer:
    """Values of JSON, compact and in UTF-8; members keep their order.

    Raises ``TypeError`` and ``ValueError`` for values that JSON lacks, also for not-a-number and the infinities.

    Examples:
        ```python
        documents = client.with_serializer(waltz.JsonSerializer())
        await documents.append(0, {"customer": "alice", "items": [1, 2, None]})
        ```
    """

    def serialize(self, value: object) -> bytes:
        """The document."""
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()

    def deserialize(self, data: bytes) -> object:
        """The value of a document."""
        value: object = json.loads(data)
        return value


class ModelSerializer(Generic[Model]):
    """Models of pydantic as JSON. Reading raises pydantic's ``ValidationError`` for data that the model refuses.

    Examples:
        ```python
        from pydantic import BaseModel


        class Order(BaseModel):
            customer: str
            amount: int


        orders = client.with_serializer(waltz.ModelSerializer(Order))
        await orders.append(0, Order(customer="alice", amount=3))
        ```
    """

    def __init__(self, model: type[Model]) -> None:
        self._model = model

    def serialize(self, value: Model) -> bytes:
        """The document, with the members' aliases."""
        return value.model_dump_json(by_alias=True).encode()

    def deserialize(self, data: bytes) -> Model:
        """The model of a document."""
        return self._model.model_validate_json(data)
