"""Chromium for the checks: visits that record violations, accessibility rules for pages,
screenshots."""

from __future__ import annotations

import os
import re
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

ISSUER = os.environ["CLIENTS_ISSUER"]
APP = os.environ["CLIENTS_APP"]
SCREENS = Path(os.environ["CLIENTS_SCREENS"])
LOOPBACK = {"127.0.0.1", "localhost", None}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
WIDE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 844}
# The narrowest width that WCAG 2.2 requires (1.4.10).
NARROWEST = {"width": 320, "height": 640}
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-component-extensions-with-background-pages",
]  # fmt: skip


class Trap(socketserver.ThreadingTCPServer):
    """Acts as the proxy for everything beyond loopback, forwards nothing, and records the
    requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Asked)
        self.asked: list[str] = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        """Address of the trap."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def wanted(self) -> list[str]:
        """The recorded requests, except those of the browser itself: not all of its switches stop
        it from calling its maker."""
        own = re.compile(r"\S+ (http://)?[a-z0-9.-]+\.(google|googleapis|gvt1)\.com[:/]")
        return [line for line in self.asked if not own.match(line)]


class Asked(socketserver.StreamRequestHandler):
    """One connection to the trap."""

    server: Trap

    def handle(self) -> None:
        """Records the request line and closes."""
        self.server.asked.append(self.rfile.readline(500).decode(errors="replace").strip())


def launch(playwright: Playwright, trap: Trap) -> Browser:
    """Chromium without a window. Its profile is new, in the run's folder."""
    flags = [*FLAGS, f"--proxy-server={trap.address}"]
    return playwright.chromium.launch(executable_path=os.environ["CLIENTS_CHROMIUM"], args=flags)


class Visit:
    """A browser context with its own cookies, language and settings. Its complaints are
    recorded."""

    def __init__(self, browser: Browser, **settings: object) -> None:
        self.context = browser.new_context(**({"locale": "en-GB", "viewport": WIDE} | settings))
        self.context.set_default_timeout(10_000)
        self.complaints: list[str] = []
        self.context.on("console", self._said)
        self.context.on("weberror", lambda error: self.complaints.append(f"script: {error.error}"))
        self.context.on("request", lambda request: self._requested(request.url))
        self.page: Page = self.context.new_page()

    def _said(self, message: ConsoleMessage) -> None:
        # statuses such as that of a wrong password are expected; everything else in the console is
        # not
        refused = message.text.startswith("Failed to load resource: the server responded with a status of 4")
        if message.type in ("error", "warning") and not refused:
            self.complaints.append(f"console: {message.text[:300]} ({message.location['url']})")

    def _requested(self, url: str) -> None:
        if urlsplit(url).scheme in ("http", "https", "ws", "wss") and urlsplit(url).hostname not in LOOPBACK:
            self.complaints.append(f"request to {url}")

    def cookies(self) -> dict[str, dict]:
        """The provider's cookies by their names."""
        return {cookie["name"]: cookie for cookie in self.context.cookies(ISSUER)}

    def close(self) -> None:
        """Ends the context. Fails if there were complaints."""
        self.context.close()
        assert not self.complaints, "; ".join(dict.fromkeys(self.complaints))


@contextmanager
def visit(browser: Browser, **settings: object) -> Iterator[Visit]:
    """A visit that must end without complaints."""
    begun = Visit(browser, **settings)
    try:
        yield begun
    except BaseException:
        begun.context.close()
        raise
    begun.close()


def look(page: Page, name: str) -> None:
    """Checks a page in light and dark mode, takes screenshots, and verifies that it fits the
    narrowest screen."""
    SCREENS.mkdir(parents=True, exist_ok=True)
    faults = []
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        faults += [f"{scheme}: {fault}" for fault in violations(page)]
        page.screenshot(path=SCREENS / f"{name}.{scheme}.png", full_page=True)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")
    page.set_viewport_size(PHONE)
    page.screenshot(path=SCREENS / f"{name}.phone.png", full_page=True)
    page.set_viewport_size(NARROWEST)
    wide = page.evaluate("document.documentElement.scrollWidth")
    page.set_viewport_size(WIDE)
    if wide > NARROWEST["width"]:
        faults.append(f"it is {wide} pixels wide on a screen of {NARROWEST['width']}")
    assert not faults, f"{name}: {'; '.join(faults)}"


def violations(page: Page) -> list[str]:
    """The findings of axe-core, one line each. It is injected by the debugging protocol, which no
    policy of a page blocks."""
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    found = Axe().run(page, options=options).response
    assert len(found["passes"]) >= 5, f"axe-core applied {len(found['passes'])} rules only"
    return [
        f"{fault['id']} at {', '.join(str(node['target'][0]) for node in fault['nodes'][:3])}: {fault['help']}"
        for fault in found["violations"]
    ]  # fmt: skip
