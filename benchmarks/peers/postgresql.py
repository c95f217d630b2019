"""PostgreSQL: a primary and one synchronous standby, an INSERT and a commit for every append."""

import os
import pwd
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from benchmarks.peers.peer import LOOPBACK, Module, Peer, Program, Running, program
from benchmarks.peers.processes import until
from waltz.local.ports import free_ports
from waltz.local.processes import Child, Children

USER = "bench"
STANDBY = "standby"
PROMISE = "committed and synced on the primary, and synced on its one synchronous standby"
SPARE_CONNECTIONS = 20
PLACES = ("/usr/lib/postgresql/*/bin",)
HOW = "apt install postgresql"
NEEDS = (
    Program("initdb", HOW, PLACES),
    Program("postgres", HOW, PLACES),
    Program("pg_basebackup", HOW, PLACES),
    Module("psycopg", ".venv/bin/pip install 'psycopg[binary]'"),
)


@asynccontextmanager
async def start(directory: Path, max_in_flight: int) -> AsyncIterator[Running]:
    """Two servers, and a client with a connection for every append in flight: a connection commits one at a time."""
    import psycopg

    primary_port, standby_port = free_ports(2)
    primary_place, standby_place = directory / "primary", directory / STANDBY
    as_user = _as_another_user(directory)
    address = f"host={LOOPBACK} port={primary_port} user={USER}"
    with Children() as children:

        async def finish(name: str, *command: str) -> None:
            child = children.start(name, [*as_user, program(name, NEEDS), *command], directory / f"{name}.log")
            await until(lambda: _succeeded(child), (), name)

        def serve(place: Path, port: int) -> Child:
            command = [*as_user, program("postgres", NEEDS), "-D", str(place), "-p", str(port)]
            return children.start(place.name, command, directory / f"{place.name}.log")

        async with AsyncExitStack() as stack:

            async def connect() -> psycopg.AsyncConnection:
                connection = await psycopg.AsyncConnection.connect(f"{address} dbname=postgres", autocommit=True)
                return await stack.enter_async_context(connection)

            await finish("initdb", "-D", str(primary_place), "-U", USER, "--auth=trust", "--no-sync")
            with (primary_place / "postgresql.conf").open("a") as config:
                config.write(configuration(max_in_flight))
            servers = [serve(primary_place, primary_port)]
            connections: list[psycopg.AsyncConnection] = []

            async def connected() -> bool:
                connections.append(await connect())
                return True

            async def replicated() -> bool:
                found = await connections[0].execute("SELECT sync_state FROM pg_stat_replication")
                return ("sync",) in await found.fetchall()

            await until(connected, servers, "the primary", psycopg.OperationalError)
            await finish("pg_basebackup", "-D", str(standby_place), "-R", "-d", f"{address} application_name={STANDBY}")
            servers.append(serve(standby_place, standby_port))
            await until(replicated, servers, "the standby")
            await connections[0].execute("CREATE TABLE log (id bigserial PRIMARY KEY, data bytea NOT NULL)")
            while len(connections) < max_in_flight:
                connections.append(await connect())

            async def append(payload: bytes) -> None:
                connection = connections.pop()
                await connection.execute("INSERT INTO log (data) VALUES (%b)", (payload,))
                connections.append(connection)

            yield Running(append, [server.process_id for server in servers], PROMISE)


def configuration(max_in_flight: int) -> str:
    """What is added to the configuration file; everything else is as it is by default."""
    return (
        f"listen_addresses = '{LOOPBACK}'\n"
        "unix_socket_directories = ''\n"
        f"max_connections = {max_in_flight + SPARE_CONNECTIONS}\n"
        f"synchronous_standby_names = '{STANDBY}'\n"
        "synchronous_commit = on\n"
    )


def _as_another_user(directory: Path) -> list[str]:
    """PostgreSQL refuses to run as root: the words that make another user of it, who is given the directory."""
    if os.geteuid() != 0:
        return []
    names = {entry.pw_name for entry in pwd.getpwall()}
    user = "postgres" if "postgres" in names else "nobody"
    shutil.chown(directory, user)
    return ["setpriv", f"--reuid={user}", f"--regid={pwd.getpwnam(user).pw_gid}", "--clear-groups"]


async def _succeeded(child: Child) -> bool:
    if child.running:
        return False
    if child.wait(0):
        child.check()
    return True


POSTGRESQL = Peer("PostgreSQL", NEEDS, start)
