"""The pages of the console: the files for the browser, and the data of the page. GET only."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.resources import files
from itertools import chain
from typing import NamedTuple

from waltz.common.access import EVERYTHING, Right
from waltz.common.metrics.registry import Json
from waltz.common.net.http import HttpError, Page, Request, Response
from waltz.console import document
from waltz.console.document import PartitionFacts
from waltz.console.history import STEP_S
from waltz.console.surveyor import Surveyor

PATH = "/console"

STATIC = {
    PATH: ("console.html", "text/html; charset=utf-8"),
    f"{PATH}/console.css": ("console.css", "text/css; charset=utf-8"),
    f"{PATH}/console.js": ("console.js", "text/javascript; charset=utf-8"),
    f"{PATH}/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""File and type by path."""

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

HEADERS = (
    ("Content-Security-Policy", _POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)

History = Mapping[str, Sequence[float | None]]


class Here(NamedTuple):
    """Facts about the server of the console. All functions are called on the loop and return at once."""

    about: Callable[[], dict[str, Json]]
    """Identity and state of the server."""
    facts: Callable[[int], PartitionFacts | None]
    """Facts about one of the server's partitions."""
    history: Callable[[], History]
    """Series of all partitions of the server together."""
    history_of: Callable[[int], History | None]
    """Series of a partition; ``None`` unless the server owned it within the last hour."""


def make_pages(here: Here, surveyor: Surveyor) -> dict[str, Page]:
    """The console's pages by method and path. Reads the files for the browser."""
    pages: dict[str, Page] = {f"GET {path}": _static(name, kind) for path, (name, kind) in STATIC.items()}

    def cluster(request: Request) -> Response:
        seen = surveyor.see()
        head: dict[str, Json] = {
            "here": here.about(),
            "number": seen.number,
            "age_s": None if seen.age_s is None else round(seen.age_s, 1),
            "surveying": seen.surveying,
            "error": seen.error,
        }
        if _number(request, "after", 0) == seen.number or not seen.text:
            return _json(head)
        shown = _shown(request, surveyor)
        head["hidden"] = len(surveyor.partition_ids) - len(shown)
        begin = f'{json.dumps(head)[:-1]},"cluster":'
        return _text(chain((begin,), surveyor.parts(shown), ("}",)) if head["hidden"] else f"{begin}{seen.text}}}")

    def history(request: Request) -> Response:
        """The series are of all partitions together."""
        count = len(surveyor.partition_ids)
        sees_all = request.rights is EVERYTHING or 0 < count == len(_shown(request, surveyor))
        return _json({"step_s": STEP_S, "series": document.series(here.history() if sees_all else {})})

    def partition(request: Request) -> Response:
        partition_id = _number(request, "partition")
        refusal = request.rights.refusal(Right.DESCRIBE, partition_id, request.peer)
        if refusal is not None:
            raise HttpError(403, refusal)
        facts, values = here.facts(partition_id), here.history_of(partition_id)
        state = surveyor.partition(partition_id)
        return _json(
            {
                "owned": facts is not None,
                "step_s": STEP_S,
                "series": None if values is None else document.series(values),
                "reasons": [] if state is None else document.reasons(state),
            }
        )

    pages[f"GET {PATH}/cluster.json"] = cluster
    pages[f"GET {PATH}/history.json"] = history
    pages[f"GET {PATH}/partition.json"] = partition
    return pages


def _shown(request: Request, surveyor: Surveyor) -> Sequence[int]:
    """The partitions that the reader may see."""
    return request.rights.filtered(Right.DESCRIBE, surveyor.partition_ids, "list partitions", request.peer)


def _static(name: str, kind: str) -> Page:
    response = Response(200, kind, files("waltz.console").joinpath("static", name).read_text("utf-8"), headers=HEADERS)
    return lambda _: response


def _json(body: dict[str, Json]) -> Response:
    return _text(json.dumps(body, separators=(",", ":")))


def _text(body: str | Iterator[str]) -> Response:
    return Response(200, "application/json", body, headers=HEADERS)


def _number(request: Request, name: str, default: int | None = None) -> int:
    """A number of the query, 0 or more.

    Raises:
        HttpError: The number is missing or malformed.
    """
    values = request.query.get(name, [])
    if not values and default is not None:
        return default
    if len(values) != 1 or not (values[0].isascii() and values[0].isdigit() and len(values[0]) <= 10):
        raise HttpError(400, f"the query needs the number {name}, as in ?{name}=7")
    return int(values[0])
