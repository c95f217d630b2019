"""A local cluster in the background: started and stopped by commands, run by a process of its own, the keeper."""

import contextlib
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from waltz.common.errors import WaltzError
from waltz.local.cluster import LocalCluster
from waltz.local.layout import Layout
from waltz.local.ports import HOST

LOCK_FILE = "keeper.lock"
"""An empty file, locked by the keeper."""
STATE_FILE = "keeper.json"
"""The record of the keeper, a :class:`Kept`. It may be of an earlier keeper that was killed."""
LOG_FILE = "keeper.log"
REQUESTS = "keeper.requests"
"""A directory. An empty file in it asks the keeper to restart the node with the name of the file."""
STOP_TIMEOUT_S = 60.0
POLL_INTERVAL_S = 0.1
_STATE, _START_TIME = 3, 22  # fields of /proc/PID/stat, numbered as in proc(5)


class Kept(NamedTuple):
    """The record of a running cluster, written by its keeper."""

    keeper: int
    """The process id of the keeper; 0 before the keeper has written its record."""
    keeper_start: str
    """The start time of that process according to the kernel. It distinguishes the process from another process with
    the same id."""
    ready: bool
    nodes: dict[str, int]
    """The process ids of the running nodes."""


def keep(cluster: LocalCluster) -> None:
    """Run a cluster until SIGTERM or SIGINT. Returns when the cluster has ended. To be called in the main thread.

    Raises ``WaltzError`` when the cluster runs already, when a node does not start, and when a node ends by itself.
    """
    directory = cluster.layout.directory
    directory.mkdir(parents=True, exist_ok=True)
    start = _start_of(os.getpid())

    def write(*, ready: bool, nodes: dict[str, int]) -> None:
        content = json.dumps(Kept(os.getpid(), start, ready, nodes)._asdict())
        new = directory / f"{STATE_FILE}.new"
        new.write_text(content)
        new.replace(directory / STATE_FILE)

    with _lock(directory):
        # A handler of this module would raise at any place of a running loop, even where errors are ignored. asyncio
        # replaces Python's own handler of SIGINT by the cancellation of the running task.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, _interrupt)
        try:
            write(ready=False, nodes={})
            requests = _no_requests(directory)
            with cluster:
                nodes: dict[str, int] = {}
                while True:
                    if cluster.processes() != nodes:
                        for name in nodes.keys() - cluster.processes().keys():
                            # The other nodes continue: the cluster survives the loss of one.
                            print(f"{name} has ended; see {cluster.layout.log_path(name)}", flush=True)
                        nodes = cluster.processes()
                        write(ready=True, nodes=nodes)
                    time.sleep(POLL_INTERVAL_S)
                    _bring_back(cluster, requests)
        except KeyboardInterrupt:
            return


def _interrupt(_number: int, _frame: object) -> None:
    signal.raise_signal(signal.SIGINT)


def _no_requests(directory: Path) -> Path:
    """The directory of requests, without the requests to an earlier keeper."""
    requests = directory / REQUESTS
    requests.mkdir(exist_ok=True)
    for request in requests.iterdir():
        request.unlink()
    return requests


def _bring_back(cluster: LocalCluster, requests: Path) -> None:
    for request in list(requests.iterdir()):
        request.unlink()
        if request.name in cluster.layout.names:
            print(f"{request.name} is started again", flush=True)
            try:
                cluster.bring_back(request.name)
            except WaltzError as error:
                print(error, flush=True)


