"""The kinds of applications, by machine."""

from tests.simulation.application import ApplicationHost, ClientHost
from tests.simulation.checker import Checker
from tests.simulation.cluster import World
from tests.simulation.database_application import DatabaseHost
from tests.simulation.levels import Levels
from tests.simulation.plain_application import PlainHost
from tests.simulation.session_application import PlainSessionHost, SessionHost


def make_applications(world: World, checker: Checker, levels: Levels | None = None) -> list[ApplicationHost]:
    """The applications of a run; together they submit what the options say."""
    options, draw = world.options, world.random("kinds of applications")
    quota = -(-options.transactions // options.clients)
    made: list[ApplicationHost] = []
    for number in range(options.clients):
        share = draw.random()
        kind: type[ApplicationHost] = ClientHost
        if share < options.plain_share:
            kind = PlainHost
        elif share < options.plain_share + options.database_share:
            kind = DatabaseHost
        elif share < options.plain_share + options.database_share + options.session_share:
            kind = PlainSessionHost if share < options.session_share / 3 else SessionHost
        host = kind(world, f"client-{number}", checker, quota)
        if isinstance(host, PlainHost):
            host.levels = levels
        made.append(host)
    return made
