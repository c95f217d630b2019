"""The tables of docs/metrics.md, made of what the code says. ``python -m tests.metrics_page`` renews them."""

import re
from collections.abc import Iterable, Mapping

from tests.architecture import ROOT
from waltz.archive.process import archive_metrics as of_archivers
from waltz.common.acl import watch as of_access_rules
from waltz.common.acl.node import UNUSABLE_TOKEN_FILES
from waltz.common.metrics import process_metrics
from waltz.common.metrics.registry import Description
from waltz.common.net import port_metrics
from waltz.mirror import mirror_metrics as of_mirrors
from waltz.server.process import descriptions as of_servers
from waltz.storage.node import descriptions as of_storages
from waltz.view import view_metrics as of_view_nodes

PAGE = ROOT / "docs" / "metrics.md"

SERVER = {each.name: each for each in of_servers.DESCRIPTIONS}
STORAGE = {each.name: each for each in of_storages.DESCRIPTIONS}
ARCHIVE = {each.name: each for each in of_archivers.DESCRIPTIONS}
MIRROR = {each.name: each for each in of_mirrors.DESCRIPTIONS}
VIEW = {each.name: each for each in of_view_nodes.DESCRIPTIONS}
BOTH = {
    each.name: each
    for each in (
        *port_metrics.DESCRIPTIONS,
        *process_metrics.DESCRIPTIONS,
        *of_access_rules.DESCRIPTIONS,
        UNUSABLE_TOKEN_FILES,
    )
}

TABLES: Mapping[str, Mapping[str, Description]] = {
    "server": SERVER,
    "storage": STORAGE,
    "archive": ARCHIVE,
    "mirror": MIRROR,
    "view": VIEW,
    "both": BOTH,
}


def _table(descriptions: Iterable[Description]) -> str:
    lines = ["| Name, with its labels | Type | Meaning |", "|---|---|---|"]
    for each in sorted(descriptions):
        labels = f"{{{','.join(each.labels)}}}" if each.labels else ""
        lines.append(f"| `{each.name}{labels}` | {each.kind} | {each.meaning} |")
    return "\n".join(lines)


def drawn(page: str) -> str:
    """The page with its tables made anew."""
    for name, descriptions in TABLES.items():
        begin, end = f"<!-- metrics: {name} -->\n", "\n<!-- end -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        assert len(pattern.findall(page)) == 1, f"no place for the table {name}"
        table = f"{begin}\n{_table(descriptions.values())}\n{end}"
        page = pattern.sub(table.replace("\\", r"\\"), page)
    return page


if __name__ == "__main__":
    PAGE.write_text(drawn(PAGE.read_text()))
