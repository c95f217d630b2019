"""Refusals: their statuses, and the errors that they become at a client."""

import json

import pytest

from waltz.client.errors import (
    ClientAheadError,
    ClientClosedError,
    ConfirmedMarkNotSupportedError,
    ConsistencyRefusedError,
    LockConflict,
    NotAppendedError,
    NotAuthorizedError,
    NotGuaranteedError,
    OutcomeUnknownError,
    ServerError,
    TransactionTooLargeError,
)
from waltz.common.errors import DeadlineExceededError
from waltz.common.zk.client import ConnectionLossError
from waltz.table.errors import (
    EnvelopeError,
    KeyTooLongError,
    PropertiesError,
    StoreError,
    TableError,
    TimestampError,
    VersionConflict,
    ViewUnavailableError,
)
from waltz.table.served.problems import ServedConflict, error_of, problem_of, refused, refused_now
from waltz.table.served.texts import MessageError

AFTER_WHICH_IT_CAN_BE_IN_THE_LOG = {202, 504}


@pytest.mark.parametrize(
    ("error", "status", "becomes"),
    [
        (MessageError("x"), 400, ValueError),
        (VersionConflict("x"), 412, ServedConflict),
        (ServedConflict("x", 5), 412, ServedConflict),
        (TimestampError("x"), 400, TimestampError),
        (KeyTooLongError("x"), 400, KeyTooLongError),
        (EnvelopeError("x"), 400, EnvelopeError),
        (TransactionTooLargeError("x"), 413, TransactionTooLargeError),
        (PropertiesError("x"), 409, PropertiesError),
        (NotAuthorizedError("x"), 403, NotAuthorizedError),
        (ConfirmedMarkNotSupportedError(3), 501, ConfirmedMarkNotSupportedError),
        (ClientAheadError(3), 409, ClientAheadError),
        (ConsistencyRefusedError(3, "quorum", "x"), 409, ConsistencyRefusedError),
        (LockConflict(3, 5), 503, NotAppendedError),
        (NotAppendedError("x"), 503, NotAppendedError),
        (OutcomeUnknownError("x"), 504, OutcomeUnknownError),
        (NotGuaranteedError(3, 5, "x"), 202, NotGuaranteedError),
        (ClientClosedError(), 503, ViewUnavailableError),
        (StoreError("x"), 503, ViewUnavailableError),
        (TableError("x"), 503, ViewUnavailableError),
        (ConnectionLossError("x"), 503, ViewUnavailableError),
        (DeadlineExceededError("x"), 503, ViewUnavailableError),
        (TimeoutError(), 503, ViewUnavailableError),
        (refused(404, "no-row", "x"), 404, ViewUnavailableError),
        (refused_now(503, "late", "x"), 503, ViewUnavailableError),
    ],
)
def test_an_error_becomes_the_same_at_the_client(error: Exception, status: int, becomes: type[Exception]) -> None:
    problem = problem_of(error)
    assert problem is not None
    assert problem.status == status
    assert (problem.retry_s is not None) is (status == 503)
    message = json.loads(json.dumps(problem.message()))
    assert message["status"] == status
    assert message["detail"]
    found = error_of(3, status, message)
    assert type(found) is becomes
    if isinstance(found, NotGuaranteedError):
        assert found.transaction_id == 5
    if isinstance(found, ConsistencyRefusedError):
        assert (str(found), found.level) == (str(error), "quorum")
    if isinstance(found, ServedConflict):
        assert found.applied == (error.applied if isinstance(error, ServedConflict) else -1)
    is_unknown = isinstance(error, OutcomeUnknownError | NotGuaranteedError)
    assert (status in AFTER_WHICH_IT_CAN_BE_IN_THE_LOG) is is_unknown


@pytest.mark.parametrize(("left_s", "retry_s"), [(0.0, 1), (0.3, 1), (2.2, 3)])
def test_a_used_up_quota_says_when_to_ask_again(left_s: float, retry_s: int) -> None:
    error, late, server = NotAppendedError("x"), TimeoutError("late"), ServerError("a quota is used up")
    error.__cause__, late.__cause__ = late, server
    problem = problem_of(error)
    assert problem is not None
    assert problem.status == 503, "other errors of servers are not about quotas"
    server.retry_after_s = left_s
    problem = problem_of(error)
    assert problem is not None
    assert (problem.status, problem.kind, problem.retry_s) == (429, "over-quota", retry_s)
    assert type(error_of(3, 429, problem.message())) is NotAppendedError


def test_a_defect_is_no_problem() -> None:
    assert problem_of(KeyError("x")) is None


@pytest.mark.parametrize(
    "message", [None, [], "x", {}, {"type": 5, "detail": None}, {"type": "urn:waltz:not-guaranteed"}]
)
@pytest.mark.parametrize(
    ("status", "becomes"),
    [
        (202, OutcomeUnknownError),
        (504, OutcomeUnknownError),
        (401, NotAuthorizedError),
        (403, NotAuthorizedError),
        (302, ViewUnavailableError),
        (500, ViewUnavailableError),
    ],
)
def test_foreign_answers_have_errors_as_well(message: object, status: int, becomes: type[Exception]) -> None:
    assert type(error_of(3, status, message)) is becomes
