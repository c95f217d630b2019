"""The checks of access rules notice what must not be."""

import json

import pytest
from hypothesis import HealthCheck, given, settings

from tests.simulation.access_checks import AccessChecks, Place
from tests.simulation.access_model import UNUSABLE, Text, Verdict
from tests.unit.common.acl.rules import DOCUMENTS, NAMES, PARTITION_COUNT, PRINCIPALS
from waltz.common.acl.document import RIGHTS, Document, Mode, write_document, write_names
from waltz.common.acl.rules import compile_rules
from waltz.common.pieces import at_once

NODE, SUPER = "server-0", "CN=ops"
PASSES, NOTED, REFUSED = Verdict.PASSES, Verdict.NOTED, Verdict.REFUSED


@settings(deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow])
@given(DOCUMENTS)
def test_the_model_decides_as_nodes_do(document: Document) -> None:
    rules = at_once(compile_rules(document, NAMES, PARTITION_COUNT))
    text = Text(write_document(document), write_names(NAMES), PARTITION_COUNT, SUPER)
    assert text.usable
    for principal in (*PRINCIPALS, "unheard of"):
        for partition_id in (*range(PARTITION_COUNT), None):
            mode = rules.mode(partition_id)
            for name, right in RIGHTS.items():
                passes = mode is Mode.OFF or rules.decide(principal, right, partition_id).allowed
                expected = PASSES if passes else NOTED if mode is Mode.AUDIT else REFUSED
                assert text.verdict(principal, name, partition_id) is expected
        for partition_id in range(PARTITION_COUNT):
            quota, found = rules.quota(principal, partition_id), text.quota(principal, partition_id)
            limits = None if found is None else (found.holder, found.appends_per_s, found.bytes_per_s)
            assert limits == (None if quota is None else (quota.principal, quota.appends_per_s, quota.bytes_per_s))


def rules(mode: str = "enforce", *permitted: str, quota: int | None = None) -> bytes:
    """``svc`` has these rights; its appends at partitions 0 and 1 have a limit."""
    quotas = [] if quota is None else [{"principal": "svc", "at": "0-1", "appends_per_s": quota}]
    given = [{"allow": "svc", "to": ",".join(permitted), "at": "*"}] if permitted else []
    return json.dumps({"version": 1, "mode": mode, "rules": given, "quotas": quotas}).encode()


class Checked:
    """Checks, what they found, and a node that follows the rules."""

    def __init__(self, *versions: bytes) -> None:
        self.failures: list[str] = []
        self.checks = AccessChecks(self.failures.append, 2, SUPER)
        for number, data in enumerate(versions, 1):
            self.checks.rules_written(number, data)

    def says(self, version: int) -> None:
        self.checks.says(NODE, (version, 0))
        self.checks.has_said(NODE)

    def judged(self, verdict: Verdict, right: str = "append", *, noted: bool = False) -> bool:
        """Whether a decision passes the checks."""
        before = len(self.failures)
        self.checks.judged(NODE, "svc", right, 0, noted=noted, verdict=verdict)
        return len(self.failures) == before


def test_a_node_may_decide_by_what_it_says_and_by_newer_rules() -> None:
    checked = Checked(rules("enforce", "append"), rules("enforce", "read"), rules("audit"))
    assert checked.judged(PASSES)
    assert checked.judged(REFUSED)
    checked.says(2)
    assert not checked.judged(PASSES)
    assert checked.judged(REFUSED)
    assert checked.judged(NOTED)
    checked.says(3)
    assert checked.judged(NOTED)
    assert not checked.judged(PASSES)
    assert checked.judged(PASSES, noted=True)
    assert not checked.judged(REFUSED)


def test_a_node_without_rules_refuses_all_but_super_principals() -> None:
    checked = Checked()
    assert checked.judged(REFUSED)
    assert not checked.judged(PASSES)
    checked.checks.judged(NODE, SUPER, "admin", None, noted=False, verdict=PASSES)
    assert len(checked.failures) == 1


