"""This machine in the place of those that a deployment describes: its very commands, as plain processes.

Each node has an address of its own in the loopback network, so that its ports are those of the deployment.
"""

import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.error import URLError

import yaml

from waltz.local.processes import Child, Children
from waltz.local.zookeeper import LocalZooKeeper

ROOT = Path(__file__).parents[2]
WAIT_S = 60.0
NONE: Mapping[str, str] = {}
_NETWORK = f"127.{1 + os.getpid() // 256 % 250}.{os.getpid() % 256}"
"""A loopback network of this run of the tests alone."""


class Site:
    """Runs commands of a deployment with the programs in ``programs``, each from a folder of its own in ``directory``.

    ``hosts`` are the names under which its nodes find each other, ``ensemble`` is what ZooKeeper is called there, and
    ``files`` tells where the files lie that its commands name.
    """

    def __init__(
        self,
        directory: Path,
        zookeeper: LocalZooKeeper,
        children: Children,
        *,
        hosts: Iterable[str],
        ensemble: str,
        files: Mapping[str, Path],
        programs: Path = Path(sys.executable).parent,
    ) -> None:
        self.addresses = {host: f"{_NETWORK}.{number}" for number, host in enumerate(hosts, 1)}
        self.directory = directory
        self.programs = programs
        self._names = {ensemble: zookeeper.connect_string, **self.addresses}
        self._zookeeper = zookeeper
        self._children = children
        self._files = files

    def translated(self, text: str) -> str:
        """``text`` with addresses in the place of names."""
        for name, address in self._names.items():
            text = text.replace(name, address)
        return text

    def run(self, node: str, words: Sequence[str]) -> str:
        """Run a command that ends by itself; what it printed."""
        result = self.attempt(node, words)
        assert result.returncode == 0, f"{node}: {result.stdout}{result.stderr}"
        return result.stdout

    def attempt(
        self, node: str, words: Sequence[str], variables: Mapping[str, str] = NONE
    ) -> subprocess.CompletedProcess[str]:
        """Run a command that ends by itself, well or not."""
        given = {name: self.translated(value) for name, value in variables.items()}
        search_path = os.pathsep.join((str(self.programs), os.environ["PATH"]))
        return subprocess.run(
            self._command(node, words, {}),
            cwd=self.directory,
            env={**os.environ, **given, "PATH": search_path},
            capture_output=True,
            text=True,
            timeout=WAIT_S,
            check=False,
        )

    def start(
        self,
        node: str,
        host: str,
        words: Sequence[str],
        variables: Mapping[str, str] = NONE,
        *,
        under: Sequence[str] = (),
    ) -> Child:
        """Start a daemon; ``under`` is a program that becomes what its arguments say."""
        kind = Path(words[0]).name.removeprefix("waltz-")
        address, directory = self.addresses[host], str(self._of(node))
        own = {
            "server.host": address,
            "storage.directory": directory,
            "view.host": address,
            "view.directory": directory,
        }
        here = {key: value for key, value in own.items() if key.startswith(kind)}
        here[f"{kind}.bindAddress"] = self.addresses[host]
        surroundings = [f"{name}={self.translated(value)}" for name, value in variables.items()]
        command = ["/usr/bin/env", *surroundings, *under, *self._command(node, words, here)]
        return self._children.start(node, command, self.directory / f"{node}.log")

    def get(self, host: str, port: int, path: str, child: Child) -> bytes:
        """The answer of a daemon to a request, from the moment when it answers 200."""
        deadline = time.monotonic() + WAIT_S
        while True:
            child.check()
            try:
                with urllib.request.urlopen(f"http://{self.addresses[host]}:{port}{path}", timeout=WAIT_S) as answer:
                    content: bytes = answer.read()
                    return content
            except URLError:
                assert time.monotonic() < deadline, child.log_tail()
                time.sleep(0.05)

    def client_configuration(self) -> dict[str, object]:
        """The configuration of an application."""
        return {
            "zookeeper.connectString": self._zookeeper.connect_string,
            "zookeeper.sessionTimeout": 4000,
            "cluster.root": "/waltz",
        }

    def _command(self, node: str, words: Sequence[str], here: Mapping[str, object]) -> list[str]:
        """What runs here in the place of ``words``; ``here`` is what counts in its files in any case."""
        program, *arguments = map(self.translated, words)
        for path, source in self._files.items():
            if any(path in word for word in arguments):
                content = yaml.safe_load(self.translated(source.read_text()))
                written = self._of(node) / source.name
                written.write_text(yaml.safe_dump(content | here))
                arguments = [word.replace(path, str(written)) for word in arguments]
        own = self.programs / Path(program).name
        return [str(own) if own.exists() else program, *arguments]

    def _of(self, node: str) -> Path:
        directory = self.directory / node
        directory.mkdir(exist_ok=True)
        return directory
