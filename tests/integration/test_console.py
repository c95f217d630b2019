"""The web console in a real browser: on a real cluster, and with 1,000 partitions of a made-up one.

``python -m tests.integration.test_console FILE`` keeps a screenshot, which docs/console.md shows.
"""

import asyncio
import contextlib
import io
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from tests.integration.browser import Browser, chromium
from tests.unit.console import fakes
from waltz.asynchronous import connect
from waltz.common.config.schemas import ClientConfig, load
from waltz.common.metrics.registry import Registry
from waltz.common.net.http import HttpServer
from waltz.common.replica_states import Remedy
from waltz.common.storage_health import Ailment
from waltz.console.pages import make_pages
from waltz.console.surveyor import Surveyor
from waltz.local.cluster import LocalCluster
from waltz.operations.survey.cluster_state import ClusterState

pytestmark = pytest.mark.integration

ROWS = "return document.querySelectorAll('tbody tr.row').length"
TEXT = "return document.body.innerText"
HOSTILE = '<img src=x onerror="document.title=1"><script>document.title=1</script>'


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser")) as running:
        yield running


@pytest.fixture
def browser(window: Browser) -> Iterator[Browser]:
    """The page of a test is left behind it: it would go on asking a server that is gone, and complain."""
    yield window
    window.driver.get("about:blank")
    window.errors()
    window.requested()


@contextlib.contextmanager
def serving(state: ClusterState, *, age_s: float = 0.0) -> Iterator[str]:
    """The console of a server in a made-up cluster, in a thread of its own; its address.

    ``age_s`` is the age of every survey when it is done.
    """
    started, ended = threading.Event(), threading.Event()
    ports = []

    async def look(_: ClusterState | None) -> ClusterState:
        return state._replace(at_s=asyncio.get_running_loop().time() - age_s)

    async def serve() -> None:
        surveyor = Surveyor(look, lambda each: fakes.facts_of(state, each))
        server = await HttpServer.open("127.0.0.1", 0, Registry(), more=make_pages(fakes.here(state), surveyor))
        ports.append(server.port)
        started.set()
        await asyncio.to_thread(ended.wait)
        await server.close()
        await surveyor.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    try:
        assert started.wait(60)
        yield f"http://127.0.0.1:{ports[0]}/console"
    finally:
        ended.set()
        thread.join()


def choose(browser: Browser, text: str) -> None:
    """Write into the filter as somebody does."""
    field = browser.driver.find_element("id", "filter")
    field.clear()
    field.send_keys(text)


async def append(config: ClientConfig, count: int) -> None:
    async with connect(config) as client:
        for _ in range(count):
            await client.append(0, b"something")


def test_on_a_real_cluster(browser: Browser, cluster: LocalCluster, tmp_path: Path) -> None:
    asyncio.run(append(load(cluster.layout.client_config_path, ClientConfig), 3))
    browser.requested()
    hosts = set()
    for server in cluster.layout.servers:
        hosts.add(f"localhost:{server.http_port}")
        browser.driver.get(f"http://localhost:{server.http_port}/console")
        browser.until(ROWS, lambda rows: rows == 2)
        browser.until(TEXT, lambda text: "All 2 partitions are well" in str(text))
        browser.until("return document.querySelectorAll('#totals .chart').length", lambda charts: charts == 5)
        text = str(browser.run(TEXT))
        for storage in cluster.layout.storages:
            assert f"{storage.connect_string}\nanswers" in text
        assert "(this one)" in text
        choose(browser, "1")
        browser.until(ROWS, lambda rows: rows == 1)
        assert "1 of 2 partitions" in str(browser.run(TEXT))
        choose(browser, "nothing is called this")
        browser.until(ROWS, lambda rows: rows == 0)
        choose(browser, "current")
        browser.until(ROWS, lambda rows: rows == 2)
        browser.run("document.querySelector('tbody tr.row button').click()")
        browser.until("return document.querySelectorAll('tr.detail dt').length", lambda facts: facts == 8)
    assert browser.driver.save_screenshot(str(tmp_path / "console.png"))
    assert (tmp_path / "console.png").stat().st_size > 10_000
    assert {urlsplit(url).netloc for url in browser.requested()} == hosts
    assert browser.errors() == []


def test_a_thousand_partitions(browser: Browser) -> None:
    with serving(fakes.in_trouble(fakes.cluster(1000))) as address:
        browser.driver.get(address)
        browser.until(ROWS, lambda rows: rows == 1000)
        text = str(browser.run(TEXT))
        assert "1 of 1,000 partitions in trouble, 600 degraded" in text
        assert "storage storage-5.example:55280 does not answer, and holds 600 replicas" in text
        first = "return document.querySelector('tbody tr.row').innerText"
        assert str(browser.run(first)).startswith("17\tno quorum, unhealthy")
        browser.run("document.querySelectorAll('thead button')[4].click()")
        browser.until("return document.querySelectorAll('thead th')[4].ariaSort", lambda sort: sort == "descending")
        rates = browser.run("return [...document.querySelectorAll('tbody tr.row')].map(row => +row.cells[4].innerText)")
        assert isinstance(rates, list)
        assert rates == sorted(rates, reverse=True)
        choose(browser, "10-16 server-2")
        browser.until(ROWS, lambda rows: rows == 1)
        choose(browser, "")
        browser.driver.find_element("id", "unwell").click()
        browser.until(ROWS, lambda rows: rows == 601)
        browser.run("location.hash = '#partition=20'")
        browser.until("return document.querySelectorAll('tr.detail .chart svg').length", lambda charts: charts == 3)
        browser.driver.find_element("tag name", "body").send_keys("\ue00c")  # Escape
        browser.until("return document.querySelectorAll('tr.detail').length", lambda open_rows: open_rows == 0)
        browser.run("location.hash = '#partition=41'")
        browser.until(TEXT, lambda text: "in the console of its owner: http://server-2.example:" in str(text))
    assert browser.errors() == []