def test_rules_that_cannot_be_used_change_nothing() -> None:
    checked = Checked(rules("enforce", "append"), b'{"mode": "off", "%s": 1}' % UNUSABLE)
    checked.says(1)
    assert checked.judged(PASSES)
    assert not checked.judged(PASSES, "fence")
    checked.checks.says(NODE, (2, 0))
    assert "cannot be used" in checked.failures[-1]


@pytest.mark.parametrize("place", [(1, 0), (2, 0)])
def test_a_node_does_not_go_back(place: Place) -> None:
    checked = Checked(rules(), rules(), rules())
    checked.says(3)
    checked.checks.says(NODE, place)
    assert "after (3, 0)" in checked.failures[-1]


def test_an_append_without_its_right_gets_no_place() -> None:
    checked = Checked(rules("enforce", "append"), rules())
    checked.checks.placed(NODE, "svc", 0, [b"1"])
    checked.says(1)
    checked.checks.placed(NODE, "svc", 0, [b"2"])
    assert not checked.failures
    checked.says(2)
    checked.checks.placed(NODE, "svc", 0, [b"3"])
    assert "gives an append of svc its place" in checked.failures[-1]


def test_the_audit_notes_what_gets_its_place() -> None:
    checked = Checked(rules("audit"))
    checked.says(1)
    checked.checks.noted_appends(NODE, "svc", 0, 2)
    checked.checks.placed(NODE, "svc", 0, [b"1", b"2"])
    checked.checks.placed(NODE, "svc", 0, [b"2"])  # again, in another session
    assert not checked.failures
    checked.checks.placed(NODE, "svc", 0, [b"3"])
    assert "the audit has noted 2" in checked.failures[-1]


def test_what_has_begun_ends_when_a_node_has_said_so() -> None:
    checked = Checked(rules("enforce", "read"), rules())
    checked.says(1)
    checked.checks.served(NODE, "svc", 0, "a bulk read")
    checked.checks.says(NODE, (2, 0))
    checked.checks.goes_on(NODE, "svc", 0, "a feed", "metadata")  # it ends within the next turns
    assert not checked.failures
    checked.checks.served(NODE, "svc", 0, "a bulk read")
    assert "do not permit that" in checked.failures[-1]
    checked.checks.has_said(NODE)
    checked.checks.goes_on(NODE, "svc", 0, "a feed", "metadata")
    assert "goes on" in checked.failures[-1]


