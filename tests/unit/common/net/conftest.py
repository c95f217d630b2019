"""Every test of this directory runs on asyncio's own loop and on uvloop."""

import asyncio
from collections.abc import Callable, Mapping

import pytest
import uvloop

from tests.unit.common.net.certificates import Authority, write_pem


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority("Test authority")


@pytest.fixture
def node_pem(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PEM key store of a node whose certificate the authority signed."""
    return write_pem(
        tmp_path_factory.mktemp("node") / "node.pem", authority.issue("127.0.0.1"), [authority.certificate]
    )


@pytest.fixture
def trust_pem(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PEM trust store that holds the authority's certificate."""
    return write_pem(tmp_path_factory.mktemp("trust") / "trust.pem", None, [authority.certificate])
