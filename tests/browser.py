"""Chromium for tests and pictures: the distribution's own, driven by Playwright, with no way to the network."""

import contextlib
import pathlib
import shutil
from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--force-color-profile=srgb"]


def executable() -> str | None:
    """The installed Chromium; None without one."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextlib.contextmanager
def chromium() -> Iterator:
    """A running Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=executable(), args=ARGUMENTS)
        yield browser
        browser.close()


def address(page: pathlib.Path) -> str:
    """The address of a file on disk."""
    return page.resolve().as_uri()


def ready(page) -> None:
    """Waits until the charts' JavaScript is there and draws them all, also those far below the window."""
    page.wait_for_function("document.documentElement.classList.contains('ready')", timeout=60_000)
    page.evaluate("charts.all()")
