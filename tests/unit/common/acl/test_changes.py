"""Changes of access rules by commands."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.unit.common.acl.rules import DOCUMENTS, NAMES, PARTITION_COUNT, PRINCIPALS, RULES
from waltz.common.access import Right
from waltz.common.acl import changes
from waltz.common.acl.document import Document, Mode, PartitionMode, Quota, Rule
from waltz.common.acl.json_pieces import AclError
from waltz.common.acl.rules import compile_rules
from waltz.common.pieces import at_once

RULE = Rule(True, "svc-a", (Right.APPEND,), "7")


ABOUT_ONE = st.builds(lambda rule, principal: rule._replace(principal=principal), RULES, st.sampled_from(PRINCIPALS))
"""Rules about one principal, whose rights can be looked at."""


@given(DOCUMENTS, ABOUT_ONE)
def test_what_is_granted_is_allowed_unless_another_rule_denies_it(document: Document, rule: Rule) -> None:
    wanted = rule._replace(allows=True)
    after = changes.granted(document, wanted)
    assert changes.granted(after, wanted) == after
    compiled = at_once(compile_rules(after, NAMES, PARTITION_COUNT))
    principal = wanted.principal
    for right in wanted.rights:
        for place in compiled.places(wanted.partitions, NAMES):
            decision = compiled.decide(principal, right, place)
            assert decision.allowed or (decision.rule is not None and not decision.rule.allows)


@given(DOCUMENTS, ABOUT_ONE, st.booleans())
def test_what_is_revoked_is_not_allowed(document: Document, rule: Rule, deny: bool) -> None:
    unwanted = rule._replace(allows=True)
    try:
        after = changes.revoked(document, unwanted, NAMES, PARTITION_COUNT, deny=deny)
    except AclError as error:
        assume(deny)  # without a rule that denies it may be impossible
        raise AssertionError from error
    compiled = at_once(compile_rules(after, NAMES, PARTITION_COUNT))
    for right in unwanted.rights:
        for place in compiled.places(unwanted.partitions, NAMES):
            assert not compiled.decide(unwanted.principal, right, place).allowed


def test_rights_at_the_same_partitions_are_one_rule() -> None:
    document = changes.granted(Document(Mode.AUDIT, rules=(RULE,)), RULE._replace(rights=(Right.READ,)))
    assert [str(rule) for rule in document.rules] == ["allow svc-a to append,read at 7"]
    document = changes.revoked(document, RULE, {}, 8, deny=False)
    assert [str(rule) for rule in document.rules] == ["allow svc-a to read at 7"]
    document = changes.revoked(document, RULE, {}, 8, deny=True)
    document = changes.granted(document, RULE)
    assert [str(rule) for rule in document.rules] == ["allow svc-a to read,append at 7"]


def test_what_another_rule_still_allows_is_not_revoked() -> None:
    wide = Document(Mode.AUDIT, rules=(RULE._replace(partitions="0-7"),))
    with pytest.raises(AclError, match=r"by rule 1 \(allow svc-a to append at 0-7\).*add --deny"):
        changes.revoked(wide, RULE, {}, 8, deny=False)
    with pytest.raises(AclError, match="there is no rule: allow svc-b to append at 7"):
        changes.revoked(wide, RULE._replace(principal="svc-b"), {}, 8, deny=False)


def test_modes() -> None:
    document = changes.with_mode(Document(Mode.AUDIT), Mode.ENFORCE, None)
    document = changes.with_mode(document, Mode.OFF, "0-3")
    document = changes.with_mode(document, Mode.AUDIT, "0-3")
    assert document == Document(Mode.ENFORCE, (PartitionMode("0-3", Mode.AUDIT),))


def test_differences_are_lines() -> None:
    before = changes.initial(["server-1"], ["ops"])
    after = changes.with_mode(changes.granted(before, RULE), Mode.ENFORCE, None)
    assert changes.difference(before, after) == ["- mode audit", "+ mode enforce", "+ allow svc-a to append at 7"]
    assert changes.difference(before, before) == []
    assert changes.lines_of(before) == [
        "mode audit",
        "allow anonymous to describe at *",
        "allow server-1 to cluster,describe at *",
        "allow ops to append,read,metadata,describe,fence,admin at *",
    ]
    groups = before._replace(groups={"pay": ("svc-a", "svc-b")})
    assert changes.difference(before, groups) == ["+ group pay: svc-a, svc-b"]


def test_quotas_are_set_in_their_place_and_taken_away() -> None:
    quotas = (Quota("svc-a", "0", 1), Quota("svc-a", "1", 2))
    document = Document(Mode.AUDIT, quotas=quotas)
    other = Quota("svc-a", "0", None, 7)
    assert changes.with_quota(document, other).quotas == (other, quotas[1])
    assert changes.with_quota(document, Quota("svc-b", "0", 3)).quotas == (*quotas, Quota("svc-b", "0", 3))
    assert changes.without_quota(document, "svc-a", "0").quotas == quotas[1:]
    with pytest.raises(
        AclError, match=r"no quota of svc-a at 0-1; the quotas of svc-a: quota svc-a at 0: 1 appends/s;"
    ):
        changes.without_quota(document, "svc-a", "0-1")
    with pytest.raises(AclError, match="the quotas of svc-c: none$"):
        changes.without_quota(document, "svc-c", "*")
    assert changes.difference(document, changes.with_quota(document, other)) == [
        "- quota svc-a at 0: 1 appends/s",
        "+ quota svc-a at 0: 7 bytes/s",
    ]


def test_changes_of_rules_keep_quotas() -> None:
    document = Document(Mode.AUDIT, quotas=(Quota("svc-a", "*", 1),))
    assert changes.granted(document, RULE).quotas == document.quotas
    granted = changes.granted(document, RULE)
    assert changes.revoked(granted, RULE, {}, 8, deny=True).quotas == document.quotas
    assert changes.with_mode(document, Mode.ENFORCE, "0").quotas == document.quotas
