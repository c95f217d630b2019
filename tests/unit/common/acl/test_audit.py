"""Lines of the audit log, and how floods of events are folded."""

import asyncio
import json
from typing import Any

import pytest

from waltz.common.access import Action, Right
from waltz.common.acl import audit as audit_module
from waltz.common.acl.audit import (
    MAX_CLAIMED,
    MAX_LINES,
    MAX_PRINCIPALS,
    Audit,
    Event,
    Outcome,
    places_text,
    refused_token,
)
from waltz.common.acl.document import Document, Mode
from waltz.common.acl.enforcement import Applied, RuleAccess
from waltz.common.acl.refusals import MAX_COUNTED
from waltz.common.acl.rules import compile_rules
from waltz.common.pieces import at_once

COUNT = 100
REFUSED = Event("svc-a", "append", Right.APPEND, Outcome.REFUSED, "10.0.0.1:5000")


class Log:
    """The lines of an audit log, and the clock that they are written by."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []
        self.now_ms = 1000
        self.audit = Audit("server-a:1", COUNT, self._write, lambda: self.now_ms)

    def _write(self, line: str) -> None:
        assert "\n" not in line
        self.lines.append(json.loads(line))

    def take(self) -> list[dict[str, Any]]:
        taken, self.lines = self.lines, []
        return taken


@pytest.fixture
async def log() -> Log:
    return Log()


async def test_a_line(log: Log) -> None:
    assert log.audit.note(REFUSED, [7], lambda: "no rule")
    (line,) = log.take()
    assert line.pop("metadata")["product"]["name"] == "Waltz"
    assert line == {
        "time": 1000,
        "category_uid": 6,
        "class_uid": 6003,
        "type_uid": 600301,
        "activity_id": 1,
        "activity_name": "Create",
        "severity_id": 3,
        "severity": "Medium",
        "status_id": 2,
        "status": "Failure",
        "action_id": 2,
        "action": "Denied",
        "count": 1,
        "actor": {"user": {"name": "svc-a"}},
        "api": {"operation": "append", "service": {"name": "server-a:1"}},
        "unmapped": {"outcome": "refused", "at": "7", "right": "append"},
        "src_endpoint": {"ip": "10.0.0.1", "port": 5000},
        "status_detail": "no rule",
    }


async def test_a_refused_token(log: Log) -> None:
    assert log.audit.note(refused_token("svc-a", "10.0.0.1:5000", 55180), (), lambda: "the token has expired")
    (line,) = log.take()
    assert line.pop("metadata")["version"] == "1.3.0"
    assert line == {
        "time": 1000,
        "category_uid": 3,
        "class_uid": 3002,
        "type_uid": 300201,
        "activity_id": 1,
        "activity_name": "Logon",
        "severity_id": 3,
        "severity": "Medium",
        "status_id": 2,
        "status": "Failure",
        "action_id": 2,
        "action": "Denied",
        "count": 1,
        "auth_protocol": "JSON Web Token",
        "auth_protocol_id": 99,
        "user": {"name": "svc-a"},
        "service": {"name": "server-a:1"},
        "dst_endpoint": {"port": 55180},
        "unmapped": {"outcome": "refused", "claimed": True},
        "src_endpoint": {"ip": "10.0.0.1", "port": 5000},
        "status_detail": "the token has expired",
    }


async def test_refused_tokens_are_folded_by_port_and_take_no_room_from_principals(
    log: Log, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever reaches a port can claim to be anybody."""
    for log.now_ms in (2000, 2001, 2002):
        for port in (1, 2):
            log.audit.note(refused_token(None, "10.0.0.1:5000", port), (), lambda: "it cannot be read")
    for number in range(MAX_PRINCIPALS + 1):
        log.audit.note(refused_token(f"claimed-{number}", "10.0.0.1:5000", 1), (), lambda: "its signature is wrong")
    assert log.audit.note(REFUSED._replace(principal="claimed-7"), [7], lambda: "no rule")
    taken = log.take()
    assert [line["class_uid"] for line in taken].count(3002) == MAX_CLAIMED + 1
    assert [line["class_uid"] for line in taken].count(6003) == 1
    log.audit.end_window()
    folded = log.take()
    assert {line["class_uid"] for line in folded} == {3002}
    assert [(line["user"]["name"], line["dst_endpoint"]["port"], line["count"]) for line in folded] == [
        ("unknown", 1, 2),
        ("unknown", 2, 2),
        ("unknown", 1, MAX_PRINCIPALS + 2 - MAX_CLAIMED),
    ]
    assert folded[-1]["status_detail"] == f"of principals beyond the first {MAX_CLAIMED}"
    assert "refusals like these" not in caplog.text


@pytest.mark.parametrize(
    ("outcome", "status", "action"),
    [
        (Outcome.DONE, "Success", "Allowed"),
        (Outcome.FAILED, "Failure", "Allowed"),
        (Outcome.REFUSED, "Failure", "Denied"),
        (Outcome.WOULD_REFUSE, "Success", "Observed"),
        (Outcome.FILTERED, "Success", "Modified"),
        (Outcome.WOULD_FILTER, "Success", "Observed"),
    ],
)
async def test_outcomes(log: Log, outcome: Outcome, status: str, action: str) -> None:
    log.audit.note(REFUSED._replace(outcome=outcome), [None], lambda: "no rule")
    (line,) = log.take()
    assert (line["status"], line["action"], line["unmapped"]["at"]) == (status, action, "node")


