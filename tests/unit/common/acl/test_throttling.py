"""Which quota holds for whom, in which mode, and what is counted and said of it."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waltz.common.access import Passage, Proof
from waltz.common.acl.audit import Audit
from waltz.common.acl.document import Document, Mode, PartitionMode, Quota
from waltz.common.acl.enforcement import Applied, Row, RuleAccess
from waltz.common.acl.rules import compile_rules
from waltz.common.acl.suggestions import read_audit
from waltz.common.pieces import at_once

COUNT = 4
PEER = "10.0.0.1:5000"
ENFORCED = Document(Mode.ENFORCE, groups={"pay": ("svc-b", "svc-c")})


class Node:
    """A server's access, and its audit log."""

    def __init__(self, document: Document) -> None:
        self.lines: list[str] = []
        self.access = RuleAccess(
            COUNT, lambda subject: subject, ["ops"], Audit("node", COUNT, lambda line: self.lines.append(f"{line}\n"))
        )
        self.version = 0
        self.apply(document)
        self.access.owns(range(COUNT))

    def apply(self, document: Document) -> None:
        self.version += 1
        compiled = at_once(compile_rules(document, {}, COUNT))
        at_once(self.access.apply(Applied(self.version, compiled)))

    def counts(self) -> dict[tuple[str, str], int]:
        return {key: count for key, count in self.access.throttles.counts() if count}

    def told(self) -> list[dict[str, Any]]:
        self.access.audit.end_window()
        return [json.loads(line) for line in self.lines]


def admitted(row: Row, partition_id: int, count: int, now_s: float = 0.0) -> int:
    if row.throttle is None:
        return count
    passage = row.throttle.take(partition_id, [1] * count, PEER, now_s)
    return count if passage is None else passage.admitted


async def test_the_own_quota_comes_before_that_of_a_group_and_that_before_that_of_all() -> None:
    node = Node(
        ENFORCED._replace(
            quotas=(Quota("*", "0-2", 1), Quota("group:pay", "0-1", 2), Quota("svc-b", "0", 3), Quota("svc-d", "3", 4))
        )
    )
    found = {
        principal: [admitted(node.access.rights_of(principal), place, 9) for place in range(COUNT)]
        for principal in ("svc-a", "svc-b", "svc-c", "svc-d", "anonymous")
    }
    # The partitions of a quota share its limit: what is used at one of them is used at all.
    assert found == {
        "svc-a": [1, 0, 0, 9],
        "svc-b": [3, 2, 1, 9],
        "svc-c": [2, 0, 1, 9],
        "svc-d": [1, 0, 0, 4],
        "anonymous": [1, 0, 0, 9],
    }


async def test_super_principals_and_principals_without_a_quota_have_nothing_to_ask() -> None:
    node = Node(ENFORCED._replace(quotas=(Quota("*", "*", 1),)))
    assert node.access.rights_of("ops").throttle is None
    assert node.access.rights_of("svc-a").throttle is not None
    node.apply(ENFORCED._replace(quotas=(Quota("svc-a", "*", 1),)))
    assert node.access.rights_of("svc-b").throttle is None
    node.apply(ENFORCED)
    assert node.access.rights_of("svc-a").throttle is None


async def test_what_is_used_survives_connections_tokens_and_other_rules() -> None:
    quota = Quota("svc-a", "*", 10)
    node = Node(ENFORCED._replace(quotas=(quota,)))
    assert admitted(node.access.rights_of("svc-a"), 0, 8) == 8  # the row is gone with its connection
    assert admitted(node.access.rights_of("svc-a", Proof.TOKEN), 1, 8) == 2
    row = node.access.rights_of("svc-a")
    node.apply(ENFORCED._replace(quotas=(Quota("*", "*", 5), quota)))
    assert admitted(row, 2, 1) == 0
    node.apply(ENFORCED._replace(quotas=(quota._replace(appends_per_s=20),)))
    assert admitted(row, 2, 99) == 20


async def test_a_server_has_a_share_for_each_partition_that_it_owns() -> None:
    node = Node(ENFORCED._replace(quotas=(Quota("svc-a", "0-3", 100),)))
    node.access.owns([1])
    row = node.access.rights_of("svc-a")
    assert admitted(row, 1, 99) == 25
    node.access.owns([0, 1])
    assert admitted(row, 0, 99, now_s=1.0) == 50


async def test_the_modes_of_partitions_count_and_peers_without_a_proof_have_none() -> None:
    modes = (PartitionMode("0", Mode.OFF), PartitionMode("1", Mode.AUDIT))
    node = Node(ENFORCED._replace(modes=modes, quotas=(Quota("*", "0", 5), Quota("anonymous", "0-2", 2))))
    row = node.access.rights_of("anonymous")
    assert [admitted(row, place, 5) for place in (0, 1, 2)] == [5, 5, 0]
    assert node.counts() == {("delayed", "audit"): 2, ("refused", "audit"): 3, ("refused", "enforce"): 5}
    node.access.owns([0])
    unproved = node.access.rights_of("anonymous", Proof.NONE)
    assert admitted(unproved, 0, 5, now_s=9.0) == 1  # the share of one partition of three


