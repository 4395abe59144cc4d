"""Chromium at a portal that shows a service of another site in a frame."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Frame, Page, expect, sync_playwright
from verdicts import check, equal

PORTAL, FOREIGN = os.environ["CLIENTS_PORTAL"], os.environ["CLIENTS_FOREIGN"]
APP, PLAIN_APP = os.environ["CLIENTS_APP"], os.environ["CLIENTS_PLAIN_APP"]
ISSUER = os.environ["CLIENTS_ISSUER"]
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--no-proxy-server",
    # Every name is this machine; nothing leaves it.
    "--host-resolver-rules=MAP * 127.0.0.1",
]  # fmt: skip


@contextmanager
def opened(browser: Browser, site: str, service: str) -> Iterator[Page]:
    """The page of a site that frames a service, in a browser without cookies."""
    context = browser.new_context(ignore_https_errors=True)
    context.set_default_timeout(10_000)
    try:
        page = context.new_page()
        page.goto(f"{site}/?service={service}/x")
        yield page
    finally:
        context.close()


def framed(page: Page) -> Frame:
    """The frame."""
    frame = page.frame("service")
    assert frame is not None
    return frame


def sign_in(page: Page) -> None:
    """Signs in at the provider, inside the frame."""
    framed(page).get_by_role("link", name="Sign in as Ada").click()


def cookies(page: Page) -> dict[str, dict]:
    """The cookies of the services, with the sites that they are kept for."""
    kept = page.context.cookies()
    return {cookie["name"]: cookie for cookie in kept if cookie["domain"] != "localhost"}


def blocked(page: Page) -> None:
    """Fails unless the browser refuses to show what the frame leads to."""
    for _ in range(100):
        if framed(page).url.startswith("chrome-error:"):
            return
        page.wait_for_timeout(100)
    raise AssertionError(f"the frame shows {framed(page).url}")


def in_the_portal(browser: Browser) -> None:
    """A user signs in inside the frame, and stays signed in there."""
    with opened(browser, PORTAL, APP) as page:
        sign_in(page)
        framed(page).wait_for_url(f"{APP}/x")
        body = framed(page).locator("body").inner_text()
        assert "ada" in body, body[:300]
        kept = cookies(page)
        equal("cookies", set(kept), {"__Host-postern", "__Host-postern-login"})
        site = PORTAL.rsplit(":", 1)[0]
        for name, cookie in kept.items():
            equal(f"SameSite of {name}", cookie.get("sameSite"), "None")
            equal(f"partition of {name}", cookie.get("partitionKey"), site)
        # The page is loaded again, and nobody is asked.
        page.reload()
        framed(page).wait_for_url(f"{APP}/x")
        assert "ada" in framed(page).locator("body").inner_text()


def elsewhere(browser: Browser) -> None:
    """The session of the frame is none of a tab's, nor of another site's frame."""
    with opened(browser, PORTAL, APP) as page:
        sign_in(page)
        framed(page).wait_for_url(f"{APP}/x")
        page.goto(f"{APP}/x")
        assert page.url.startswith(f"{ISSUER}/authorize"), page.url


def sent_by_the_portal(browser: Browser) -> None:
    """The portal's own form is refused: it may frame the service, and change nothing in it."""
    with opened(browser, PORTAL, APP) as page:
        sign_in(page)
        framed(page).wait_for_url(f"{APP}/x")
        with page.expect_response(lambda response: response.request.method == "POST") as sent:
            page.get_by_role("button", name="Send").click()
        response = sent.value
        headers = response.request.all_headers()
        assert "__Host-postern=" in headers.get("cookie", ""), f"the browser sent no session: {headers}"
        equal("status", response.status, 403)
        expect(framed(page).locator("body")).to_contain_text("foreign_origin")


def in_a_page_that_is_not_listed(browser: Browser) -> None:
    """Another site shows the provider's page, but not the service behind it."""
    with opened(browser, FOREIGN, APP) as page:
        sign_in(page)
        blocked(page)


def without_the_key(browser: Browser) -> None:
    """Without `frame_ancestors` the browser keeps no cookie in the frame, and nobody signs in."""
    with opened(browser, PORTAL, PLAIN_APP) as page:
        with page.expect_response(lambda response: "/oauth2/callback" in response.url) as back:
            sign_in(page)
        equal("status", back.value.status, 400)
        blocked(page)
        equal("cookies", cookies(page), {})
        # In a tab of its own, the login works.
        page.goto(f"{PLAIN_APP}/x")
        page.get_by_role("link", name="Sign in as Ada").click()
        # Says what the page shows otherwise.
        expect(page.locator("body")).to_contain_text('"ada"', timeout=20_000)
        equal("address", page.url, f"{PLAIN_APP}/x")


def main() -> None:
    """Runs the checks."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=os.environ["CLIENTS_CHROMIUM"], args=FLAGS)
        for run in (in_the_portal, elsewhere, sent_by_the_portal, in_a_page_that_is_not_listed, without_the_key):
            check(run.__name__.replace("_", " "), run, browser)
        browser.close()


main()
