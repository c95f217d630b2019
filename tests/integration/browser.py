"""A headless Chromium that tells what it has loaded, and what has gone wrong."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

PACKAGES = "chromium chromium-driver"
"""Packages of Debian."""

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)

LIMIT_S = 60.0


class Browser:
    """One window. ``driver`` does what is not here."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def run(self, script: str) -> object:
        """Run a script in the page, and return its result."""
        return self.driver.execute_script(script)

    def until(self, script: str, wanted: Callable[[object], bool] = bool) -> None:
        """Wait until a script returns what is wanted, or fail with what it returns."""
        deadline_s = time.monotonic() + LIMIT_S
        while not wanted(found := self.run(script)):
            assert time.monotonic() < deadline_s, f"{script}: {found}"
            time.sleep(0.05)

    def errors(self) -> list[str]:
        """Errors that the page has written to the browser's console since the last call."""
        return [str(entry["message"]) for entry in self.driver.get_log("browser")]  # type: ignore[no-untyped-call]  # selenium types it in part

    def requested(self) -> set[str]:
        """Every address that was asked for over the network since the last call."""
        found = set()
        for entry in self.driver.get_log("performance"):  # type: ignore[no-untyped-call]  # selenium types it in part
            message = json.loads(entry["message"])["message"]
            if message["method"] in ("Network.requestWillBeSent", "Network.webSocketCreated"):
                parameters = message["params"]
                found.add(str(parameters.get("url") or parameters["request"]["url"]))
        return {url for url in found if urlsplit(url).scheme in ("http", "https", "ws", "wss")}


@contextmanager
def chromium(directory: Path) -> Iterator[Browser]:
    """A browser with its profile in ``directory``.

    The test is skipped where there is none, and fails where CI=true.
    """
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        reason = f"no Chromium with its driver here: apt-get install {PACKAGES}"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in (*OPTIONS, f"--user-data-dir={directory}", "--window-size=1360,1000"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver))
    try:
        yield Browser(running)
    finally:
        running.quit()
