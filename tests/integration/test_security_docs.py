"""The TLS guide of docs/security.md: its very commands make stores that nodes take, and its checks tell the truth."""

import asyncio
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.unit.common.net.peers import FAMILY, Recorder
from waltz.common.config.schemas import TlsConfig, from_mapping
from waltz.common.net.listener import Listener
from waltz.common.net.tls import server_context

pytestmark = pytest.mark.integration

GUIDE = (Path(__file__).parents[2] / "docs" / "security.md").read_text().partition("\n## TLS\n")[2]
AUTHORITY, NODE, CHECKS = re.findall(r"```sh\n(.*?)```", GUIDE, re.DOTALL)[:3]
SETTINGS = re.findall(r"```yaml\n(.*?)```", GUIDE, re.DOTALL)[0]
ROUNDS = 5
"""The outcome of a check must not depend on who is quicker."""


def shell(script: str, directory: Path) -> subprocess.CompletedProcess[str]:
    script = script.replace("node1.example", "localhost")
    return subprocess.run(["sh", "-ec", script], cwd=directory, capture_output=True, text=True, timeout=60, check=False)


async def test_the_commands_of_the_guide(tmp_path: Path) -> None:
    for script in (AUTHORITY, NODE):
        made = await asyncio.to_thread(shell, script, tmp_path)
        assert made.returncode == 0, made.stderr
    settings = SETTINGS.replace("/etc/waltz", str(tmp_path)).replace("node1.example", "localhost")
    tls = from_mapping(yaml.safe_load(settings), TlsConfig, prefix="server.ssl.")
    listener = await Listener.open("localhost", 0, FAMILY, "server", Recorder, tls=server_context(tls))
    try:
        commands = re.findall(r"openssl (?:.*\\\n)*.*\n", CHECKS.replace("55180", str(listener.port)))
        without_certificate, with_certificate = commands
        assert "must fail" in without_certificate
        assert "must succeed" in with_certificate
        for _ in range(ROUNDS):
            assert (await asyncio.to_thread(shell, without_certificate, tmp_path)).returncode == 1
            checked = await asyncio.to_thread(shell, with_certificate, tmp_path)
            assert checked.returncode == 0, checked.stderr
    finally:
        await listener.close()
