"""Catalogues: the messages of one version of a protocol, and their encoding to and from frames."""

import struct
from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from waltz.common.errors import ProtocolError
from waltz.common.wire.fields import Field, structure
from waltz.common.wire.frames import FRAME_HEADER

M = TypeVar("M")


class Layout(NamedTuple, Generic[M]):
    """The class of a message, and its payload after the type byte."""

    message_class: type[M]
    body: Field[M]


def layout(message_class: type[M], *fields: Field[Any]) -> Layout[M]:
    """The layout of a NamedTuple whose fields follow each other in the payload."""
    return Layout(message_class, structure(message_class, *fields))


class Catalogue(Generic[M]):
    """The messages of one version of one protocol, by type byte."""

    def __init__(self, magic: int, version: int, layouts: Mapping[int, Layout[Any]]) -> None:
        self._magic = magic
        self._version = version
        self._decoders = {
            number: (found.message_class.__name__, found.body.decode) for number, found in layouts.items()
        }
        self._encoders = {
            found.message_class: (bytes([number]), found.body.encode) for number, found in layouts.items()
        }

    def encode(self, message: M) -> bytes:
        """Encode a message as a whole frame.

        Raises:
            ProtocolError: This version has no such message, or cannot express one of its values.
        """
        name = type(message).__name__
        try:
            number, encode_body = self._encoders[type(message)]
        except KeyError:
            raise ProtocolError(f"version {self._version} of the protocol has no {name}") from None
        try:
            body = encode_body(message)
            header = FRAME_HEADER.pack(self._magic, self._version, len(body) + 1)
        except (struct.error, ProtocolError) as error:
            raise ProtocolError(f"{name}: {error}") from None
        return b"".join((header, number, body))

    def decode(self, buffer: bytes, start: int, end: int) -> M:
        """Decode the payload ``buffer[start:end]``.

        Raises:
            ProtocolError: The type is unknown, a field runs past the end, bytes are left over, or the protocol does not
                allow a value.
        """
        if not 0 <= start < end <= len(buffer):
            raise ProtocolError("a message without a type")
        try:
            name, decode_body = self._decoders[buffer[start]]
        except KeyError:
            raise ProtocolError(
                f"unknown message type {buffer[start]} in version {self._version} of the protocol"
            ) from None
        try:
            message, position = decode_body(buffer, start + 1, end)
        except ProtocolError as error:
            raise ProtocolError(f"{name}: {error}") from None
        if position != end:
            raise ProtocolError(f"{name}: {end - position} bytes left over")
        return message  # type: ignore[no-any-return]  # the table holds the layouts of M's members only