@pytest.mark.parametrize(
    ("peer", "endpoint"),
    [
        ("[::1]:80", {"ip": "::1", "port": 80}),
        ("unknown peer", {"name": "unknown peer"}),
        ("host:99999", {"name": "host:99999"}),
    ],
)
async def test_where_it_came_from(log: Log, peer: str, endpoint: dict[str, object]) -> None:
    log.audit.note(REFUSED._replace(peer=peer), [7], lambda: "no rule")
    assert log.take()[0]["src_endpoint"] == endpoint


async def test_repetitions_are_folded_into_one_line(log: Log) -> None:
    assert log.audit.note(REFUSED, [7], lambda: "no rule")
    log.take()
    for log.now_ms in range(2000, 2100):
        assert not log.audit.note(REFUSED, [7], lambda: "no rule", 3)
    assert log.take() == []
    log.audit.end_window()
    (line,) = log.take()
    assert (line["count"], line["unmapped"]["at"], line["start_time"], line["end_time"]) == (300, "7", 2000, 2099)
    assert "status_detail" not in line
    log.audit.end_window()
    assert log.take() == []
    assert log.audit.note(REFUSED, [7], lambda: "no rule")  # the next window


async def test_equal_requests_that_come_together_are_one_line_and_a_number(log: Log) -> None:
    assert log.audit.note(REFUSED, [7], lambda: "no rule", 5)
    log.audit.end_window()
    assert [line["count"] for line in log.take()] == [1, 4]


async def test_all_that_a_principal_lacks_is_told(log: Log) -> None:
    for place in (*range(COUNT), None):
        log.audit.note(REFUSED, [place], lambda: "no rule")
    log.audit.note(REFUSED._replace(right=Right.READ, operation="read"), [3], lambda: "no rule")
    lines = log.take()
    log.audit.end_window()
    folded = log.take()
    assert len(lines) == MAX_LINES
    assert [(line["api"]["operation"], line["unmapped"]["at"], line["count"]) for line in folded] == [
        ("append", f"{MAX_LINES}-{COUNT - 1},node", COUNT + 1 - MAX_LINES),
        ("read", "3", 1),
    ]


async def test_partitions_that_do_not_exist_fill_nothing(log: Log) -> None:
    for place in range(COUNT, COUNT + 1000):
        log.audit.note(REFUSED, [place], lambda: "no rule")
    log.audit.end_window()
    assert [(line["unmapped"]["at"], line["count"]) for line in log.take()] == [("", 1), ("", 999)]


async def test_a_flood_of_principals(log: Log) -> None:
    for number in range(2 * MAX_PRINCIPALS):
        log.audit.note(REFUSED._replace(principal=f"svc-{number}"), [7], lambda: "no rule")
    assert len(log.take()) == MAX_PRINCIPALS
    log.audit.end_window()
    (line,) = log.take()
    assert (line["actor"], line["count"]) == ({}, MAX_PRINCIPALS)
    assert line["status_detail"] == f"of principals beyond the first {MAX_PRINCIPALS}"


async def test_a_window_ends_by_itself(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "WINDOW_S", 0.0)
    log.audit.note(REFUSED, [7], lambda: "no rule", 2)
    async with asyncio.timeout(60):
        while len(log.lines) < 2:
            await asyncio.sleep(0)
    assert [line["count"] for line in log.lines] == [1, 1]


async def test_the_end_of_a_window_takes_turns(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the node writes what is left at once."""
    for number in range(100):
        log.audit.note(REFUSED._replace(principal=f"svc-{number}"), [7], lambda: "no rule", 2)
    log.take()
    log.audit._end_in_turns()
    assert log.take() == []
    log.audit.note(REFUSED, [7], lambda: "no rule", 2)  # the next window
    log.audit.end_window()
    assert len(log.take()) == 102
    await asyncio.sleep(0.01)
    assert log.take() == []


async def test_actions_and_the_top_of_refused_principals(log: Log) -> None:
    access = RuleAccess(COUNT, lambda subject: subject, ["CN=root"], log.audit)
    access.rights_of("CN=root").acted(Action("repair", Right.ADMIN, [1], "10.0.0.1:5"))
    assert "right" not in log.take()[0]["unmapped"]  # it needs none
    row = access.rights_of("CN=ops")
    row.acted(Action("assign partitions", Right.ADMIN, [3, 4], "10.0.0.1:5"))
    row.acted(Action("repair", Right.ADMIN, [], "10.0.0.1:5", "no quorum"))
    told = [(line["api"]["operation"], line["status"], line["unmapped"]["at"]) for line in log.take()]
    assert told == [("assign partitions", "Success", "3-4"), ("repair", "Failure", "node")]
    assert access.refusals.tops.top(10) == []
    row.refusal(Right.READ, 3, "10.0.0.1:5", 4)
    at_once(access.apply(Applied(1, at_once(compile_rules(Document(Mode.AUDIT), {}, COUNT)))))
    access.rights_of("CN=svc-a").refusal(Right.READ, 3, count=9)
    assert access.refusals.tops.top(10) == [("CN=svc-a", 0, 9), ("CN=ops", 4, 0)]
    assert access.refusals.tops.top(1) == [("CN=svc-a", 0, 9)]
    for number in range(MAX_COUNTED):
        access.rights_of(f"CN=other-{number}").refusal(Right.READ, 3)
    assert access.refusals.tops.top(2) == [("CN=svc-a", 0, 9), ("CN=ops", 4, 0)]
    assert len(access.refusals.tops.top(2 * MAX_COUNTED)) == MAX_COUNTED


def test_places() -> None:
    assert [places_text(places) for places in ([], [None], [3, 1, 2], [None, 7])] == ["", "node", "1-3", "7,node"]
