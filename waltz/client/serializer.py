"""How applications turn their objects into transaction data and back."""

from typing import Protocol, TypeVar

T = TypeVar("T")
Made = TypeVar("Made", covariant=True)


class Deserializer(Protocol[Made]):
    """Turns bytes into objects. Must be a pure function of its argument."""

    def deserialize(self, data: bytes) -> Made:
        """The object that ``data`` was made of."""
        ...


class Serializer(Protocol[T]):
    """Turns objects into bytes and back. Must be a pure function of its argument."""

    def serialize(self, value: T) -> bytes:
        """The bytes that are appended to the log."""
        ...

    def deserialize(self, data: bytes) -> T:
        """The object whose :meth:`serialize` gave ``data``."""
        ...


class BytesSerializer:
    """For applications whose data are bytes already."""

    def serialize(self, value: bytes) -> bytes:
        """``value`` itself."""
        return value

    def deserialize(self, data: bytes) -> bytes:
        """``data`` itself."""
        return data


class StringSerializer:
    """Strings as UTF-8; raises ``UnicodeError`` for what is none."""

    def serialize(self, value: str) -> bytes:
        """UTF-8 bytes."""
        return value.encode()

    def deserialize(self, data: bytes) -> str:
        """The string of UTF-8 bytes."""
        return data.decode()
