"""The blocking client runs on both loops, against both kinds of servers."""

import sys

import pytest

from waltz.client.mock import MockDriver


@pytest.fixture(autouse=True, params=["uvloop", "asyncio"])
def installed_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "asyncio":
        monkeypatch.setitem(sys.modules, "uvloop", None)


@pytest.fixture(params=[(0, 1, 2, 3, 4, 5), (0, 1, 2, 3, 4)], ids=["version 5", "version 4"])
def driver(request: pytest.FixtureRequest) -> MockDriver:
    return MockDriver(2, versions=request.param)
