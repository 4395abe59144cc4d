"""A page of another origin in Chromium: it reads what the CORS policy of a route permits."""

from __future__ import annotations

import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from browser import Trap, launch
from playwright.sync_api import Browser, sync_playwright
from verdicts import check, equal

API = os.environ["CORS_API"]
PORT = int(os.environ["CORS_SPA"])
FETCH = """async ([url, method, headers]) => {
    try {
        const answer = await fetch(url, { method, headers });
        return [answer.status, await answer.text(), answer.headers.get("x-total"), answer.headers.get("x-served-by")];
    } catch (problem) {
        return problem.name;
    }
}"""


class Page(BaseHTTPRequestHandler):
    """An empty page."""

    def do_GET(self) -> None:
        """Answers."""
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def fetch(browser: Browser, host: str, method: str, headers: dict[str, str], url: str = API) -> object:
    """What a page of this host gets."""
    page = browser.new_page()
    try:
        page.goto(f"http://{host}:{PORT}/")
        return page.evaluate(FETCH, [url, method, headers])
    finally:
        page.close()


def simple(browser: Browser) -> None:
    """A request without a preflight."""
    equal("what the page reads", fetch(browser, "spa.localhost", "GET", {}), [200, "ok", "7", None])


def preflight(browser: Browser) -> None:
    """A method and headers that need a preflight."""
    headers = {"Authorization": "Bearer x", "X-Custom": "1"}
    equal("what the page reads", fetch(browser, "spa.localhost", "PUT", headers), [200, "ok", "7", None])


def others(browser: Browser) -> None:
    """What the policy does not permit."""
    equal("a page of another origin", fetch(browser, "evil.localhost", "GET", {}), "TypeError")
    equal("its preflight", fetch(browser, "evil.localhost", "PUT", {"X-Custom": "1"}), "TypeError")
    equal("a header that is not listed", fetch(browser, "spa.localhost", "GET", {"X-Other": "1"}), "TypeError")
    elsewhere = API.replace("/api/", "/app/")
    equal("a route without a policy", fetch(browser, "spa.localhost", "GET", {}, elsewhere), "TypeError")


def main() -> None:
    """Runs all checks."""
    server = ThreadingHTTPServer(("127.0.0.1", PORT), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with sync_playwright() as playwright:
        browser = launch(playwright, Trap())
        try:
            check("a page of a listed origin reads the response", simple, browser)
            check("a preflight permits method and headers", preflight, browser)
            check("everything else is kept from the page", others, browser)
        finally:
            browser.close()
    server.shutdown()


main()
