"""The stored forms of access rules and of named partitions."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.common.acl.rules import DOCUMENTS, NAMES
from waltz.common.access import Right
from waltz.common.acl.document import (
    MAX_QUOTAS,
    MAX_RULES,
    Document,
    Mode,
    PartitionMode,
    Quota,
    Rule,
    partition_spans,
    read_document,
    read_names,
    write_document,
    write_names,
)
from waltz.common.acl.json_pieces import MAX_BYTES, AclError, read_json
from waltz.common.pieces import at_once

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def test_the_form_that_the_page_on_security_shows() -> None:
    data = b"""{"version": 1, "mode": "audit", "modes": [{"at": "orders", "mode": "enforce"}],
     "groups": {"pay": ["svc-a", "svc-b"]},
     "rules": [{"allow": "group:pay", "to": "append,read", "at": "orders,7"},
               {"deny": "*", "to": "admin", "at": "*"}]}"""
    expected = Document(
        Mode.AUDIT,
        (PartitionMode("orders", Mode.ENFORCE),),
        {"pay": ("svc-a", "svc-b")},
        (
            Rule(True, "group:pay", (Right.APPEND, Right.READ), "orders,7"),
            Rule(False, "*", (Right.ADMIN,), "*"),
        ),
    )
    assert at_once(read_document(data)) == expected
    assert [str(rule) for rule in expected.rules] == [
        "allow group:pay to append,read at orders,7",
        "deny * to admin at *",
    ]


def test_a_quota_as_the_page_on_security_shows_it() -> None:
    data = _document(quotas=[{"principal": "svc-a", "at": "orders", "appends_per_s": 1000, "bytes_per_s": 5000000}])
    (quota,) = at_once(read_document(data)).quotas
    assert quota == Quota("svc-a", "orders", 1000, 5_000_000)
    assert str(quota) == "quota svc-a at orders: 1000 appends/s and 5000000 bytes/s"


def test_a_document_without_quotas_is_one_that_older_nodes_read() -> None:
    assert b"quota" not in write_document(Document(Mode.AUDIT))


@given(DOCUMENTS)
def test_what_is_written_is_read(document: Document) -> None:
    assert at_once(read_document(write_document(document))) == document


def test_names_are_read_as_they_are_written() -> None:
    assert at_once(read_names(write_names(NAMES))) == NAMES


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4), st.sampled_from([None, 1]))
def test_json_in_pieces_reads_as_at_once(value: dict[str, Any], indent: int | None) -> None:
    assert at_once(read_json(json.dumps(value, indent=indent).encode(), "it")) == value


@example("{[]")
@given(st.text(alphabet='{}[]",:1 \\ntrue', max_size=12))
def test_json_in_pieces_refuses_what_is_none(text: str) -> None:
    def pairs(found: list[tuple[str, object]]) -> dict[str, object]:
        if len(dict(found)) < len(found):
            raise ValueError
        return dict(found)

    try:
        expected = json.loads(text, object_pairs_hook=pairs)
    except ValueError:
        expected = None
    if isinstance(expected, dict):
        assert at_once(read_json(text.encode(), "it")) == expected
    elif '{"' not in text.replace(" ", "").replace("\n", "")[1:]:  # members of members may be there twice
        with pytest.raises(AclError, match=r"^it are no JSON object: "):
            at_once(read_json(text.encode(), "it"))


def _document(**changes: object) -> bytes:
    fields = {"version": 1, "mode": "audit", "rules": [], **changes}
    return json.dumps({key: value for key, value in fields.items() if value is not None}).encode()


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b"", "no JSON object"),
        (b"[]", "no JSON object"),
        (b"\xff", "no JSON object"),
        (b'{"version": 1, "version": 1}', "'version' is there twice"),
        (_document(version=2), "have format 2; this version of Waltz reads format 1"),
        (_document(version=True), "have format True"),
        (_document(mode=None), "'mode' is missing"),
        (_document(mode="on"), "a mode is off, audit, enforce, not 'on'"),
        (_document(mode=["off"]), "a mode is off, audit, enforce"),
        (_document(hosts=[]), "unknown field 'hosts'"),
        (_document(rules={}), "rules: a list is expected"),
        (_document(groups=[]), "groups: an object is expected"),
        (_document(groups={"7": []}), "group '7': a name is a letter"),
        (_document(groups={"a": "b"}), "group 'a': a list is expected"),
        (_document(groups={"a": ["group:a"]}), "groups hold principals only"),
        (_document(groups={"a": [""]}), "a text is expected"),
        (_document(rules=[{"allow": "a", "to": "read", "at": "*", "host": "h"}]), "rule 1: unknown field 'host'"),
        (_document(rules=[{"to": "read", "at": "*"}]), "rule 1 has to allow or to deny"),
        (_document(rules=[{"allow": "a", "deny": "a", "to": "read", "at": "*"}]), "rule 1 has to allow or to deny"),
        (_document(rules=[{"allow": "a", "to": "write", "at": "*"}]), "rule 1: there is no right 'write'; the rights"),
        (_document(rules=[{"allow": "a", "to": "", "at": "*"}]), "rule 1: a text is expected"),
        (_document(rules=[{"allow": "group:a", "to": "read", "at": "*"}]), "rule 1: there is no group 'a'"),
        (_document(rules=[{"allow": "a" * 513, "to": "read", "at": "*"}]), "at most 512 characters"),
        (_document(rules=[{"allow": "a\n", "to": "read", "at": "*"}]), "printable text"),
        (_document(modes=[{"at": "7"}]), "'mode' is missing"),
        (_document(rules=[0] * (MAX_RULES + 1)), "10001 access rules are too many"),
        (_document(quotas={}), "quotas: a list is expected"),
        (_document(quotas=[{"principal": "a", "at": "*"}]), "quota 1 has no limit: give appends_per_s, bytes_per_s"),
        (_document(quotas=[{"principal": "a", "bytes_per_s": 1}]), "quota 1: 'at' is missing"),
        (_document(quotas=[{"principal": "a", "at": "*", "reads_per_s": 1}]), "quota 1: unknown field 'reads_per_s'"),
        (_document(quotas=[{"principal": "group:a", "at": "*", "bytes_per_s": 1}]), "quota 1: there is no group 'a'"),
        *(
            (
                _document(quotas=[{"principal": "a", "at": "*", "appends_per_s": wrong}]),
                "appends_per_s is a whole number",
            )
            for wrong in (0, -1, 1.5, True, "7", None, 10**15 + 1)
        ),
        (_document(quotas=[0] * (MAX_QUOTAS + 1)), "1001 quotas are too many"),
        (b" " * (MAX_BYTES + 1), "the limit is 524288"),
    ],
)
def test_a_document_that_is_none_is_refused(data: bytes, error: str) -> None:
    with pytest.raises(AclError, match=error):
        at_once(read_document(data))


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (b'{"version": 1}', "'names' is missing"),
        (b'{"version": 2, "names": {}}', "have format 2"),
        (b'{"version": 1, "names": {"0-3": "1"}}', "a name is a letter"),
        (b'{"version": 1, "names": {"a": "b"}}', "'b' is neither a partition, a range"),
        (b'{"version": 1, "names": {"a": 1}}', "a text is expected"),
    ],
)
def test_names_that_are_none_are_refused(data: bytes, error: str) -> None:
    with pytest.raises(AclError, match=error):
        at_once(read_names(data))


def test_partitions_of_a_rule() -> None:
    names = {"orders": "0-3,7"}
    assert partition_spans("5,orders,8-9", 10, names) == ((5, 6), (0, 4), (7, 8), (8, 10))
    for text, error in {
        "10": "there is no partition 10; the cluster has 10",
        "9-10": "there is no partition 10",
        "3-2": "ends before it begins",
        "order": "'order' is neither .* The names are orders",
        "": "'' is neither",
        "1,,2": "'' is neither",
        "-1": "'-1' is neither",
    }.items():
        with pytest.raises(AclError, match=error):
            partition_spans(text, 10, names)


def test_too_many_bytes_are_not_written() -> None:
    rules = tuple(Rule(True, f"principal-{number:0100d}", (Right.READ,), "*") for number in range(MAX_RULES))
    with pytest.raises(AclError, match="the limit is 524288"):
        write_document(Document(Mode.AUDIT, rules=rules))


def test_the_largest_documents_are_read_in_small_pieces() -> None:
    """No piece has more than a hundredth of the rules."""
    rules = tuple(Rule(True, f"p{number % 1000}", (Right.READ,), f"{number % 997}") for number in range(MAX_RULES))
    count = 0

    def counted() -> Generator[None, None, Document]:
        nonlocal count
        pieces = read_document(write_document(Document(Mode.AUDIT, rules=rules)))
        while True:
            try:
                next(pieces)
            except StopIteration as end:
                found: Document = end.value
                return found
            count += 1
            yield

    assert len(at_once(counted()).rules) == MAX_RULES
    assert count >= 2 * MAX_RULES // 100