def test_an_old_picture_is_not_shown_as_the_state_of_the_cluster(browser: Browser) -> None:
    verdict = "return [document.getElementById('verdict').className, document.getElementById('verdict').innerText]"
    unknown = tuple(each._replace(rate_per_s=None) for each in fakes.cluster(8).partitions)
    with serving(fakes.cluster(8)._replace(partitions=unknown), age_s=7200.0) as address:
        browser.driver.get(address)
        browser.until(ROWS, lambda rows: rows == 8)
        assert browser.run(verdict) == ["unknown", "Asking the cluster … The state below is 2 h old."]
        text = str(browser.run(TEXT))
        assert "– transactions/s" in text
        assert "0 transactions/s" not in text
    with serving(fakes.cluster(8), age_s=5.0) as address:
        browser.driver.get(address)
        browser.until(verdict, lambda found: isinstance(found, list) and found[0] == "well")


def test_a_storage_that_is_not_well_says_what_mends_it(browser: Browser) -> None:
    state = fakes.cluster(8)
    remedy = Remedy("waltz storage repair", "damaged-data")
    damage = Ailment("damaged records in partition 0: transactions 30 to 30", [0], remedy)
    first, *others = (each._replace(ailments=()) for each in state.storages)
    with serving(state._replace(storages=(first._replace(ailments=(damage,)), *others))) as address:
        browser.driver.get(address)
        browser.until(ROWS, lambda rows: rows == 8)
        text = str(browser.run(TEXT))
        assert "All 8 partitions are well, but not all nodes" in text
        assert "do: waltz storage repair (docs/runbook.md#damaged-data)" in text
        assert "storage-1.example:55280\nnot well" in text
        assert "storage-2.example:55280\nanswers" in text
    assert browser.errors() == []


def test_names_never_become_markup(browser: Browser) -> None:
    state = fakes.in_trouble(fakes.cluster(8))
    servers = tuple(each._replace(endpoint=HOSTILE, reason=HOSTILE, version=None) for each in state.servers)
    partitions = tuple(
        each._replace(
            endpoint=HOSTILE,
            replicas=tuple(replica._replace(storage=HOSTILE, state=HOSTILE) for replica in each.replicas),
            reasons={check: [HOSTILE] for check in each.reasons},
        )
        for each in state.partitions
    )
    storages = tuple(each._replace(storage=HOSTILE, reason=HOSTILE, version=HOSTILE) for each in state.storages)
    hostile = state._replace(name="hostile", root=HOSTILE, servers=servers, storages=storages, partitions=partitions)
    with serving(hostile) as address:
        browser.driver.get(address)
        browser.until(ROWS, lambda rows: rows == 8)
        for partition_id in range(8):
            browser.run(f"location.hash = '#partition={partition_id}'")
            browser.until("return document.querySelectorAll('tr.detail p, tr.detail svg').length")
        browser.until(TEXT, lambda text: str(text).count(HOSTILE) > 10)
        assert browser.run("return document.querySelectorAll('main img, body script, td a').length") == 0
        assert browser.run("return document.title") == "hostile · Waltz"
    assert browser.errors() == []


def test_a_server_that_is_gone_is_noticed_and_what_was_known_stays(browser: Browser) -> None:
    with serving(fakes.cluster(8)) as address:
        browser.driver.get(address)
        browser.until(ROWS, lambda rows: rows == 8)
    browser.until(TEXT, lambda text: "lost this server: it cannot be reached; as of " in str(text))
    assert browser.run(ROWS) == 8
    browser.errors()


def keep_screenshot(path: Path) -> None:
    """Keep a screenshot for the documentation."""
    with (
        tempfile.TemporaryDirectory() as directory,
        chromium(Path(directory)) as running,
        serving(fakes.in_trouble(fakes.cluster(120, servers=3))) as address,
    ):
        running.driver.set_window_size(1320, 1700)
        running.driver.get(address)
        running.until(ROWS, lambda rows: rows == 120)
        running.run("location.hash = '#partition=3'")
        running.until("return document.querySelectorAll('tr.detail svg').length")
        running.until("return document.querySelectorAll('#totals .chart').length")
        running.run("window.scrollTo(0, 0)")
        with Image.open(io.BytesIO(running.driver.get_screenshot_as_png())) as picture:
            picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    keep_screenshot(Path(sys.argv[1]))
