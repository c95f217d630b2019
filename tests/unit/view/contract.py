"""Every answer of a view node in tests, and every request that was answered, is held to the description."""

import contextlib
import functools
import importlib
import json
from typing import Any

from aiohttp import web

from waltz.view.openapi import document

jsonschema: Any = None
with contextlib.suppress(ImportError):  # where it is missing, bodies are not looked at
    jsonschema = importlib.import_module("jsonschema")

DOCUMENT: dict[str, Any] = json.loads(json.dumps(document("0")))
LINES = 20
"""So many lines of a chunk of an answer are looked at."""


@functools.cache
def validator(name: str) -> Any:
    """Validates by a schema of the description."""
    schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
    return jsonschema.Draft202012Validator(schema)


def schema_of(content: dict[str, Any]) -> str:
    """The name of the schema of a content type."""
    return str(content["schema"]["$ref"]).rpartition("/")[2]


class Contract:
    """What was not as the description says."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    async def check(self, request: web.Request, response: web.StreamResponse) -> None:
        """Look at an answer that is about to be sent."""
        resource = request.match_info.route.resource
        path = "" if resource is None else resource.canonical
        if path not in DOCUMENT["paths"]:
            return  # the description itself, and what no route takes
        operation = DOCUMENT["paths"][path].get(request.method.lower())
        if operation is None or response.status == 405:
            return
        what = f"{request.method} {path}: {response.status}"
        try:
            self._check(request, response, operation)
        except KeyError as error:
            self.broken.append(f"{what} has no {error} in the description")
        except AssertionError as error:
            self.broken.append(f"{what}: {error}")

    def _check(self, request: web.Request, response: web.StreamResponse, operation: dict[str, Any]) -> None:
        told = operation["responses"][str(response.status)]
        name = schema_of(told["content"][response.content_type])
        for header in told.get("headers", {}):
            assert header in response.headers, f"without {header}"
        if response.status == 200:
            known = {each["name"] for each in operation.get("parameters", []) if each["in"] == "query"}
            assert set(request.query) <= known, f"took {set(request.query) - known}"
            body = request._read_bytes
            if body and "requestBody" in operation:
                self._validate(operation["requestBody"]["content"], body)
            assert "requestBody" in operation or not body, "took a body"
        if jsonschema is None:
            return
        if isinstance(response, web.Response):
            if response.content_type.endswith("json"):
                assert isinstance(response.body, bytes)
                self._line(name, response.body)
        elif response.content_type == "application/x-ndjson":
            self._watch_lines(name, response)

    def _watch_lines(self, name: str, response: web.StreamResponse) -> None:
        write = response.write

        async def written(data: bytes | bytearray | memoryview) -> None:
            lines = bytes(data).splitlines()
            for line in [*lines[:LINES], lines[-1]]:
                try:
                    self._line(name, line)
                except AssertionError as error:
                    self.broken.append(str(error))
            await write(data)

        response.write = written  # type: ignore[method-assign]

    def _validate(self, content: dict[str, Any], body: bytes) -> None:
        if "application/json" in content and jsonschema is not None:
            self._line(schema_of(content["application/json"]), body)

    def _line(self, name: str, line: bytes) -> None:
        error = jsonschema.exceptions.best_match(validator(name).iter_errors(json.loads(line)))
        assert error is None, f"{line[:200]!r} is no {name}: {error.message[:200]}"
