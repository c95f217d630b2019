"""The description of the interface: whole, valid, and what the port and the page say.

What requests and answers are is held to it in all tests of view nodes: ``contract``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import waltz
from tests.unit.view.contract import DOCUMENT
from tests.unit.view.node import session, view_node
from waltz.client.mock import MockDriver, MockServerPartition
from waltz.table.served import problems
from waltz.view import openapi
from waltz.view.routes import ROUTES

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "served-tables.md").read_text()
OPERATIONS = [
    (method, path, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()
]


def everything(value: Any) -> Iterator[Any]:
    """All values in a document."""
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from everything(each)


def test_it_is_a_document_of_openapi() -> None:
    assert DOCUMENT.keys() == {"openapi", "info", "paths", "components", "security"}
    assert DOCUMENT["openapi"] == "3.1.0"
    assert {"title", "version"} <= DOCUMENT["info"].keys()
    for _, path, operation in OPERATIONS:
        assert operation["summary"]
        named = [each["name"] for each in operation.get("parameters", []) if each["in"] == "path"]
        assert named == re.findall(r"{(\w+)}", path), "each part of the path, and no pattern"
        places = [(each["name"], each["in"]) for each in operation.get("parameters", [])]
        assert len(set(places)) == len(places)
        for parameter in operation.get("parameters", []):
            assert parameter["description"]
            assert parameter.get("required", False) is (parameter["in"] == "path")
        assert operation["responses"].keys() >= {"200", "400", "401"}
        for answer in operation["responses"].values():
            assert answer["description"]
            assert answer["content"]
    ids = [operation["operationId"] for _, _, operation in OPERATIONS]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"\w+", each) for each in ids)
    schemes = {name for way in DOCUMENT["security"] for name in way}
    assert schemes == DOCUMENT["components"]["securitySchemes"].keys()


def test_its_schemas_are_valid_and_all_are_used() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schemas = DOCUMENT["components"]["schemas"]
    for schema in schemas.values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for _, _, operation in OPERATIONS:
        for parameter in operation.get("parameters", []):
            jsonschema.Draft202012Validator.check_schema(parameter["schema"])
    named = {each["$ref"] for each in everything(DOCUMENT) if isinstance(each, dict) and "$ref" in each}
    assert named == {f"#/components/schemas/{name}" for name in schemas}


def test_foreign_messages_do_not_pass_for_valid_ones() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    for name, message in (
        *(("Row", {"prefix": ""}), ("Get", {"keys": [], "rows": []}), ("Batch", {"rows": []}), ("Batch", {"if": []})),
        *(("TakeLine", {"end": {"cursor": 1}}), ("Problem", {"status": 400}), ("Sweep", {"if_due": 1})),
        *(("Written", {"transaction": None}), ("Bytes", {"base64": 1}), ("Nothing", {"all": True})),
    ):
        schema = {"$ref": f"#/components/schemas/{name}", "components": DOCUMENT["components"]}
        assert not jsonschema.Draft202012Validator(schema).is_valid(message), name


async def test_it_is_served_and_has_all_routes_of_the_port(tmp_path: Path) -> None:
    async with (
        view_node(MockServerPartition.create(1), tmp_path) as node,
        session(node) as http,
        http.get("/openapi.json") as response,
    ):
        assert (response.status, response.content_type) == (200, "application/json")
        served = await response.json()
    assert served["paths"] == DOCUMENT["paths"]
    assert served["info"]["version"] != "0"
    there = {(method, path) for method, path, _ in OPERATIONS}
    assert there == {(each.method.lower(), each.template) for each in ROUTES} | {("get", openapi.LIST_PATH)}


def test_it_has_every_header_that_is_read() -> None:
    sources = "".join(path.read_text() for path in (ROOT / "waltz" / "view").glob("*.py"))
    read = set(re.findall(r"""headers\.get(?:all)?\("([\w-]+)\"""", sources))
    read |= set(re.findall(r'"(If-[\w-]+)"\)', sources)) - {"Authorization"}
    named = {each["name"] for _, _, one in OPERATIONS for each in one.get("parameters", []) if each["in"] == "header"}
    assert read - {"Authorization"} == named


def test_it_has_every_status_of_refusals() -> None:
    statuses = {status for _, status, _ in problems._PROBLEMS} | {202, 429, 503}
    written = {int(each) for _, _, one in OPERATIONS for each in one["responses"]}
    assert statuses <= written
    of_no_operation = {405}  # a method that a path does not have
    assert (
        written
        == {200}
        | {int(each) for line in re.findall(r"^\| (\d[\d, ]*) \|", PAGE, re.MULTILINE) for each in line.split(", ")}
        - of_no_operation
    )


def test_the_page_has_every_route() -> None:
    for each in ROUTES:
        path = each.template.replace("/v1/tables/{partition}", ".").replace("{key}", "KEY")
        assert f"`{each.method} {path}`" in PAGE, each


@pytest.mark.parametrize("lost", ["route", "parameter", "status", "body", "header"])
async def test_what_is_missing_is_found(lost: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The contract is broken when the description lacks something."""
    operation = DOCUMENT["paths"]["/v1/tables/{partition}/rows/{key}"]["get"]
    if lost == "parameter":
        kept = [each for each in operation["parameters"] if each["name"] != "prefix"]
        monkeypatch.setitem(operation, "parameters", kept)
    elif lost == "status":
        monkeypatch.delitem(operation["responses"], "404")
    elif lost == "header":
        monkeypatch.setitem(operation["responses"]["200"]["headers"], "Other", {})
    elif lost == "body":
        monkeypatch.delitem(DOCUMENT["paths"]["/v1/tables/{partition}/rows/{key}"]["put"], "requestBody")
    else:
        monkeypatch.delitem(DOCUMENT["paths"]["/v1/tables/{partition}/rows/{key}"], "get")
    assert (lost == "route") is bool({(each.method.lower(), each.template) for each in ROUTES} - _there())
    if lost == "route":
        return
    with pytest.raises(AssertionError, match="rows/{key}"):
        await _use_a_row(tmp_path)


def _there() -> set[tuple[str, str]]:
    return {(method, path) for path, methods in DOCUMENT["paths"].items() for method in methods}


async def _use_a_row(directory: Path) -> None:
    cluster = MockServerPartition.create(1)
    async with waltz.connect(MockDriver(cluster)) as client:
        await waltz.table.configure(client, 0, {"format": "table"})
    async with view_node(cluster, directory) as node:
        await node.served()
        async with session(node) as http:
            await http.put("/v1/tables/0/rows/k?prefix=p", data=b"v")
            await http.get("/v1/tables/0/rows/k?prefix=p&at_least=0")
            await http.get("/v1/tables/0/rows/none")
