"""A user at Chromium who signs in at the demo, and whose account is disabled while the page counts its
requests."""

from __future__ import annotations

import os
import subprocess
import sys
import time

from browser import APP, ISSUER, Trap, Visit, launch
from playwright.sync_api import Browser, expect, sync_playwright
from verdicts import check

PASSWORD, DISABLE = os.environ["CLIENTS_PASSWORD"], os.environ["CLIENTS_DISABLE"]
# The demo says two seconds; a busy machine needs more.
PATIENCE_S = 5
# Four requests a second, and time for a busy machine.
COUNTING_S = 10


class Ben:
    """The visit of one browser."""

    def __init__(self, browser: Browser) -> None:
        self.visit = Visit(browser)
        self.page = self.visit.page

    def count(self, what: str) -> int:
        """What a counter of the page shows."""
        return int(self.page.locator(f"#{what}").inner_text())

    def rises(self, what: str, above: int, seconds: float) -> float:
        """Returns how long it takes until a counter is above a number."""
        began = time.monotonic()
        while self.count(what) <= above:
            late = time.monotonic() - began > seconds
            assert not late, f"{what} is {self.count(what)} after {seconds:g} s, not above {above}"
            self.page.wait_for_timeout(50)
        return time.monotonic() - began

    def signs_in(self) -> None:
        """The page wants a login, and comes after it."""
        page = self.page
        page.goto(f"{APP}/orders")
        assert page.url.startswith(ISSUER), page.url
        page.get_by_label("User name").fill("ben")
        page.get_by_label("Password").fill(PASSWORD)
        page.keyboard.press("Enter")
        expect(page).to_have_url(f"{APP}/orders")
        expect(page.get_by_role("heading", level=1)).to_have_text("The service behind Postern")

    def is_counted(self) -> None:
        """The page's script asks again and again, and shows who the service sees."""
        expect(self.page.locator("#who")).to_have_text("You are ben. Groups: staff.")
        self.rises("passed", self.count("passed") + 3, COUNTING_S)
        assert self.count("refused") == 0, f"{self.count('refused')} are refused already"
        expect(self.page.get_by_role("log")).to_contain_text("passed 200")

    def is_disabled(self) -> None:
        """After the operator's command, which the page shows too, nothing passes any more."""
        expect(self.page.locator("main")).to_contain_text(DISABLE)
        done = subprocess.run(
            DISABLE, shell=True, cwd=os.environ["CLIENTS_FOLDER"], capture_output=True, text=True, timeout=30, check=False
        )
        assert done.returncode == 0, f"{DISABLE} ended with {done.returncode}: {done.stderr[-300:]}"
        took = self.rises("refused", 0, PATIENCE_S)
        print(f"the page saw a refusal {took:.2f} s after the command", file=sys.stderr)
        # An earlier request may end after the first refused one.
        self.rises("refused", 1, COUNTING_S)
        passed = self.count("passed")
        self.rises("refused", self.count("refused") + 3, COUNTING_S)
        assert self.count("passed") == passed, f"{self.count('passed') - passed} pass after refused ones"
        expect(self.page.get_by_role("log")).to_contain_text("refused 401")


def main() -> None:
    """Runs all checks in order: each goes on where the one before ended."""
    trap = Trap()
    with sync_playwright() as playwright:
        browser = launch(playwright, trap)
        ben = Ben(browser)
        check("a user signs in at the demo", ben.signs_in)
        check("the demo's page counts what passes", ben.is_counted)
        check("the demo's page counts what is refused once the account is disabled", ben.is_disabled)
        check("the browser complains about nothing", ben.visit.close)
        browser.close()


main()