@pytest.mark.parametrize(("owned", "admitted"), [((0, 1), 10), ((0,), 5), ((1,), 5)])
def test_a_server_takes_no_more_than_its_part_of_a_quota(owned: tuple[int, ...], admitted: int) -> None:
    checked = Checked(rules("enforce", "append", quota=10))
    checked.says(1)
    checked.checks.owns(NODE, owned)
    for _ in range(admitted):
        checked.checks.admits(NODE, "svc", owned[0], [100], 0.0)
    checked.checks.admits(NODE, "svc", owned[0], [100] * (admitted // 5), 0.2)
    checked.checks.admits(NODE, "svc", owned[0], [100], 0.2)  # at the very limit
    assert not checked.failures
    checked.checks.admits(NODE, "svc", owned[0], [100], 0.2)
    assert "are used of" in checked.failures[-1]


def test_a_quota_is_not_begun_anew() -> None:
    """Neither by other rules that have it, nor by another partition; only where it was gone."""
    checked = Checked(*(rules("enforce", "append", *more, quota=10) for more in ((), ("read",))), rules("off"), rules())
    checked.says(1)
    checked.checks.owns(NODE, (0,))
    checked.checks.admits(NODE, "svc", 0, [1] * 6, 0.0)
    checked.says(2)
    checked.checks.owns(NODE, (0, 1))
    assert not checked.failures
    checked.checks.admits(NODE, "svc", 1, [1], 0.0)
    assert len(checked.failures) == 1
    checked.says(3)
    checked.checks.rules_written(5, rules("enforce", "append", quota=10))
    checked.says(5)
    checked.checks.admits(NODE, "svc", 1, [1] * 10, 0.0)
    assert len(checked.failures) == 1
    checked.checks.admits(NODE, "svc", 1, [1] * 2, 0.0)
    assert len(checked.failures) == 2


def test_names_that_rules_need_and_that_are_not_there_make_them_unusable() -> None:
    named = json.dumps(
        {"version": 1, "mode": "off", "rules": [{"allow": "svc", "to": "append", "at": "some"}]}
    ).encode()
    assert not Text(named, None, 2, SUPER).usable
    assert Text(named, write_names({"some": "0-1"}), 2, SUPER).usable


def test_an_audit_only_would_refuse_what_exceeds_a_quota() -> None:
    checked = Checked(rules("audit", "append", quota=10))
    checked.says(1)
    checked.checks.owns(NODE, (0, 1))
    checked.checks.admits(NODE, "svc", 0, [1] * 100, 0.0)
    assert not checked.failures


@pytest.mark.parametrize("owners", [1, 2])
def test_all_servers_together_take_no_more_than_a_quota(owners: int) -> None:
    """Whatever they take for their parts; a server that has not heard of the present owners does not count."""
    checked = Checked(rules("enforce", "append", quota=10))
    checks = checked.checks
    nodes = ("server-0", "server-1")
    checks.assigned({1: (0, 1)})
    for node in nodes:
        checks.says(node, (1, 0))
        checks.owns(node, (0, 1))  # both think that they have all of the limit
    checks.told(nodes[0], 1, (0, 1))
    checks.admits(nodes[0], "svc", 0, [1] * 10, 0.0)
    assert not checked.failures
    checks.assigned({1: (0,), 2: (1,)})
    checks.told(nodes[0], 1, (0,) if owners == 2 else (0, 1))
    checks.told(nodes[1], 2, (1,))
    checks.admits(nodes[0], "svc", 0, [1] * 10, 1.0)
    checks.admits(nodes[1], "svc", 1, [1], 1.0)
    assert not checked.failures
    checks.admits(nodes[1], "svc", 1, [1] * 9, 1.0)
    assert len(checked.failures) == owners - 1
    if owners == 2:
        assert "all servers together have taken more than" in checked.failures[0]
        checks.admits(nodes[1], "svc", 1, [1], 3.0)
        assert len(checked.failures) == 1  # what was taken has faded


def test_servers_that_take_their_parts_are_within_the_limit_together() -> None:
    """Also by bytes, with one large append of each server, and from a change of owners on."""
    quota = {"principal": "svc", "at": "0-1", "bytes_per_s": 1000}
    allowed = [{"allow": "svc", "to": "append", "at": "*"}]
    checked = Checked(json.dumps({"version": 1, "mode": "enforce", "rules": allowed, "quotas": [quota]}).encode())
    checks = checked.checks
    courses: list[dict[int, tuple[int, ...]]] = [{1: (0, 1)}, {1: (0,), 2: (1,)}, {2: (0, 1)}]
    for now_s, owners in zip((0.0, 10.0, 20.0), courses, strict=True):
        checks.assigned(owners)
        for server_id in (1, 2):
            node, owned = f"server-{server_id}", owners.get(server_id, ())
            checks.says(node, (1, 0))
            checks.told(node, server_id, owned)
            checks.owns(node, owned)
        for server_id, owned in owners.items():
            for size in (499 * len(owned), 700):
                checks.admits(f"server-{server_id}", "svc", owned[0], [size], now_s)
    assert not checked.failures
    checks.admits("server-2", "svc", 0, [1], 20.0)
    assert len(checked.failures) == 1
