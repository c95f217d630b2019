"""Refusals of view nodes as problem JSON (RFC 9457), and the errors that they stand for at a client. Pure.

A refusal says by its status whether anything can be in the log: 202 (committed, and not known to be on all storages),
504 (unknown) and 500 (a defect) are the only ones after which it can.
"""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

from waltz.client.errors import (
    ClientAheadError,
    ClientClosedError,
    ConfirmedMarkNotSupportedError,
    ConsistencyRefusedError,
    LockConflict,
    NotAppendedError,
    NotAuthorizedError,
    NotGuaranteedError,
    OtherLogError,
    OutcomeUnknownError,
    ServerError,
    TransactionTooLargeError,
)
from waltz.common.errors import WaltzError
from waltz.common.ids import NO_TRANSACTION
from waltz.common.metrics.registry import Json
from waltz.common.zk.client import ZooKeeperError
from waltz.table.errors import (
    EnvelopeError,
    KeyTooLongError,
    LeaseHeldError,
    LeaseLostError,
    PropertiesError,
    TableError,
    TimestampError,
    VersionConflict,
    ViewUnavailableError,
)
from waltz.table.served.texts import MessageError

CONTENT_TYPE: Final = "application/problem+json"

OVER_QUOTA: Final = "over-quota"

RETRY_S: Final = 1
"""What a refusal for the moment asks the caller to wait, in seconds."""


class Problem(NamedTuple):
    """A refusal."""

    status: int
    kind: str
    """Stands at the end of ``type``."""
    detail: str
    retry_s: int | None = None
    """When the caller may ask again, if that can help."""
    transaction_id: int | None = None
    applied: int | None = None
    """What the view had applied when it found a condition that does not hold."""
    level: str | None = None
    """The level of consistency that was refused."""
    holder: str | None = None
    """Who has the lease."""
    wait_ms: int | None = None
    """After so many milliseconds without a renewal it ends."""

    def message(self) -> Json:
        """The body."""
        found: dict[str, Json] = {
            "type": f"urn:waltz:{self.kind}",
            "title": self.kind.replace("-", " "),
            "status": self.status,
            "detail": self.detail,
        }
        if self.transaction_id is not None:
            found["transaction"] = self.transaction_id
        if self.applied is not None:
            found["applied"] = self.applied
        if self.level is not None:
            found["level"] = self.level
        if self.holder is not None:
            found["holder"] = self.holder
        if self.wait_ms is not None:
            found["wait_ms"] = self.wait_ms
        return found


class ServedConflict(VersionConflict):
    """A condition does not hold in the view of a view node."""

    def __init__(self, text: str, applied: int) -> None:
        super().__init__(text)
        self.applied = applied
        """What that view had applied; -1 if it is not known."""


