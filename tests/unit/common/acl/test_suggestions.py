"""Rules suggested by audit logs, and other rules tried on them."""

import asyncio
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.common.acl.rules import DOCUMENTS, NAMES, PARTITION_COUNT, PRINCIPALS
from waltz.common.access import Action, Right
from waltz.common.acl import changes
from waltz.common.acl.audit import Audit, Event, Outcome, refused_token
from waltz.common.acl.document import Document, Mode, PartitionMode, Rule
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.rules import Rules, compile_rules
from waltz.common.acl.suggestions import Asked, Refused, read_audit, replay, suggest
from waltz.common.pieces import at_once

PLACES = (*range(PARTITION_COUNT), None)
ASKED = st.builds(
    Asked,
    st.sampled_from(PRINCIPALS),
    st.sampled_from(list(Right)),
    st.frozensets(st.sampled_from(PLACES), min_size=1),
    st.integers(1, 9),
    st.just(False),
)


def compiled(document: Document, names: dict[str, str] = NAMES) -> Rules:
    return at_once(compile_rules(document, names, PARTITION_COUNT))


def asked(*words: tuple[Right, Sequence[int | None]], principal: str = "svc-a") -> list[Asked]:
    return [Asked(principal, right, frozenset(places), 1) for right, places in words]


def _pairs(refused: Sequence[Refused]) -> set[tuple[str, Right, int | None]]:
    return {(each.principal, each.right, place) for each in refused for place in each.places}


@given(DOCUMENTS, st.lists(ASKED, max_size=12))
def test_what_is_suggested_permits_what_can_be_permitted(document: Document, noted: list[Asked]) -> None:
    """And no partition gets a right that was not asked for, unless the nodes need it."""
    rules = compiled(document)
    suggestion = suggest(noted, rules, NAMES)
    for rule in suggestion.rules:
        document = changes.granted(document, rule)
    after = compiled(document)
    denied = _pairs(suggestion.denied)
    assert _pairs(replay(noted, after)) <= denied
    assert suggest(noted, after, NAMES).rules == []
    for principal, right, place in itertools.product(PRINCIPALS, Right, PLACES):
        if after.decide(principal, right, place).allowed and not rules.decide(principal, right, place).allowed:
            reasons = [
                each
                for each in noted
                if each.principal == principal
                and (each.right is right or each.right in (Right.APPEND, Right.READ, Right.ADMIN))
                and (place in each.places or None in each.places)
            ]
            assert reasons


@pytest.mark.parametrize(
    ("noted", "rules"),
    [
        ([(Right.APPEND, [4])], ["allow svc-a to append at 4"]),
        ([(Right.APPEND, [0, 1, 2, 4])], ["allow svc-a to append at orders,4"]),
        ([(Right.APPEND, [1, 3, 5])], ["allow svc-a to append at odd"]),
        ([(Right.APPEND, [3, 4, 5])], ["allow svc-a to append at 3-5"]),
        ([(Right.APPEND, [3]), (Right.APPEND, [4])], ["allow svc-a to append at 3-4"]),
        ([(Right.READ, [4]), (Right.APPEND, [4])], ["allow svc-a to append,read at 4"]),
        ([(Right.READ, [4]), (Right.METADATA, [4]), (Right.DESCRIBE, [4])], ["allow svc-a to read at 4"]),
        (
            [(Right.READ, [4]), (Right.METADATA, [4, 5])],
            ["allow svc-a to read at 4", "allow svc-a to metadata at 5"],
        ),
        ([(Right.DESCRIBE, [None])], ["allow svc-a to describe at *"]),
        ([(Right.DESCRIBE, [None]), (Right.ADMIN, [None, 3])], ["allow svc-a to describe,admin at *"]),
        (
            [(Right.DESCRIBE, [None]), (Right.APPEND, [4])],
            ["allow svc-a to append at 4", "allow svc-a to describe at *"],
        ),
        (  # three sets of partitions, and two rules
            [(Right.APPEND, [3]), (Right.FENCE, [4]), (Right.READ, [3, 4])],
            ["allow svc-a to append,read at 3", "allow svc-a to read,fence at 4"],
        ),
    ],
)
def test_the_least_rules(noted: list[tuple[Right, Sequence[int | None]]], rules: list[str]) -> None:
    found = suggest(asked(*noted), compiled(Document(Mode.AUDIT)), NAMES)
    assert [str(rule) for rule in found.rules] == rules


