"""A real ZooKeeper on this machine, from the jars of PySpark: no Docker, no installation.

Without PySpark, the environment variable ``WALTZ_ZOOKEEPER_JARS`` has to name a directory with the jars: ``lib`` of a
ZooKeeper distribution, or ``jars`` of PySpark.

The server listens on the loopback interface only, logs to ``zookeeper.log`` in its data directory, and never outlives
the process that has started it.
"""

import asyncio
import importlib.util
import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from types import TracebackType

from waltz.common.errors import WaltzError
from waltz.common.version import with_extra
from waltz.local.java import find_java
from waltz.local.processes import Child, Children

JARS_VARIABLE = "WALTZ_ZOOKEEPER_JARS"
"""The environment variable with the directory of ZooKeeper's jars. It takes precedence over PySpark."""

_HOST = "127.0.0.1"
_START_ATTEMPTS = 5
_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 10.0
_POLL_INTERVAL_S = 0.05

_JARS = (
    "zookeeper-[0-9]*.jar",
    "zookeeper-jute-*.jar",
    "slf4j-api-*.jar",
    "metrics-core-*.jar",  # without this jar: no start
    "snappy-java-*.jar",  # without this jar: the server answers "imok", but never opens a session
    "log4j-slf4j2-impl-*.jar",
    "log4j-api-2*.jar",
    "log4j-core-*.jar",
)


class LocalZooKeeperError(WaltzError):
    """ZooKeeper cannot be started: there are no jars, or the process ended immediately."""


class LocalZooKeeper:
    """One stand-alone ZooKeeper server; a context manager, plain or async.

    ``data_directory`` is kept over restarts and never removed. The default is a temporary directory, which :meth:`stop`
    removes. Client port 0 means a free port. The shortest session time-out is two ticks.
    """

    def __init__(self, data_directory: Path | None = None, *, port: int = 0, tick_time_ms: int = 500) -> None:
        self._given_directory = data_directory
        self._directory = data_directory
        self._wanted_port = port
        self._tick_time_ms = tick_time_ms
        self._port = 0
        self._children: Children | None = None
        self._process: Child | None = None

    @property
    def connect_string(self) -> str:
        """``host:port`` for clients."""
        return f"{_HOST}:{self._port}"

    @property
    def port(self) -> int:
        """The client port. It stays the same over :meth:`stop` and :meth:`start`."""
        return self._port

    @property
    def log_path(self) -> Path:
        """The output of the server."""
        if self._directory is None:
            raise LocalZooKeeperError("ZooKeeper has not been started")
        return self._directory / "zookeeper.log"

    def start(self) -> None:
        """Start the server. Return when it answers. Blocks for about a second.

        Raises ``NoJavaError`` when there is no usable Java, and ``LocalZooKeeperError`` when there are no jars, the
        given port is taken, or the process ends.
        """
        if self._process is not None:
            raise LocalZooKeeperError("ZooKeeper is running already")
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="waltz-zookeeper-"))
        self._directory.mkdir(parents=True, exist_ok=True)
        fixed_port = self._port or self._wanted_port
        for attempt in range(_START_ATTEMPTS):
            # Another process may bind a free port before the server: then another port is tried.
            self._port = fixed_port or _free_port()
            command = zookeeper_command(self._directory, self._port, tick_time_ms=self._tick_time_ms)
            try:
                self._launch(command)
                self._wait_until_ready()
            except BaseException as error:
                self._end_process()
                self._port = fixed_port
                if fixed_port or attempt == _START_ATTEMPTS - 1 or "BindException" not in str(error):
                    raise
            else:
                return

    def stop(self) -> None:
        """End the process and wait for its end. Removes a temporary data directory. May be called again."""
        self._end_process()
        if self._given_directory is None and self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def restart(self) -> None:
        """Stop and start on the same port with the same data. Sessions survive if their time-out is longer than
        that."""
        self._end_process()
        self.start()

    def __enter__(self) -> "LocalZooKeeper":
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> "LocalZooKeeper":
        await asyncio.to_thread(self.start)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.stop)

    def _launch(self, command: list[str]) -> None:
        self.log_path.unlink(missing_ok=True)
        self._children = Children()
        self._process = self._children.start("ZooKeeper", command, self.log_path)

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        assert self._directory is not None
        deadline = time.monotonic() + _START_TIMEOUT_S
        while self._process.running:
            if zookeeper_ready(self._directory, self._port):
                return
            if time.monotonic() > deadline:
                raise LocalZooKeeperError(
                    f"ZooKeeper does not answer after {_START_TIMEOUT_S:g} s; see {self.log_path}"
                )
            time.sleep(_POLL_INTERVAL_S)
        raise LocalZooKeeperError(f"ZooKeeper ended on port {self._port}: {self._last_log_line()}")

    def _last_log_line(self) -> str:
        lines = self.log_path.read_text(errors="replace").strip().splitlines()
        causes = [line for line in lines if "Exception" in line]
        return (causes or lines or ["it said nothing"])[-1].strip()

    def _end_process(self) -> None:
        if self._children is not None:
            if self._process is not None:
                self._children.stop(self._process, _STOP_TIMEOUT_S)
            self._children.close()
        self._children = self._process = None


