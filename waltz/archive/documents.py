"""Small documents of an object store: a line with the checksum, and a line of JSON. Pure."""

import json
from typing import Any

from waltz.archive.errors import ArchiveDamagedError, NewerFormError
from waltz.common.checksum import crc32

_CHECKSUM_BYTES = 9
"""With the end of the line."""


def encode_document(head: bytes, document: object) -> bytes:
    """The bytes of a document. ``head`` names its kind, and ends with the version of its form and a space."""
    body = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    return b"%s%08x\n%s" % (head, crc32(body), body)


def decode_document(head: bytes, data: bytes, kind: str, name: str) -> Any:
    """The document again. ``kind`` says in errors what is expected, and ``name`` begins their texts.

    Raises ``ArchiveDamagedError``, and ``NewerFormError`` for a form of a later version.
    """
    if data[: len(head)] != head:
        if data.startswith(head[:-2]):
            raise NewerFormError(f"{name} was written by a newer version of Waltz: upgrade this one")
        raise ArchiveDamagedError(f"{name} is damaged: the object is not {kind}")
    begin = len(head) + _CHECKSUM_BYTES
    body = data[begin:]
    if data[len(head) : begin] != b"%08x\n" % crc32(body):
        raise ArchiveDamagedError(f"{name} is truncated or damaged: the checksum does not match")
    return json.loads(body)