def test_a_rule_that_denies_is_told() -> None:
    rules = (Rule(False, "*", (Right.READ,), "odd"), Rule(True, "svc-b", (Right.READ,), "*"))
    noted = [*asked((Right.READ, [0, 1, 3])), *asked((Right.READ, [0, 5]), principal="svc-b")]
    found = suggest(noted, compiled(Document(Mode.AUDIT, rules=rules)), NAMES)
    assert [str(rule) for rule in found.rules] == ["allow svc-a to read at 0"]
    assert [str(each) for each in found.denied] == [
        "svc-a: read at 1,3: rule 1 denies it (deny * to read at odd); 1 requests at most",
        "svc-b: read at 5: rule 1 denies it (deny * to read at odd); 1 requests at most",
    ]


def test_other_rules_are_tried() -> None:
    """Their mode does not count, unless it is off."""
    noted = [*asked((Right.READ, [0, 1, 3])), *asked((Right.READ, [3, None]))]
    rules = Document(Mode.AUDIT, (PartitionMode("0", Mode.OFF),), rules=(Rule(True, "svc-a", (Right.READ,), "1"),))
    assert [str(each) for each in replay(noted, compiled(rules))] == ["svc-a: read at *: no rule; 2 requests at most"]
    assert replay(asked((Right.READ, [PARTITION_COUNT])), compiled(rules)) == []


async def test_the_log_of_a_node_is_read() -> None:
    lines: list[str] = []
    access = RuleAccess(
        PARTITION_COUNT, lambda subject: subject, [], Audit("node", PARTITION_COUNT, lambda line: lines.append(line))
    )
    at_once(access.apply(Applied(1, compiled(Document(Mode.AUDIT)))))
    row = access.rights_of("svc-a")
    for right, place in itertools.product((Right.APPEND, Right.READ, Right.FENCE, Right.DESCRIBE), PLACES[2:]):
        for _ in range(2):
            row.refusal(right, place, "10.0.0.1:5")
    row.refusal(Right.APPEND, PARTITION_COUNT)
    row.acted(Action("repair", Right.ADMIN, [2], "10.0.0.1:5"))
    access.audit.end_window()
    text = [f"{line}\n" for line in lines]
    noted = list(read_audit([*text, text[0][:40]], "audit.log"))
    assert sum(each.requests for each in noted) == 2 * 4 * (PARTITION_COUNT - 1) + 2
    rules = [str(rule) for rule in suggest(noted, access.applied.rules, NAMES).rules]  # type: ignore[union-attr]  # set
    assert rules == ["allow svc-a to append,read,fence at *"]
    others = Document(Mode.ENFORCE, rules=(Rule(True, "svc-a", (Right.APPEND, Right.READ, Right.FENCE), "*"),))
    assert [str(each) for each in replay(noted, compiled(others))] == ["svc-a: admin at 2: no rule; 1 requests at most"]
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    "line", ["{}", "[]", "x", '{"unmapped": {"right": "fly", "outcome": "done"}, "actor": {"user": {"name": "a"}}}']
)
def test_what_is_no_audit_log_is_refused(line: str) -> None:
    with pytest.raises(AclError, match=r"audit.log:1: no line of an audit log: "):
        list(read_audit([f"{line}\n"], "audit.log"))


async def test_what_was_left_out_of_a_list_was_not_asked_for() -> None:
    lines: list[str] = []
    audit = Audit("server-a:1", PARTITION_COUNT, lambda line: lines.append(f"{line}\n"))
    for outcome in (Outcome.FILTERED, Outcome.WOULD_FILTER):
        audit.note(Event("svc-a", "list partitions", Right.DESCRIBE, outcome, ""), [3], lambda: "no rule")
    assert len(lines) == 2
    assert list(read_audit(lines, "audit.jsonl")) == []


async def test_a_refused_token_asks_for_nothing_since_its_principal_is_only_claimed() -> None:
    lines: list[str] = []
    audit = Audit("server-a:1", PARTITION_COUNT, lambda line: lines.append(f"{line}\n"))
    audit.note(refused_token("svc-a", "10.0.0.1:5000", 1), (), lambda: "it has expired")
    audit.note(Event("svc-a", "append", Right.APPEND, Outcome.REFUSED, ""), [3], lambda: "no rule")
    assert len(lines) == 2
    assert list(read_audit(lines, "audit.jsonl")) == [Asked("svc-a", Right.APPEND, frozenset({3}), 1)]
