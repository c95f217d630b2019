"""The pages that set a cluster up and operate it, as a play: their commands on hosts that are directories here.

What a page's commands find here instead of what they name:

* A host of ``example`` is an address of the loopback network, so that every host has the ports of the page, and a
  directory that holds its ``/etc``, ``/var``, ``/opt``, ``/usr/local`` and ``/backup``. ``HOST:/path``, as of scp, is a
  file there.
* ``hostname -f`` tells the host's address, ``scp`` copies, and ``systemctl`` runs the ``ExecStart`` line of the unit
  file that the page has put in its place.
* ``ssh`` runs a command in the place of the other host, and ``chown`` does nothing: all files are the test's.
* A certificate names an address where the page has it name a host, and Java is told that its life is short.

Blocks in ``sh`` are scripts that must succeed. Blocks in ``console`` show commands behind ``$`` with all of their
output, in which ``...`` stands for anything, a line of ``...`` for any number of lines, and a number of four digits or
more for any number. Their title names the hosts they are for, ``admin.example`` without one. A comment
``<!-- on HOST: COMMANDS -->`` is a fault that the section is about, ``<!-- again on HOST: HEADING -->`` the first block
of ``setup.md`` below that heading once more, and ``<!-- test: WORDS -->`` calls the test.
"""

import os
import re
import shlex
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from waltz.local.java import find_java
from waltz.local.processes import Child, Children
from waltz.local.zookeeper import zookeeper_jars

DOCS = Path(__file__).parents[2] / "docs"
HOME = "admin.example"

