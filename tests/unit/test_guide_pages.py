"""Pages for operators and implementers say what the program is: messages of the protocols, commands, anchors."""

import argparse
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from waltz.cli.main import parser
from waltz.common.wire import admin_version1, client_server, storage_version1
from waltz.common.wire.catalogue import Catalogue
from waltz.common.wire.frames import CLIENT_SERVER, STORAGE, STORAGE_ADMIN
from waltz.storage.disk.segment.segment_format import HEADER_SIZE_BYTES, RECORD_PREFIX

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
ROW = re.compile(r"^\| (\d+) \| `(\w+)` \| (\d+) \|", re.MULTILINE)
PROTOCOLS: Mapping[str, Mapping[int, Catalogue[Any]]] = {
    "Client-server": client_server._CATALOGUES,
    "Storage": storage_version1._CATALOGUES,
    "Storage admin": admin_version1._CATALOGUES,
}
PROCEDURES = re.compile(r"^#{3,4} .* \{#([a-z-]+)\}$", re.MULTILINE)
PROMISED = {
    *("storage-down", "under-replicated", "replica-lagging", "no-quorum", "unhealthy-partition", "server-down"),
    *("no-owner", "slow-appends", "append-memory", "fences", "zookeeper-lost", "disk-full", "out-of-service"),
    *("damaged-data", "certificates", "upgrade", "add-storage", "move-replica", "remove-storage", "replace-storage"),
    *("add-server", "drain-server", "backup", "restore", "migrate-from-java"),
}
"""Anchors that alerts and bookmarks lead to."""


def section(page: str, heading: str) -> str:
    """What stands below a heading of the second level."""
    found = re.search(rf"^## {heading}$(.*?)(?=^## |\Z)", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL)
    assert found is not None, heading
    return found[1]


@pytest.mark.parametrize("heading", PROTOCOLS)
def test_the_messages_of_each_version(heading: str) -> None:
    rows = [(int(number), name, int(since)) for number, name, since in ROW.findall(section("protocol.md", heading))]
    for version, catalogue in PROTOCOLS[heading].items():
        shown = {number: name for number, name, since in rows if since <= version}
        assert shown == {number: name for number, (name, _) in catalogue._decoders.items()}


def test_the_magic_bytes_and_versions() -> None:
    head = (DOCS / "protocol.md").read_text().partition("\n## ")[0]
    shown = re.findall(r"^\| ([a-z -]+) \|.*\| `(\w)` \| (.*) \|$", head, re.MULTILINE)
    families = (CLIENT_SERVER, STORAGE, STORAGE_ADMIN)
    assert [(name, ord(magic)) for name, magic, _ in shown] == [(each.name, each.magic) for each in families]
    for (_, _, versions), family in zip(shown, families, strict=True):
        numbers = [int(number) for number in re.findall(r"\d+", versions)]
        assert (numbers[0], numbers[-1]) == (family.versions[0], family.versions[-1])


def test_the_sizes_on_disk() -> None:
    text = section("disk-format.md", "Segments")
    assert f"header of {HEADER_SIZE_BYTES} bytes" in text
    assert f"| {RECORD_PREFIX.size} | n | data |" in text


def known_commands(found: argparse.ArgumentParser, name: str = "waltz") -> set[str]:
    """All commands with their nouns."""
    known = {name}
    for action in found._actions:
        if isinstance(action, argparse._SubParsersAction):
            for verb, inner in action.choices.items():
                known |= known_commands(inner, f"{name} {verb}")
    return known


COMMANDS_OF_THE_ORIGINAL = {
    "zookeeper": "create delete list show-cluster-key add-storage-node remove-storage-node assign-partition "
    "unassign-partition auto-assign",
    "server": "list add-preferred-partition remove-preferred-partition",
    "cluster": "check-connectivity verify",
    "client": "validate high-water-mark create-producer create-consumer",
    "performance": "test-producers test-consumers",
    "storage": "list add-partition remove-partition availability recover-partition sync-partitions validate "
    "max-transaction-id",
    "disk": "verify-segment segment-statistic dump-segment dump-control-file",
}


def test_each_command_of_the_original_is_one_here() -> None:
    text = section("migrating-a-cluster.md", "Which command became which")
    known = known_commands(parser())
    commands = {f"waltz {noun} {verb}" for noun, verbs in COMMANDS_OF_THE_ORIGINAL.items() for verb in verbs.split()}
    assert commands <= known
    assert f"All {len(commands)} commands" in text
    assert {noun.lower() for noun in re.findall(r"`(\w+)Cli\b", text)} == COMMANDS_OF_THE_ORIGINAL.keys()
    assert set(re.findall(r"`(waltz [a-z]+ [a-z-]+)`", text)) <= known


@pytest.mark.parametrize("page", ["setup.md", "runbook.md", "install.md", "migrating-a-cluster.md", "concepts.md"])
def test_only_commands_that_there_are(page: str) -> None:
    known = known_commands(parser())
    for words in re.findall(r"\bwaltz ((?:[a-z]+[a-z-]*)(?: [a-z]+[a-z-]*)?)", (DOCS / page).read_text()):
        first = words.split()[0]
        if f"waltz {first}" in known:
            verbs = {each for each in known if each.startswith(f"waltz {first} ")}
            assert not verbs or f"waltz {words}" in verbs or words == first, words


def test_alerts_are_found() -> None:
    """Each has a section, or is told about where it is asked for."""
    rules = (ROOT / "deploy" / "prometheus" / "alerts.yml").read_text()
    alerts = set(re.findall(r"- alert: (\w+)", rules))
    named = set(re.findall(r"`(Waltz\w+)`", section("runbook.md", "Alerts and symptoms")))
    assert named <= alerts
    assert alerts - named == {
        "WaltzClientLags",
        "WaltzClientLate",
        "WaltzConnectionsRefused",
        "WaltzConsumerLate",
        "WaltzDescriptorsShort",
        "WaltzEventLoopLate",
    }


def test_anchors_stay() -> None:
    assert set(PROCEDURES.findall((DOCS / "runbook.md").read_text())) >= PROMISED
