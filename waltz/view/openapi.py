"""The description of the interface in OpenAPI 3.1, made of its routes. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from waltz.common.access import Right
from waltz.common.metrics.registry import Json
from waltz.table.leases import MAX_DURATION_MS, MAX_HOLDER_CHARACTERS, MIN_DURATION_MS
from waltz.table.served.problems import CONTENT_TYPE
from waltz.table.served.questions import (
    DEFAULT_TAKEN,
    DEFAULT_TIMEOUT_MS,
    MAX_KEYS,
    MAX_RANGES,
    MAX_ROWS,
    MAX_TAKEN,
    MAX_TIMEOUT_MS,
    MAX_TOKEN_CHARACTERS,
)
from waltz.view.routes import JSON, ROUTES, Route

Schema = dict[str, Json]

LIST_PATH: Final = "/v1/tables"
PATH: Final = "/openapi.json"

_WORD: Final = re.compile(r"\w+")
_LONG: Final = (1 << 63) - 1
_VERSION_PATTERN: Final = r"^[0-9]{1,19}\.[0-9]{1,19}$"


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(required: tuple[str, ...], **properties: Json) -> Schema:
    return {
        "type": "object",
        "required": list(required),
        "properties": properties,
        "additionalProperties": False,
    }


def _integer(low: int = 0, high: int = _LONG, **more: Json) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high, **more}


def _list(of: Schema, most: int) -> Schema:
    return {"type": "array", "items": of, "maxItems": most}


def _or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


_FLAG: Final[Schema] = {"type": "boolean", "default": False}
_ID: Final = _integer(-1)
_VERSION: Final[Schema] = {"type": "string", "pattern": _VERSION_PATTERN}
_TEXT: Final[Schema] = {"type": "string"}
_BYTES: Final = _ref("Bytes")
_HOLDER: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": MAX_HOLDER_CHARACTERS}
_TIMESTAMP: Final = _integer(-_LONG - 1)

SCHEMAS: Final[Mapping[str, Schema]] = {
    "Bytes": {
        "description": "Text in UTF-8, or any bytes.",
        "anyOf": [{"type": "string"}, _object(("base64",), base64={"type": "string", "contentEncoding": "base64"})],
    },
    "Octets": {},
    "Nothing": {"type": "object", "additionalProperties": False},
    "Row": _object(
        ("prefix", "key", "value", "version", "timestamp_ms", "written_at_ms"),
        prefix=_BYTES,
        key=_BYTES,
        value=_or_null(_BYTES),
        version=_VERSION,
        timestamp_ms=_TIMESTAMP,
        written_at_ms=_TIMESTAMP,
        tombstone={"const": True},
    ),
    "WrittenRow": _object(
        ("key",),
        prefix=_BYTES,
        key=_BYTES,
        value=_or_null(_BYTES),
        timestamp_ms=_or_null(_integer(1)),
        tombstone=_FLAG,
    ),
    "Place": _object(("key",), prefix=_BYTES, key=_BYTES),
    "Range": _object((), prefix=_BYTES, start=_BYTES, end=_or_null(_BYTES), end_prefix=_or_null(_BYTES)),
    "Condition": _object(("key", "version"), prefix=_BYTES, key=_BYTES, version=_or_null(_VERSION)),
    "State": _object(
        ("partition", "log", "applied", "rows", "tombstones", "skipped"),
        partition=_integer(),
        log=_TEXT,
        applied=_ID,
        rows=_integer(),
        tombstones=_integer(),
        skipped=_integer(),
    ),
    "Tables": _object(
        ("tables",),
        tables={
            "type": "array",
            "items": _object(("partition", "applied", "log"), partition=_integer(), applied=_ID, log=_TEXT),
        },
    ),
    "Get": {
        "oneOf": [
            _object(("keys",), prefix=_BYTES, keys=_list(_BYTES, MAX_KEYS), raw=_FLAG),
            _object(("rows",), rows=_list(_ref("Place"), MAX_KEYS), raw=_FLAG),
        ]
    },
    "Rows": _object(
        ("applied", "rows", "stale", "age_ms"),
        applied=_ID,
        rows={"type": "array", "items": _or_null(_ref("Row"))},
        stale={"type": "boolean"},
        age_ms=_or_null(_integer()),
    ),
    "Scan": _object(
        (),
        prefix=_or_null(_BYTES),
        ranges=_or_null(_list(_ref("Range"), MAX_RANGES)),
        reverse=_FLAG,
        limit=_or_null(_integer(1)),
        raw=_FLAG,
        keys_only=_FLAG,
        token=_or_null({"type": "string", "maxLength": MAX_TOKEN_CHARACTERS}),
    ),
    "ScanLine": {
        "anyOf": [
            _ref("Row"),
            _ref("Place"),
            _object(
                ("end",),
                end=_object(
                    ("applied", "count", "reason", "next"),
                    applied=_ID,
                    count=_integer(),
                    reason={"enum": ["done", "limit", "time"]},
                    next=_or_null(_TEXT),
                ),
            ),
        ]
    },
    "TakenRows": _object(("transaction", "rows"), transaction=_integer(), rows={"type": "array", "items": _ref("Row")}),
    "TakeLine": {
        "anyOf": [
            _ref("TakenRows"),
            _object(
                ("end",),
                end=_object(("cursor", "at_end", "count"), cursor=_ID, at_end={"type": "boolean"}, count=_integer()),
            ),
        ]
    },
    "WatchLine": {
        "anyOf": [
            _ref("TakenRows"),
            _object(("transaction", "truncate"), transaction=_integer(), truncate={"const": True}),
            _object(("progress",), progress=_object(("transaction",), transaction=_ID)),
            _object(
                ("end",),
                end=_object(
                    ("transaction", "reason", "detail"),
                    transaction=_ID,
                    reason={"enum": ["slow", "closed", "forbidden", "failed"]},
                    detail=_TEXT,
                ),
            ),
        ]
    },
    "Events": {
        "type": "string",
        "description": "Server-Sent Events named rows, truncate, progress and end. Their data are the lines of NDJSON, "
        "their ids the transactions.",
    },
    "Batch": _object(
        ("rows",),
        rows={**_list(_ref("WrittenRow"), MAX_ROWS), "minItems": 1},
        **{"if": _list(_ref("Condition"), MAX_ROWS)},
        any_timestamp=_FLAG,
    ),
    "Written": _object(("transaction",), transaction=_integer()),
    "Sweep": _object((), if_due=_FLAG),
    "Swept": _object(("transaction",), transaction=_or_null(_integer())),
    "Lease": _object(
        ("key", "holder", "duration_ms"),
        prefix=_BYTES,
        key=_BYTES,
        holder=_HOLDER,
        duration_ms=_integer(MIN_DURATION_MS, MAX_DURATION_MS),
    ),
    "Granted": _object(("term",), term=_integer()),
    "Term": _object(("key", "holder", "term"), prefix=_BYTES, key=_BYTES, holder=_HOLDER, term=_integer()),
    "SweepCheck": _object(("aged", "due"), aged=_integer(), due={"type": "boolean"}),
    "Problem": _object(
        ("type", "title", "status", "detail"),
        type={"type": "string", "pattern": "^urn:waltz:[a-z-]+$"},
        title=_TEXT,
        status=_integer(100, 599),
        detail=_TEXT,
        transaction=_integer(),
        applied=_ID,
        level=_TEXT,
        holder=_TEXT,
        wait_ms=_integer(),
    ),
}

_PARAMETERS: Final[Mapping[str, tuple[Schema, str]]] = {
    "prefix": (_TEXT, "The prefix of the rows, percent-encoded: any bytes."),
    "start": (_TEXT, "The first key, percent-encoded."),
    "end": (_TEXT, "The key before which the scan ends, percent-encoded."),
    "reverse": (_FLAG, "Whether the last key comes first."),
    "limit": (_integer(1), f"Most rows. Of a take, {DEFAULT_TAKEN} by default and at most {MAX_TAKEN}."),
    "keys_only": (_FLAG, "Whether values are left out."),
    "raw": (_FLAG, "Whether tombstones and expired rows are told, too."),
    "token": ({"type": "string", "maxLength": MAX_TOKEN_CHARACTERS}, "The `next` of the page before."),
    "after": (_ID, "The transaction before the first one."),
    "progress_s": (_integer(1, 60, default=5), "Seconds after which a watch without rows tells how far it is."),
    "log": (_TEXT, "The `Waltz-Log` of before: another log is refused."),
    "offset": (_integer(), "The first byte of the part."),
    "size": (_integer(), "The number of its bytes."),
    "timestamp_ms": (_integer(1), "The timestamp of the row; by default the present time."),
    "at_least": (_ID, "A transaction that the view must have applied."),
    "fresh": (_FLAG, "Whether the view first applies everything that was committed before the request."),
    "consistency": (_TEXT, "The level of the read or write, by its name."),
    "stale_ok_ms": (
        _integer(0, MAX_TIMEOUT_MS),
        "When the view does not have what the read demands in so many milliseconds, the answer is of what it has.",
    ),
    "timeout_ms": (
        _integer(1, MAX_TIMEOUT_MS, default=DEFAULT_TIMEOUT_MS),
        "How long the request may wait for the view, or for a commit.",
    ),
}

_HEADERS: Final[Mapping[str, tuple[Schema, str]]] = {
    "Accept": (_TEXT, "With text/event-stream a watch is told as Server-Sent Events."),
    "Last-Event-ID": (_TEXT, "The transaction after which the watch goes on, as browsers send it; before `after`."),
    "If-Match": (_TEXT, "The version that the row must have, in quotation marks."),
    "If-None-Match": ({"const": "*"}, "There must be no row."),
}

_ANSWER_HEADERS: Final[Mapping[str, tuple[Schema, str]]] = {
    "Waltz-Applied": (_TEXT, "The last transaction that the view had applied."),
    "Waltz-Log": (_TEXT, "Differs between the logs of different clusters."),
    "Waltz-Age-Ms": (_TEXT, "Milliseconds since it was last known that the view has everything, or `unknown`."),
    "Waltz-Stale": (_TEXT, "`true` if the view does not have what the read demands; only with `stale_ok_ms`."),
    "ETag": (_TEXT, "The version of the row, in quotation marks."),
}

_STATUSES: Final[Mapping[int, str]] = {
    200: "Done.",
    202: "Committed, and not known to be on all storages in time.",
    400: "The request is wrong; nothing is written.",
    401: "The token is refused.",
    403: "A right is missing.",
    404: "There is no such row, or the partition is not served here.",
    408: "The body has not come in time.",
    409: "The properties of the partition forbid it, the log is another one, or somebody else has the lease.",
    412: "A condition does not hold, or a lease is lost; nothing is written.",
    413: "Too large.",
    429: "A quota is used up: ask again after Retry-After. Nothing is written.",
    500: "A defect. After a write the outcome is unknown.",
    501: "The owner is too old to confirm its mark.",
    503: "Not now: ask again after Retry-After, or another view node. Nothing is written.",
    504: "The outcome is unknown.",
}


_SECURITY: Final[list[Json]] = [{}, {"token": []}, {"certificate": []}]
"""Without access rules, or by one of the two."""


def document(version: str) -> Json:
    """The description of the interface of this version."""
    paths: dict[str, Schema] = {LIST_PATH: {"get": _listing()}}
    for route in ROUTES:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route)
    token: Schema = {"type": "http", "scheme": "bearer"}
    schemes: Schema = {"token": token, "certificate": {"type": "mutualTLS"}}
    components: Schema = {"schemas": SCHEMAS, "securitySchemes": schemes}
    info: Schema = {"title": "Waltz view node", "version": version, "description": "Tables on the log, over HTTP."}
    found: Schema = {"openapi": "3.1.0", "info": info}
    return found | {"paths": paths, "components": components, "security": _SECURITY}


def _operation(route: Route) -> Schema:
    found: Schema = {
        "operationId": "_".join([route.method.lower(), *(_WORD.findall(route.template)[3:] or ["table"])]),
        "summary": route.summary,
        "description": f"Needs the right to {'read' if route.right is Right.READ else 'append'} at the partition.",
        "parameters": [
            *_path_parameters(route),
            *(_parameter(name, "query", *_PARAMETERS[name]) for name in route.parameters),
            *(_parameter(name, "header", *_HEADERS[name]) for name in route.headers),
        ],
        "responses": {
            "200": _answer(route.answer, route.answer_headers),
            **{str(status): _refusal(status) for status in sorted(route.refusals)},
        },
    }
    if route.body is not None:
        content_type, schema = route.body
        found["requestBody"] = {"content": {content_type: {"schema": _ref(schema)}}}
    return found


def _listing() -> Schema:
    return {
        "operationId": "get_tables",
        "summary": "The served partitions that the caller may read",
        "responses": {
            "200": _answer(((JSON, "Tables"),), ()),
            **{str(status): _refusal(status) for status in (400, 401)},
        },
    }


def _path_parameters(route: Route) -> list[Json]:
    found: list[Json] = [_parameter("partition", "path", _integer(0, 999_999_999), "The partition.")]
    if "{key}" in route.template:
        found.append(_parameter("key", "path", _TEXT, "The key, percent-encoded: any bytes."))
    return found


def _parameter(name: str, place: str, schema: Schema, description: str) -> Schema:
    found: Schema = {"name": name, "in": place, "schema": schema, "description": description}
    return found | {"required": True} if place == "path" else found


def _answer(content: tuple[tuple[str, str], ...], headers: tuple[str, ...]) -> Schema:
    return {
        "description": _STATUSES[200],
        "headers": {
            name: {"schema": _ANSWER_HEADERS[name][0], "description": _ANSWER_HEADERS[name][1]} for name in headers
        },
        "content": {content_type: {"schema": _ref(schema)} for content_type, schema in content},
    }


def _refusal(status: int) -> Schema:
    return {"description": _STATUSES[status], "content": {CONTENT_TYPE: {"schema": _ref("Problem")}}}