class Refused(WaltzError):
    """A request is answered with a problem."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.detail)
        self.problem = problem


def refused(status: int, kind: str, detail: str) -> Refused:
    """A refusal that does not depend on the moment."""
    return Refused(Problem(status, kind, detail))


def refused_now(status: int, kind: str, detail: str) -> Refused:
    """A refusal for the moment."""
    return Refused(Problem(status, kind, detail, RETRY_S))


# By the first class that fits.
_PROBLEMS: Final[tuple[tuple[type[Exception], int, str], ...]] = (
    (MessageError, 400, "bad-request"),
    (VersionConflict, 412, "version-conflict"),
    (LeaseLostError, 412, "lease-lost"),
    (TimestampError, 400, "timestamp"),
    (KeyTooLongError, 400, "key-too-long"),
    (EnvelopeError, 400, "envelope"),
    (TransactionTooLargeError, 413, "too-large"),
    (PropertiesError, 409, "properties"),
    (NotAuthorizedError, 403, "forbidden"),
    (ConfirmedMarkNotSupportedError, 501, "fresh-not-supported"),
    (ClientAheadError, 409, "ahead-of-log"),
    (OtherLogError, 409, "other-log"),
    (OutcomeUnknownError, 504, "outcome-unknown"),
)

# These may go away by themselves.
_PASSING: Final[tuple[tuple[type[Exception], str], ...]] = (
    (LockConflict, "not-appended"),
    (NotAppendedError, "not-appended"),
    (ClientClosedError, "closing"),
    (TableError, "view-stopped"),
    (ZooKeeperError, "cluster-away"),
    (TimeoutError, "late"),
    (WaltzError, "cluster-away"),
)


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error is for the caller; ``None`` for a defect."""
    if isinstance(error, Refused):
        return error.problem
    if isinstance(error, NotGuaranteedError):
        return Problem(202, "not-guaranteed", str(error), transaction_id=error.transaction_id)
    if isinstance(error, ServedConflict):
        return Problem(412, "version-conflict", str(error), applied=error.applied)
    if isinstance(error, LeaseHeldError):
        return Problem(409, "lease-held", str(error), holder=error.holder, wait_ms=math.ceil(1000 * error.wait_s))
    if isinstance(error, ConsistencyRefusedError):
        return Problem(409, "consistency", str(error), level=error.level)
    for kind, status, name in _PROBLEMS:
        if isinstance(error, kind):
            return Problem(status, name, str(error))
    if isinstance(error, NotAppendedError) and (retry_after_s := _quota_ends_after(error)) is not None:
        return over_quota(str(error), retry_after_s).problem
    for kind, name in _PASSING:
        if isinstance(error, kind):
            return Problem(503, name, str(error) or "the answer is not there in time", RETRY_S)
    return None


def over_quota(detail: str, retry_after_s: float) -> Refused:
    """A refusal because a quota is used up, for so many seconds."""
    return Refused(Problem(429, OVER_QUOTA, detail, max(math.ceil(retry_after_s), RETRY_S)))


def _quota_ends_after(error: BaseException) -> float | None:
    """The time that a server asks to wait, if a used up quota is among the causes of an error."""
    cause = error.__cause__
    while cause is not None:
        if isinstance(cause, ServerError) and cause.retry_after_s is not None:
            return cause.retry_after_s
        cause = cause.__cause__
    return None


def error_of(partition_id: int, status: int, message: object) -> Exception:
    """The error of a client whose request was refused; of a foreign message, too."""
    fields: Mapping[str, object] = message if isinstance(message, dict) else {}
    kind = str(fields.get("type", "")).removeprefix("urn:waltz:")
    detail = str(fields.get("detail", "")) or f"a view node has answered with status {status}"
    transaction_id = fields.get("transaction")
    if kind == "not-guaranteed" and isinstance(transaction_id, int):
        return NotGuaranteedError(partition_id, transaction_id, "the view node did not learn of all storages in time")
    if kind == "version-conflict":
        applied = fields.get("applied")
        return ServedConflict(detail, applied if type(applied) is int else NO_TRANSACTION)
    if kind == "lease-held":
        wait_ms = fields.get("wait_ms")
        return LeaseHeldError(str(fields.get("holder", "")), wait_ms / 1000 if type(wait_ms) is int else 1.0)
    if kind == "consistency":
        reason, _, effect = detail.removeprefix(f"partition {partition_id}: ").rpartition("; ")
        return ConsistencyRefusedError(partition_id, str(fields.get("level", "")), reason, effect=effect)
    if kind == "ahead-of-log":
        return ClientAheadError(partition_id)
    if kind == "fresh-not-supported":
        return ConfirmedMarkNotSupportedError(partition_id)
    simple: Mapping[str, type[Exception]] = {
        "bad-request": ValueError,
        "no-lease": ValueError,
        "lease-lost": LeaseLostError,
        "timestamp": TimestampError,
        "key-too-long": KeyTooLongError,
        "envelope": EnvelopeError,
        "too-large": TransactionTooLargeError,
        "properties": PropertiesError,
        "outcome-unknown": OutcomeUnknownError,
        "not-appended": NotAppendedError,
        OVER_QUOTA: NotAppendedError,
    }
    if kind in simple:
        return simple[kind](detail)
    if status in (202, 504):  # of a proxy, for all that is known
        return OutcomeUnknownError(detail)
    if status in (401, 403):
        return NotAuthorizedError(detail)
    return ViewUnavailableError(detail)
