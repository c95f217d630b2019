"""The rights of peers by the rules that a node applies."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import example, given

from tests.unit.common.acl.rules import DOCUMENTS, NAMES, PARTITION_COUNT, PRINCIPALS
from waltz.common.access import ANONYMOUS, Proof, Right
from waltz.common.acl.audit import Audit
from waltz.common.acl.document import Document, Mode, PartitionMode, Rule
from waltz.common.acl.enforcement import Applied, Row, RuleAccess
from waltz.common.acl.rules import compile_rules
from waltz.common.pieces import at_once

COUNT = 4


def applying(document: Document) -> RuleAccess:
    access = RuleAccess(COUNT, lambda subject: subject, [])
    at_once(access.apply(Applied(3, at_once(compile_rules(document, {}, COUNT)))))
    return access


@pytest.mark.parametrize(
    "document",
    [
        Document(Mode.OFF),
        Document(Mode.AUDIT),
        Document(Mode.ENFORCE, modes=(PartitionMode("0", Mode.OFF), PartitionMode("1", Mode.AUDIT))),
    ],
)
async def test_a_peer_that_proves_nothing_has_no_rights_but_by_rules_in_any_mode(document: Document) -> None:
    """TLS did not let it in before the node took tokens."""
    access = applying(document._replace(rules=(Rule(True, ANONYMOUS, (Right.DESCRIBE,), "*"),)))
    rights = access.rights_of(ANONYMOUS, Proof.NONE)
    for partition_id in (0, 1, None):
        assert rights.refusal(Right.DESCRIBE, partition_id) is None
        assert rights.permits(Right.DESCRIBE, partition_id)
        assert not rights.permits(Right.READ, partition_id)
        refusal = rights.refusal(Right.READ, partition_id)
        assert refusal is not None
        assert "principal 'anonymous' (neither a certificate nor a token) may not read" in refusal
    assert not rights.lenient
    readers_of_pages = access.rights_of(ANONYMOUS)
    assert readers_of_pages.refusal(Right.READ, 0) is None


async def test_what_it_may_changes_with_the_rules() -> None:
    access = applying(Document(Mode.OFF))
    rights, other = access.rights_of(ANONYMOUS, Proof.NONE), access.rights_of(ANONYMOUS)
    rules = (Rule(True, ANONYMOUS, (Right.READ,), "0"),)
    lost = at_once(access.apply(Applied(4, at_once(compile_rules(Document(Mode.AUDIT, rules=rules), {}, COUNT)))))
    assert lost == [other]
    assert rights.refusal(Right.READ, 0) is None
    assert rights.refusal(Right.READ, 1) is not None
    assert other.lenient
    assert not rights.lenient


@given(DOCUMENTS, DOCUMENTS)
@example(Document(Mode.AUDIT), Document(Mode.ENFORCE))
@example(Document(Mode.ENFORCE, modes=(PartitionMode("0", Mode.AUDIT),)), Document(Mode.ENFORCE))
def test_peers_are_judged_anew_that_lose_a_right_or_the_leave_of_an_audit(before: Document, after: Document) -> None:
    access = RuleAccess(PARTITION_COUNT, lambda subject: subject, ["ops"])
    at_once(access.apply(Applied(1, at_once(compile_rules(before, NAMES, PARTITION_COUNT)))))
    peers = [
        *(access.rights_of(principal) for principal in (*PRINCIPALS, "unheard of", "ops")),
        access.rights_of(ANONYMOUS, Proof.NONE),
    ]
    requests = list(itertools.product(Right, (*range(PARTITION_COUNT), None)))

    def what_it_may(row: Row) -> set[object]:
        assert access.applied is not None
        rules = access.applied.rules
        permitted = {("is permitted", *request) for request in requests if row.permits(*request)}
        audited = {("passes", *each) for each in requests if rules.mode(each[1]) is Mode.AUDIT and not row.unproved}
        return permitted | {("passes", *request) for _, *request in permitted} | audited

    had = [what_it_may(row) for row in peers]
    lost = at_once(access.apply(Applied(2, at_once(compile_rules(after, NAMES, PARTITION_COUNT)))))
    expected = [row for row, may in zip(peers, had, strict=True) if may - what_it_may(row)]
    assert [row for row in peers if row in lost] == expected


async def test_lists_are_filtered_where_rules_are_enforced_and_the_audit_tells_so() -> None:
    lines: list[dict[str, Any]] = []
    audit = Audit("server-a:1", COUNT, lambda line: lines.append(json.loads(line)))
    access = RuleAccess(COUNT, lambda subject: subject, ["ops"], audit)
    modes = (PartitionMode("1", Mode.AUDIT), PartitionMode("2", Mode.OFF))
    rules = (Rule(True, "svc-a", (Right.DESCRIBE,), "0"),)
    document = Document(Mode.ENFORCE, modes=modes, rules=rules)
    at_once(access.apply(Applied(3, at_once(compile_rules(document, {}, COUNT)))))

    def seen(principal: str) -> list[int]:
        return access.rights_of(principal).filtered(Right.DESCRIBE, range(COUNT), "list", "10.0.0.1:5")

    assert (seen("ops"), lines) == ([0, 1, 2, 3], [])
    assert seen("svc-a") == [0, 1, 2]
    assert seen("svc-b") == [1, 2]
    told = [
        (line["actor"]["user"]["name"], line["api"]["operation"], line["unmapped"]["outcome"], line["unmapped"]["at"])
        for line in lines
    ]
    assert told == [
        ("svc-a", "list", "filtered", "3"),
        ("svc-a", "list", "would filter", "1"),
        ("svc-b", "list", "filtered", "0,3"),
        ("svc-b", "list", "would filter", "1"),
    ]
    assert "may not describe partition 3: no rule" in lines[0]["status_detail"]
    assert not any(count for _, count in access.refusals.counts()), "nothing was refused"


async def test_a_list_is_refused_only_to_those_who_may_see_nothing() -> None:
    access = applying(Document(Mode.ENFORCE, rules=(Rule(True, "svc-a", (Right.DESCRIBE,), "2"),)))
    assert access.rights_of("svc-a").refusal_anywhere(Right.DESCRIBE) is None
    assert "may not describe this node" in str(access.rights_of("svc-b").refusal_anywhere(Right.DESCRIBE))
    audited = applying(Document(Mode.AUDIT))
    assert audited.rights_of("svc-b").refusal_anywhere(Right.DESCRIBE) is None
    assert dict(audited.refusals.counts())["describe", "audit"] == 1


async def test_connections_count_for_principals_but_not_for_nodes_and_strangers() -> None:
    rules = (Rule(True, "server-1", (Right.CLUSTER,), "*"), Rule(True, "svc-a", (Right.APPEND,), "*"))
    access = RuleAccess(COUNT, lambda subject: subject.removeprefix("CN="), ["ops"])
    at_once(access.apply(Applied(3, at_once(compile_rules(Document(Mode.AUDIT, rules=rules), {}, COUNT)))))
    names = ("CN=svc-a", "svc-b", "CN=server-1", "ops", ANONYMOUS)
    assert [access.counted_name(name, Proof.CERTIFICATE) for name in names] == ["svc-a", "svc-b", None, None, None]
    assert access.counted_name("svc-a", Proof.TOKEN) == "svc-a"
    assert access.counted_name(ANONYMOUS, Proof.NONE) is None
