"""Arguments of applications: a default, and checks whose errors name the argument."""

import asyncio
from datetime import datetime

from waltz.client.errors import InvalidOperationError
from waltz.common.ids import NO_TRANSACTION, Endpoint
from waltz.common.iso_time import to_milliseconds

APPEND_TIMEOUT_S = 30.0
"""Default time limit of an append, retries included."""


def check_integer(value: object, name: str) -> None:
    """Raise ``TypeError`` for anything but an integer."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, not {value!r}")


def check_mark(value: object, name: str) -> None:
    """Raise ``TypeError`` for anything but an integer, and ``ValueError`` below -1."""
    if not isinstance(value, int):
        raise TypeError(f"{name} must be the id of a transaction, or -1, not {value!r}")
    if value < NO_TRANSACTION:
        raise ValueError(f"{name} must be the id of a transaction, or -1 for none, not {value}")


def check_seconds(value: object, name: str) -> None:
    """Raise ``TypeError`` for anything but a number."""
    if not isinstance(value, int | float):
        raise TypeError(f"{name} must be a number of seconds, not {value!r}")


def milliseconds_of(value: object, name: str) -> int:
    """A time in whole milliseconds since the epoch, not later than ``value``.

    Raises ``TypeError`` for anything but a ``datetime``, and ``ValueError`` for one without a time zone.
    """
    if not isinstance(value, datetime):
        raise TypeError(f"{name} must be a datetime, not {value!r}")
    if value.utcoffset() is None:
        raise ValueError(f"{name} must have a time zone, for example datetime.now(UTC); {value} has none")
    return to_milliseconds(value)


def check_endpoint(value: object) -> None:
    """Raise ``TypeError`` for anything but an endpoint."""
    if not isinstance(value, Endpoint):
        raise TypeError(
            f"a server must be named by an Endpoint, for example Endpoint.parse('host:port'), not {value!r}"
        )


def check_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Raise ``InvalidOperationError`` on another event loop, and outside of a loop."""
    try:
        running = asyncio.get_running_loop()
    except RuntimeError:
        running = None
    if running is not loop:
        where = "outside of an event loop" if running is None else "on another event loop"
        raise InvalidOperationError(
            f"the client is used {where}; it works on the one on which it was opened. Open a client for each loop, or "
            "use that of waltz.blocking, which any thread and any loop may use"
        )