_HOST = re.compile(r"[a-z]+(?:-\d)?\.example")
_FENCE = re.compile(
    r'^```(\w+)(?: title="([^"]*)")?\n(.*?)^```$|^<!-- (on|again on|test)(?: ([a-z0-9.-]+))?: (.*?) -->$', re.M | re.S
)
_PLACE = re.compile(r"(?<![\w.])/(?=(?:etc|var|opt|usr/local|backup)\b)")
_STOP_TIMEOUT_S = 30.0
_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Quick to start beats quick to run."""

_COMMAND_TIMEOUT_S = 180.0
"""For all that a block does on a host: a rolling restart takes a while where others use the processors."""

_FOLDERS = ("bin", "etc/waltz", "etc/systemd/system", "var/lib", "opt/zookeeper/lib", "usr/local/bin", "backup")

_SYSTEMCTL = """#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{port}
echo "{host} $*" >&3
read -r code <&3
cat <&3
exit "$code"
"""

_SSH = """#!/bin/bash
PATH={root}/$1/bin:${{PATH#*:}} exec "${{@:2}}"
"""
_SCP = """#!/bin/bash
arguments=()
for each; do
    [[ $each = *:* ]] && each={root}/${{each%%:*}}/${{each#*:{directory}/}}
    [[ $each = -* ]] || arguments+=("$each")
done
exec cp -r "${{arguments[@]}}"
"""


class Block(NamedTuple):
    """A block of a page that says what to do."""

    language: str
    """The language of a fenced block, or the first word of a comment."""
    title: str
    text: str
    line: int

    @property
    def hosts(self) -> list[str]:
        """Where it is executed."""
        return _HOST.findall(self.title) or [HOME]


def read_blocks(page: str) -> list[Block]:
    """All blocks of a page, in their order."""
    text = (DOCS / page).read_text()
    found = []
    for match in _FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language, title, body, directive, host, commands = match.groups()
        if directive:
            found.append(Block(directive, host or "", commands, line))
        else:
            found.append(Block(language, title or "", body, line))
    return found


def first_block_below(heading: str) -> str:
    """The first executed block of the setup page below a heading."""
    below = (DOCS / "setup.md").read_text().partition(f"\n## {heading}\n")[2]
    return next(match[3] for match in _FENCE.finditer(below) if match[1] == "sh")


def commands_of(console: str) -> Iterator[tuple[str, list[str]]]:
    """The commands of a block and the lines that each of them is to print."""
    command, expected = "", list[str]()
    for line in console.splitlines():
        if line.startswith("$ "):
            if command:
                yield command, expected
            command, expected = line[2:], []
        elif line.startswith("> ") and command.endswith("\\"):
            command += "\n" + line[2:]
        else:
            expected.append(line)
    yield command, expected


def pattern_of(expected: list[str]) -> re.Pattern[str]:
    """Matches the whole of an output, of which runs of blanks count as one, that a page shows so."""
    lines = []
    for line in expected:
        if line.strip() == "...":
            lines.append(r"(?:.*\n)*?")
            continue
        pattern = re.escape(" ".join(line.split())).replace(r"\.\.\.", ".*")
        lines.append(re.sub(r"(?<!\d)\d{4,}(?!\d)", r"\\d+", pattern) + r"\n")
    return re.compile("".join(lines))


class Hosts:
    """The hosts of the pages, with what runs on them; a context manager."""

    def __init__(self, root: Path, network: str) -> None:
        """``network`` is the beginning of the addresses, such as ``127.77.3``."""
        self._root = root
        self._network = network
        self._addresses: dict[str, str] = {}
        self._children = Children()
        self._services: dict[tuple[str, str], Child] = {}
        self._control = _Control(("127.0.0.1", 0), self)
        threading.Thread(target=self._control.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._control.shutdown()
        self._control.server_close()
        self._children.close()

    def address(self, host: str) -> str:
        """The address of a host, which is made when it is named for the first time."""
        if host not in self._addresses:
            self._addresses[host] = f"{self._network}.{len(self._addresses) + 1}"
            self._install(host, self._root / self._addresses[host])
        return self._addresses[host]

    def directory(self, host: str) -> Path:
        """The directory that stands for ``/`` of a host."""
        return self._root / self.address(host)

    def translate(self, text: str, host: str) -> str:
        """Commands of a page with the paths and addresses of a host of this test."""
        text = _PLACE.sub(f"{self.directory(host)}/", text).replace("DNS:", "IP:")
        text = text.replace("/usr/bin/java ", f"{find_java().path} {_JAVA_OPTIONS} ")
        return _HOST.sub(lambda match: self.address(match[0]), text)

    def run(self, commands: str, host: str) -> subprocess.CompletedProcess[str]:
        """Run commands on a host; what they print is one text, with the names of the page."""
        directory = self.directory(host)
        environment = {
            "PATH": f"{directory}/bin:{directory}/usr/local/bin:{directory}/opt/waltz/bin:{os.environ['PATH']}",
            "HOME": str(directory),
            "LC_ALL": "C",
            "WALTZ_CONFIG": f"{directory}/etc/waltz/cli.yml",
        }
        if "PYTHONPATH" in os.environ:  # the tools are those of the tree under test, as the nodes are
            environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
        words = ["bash", "-euo", "pipefail", "-c", self.translate(commands, host)]
        try:
            done = subprocess.run(
                words,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise AssertionError(f"on {host} this did not end: {commands}\n{self.logs()}") from None
        for name, address in self._addresses.items():
            done.stdout = re.sub(rf"{re.escape(address)}(?!\d)", name, done.stdout)
        return done

    def play(self, block: Block) -> None:
        """Do what a block says, and compare what is printed with what the page shows."""
        for host in block.hosts:
            if block.language == "console":
                for command, expected in commands_of(block.text):
                    done = self.run(command, host)
                    where = f"line {block.line}: {command}\n{done.stdout}"
                    fails = any(line.startswith("Error: ") for line in expected)
                    assert (done.returncode != 0) == fails, where
                    printed = "".join(" ".join(line.split()) + "\n" for line in done.stdout.splitlines())
                    assert pattern_of(expected).fullmatch(printed), where
            else:
                done = self.run(block.text, host)
                assert done.returncode == 0, f"line {block.line}, on {host}: {done.stdout}\n{self.logs()}"

    def logs(self) -> str:
        """The last lines of all services."""
        return "\n\n".join(f"{host} {unit}:\n{child.log_tail()}" for (host, unit), child in self._services.items())

    def service(self, host: str, unit: str) -> Child | None:
        """The process of a service that runs."""
        child = self._services.get((host, unit))
        return child if child is not None and child.running else None

    def control(self, host: str, arguments: list[str]) -> tuple[int, str]:
        """Do what systemctl is told; returns its exit code and its output."""
        verb, *units = [each for each in arguments if each != "--now"]
        if verb == "daemon-reload":
            return 0, ""
        if verb == "kill":
            units = units[2:]  # -s KILL
        if verb == "show":  # -p MainPID --value
            child = self.service(host, units[-1])
            return 0, f"{child.process_id if child else 0}\n"
        for unit in units:
            running = self.service(host, unit)
            if verb == "kill" and running:
                self._children.kill(running)
            elif verb in ("stop", "restart") and running:
                self._children.stop(running, _STOP_TIMEOUT_S)
            if verb in ("start", "restart", "enable") and self.service(host, unit) is None:
                try:
                    self._start(host, unit)
                except FileNotFoundError:
                    return 5, f"Unit {unit}.service not found.\n"
        return 0, ""

    def _start(self, host: str, unit: str) -> None:
        directory = self.directory(host)
        text = (directory / "etc/systemd/system" / f"{unit}.service").read_text()
        (command,) = re.findall(r"^ExecStart=(.*)$", text, re.M)
        words = shlex.split(self.translate(command, host))
        self._services[host, unit] = self._children.start(f"{unit} on {host}", words, directory / f"{unit}.log")

    def _install(self, host: str, directory: Path) -> None:
        """Make the directories and commands of a new host."""
        for each in _FOLDERS:
            (directory / each).mkdir(parents=True)
        for jar in zookeeper_jars():
            (directory / "opt/zookeeper/lib" / jar.name).symlink_to(jar)
        (directory / "opt/waltz").symlink_to(sys.prefix)
        (directory / "deploy").symlink_to(DOCS.parent / "deploy")
        port = self._control.server_address[1]
        stand_ins: Mapping[str, str] = {
            "chown": "#!/bin/sh\n",
            "hostname": f"#!/bin/sh\necho {self._addresses[host]}\n",
            "scp": _SCP.format(root=self._root, directory=directory),
            "ssh": _SSH.format(root=self._root),
            "systemctl": _SYSTEMCTL.format(port=port, host=host),
        }
        for name, script in stand_ins.items():
            (directory / "bin" / name).write_text(script)
            (directory / "bin" / name).chmod(0o755)


class _Control(socketserver.TCPServer):
    """Where the stand-in of systemctl asks; one call at a time."""

    def __init__(self, address: tuple[str, int], hosts: Hosts) -> None:
        self.ask: Callable[[str, list[str]], tuple[int, str]] = hosts.control
        super().__init__(address, _Request)


class _Request(socketserver.StreamRequestHandler):
    """One call of it."""

    server: _Control

    def handle(self) -> None:
        host, *arguments = self.rfile.readline().decode().split()
        code, text = self.server.ask(host, arguments)
        self.wfile.write(f"{code}\n{text}".encode())
