"""Documents with a checksum: what was written is read, and nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.archive.documents import decode_document, encode_document
from waltz.archive.errors import ArchiveDamagedError, NewerFormError

HEAD = b"waltz-test 1 "

documents = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(documents)
def test_a_document_is_read_as_it_was_written(document: object) -> None:
    assert decode_document(HEAD, encode_document(HEAD, document), "a test", "it") == document


@given(documents, st.data())
def test_any_change_is_found(document: object, data: st.DataObject) -> None:
    whole = encode_document(HEAD, document)
    at = data.draw(st.integers(0, len(whole) - 1))
    changed = whole[:at] + bytes([whole[at] ^ data.draw(st.integers(1, 255))]) + whole[at + 1 :]
    for damaged in (changed, whole[:at], whole + b" "):
        with pytest.raises(ArchiveDamagedError, match="^it "):
            decode_document(HEAD, damaged, "a test", "it")


def test_a_newer_form_is_no_damage() -> None:
    with pytest.raises(NewerFormError, match="it was written by a newer version of Waltz: upgrade this one"):
        decode_document(HEAD, encode_document(b"waltz-test 2 ", {}), "a test", "it")
    with pytest.raises(ArchiveDamagedError, match="it is damaged: the object is not a test"):
        decode_document(HEAD, encode_document(b"waltz-other 1 ", {}), "a test", "it")
