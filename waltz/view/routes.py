"""The routes of the interface, with all that callers have to know of each. Pure.

The description at ``/openapi.json`` is made of them, and requests are held to them: a parameter that a route does not
name is refused.
"""

from typing import Final, NamedTuple

from waltz.common.access import Right

TABLE: Final = "/v1/tables/{partition:[0-9]{1,9}}"
ROW: Final = TABLE + "/rows/{key:[^/]+}"

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
EVENTS: Final = "text/event-stream"
OCTETS: Final = "application/octet-stream"

_ALWAYS: Final = (400, 401, 403, 404, 500, 503)
_OF_BODIES: Final = (408, 413)
_OF_READS: Final = (409, 501, *_ALWAYS)
_OF_WRITES: Final = (202, 409, 413, 429, 504, *_ALWAYS)

_MODE: Final = ("at_least", "fresh", "consistency", "stale_ok_ms")
_TABLE_HEADERS: Final = ("Waltz-Applied", "Waltz-Log", "Waltz-Age-Ms", "Waltz-Stale")
_TIME: Final = ("timeout_ms",)


class Route(NamedTuple):
    """One request."""

    method: str
    path: str
    """Of the router."""
    operation: str
    """Name in metrics."""
    right: Right
    """What the caller needs at the partition."""
    summary: str
    answer: tuple[tuple[str, str], ...]
    """Content types of the answer with 200, and the names of their schemas."""
    refusals: tuple[int, ...]
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    """Of the request."""
    body: tuple[str, str] | None = None
    """Content type and schema of the request's body."""
    answer_headers: tuple[str, ...] = _TABLE_HEADERS

    @property
    def template(self) -> str:
        """The path without the patterns of its parts."""
        return self.path.replace(":[0-9]{1,9}", "").replace(":[^/]+", "")


ROUTES: Final = (
    Route(
        *("GET", TABLE, "state", Right.READ, "How far the view is, and the number of its rows"),
        answer=((JSON, "State"),),
        refusals=_OF_READS,
        parameters=(*_MODE, *_TIME),
    ),
    Route(
        *("POST", TABLE + "/get", "get", Right.READ, "Rows of keys, all of one state"),
        answer=((JSON, "Rows"),),
        refusals=(*_OF_READS, *_OF_BODIES),
        parameters=(*_MODE, *_TIME),
        body=(JSON, "Get"),
    ),
    Route(
        *("GET", ROW, "get row", Right.READ, "A row"),
        answer=((JSON, "Row"),),
        refusals=(*_OF_READS, 413),
        parameters=("prefix", "raw", *_MODE, *_TIME),
        answer_headers=(*_TABLE_HEADERS, "ETag"),
    ),
    Route(
        *("GET", ROW + "/value", "get value", Right.READ, "The bytes of a value, or a part of them"),
        answer=((OCTETS, "Octets"),),
        refusals=(*_OF_READS, 413),
        parameters=("prefix", "offset", "size", *_MODE, *_TIME),
        answer_headers=(*_TABLE_HEADERS, "ETag"),
    ),
    Route(
        *("POST", TABLE + "/scan", "scan", Right.READ, "Rows of ranges of keys, all of one state"),
        answer=((NDJSON, "ScanLine"),),
        refusals=(*_OF_READS, *_OF_BODIES),
        parameters=(*_MODE, *_TIME),
        body=(JSON, "Scan"),
    ),
    Route(
        *("GET", TABLE + "/rows", "scan", Right.READ, "Rows of one range of keys, all of one state"),
        answer=((NDJSON, "ScanLine"),),
        refusals=_OF_READS,
        parameters=("prefix", "start", "end", "reverse", "limit", "keys_only", "raw", "token", *_MODE, *_TIME),
    ),
    Route(
        *("GET", TABLE + "/take", "take", Right.READ, "Rows in the order of the log, up to its present end"),
        answer=((NDJSON, "TakeLine"),),
        refusals=(409, *_ALWAYS),
        parameters=("after", "limit", "prefix", *_TIME),
    ),
    Route(
        *("GET", TABLE + "/watch", "watch", Right.READ, "Rows in the order of the log, as they are written"),
        answer=((NDJSON, "WatchLine"), (EVENTS, "Events")),
        refusals=(409, *_ALWAYS),
        parameters=("after", "prefix", "progress_s", "log", *_TIME),
        headers=("Accept", "Last-Event-ID"),
    ),
    Route(
        *("POST", TABLE + "/batch", "write", Right.APPEND, "Write rows in one transaction, if conditions hold"),
        answer=((JSON, "Written"),),
        refusals=(408, 412, *_OF_WRITES),
        parameters=("consistency", *_TIME),
        body=(JSON, "Batch"),
    ),
    Route(
        *("PUT", ROW, "write", Right.APPEND, "Write a row, whose value is the body"),
        answer=((JSON, "Written"),),
        refusals=(408, 412, *_OF_WRITES),
        parameters=("prefix", "timestamp_ms", "consistency", *_TIME),
        headers=("If-Match", "If-None-Match"),
        body=(OCTETS, "Octets"),
    ),
    Route(
        *("DELETE", ROW, "write", Right.APPEND, "Delete a row, whether it exists or not"),
        answer=((JSON, "Written"),),
        refusals=(412, *_OF_WRITES),
        parameters=("prefix", "timestamp_ms", "consistency", *_TIME),
        headers=("If-Match", "If-None-Match"),
    ),
    Route(
        *("POST", TABLE + "/truncate", "truncate", Right.APPEND, "Void all rows"),
        answer=((JSON, "Written"),),
        refusals=(408, *_OF_WRITES),
        parameters=_TIME,
        body=(JSON, "Nothing"),
    ),
    Route(
        *("POST", TABLE + "/lease", "lease", Right.APPEND, "Grant a lease that nobody else has"),
        answer=((JSON, "Granted"),),
        refusals=(408, *_OF_WRITES),
        parameters=_TIME,
        body=(JSON, "Lease"),
    ),
    Route(
        *("POST", TABLE + "/lease/renew", "renew lease", Right.APPEND, "Have others wait anew for a lease"),
        answer=((JSON, "Written"),),
        refusals=(408, 412, *_OF_WRITES),
        parameters=_TIME,
        body=(JSON, "Term"),
    ),
    Route(
        *("POST", TABLE + "/lease/release", "release lease", Right.APPEND, "End a lease"),
        answer=((JSON, "Swept"),),
        refusals=(408, *_OF_WRITES),
        parameters=_TIME,
        body=(JSON, "Term"),
    ),
    Route(
        *("GET", TABLE + "/sweep", "check sweep", Right.READ, "Count the rows that a sweep would remove"),
        answer=((JSON, "SweepCheck"),),
        refusals=_OF_READS,
        parameters=(*_MODE, *_TIME),
    ),
    Route(
        *("POST", TABLE + "/sweep", "sweep", Right.APPEND, "Remove the rows that have reached their age"),
        answer=((JSON, "Swept"),),
        refusals=(408, *_OF_WRITES),
        parameters=_TIME,
        body=(JSON, "Sweep"),
    ),
)
"""All requests at a table."""