@contextlib.contextmanager
def _lock(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise _running_already(directory) from None
        yield
    finally:
        os.close(descriptor)


def _running_already(directory: Path) -> WaltzError:
    return WaltzError(f"a cluster is running in {directory}; stop it first: waltz local stop --directory {directory}")


def running(directory: Path) -> Kept | None:
    """The running cluster in ``directory``, or ``None``. Ended nodes are left out."""
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return _read_state(directory)
    else:
        return None
    finally:
        os.close(descriptor)


def _read_state(directory: Path) -> Kept:
    try:
        kept = Kept(**json.loads((directory / STATE_FILE).read_text()))
    except FileNotFoundError:
        return _NOTHING_YET
    if _start_of(kept.keeper) != kept.keeper_start:
        return _NOTHING_YET
    return kept._replace(nodes={name: number for name, number in kept.nodes.items() if _start_of(number)})


_NOTHING_YET = Kept(0, "", ready=False, nodes={})


def _start_of(process_id: int) -> str:
    """The start time of the process; empty if it does not run.

    An ended process stays in the process table until its keeper has waited for it.
    """
    try:
        stat = Path(f"/proc/{process_id}/stat").read_text()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the first two fields are the id and the name; the name may have spaces
    return "" if fields[_STATE - 3] == "Z" else fields[_START_TIME - 3]


def bring_back(directory: Path, name: str) -> bool:
    """Ask the keeper to restart an ended node, and wait until the node listens. ``False`` if the node runs already.

    Raises ``WaltzError`` when no cluster runs in ``directory``, there is no such node, or the node does not start.
    """
    kept, layout = running(directory), Layout.read(directory)
    if kept is None or layout is None or not kept.ready:
        raise WaltzError(f"no cluster is running in {directory}; start it first: waltz local start")
    if name not in layout.names:
        raise WaltzError(f"there is no node {name!r} in {directory}: it has {', '.join(layout.names)}")
    if name in kept.nodes:
        return False
    (directory / REQUESTS / name).touch()
    deadline = time.monotonic() + STOP_TIMEOUT_S
    started = False
    while not (started and _listening(layout.ports(name))):
        kept = running(directory)
        if kept is None or time.monotonic() > deadline or (started and name not in kept.nodes):
            raise WaltzError(f"{name} did not come up; see {layout.log_path(name)}")
        started = started or name in kept.nodes
        time.sleep(POLL_INTERVAL_S)
    return True


def _listening(ports: list[int]) -> bool:
    for port in ports:
        try:
            socket.create_connection((HOST, port), timeout=1.0).close()
        except OSError:
            return False
    return True


def start(directory: Path, run_command: list[str]) -> Kept:
    """Start ``run_command``, which calls :func:`keep`, in the background. Return when the cluster is ready.

    A start without progress ends with an error (:class:`~waltz.local.cluster.LocalCluster`). Raises ``WaltzError`` when
    the cluster runs already, and when it does not start; in the latter case the text ends with the log.
    """
    if running(directory) is not None:
        raise _running_already(directory)
    directory.mkdir(parents=True, exist_ok=True)
    log = directory / LOG_FILE
    with log.open("wb") as output:
        process = subprocess.Popen(
            run_command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        while process.poll() is None:
            kept = running(directory)
            if kept is not None and kept.ready:
                return kept
            time.sleep(POLL_INTERVAL_S)
    except BaseException:
        process.terminate()
        process.wait(STOP_TIMEOUT_S)
        raise
    raise WaltzError(f"the cluster did not start: {log.read_text(errors='replace').strip()}")


def stop(directory: Path) -> bool:
    """Stop the cluster in ``directory``, and wait for its end. ``False`` if no cluster runs. Raises
    :class:`WaltzError`."""
    deadline = time.monotonic() + STOP_TIMEOUT_S
    told = 0
    while (kept := running(directory)) is not None:
        if kept.keeper and not told:
            told = kept.keeper
            with contextlib.suppress(ProcessLookupError):
                os.kill(told, signal.SIGTERM)
        if time.monotonic() > deadline:
            who = f"the cluster's keeper, process {kept.keeper}," if kept.keeper else "the cluster's keeper"
            raise WaltzError(f"{who} does not end; see {directory / LOG_FILE}")
        time.sleep(POLL_INTERVAL_S)
    return told > 0


def keeper_command(directory: Path, *options: str) -> list[str]:
    """The command of the keeper: ``waltz local run``."""
    return [sys.executable, "-m", "waltz.cli.main", "local", "run", "--directory", str(directory), *options]