def zookeeper_command(directory: Path, port: int, *, tick_time_ms: int = 500) -> list[str]:
    """Write the configuration into ``directory``, which must exist. Returns the command that runs the server.

    Raises ``NoJavaError`` when there is no usable Java, and ``LocalZooKeeperError`` when there are no jars.
    """
    configuration = directory.resolve() / "zoo.cfg"
    command = [
        find_java().path,
        "-Xmx256m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",  # the process is short-lived: a fast start is worth more than fast code
        "-Dlog4j2.level=WARN",
        "-cp",
        os.pathsep.join(map(str, zookeeper_jars())),
        "org.apache.zookeeper.server.ZooKeeperServerMain",
        str(configuration),
    ]
    configuration.write_text(
        f"tickTime={tick_time_ms}\n"
        f"dataDir={_escaped(configuration.parent)}\n"
        f"clientPort={port}\n"
        f"clientPortAddress={_HOST}\n"
        "maxClientCnxns=0\n"
        "admin.enableServer=false\n"
        "4lw.commands.whitelist=conf,srvr,ruok,stat,mntr,isro,wchs,cons,envi\n"
    )
    return command


def zookeeper_ready(directory: Path, port: int) -> bool:
    """Whether a server answers on the port *and* has its data in ``directory``: another server may have the port."""
    try:
        with socket.create_connection((_HOST, port), timeout=1.0) as connection:
            connection.sendall(b"conf")
            answer = b""
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return False
    return f"dataDir={directory.resolve() / 'version-2'}\n" in answer.decode(errors="replace")


def zookeeper_jars() -> list[Path]:
    """The jars of ZooKeeper, from ``WALTZ_ZOOKEEPER_JARS`` or PySpark.

    Raises ``LocalZooKeeperError`` when there are none.
    """
    given = os.environ.get(JARS_VARIABLE)
    if given is not None:
        return _jars_given(Path(given))
    spec = importlib.util.find_spec("pyspark")  # found without an import, which would take a second
    if spec is None or spec.origin is None:
        raise LocalZooKeeperError(
            f"no ZooKeeper to run: its jars come with PySpark, which is not installed: {with_extra('local')}; "
            f"or set {JARS_VARIABLE} to a directory that holds them"
        )
    directory = Path(spec.origin).parent / "jars"
    jars, missing = _jars_needed(directory)
    if missing:
        raise LocalZooKeeperError(f"{directory} lacks {', '.join(missing)}: this PySpark cannot run ZooKeeper")
    return jars


def _jars_given(directory: Path) -> list[Path]:
    """The needed jars, if the directory has the hundreds of jars of PySpark; otherwise all jars in it."""
    jars, missing = _jars_needed(directory)
    if missing:
        jars = sorted(directory.glob("*.jar"))
    if not any(jar.match(_JARS[0]) for jar in jars):
        raise LocalZooKeeperError(f"{JARS_VARIABLE}={directory}: there is no {_JARS[0]} in this directory")
    return [jar.absolute() for jar in jars]


def _jars_needed(directory: Path) -> tuple[list[Path], list[str]]:
    """The needed jars in ``directory``, and the patterns without a matching jar."""
    found = {pattern: sorted(directory.glob(pattern)) for pattern in _JARS}
    return [jar for jars in found.values() for jar in jars], [pattern for pattern in _JARS if not found[pattern]]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _escaped(path: Path) -> str:
    """The path, escaped for a Java properties file."""
    return str(path).replace("\\", "\\\\")
