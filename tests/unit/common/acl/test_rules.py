"""Decisions by access rules, compared with a naive model."""

import itertools

import pytest
from hypothesis import given

from tests.unit.common.acl.rules import DOCUMENTS, NAMES, PARTITION_COUNT, PRINCIPALS
from waltz.common.access import Right
from waltz.common.acl.document import Document, Mode, PartitionMode, Quota, Rule
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.rules import EVERY_RIGHT, Decision, Rules, compile_rules
from waltz.common.pieces import at_once

PLACES = (*range(PARTITION_COUNT), None)


def _compiled(document: Document) -> Rules:
    return at_once(compile_rules(document, NAMES, PARTITION_COUNT))


def _covers(partitions: str, partition_id: int | None) -> bool:
    if partitions == "*":
        return True
    ids: set[int] = set()
    for part in ",".join(NAMES.get(part, part) for part in partitions.split(",")).split(","):
        first, _, last = part.partition("-")
        ids |= set(range(int(first), int(last or first) + 1))
    return partition_id in ids


def _gives(rule: Rule) -> set[Right]:
    given = set(rule.rights)
    if rule.allows and given & {Right.APPEND, Right.READ}:
        given |= {Right.METADATA, Right.DESCRIBE}
    if rule.allows and Right.ADMIN in given:
        given.add(Right.CONFIGURE)
    return given


def _model(document: Document, principal: str, right: Right, partition_id: int | None) -> Decision:
    names = {principal, "*", *(f"group:{name}" for name, members in document.groups.items() if principal in members)}
    about = [
        (number, rule)
        for number, rule in enumerate(document.rules, 1)
        if rule.principal in names and right in _gives(rule) and _covers(rule.partitions, partition_id)
    ]
    for allows in (False, True):
        for number, rule in about:
            if rule.allows is allows:
                return Decision(allows, number, rule)
    return Decision(False, None, None)


def _model_mode(document: Document, partition_id: int | None) -> Mode:
    own = [each.mode for each in document.modes if partition_id is not None and _covers(each.partitions, partition_id)]
    return own[0] if own else document.mode


def _model_quota(document: Document, principal: str, partition_id: int) -> Quota | None:
    groups = [f"group:{name}" for name, members in document.groups.items() if principal in members]
    for name in (principal, *groups, "*"):
        for quota in document.quotas:
            if quota.principal == name and _covers(quota.partitions, partition_id):
                return quota
    return None


@given(DOCUMENTS)
def test_quotas_hold_like_those_of_the_model(document: Document) -> None:
    rules = _compiled(document)
    for principal in PRINCIPALS:
        found = [rules.quota(principal, partition_id) for partition_id in range(PARTITION_COUNT)]
        assert found == [_model_quota(document, principal, partition_id) for partition_id in range(PARTITION_COUNT)]
        assert {quota for quota in found if quota is not None} <= set(rules.quotas_of(principal))
    for quota in document.quotas:
        places = {place for place in range(PARTITION_COUNT + 1) if rules.quota_places(quota) >> place & 1}
        assert places == {place for place in range(PARTITION_COUNT) if _covers(quota.partitions, place)}


def test_a_principal_has_one_quota_at_a_partition() -> None:
    quotas = (Quota("svc-a", "orders", 1), Quota("svc-b", "2-4", 1), Quota("svc-a", "2-4", 1))
    with pytest.raises(AclError, match=r"^quota 3: partitions of 2-4 have two quotas for svc-a$"):
        _compiled(Document(Mode.AUDIT, quotas=quotas))
    with pytest.raises(AclError, match=r"^quota 1: there is no partition 6"):
        _compiled(Document(Mode.AUDIT, quotas=(Quota("svc-a", "6", 1),)))


@given(DOCUMENTS)
def test_rules_decide_like_the_model(document: Document) -> None:
    rules = _compiled(document)
    for principal in (*PRINCIPALS, "unheard of"):
        row = rules.row(principal)
        assert len(row) == PARTITION_COUNT + 1
        assert list(rules.audited_row) == [
            sum(right.bit for right in Right) if rules.mode(place) is Mode.AUDIT else 0
            for place in (*range(PARTITION_COUNT), None)
        ]
        for right, partition_id in itertools.product(Right, PLACES):
            expected = _model(document, principal, right, partition_id)
            assert rules.decide(principal, right, partition_id) == expected
            mode = _model_mode(document, partition_id)
            assert rules.mode(partition_id) is mode
            place = rules.place(partition_id)
            assert place is not None
            assert bool(row[place] & right.bit) == (expected.allowed or mode is Mode.OFF)


def test_every_right_has_a_bit_of_one_byte() -> None:
    assert len({right.bit for right in Right}) == len(Right)
    assert sum(right.bit for right in Right) <= EVERY_RIGHT


@pytest.mark.parametrize("partition_id", [-1, PARTITION_COUNT, 1 << 31])
def test_nothing_is_allowed_where_there_is_no_partition(partition_id: int) -> None:
    rules = _compiled(Document(Mode.ENFORCE, rules=(Rule(True, "*", tuple(Right), "*"),)))
    assert rules.place(partition_id) is None
    assert rules.decide("svc-a", Right.READ, partition_id) == Decision(False, None, None)


def test_reasons() -> None:
    rules = (Rule(True, "*", (Right.APPEND, Right.READ), "*"), Rule(False, "svc-a", (Right.READ,), "odd"))
    compiled = _compiled(Document(Mode.ENFORCE, rules=rules))
    assert compiled.decide("svc-a", Right.READ, 1).reason == "rule 2 denies it"
    assert compiled.decide("svc-a", Right.READ, 0).reason == "rule 1 allows it"
    assert compiled.decide("svc-a", Right.ADMIN, 0).reason == "no rule"


@pytest.mark.parametrize(
    ("document", "error"),
    [
        (Document(Mode.AUDIT, rules=(Rule(True, "a", (Right.READ,), "7"),)), "rule 1: there is no partition 7"),
        (Document(Mode.AUDIT, rules=(Rule(True, "a", (Right.READ,), "order"),)), "rule 1: 'order' is neither"),
        (Document(Mode.AUDIT, modes=(PartitionMode("7", Mode.OFF),)), "a mode: there is no partition 7"),
        (
            Document(Mode.AUDIT, modes=(PartitionMode("0-3", Mode.OFF), PartitionMode("odd", Mode.AUDIT))),
            "the partitions odd have more than one mode",
        ),
    ],
)
def test_rules_about_what_does_not_exist_are_refused(document: Document, error: str) -> None:
    with pytest.raises(AclError, match=error):
        _compiled(document)