async def test_another_mode_counts_at_once_for_those_who_are_appending() -> None:
    document = ENFORCED._replace(quotas=(Quota("svc-a", "*", 5),))
    node = Node(document._replace(mode=Mode.OFF))
    throttle = node.access.rights_of("svc-a").throttle
    assert throttle is not None

    def taken() -> int | None:
        passage = throttle.take(0, [1] * 9, PEER, 0.0)
        return None if passage is None else passage.admitted

    assert taken() is None
    node.apply(document)
    assert taken() == 5
    node.apply(document._replace(mode=Mode.AUDIT))
    assert taken() is None
    node.apply(document._replace(modes=(PartitionMode("0", Mode.OFF),)))
    assert taken() is None
    node.apply(document)
    assert taken() == 0
    assert node.counts() == {("refused", "enforce"): 13, ("delayed", "enforce"): 5, ("refused", "audit"): 9}


STEPS = st.lists(
    st.tuples(st.sampled_from(["svc-a", "svc-b", "ops"]), st.integers(0, COUNT - 1), st.integers(1, 9)), max_size=30
)


@given(STEPS)
def test_an_audit_foretells_what_is_refused(steps: list[tuple[str, int, int]]) -> None:
    async def run(mode: Mode) -> tuple[Any, ...]:
        node = Node(Document(mode, quotas=(Quota("svc-a", "0-1", 20), Quota("*", "2", None, 5))))
        passed = [
            admitted(node.access.rights_of(principal), place, count, number / 8)
            for number, (principal, place, count) in enumerate(steps)
        ]
        counts = {action: count for (action, _), count in node.counts().items()}
        refused = [(line["actor"], line["api"]["operation"], line["count"]) for line in node.told()]
        if mode is Mode.AUDIT:
            assert passed == [count for *_, count in steps]
        else:
            assert sum(passed) == sum(count for *_, count in steps) - counts.get("refused", 0)
        tops = [(principal, first + second) for principal, first, second in node.access.throttles.top.top(9)]
        return counts, refused, tops

    assert asyncio.run(run(Mode.AUDIT)) == asyncio.run(run(Mode.ENFORCE))


async def test_a_refusal_says_who_exceeds_what_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    node = Node(ENFORCED._replace(quotas=(Quota("group:pay", "0-1", 3, 1000),)))
    throttle = node.access.rights_of("svc-b").throttle
    assert throttle is not None
    passage = throttle.take(0, [1] * 5, PEER, 0.0)
    assert passage is not None
    text = (
        "principal 'svc-b' appends more than it may: quota group:pay at 0-1: 3 appends/s and 1000 bytes/s, of which"
        " this server has the share of 2 of 2 partitions (rules version 1); append more slowly, or raise the limit:"
        " waltz acl set-quota group:pay 0-1"
    )
    assert passage == Passage(3, 0.5, text)
    for _ in range(50):
        throttle.take(0, [1], PEER, 0.0)
    assert [record.message for record in caplog.records if "svc-b" in record.message] == [
        f"refused: {text} (from {PEER})"
    ]
    first, folded = node.told()
    assert first["api"]["operation"] == "append over quota"
    assert first["status_detail"] == text
    assert first["src_endpoint"] == {"ip": "10.0.0.1", "port": 5000}
    assert (first["count"], folded["count"]) == (1, 51)
    assert node.access.throttles.top.top(1) == [("svc-b", 52, 0)]
    assert all(asked.permitted for asked in read_audit(node.lines, "audit.jsonl")), "no grant would help"


async def test_a_delay_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    node = Node(ENFORCED._replace(quotas=(Quota("svc-a", "*", 10),)))
    row = node.access.rights_of("svc-a")
    for number in range(200):
        admitted(row, 0, 7 if number in (0, 120) else 1, now_s=number)
    delayed = [record.message for record in caplog.records if record.message.startswith("delayed: principal 'svc-a'")]
    assert len(delayed) == 2


async def test_idle_uses_are_forgotten_and_others_are_not() -> None:
    node = Node(ENFORCED._replace(quotas=(Quota("*", "*", 2),)))
    busy = node.access.rights_of("busy")
    for number in range(2500):
        assert admitted(node.access.rights_of(f"svc-{number}"), 0, 1, now_s=float(number)) == 1
        admitted(busy, 0, 9, now_s=float(number))
    assert len(node.access.throttles._usages) <= 1000
    assert admitted(busy, 1, 9, now_s=2499.0) == 0
