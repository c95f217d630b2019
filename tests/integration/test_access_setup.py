"""The page that switches access rules on: from nothing, its commands in order, on hosts that are directories here."""

import os
import re
from pathlib import Path

import pytest

from tests.integration.guide import DOCS, Hosts, read_blocks

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

PAGES = ("setup.md", "access-setup.md")


@pytest.mark.deep
def test_the_page(tmp_path: Path) -> None:
    network = f"127.{os.getpid() // 250 % 250 + 1}.{os.getpid() % 250}"
    with Hosts(tmp_path, network) as hosts:
        for page in PAGES:
            for block in read_blocks(page):
                if block.language in ("sh", "console"):
                    hosts.play(block)


def test_nothing_on_the_page_is_left_out() -> None:
    blocks = read_blocks("access-setup.md")
    assert {each.language for each in blocks} == {"sh", "console"}
    text = (DOCS / "access-setup.md").read_text()
    assert len(re.findall(r"^```", text, re.MULTILINE)) == 2 * len(blocks)
    assert text.count("<!--") == 1, "no comment calls for what nobody does"
