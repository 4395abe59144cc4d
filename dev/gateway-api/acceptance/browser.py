"""A browser that does what it reads: one JSON list per line, one answer per line.

    ["open", URL]               opens a page
    ["log in", USER, PASSWORD]  fills in Keycloak's login page

Answers have `status` and `url` of the page that it leads to, and its `text`. Runs in .cache/venv.
"""

from __future__ import annotations

import json
import sys

from playwright.sync_api import Page, Response, sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update"]


def told(page: Page, response: Response | None) -> dict:
    """The page as it is."""
    return {"status": response.status if response else 0, "url": page.url, "text": page.locator("body").inner_text()}


def log_in(page: Page, user: str, password: str) -> dict:
    """Ends when the login has led back to another host."""
    page.locator("#username").fill(user)
    page.locator("#password").fill(password)
    with page.expect_response(lambda answer: "/notebook/" in answer.url and answer.status not in (302, 303, 307)) as seen:
        page.locator("#kc-login").click()
    page.wait_for_load_state()
    return told(page, seen.value)


def main() -> None:
    """Until the end of input."""
    executable, rules = sys.argv[1:]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=[*FLAGS, f"--host-resolver-rules={rules}"])
        page = browser.new_context(ignore_https_errors=True).new_page()
        for line in sys.stdin:
            command, *arguments = json.loads(line)
            answer = log_in(page, *arguments) if command == "log in" else told(page, page.goto(*arguments))
            print(json.dumps(answer), flush=True)
        browser.close()


main()
