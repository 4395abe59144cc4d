"""A user at Chromium who logs in at the gateway through Postern's own provider, and sees every page
of the gateway."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from urllib.parse import parse_qs

from browser import ISSUER, Trap, Visit, launch, look, visit
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright
from verdicts import check, equal

HOUSE, CHOICE = json.loads(os.environ["CLIENTS_GATEWAYS"])
HOME, SECOND = HOUSE["origins"]
SECURE = CHOICE["origins"][0]
PASSWORD = os.environ["CLIENTS_PASSWORD"]
FORM = """<!doctype html><html lang="en"><title>A form</title><form method="post" action="/notes">
<textarea name="note" aria-label="note"></textarea><button>Save</button></form></html>"""
NOTE = "the tide was high & the wind = 7\nsecond line"
# A logout notification waits in the provider's queue for a moment.
PATIENCE_S = 3


def told(page: Page) -> dict:
    """The request as it arrived at the service behind the gateway."""
    return json.loads(page.locator("pre").inner_text())


def sent(page: Page, name: str) -> list[str]:
    """Values of a header field that arrived there."""
    return [value for key, value in told(page)["headers"] if key.lower() == name]


def heading(page: Page, text: str) -> None:
    """Fails unless the page has that heading."""
    expect(page.get_by_role("heading", level=1)).to_have_text(text)


def type_in(page: Page, name: str) -> None:
    """The provider's login page, and the consent page if it is shown."""
    heading(page, "Sign in")
    page.get_by_label("User name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.keyboard.press("Enter")


def allow(page: Page) -> None:
    """The consent page."""
    heading(page, "Allow access?")
    page.get_by_role("button", name="Allow", exact=True).click()


def log_in(page: Page, url: str, name: str = "ada") -> None:
    """Logs in from a new browser to a page; consent is needed once."""
    page.goto(url)
    type_in(page, name)
    page.wait_for_url(lambda found: found == url or "/login" in found or "/consent" in found)
    if page.url != url:
        allow(page)
    expect(page).to_have_url(url)


def operator(*words: str) -> None:
    """Runs an operator's command at the provider."""
    command = [os.environ["CLIENTS_POSTERN"], "admin", "--config", os.environ["CLIENTS_CONFIGURATION"], *words]
    subprocess.run(command, check=True, capture_output=True, timeout=30)


def ours(context: BrowserContext, origin: str) -> dict[str, dict]:
    """The gateway's cookies. Those of the provider may have the same host, but other names."""
    cookies = context.cookies(origin)
    return {c["name"]: c for c in cookies if re.fullmatch("(__Host-)?postern(-login)?", c["name"])}


def is_over(page: Page, url: str) -> float:
    """Returns how long it takes until a page requires a login."""
    began = time.monotonic()
    while True:
        page.goto(url)
        if page.url.startswith(ISSUER):
            return time.monotonic() - began
        assert time.monotonic() - began < PATIENCE_S, f"{url} still opens after {PATIENCE_S} s"
        time.sleep(0.1)


class Ada:
    """The visit of one browser, from the first login to the last logout."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.visit = Visit(browser)
        self.page = self.visit.page

    def deny(self) -> None:
        """A user who denies consent is not logged in, and can try again."""
        page = self.page
        page.goto(f"{SECOND}/notes")
        type_in(page, "ada")
        heading(page, "Allow access?")
        page.get_by_role("button", name="Deny", exact=True).click()
        heading(page, "You were not signed in")
        look(page, "gateway-refused")
        page.get_by_role("link", name="Try again").click()
        allow(page)
        expect(page).to_have_url(f"{SECOND}/notes")

    def identity(self) -> None:
        """A deep link at the other origin, without a page. The service receives the user, and
        nothing of the session."""
        page = self.page
        page.goto(f"{HOME}/notes/1?q=a%20b&z=%26")
        expect(page).to_have_url(f"{HOME}/notes/1?q=a%20b&z=%26")
        equal("target at the service", told(page)["target"], "/notes/1?q=a%20b&z=%26")
        equal("X-Forwarded-Email", sent(page, "x-forwarded-email"), ["ada@works.example"])
        equal("X-Forwarded-Groups", sent(page, "x-forwarded-groups"), ["friends of Ada"])
        # The provider has cookies at this host as well: cookies do not distinguish ports.
        arrived = {crumb.split("=")[0].strip() for value in sent(page, "cookie") for crumb in value.split(";")}
        assert not arrived & {"postern", "postern-login"}, f"cookies at the service: {arrived}"
        equal("cookies", set(ours(self.visit.context, HOME)), {"postern", "postern-login"})

    def signed_out_there(self) -> None:
        """Sign-out at one origin ends the provider's session, which notifies the other origin."""
        other = self.visit.context.new_page()
        other.goto(f"{SECOND}/oauth2/sign_out")
        heading(other, "You are signed out")
        look(other, "gateway-signed-out")
        took = is_over(self.page, f"{HOME}/notes/2")
        print(f"the other origin heard of it after {took:.2f} s", file=sys.stderr)
        other.get_by_role("link", name="Sign in again").click()
        heading(other, "Sign in")
        other.close()

    def account(self) -> None:
        """The account page's button does the same, and so does an operator, for all sessions."""
        log_in(self.page, f"{HOME}/notes/3")
        with visit(self.browser) as begun:
            log_in(begun.page, f"{SECOND}/notes/4")
            page = self.visit.context.new_page()
            page.goto(f"{ISSUER}/account")
            page.get_by_role("button", name="Sign out", exact=True).click()
            is_over(self.page, f"{HOME}/notes/3")
            equal("another browser's session", begun.page.goto(f"{SECOND}/notes/4").status, 200)
            expect(begun.page).to_have_url(f"{SECOND}/notes/4")
            page.close()
            log_in(self.page, f"{HOME}/notes/3")
            operator("user", "revoke", "ada")
            is_over(self.page, f"{HOME}/notes/3")
            is_over(begun.page, f"{SECOND}/notes/4")

    def form(self) -> None:
        """A form is sent after the session has ended: a page, a tab to log in at, and a reload
        sends it."""
        page, context = self.page, self.visit.context
        log_in(page, f"{SECOND}/start", "bob")
        page.route(f"{SECOND}/form", lambda route: route.fulfill(content_type="text/html", body=FORM))
        page.goto(f"{SECOND}/form")
        page.get_by_label("note").fill(NOTE)
        operator("user", "revoke", "bob")
        time.sleep(1)
        page.get_by_role("button", name="Save").click()
        heading(page, "Sign in again")
        equal("address", page.url, f"{SECOND}/notes")
        look(page, "gateway-expired")
        with context.expect_page() as opened:
            page.get_by_role("link", name="Sign in in a new tab").click()
        tab = opened.value
        type_in(tab, "bob")
        heading(tab, "You are signed in")
        look(tab, "gateway-done")
        tab.close()
        page.reload()
        arrived = told(page)
        equal("method and target", (arrived["method"], arrived["target"]), ("POST", "/notes"))
        fields = parse_qs(arrived["body"]["text"])
        equal("the form", fields, {"note": [NOTE.replace("\n", "\r\n")]})
        equal("X-Forwarded-Email", sent(page, "x-forwarded-email"), ["bob@works.example"])

    def from_elsewhere(self) -> None:
        """A link of another site needs confirmation before it signs a user out; the site's own link
        does not."""
        page = self.page
        page.route(f"{HOME}/links", lambda route: route.fulfill(
            content_type="text/html", body=f'<html lang="en"><a href="{SECOND}/oauth2/sign_out">out</a></html>'
        ))  # fmt: skip
        page.goto(f"{HOME}/links")
        page.get_by_role("link", name="out").click()
        heading(page, "Sign out?")
        look(page, "gateway-sign-out")
        page.get_by_role("link", name="Sign out").click()
        heading(page, "You are signed out")
        page.goto(f"{SECOND}/notes")
        heading(page, "Sign in")

    def end(self) -> None:
        """The console of the whole visit, and the destinations of its requests."""
        self.visit.close()


def tls(browser: Browser) -> None:
    """Over TLS, with a choice of providers: cookies that no other host can set."""
    with visit(browser, ignore_https_errors=True) as begun:
        page, context = begun.page, begun.context
        page.goto(f"{SECURE}/notes/5?x=y")
        heading(page, "Sign in")
        equal("address", page.url.split("?")[0], f"{SECURE}/oauth2/sign_in")
        look(page, "gateway-sign-in")
        page.get_by_role("link", name="Example Works").click()
        type_in(page, "grace")
        allow(page)
        expect(page).to_have_url(f"{SECURE}/notes/5?x=y")
        cookies = ours(context, SECURE)
        equal("cookies", set(cookies), {"__Host-postern", "__Host-postern-login"})
        for name, cookie in cookies.items():
            found = (cookie["secure"], cookie["httpOnly"], cookie["sameSite"], cookie["path"], cookie["domain"])
            equal(f"attributes of {name}", found, (True, True, "Lax", "/", "localhost"))
        equal("X-Forwarded-Email", sent(page, "x-forwarded-email"), ["grace@works.example"])
        page.goto(f"{SECURE}/oauth2/sign_out")
        heading(page, "You are signed out")
        equal("cookies left", set(ours(context, SECURE)), set())


def problems(browser: Browser) -> None:
    """Pages for a user whose login cannot continue."""
    pages = {
        "gateway-no-cookie": (f"{HOME}/oauth2/callback?code=x&state=y", "Your browser sent no cookie"),
        "gateway-not-begun": (f"{HOME}/oauth2/callback?code=x&state=y", "This sign-in did not begin here"),
        "gateway-no-provider": (f"{HOME}/oauth2/start?provider=nobody", "There is no such account provider"),
        "gateway-silent": (f"{SECURE}/oauth2/start?provider=partner&rd=/x", "You cannot be signed in right now"),
    }
    # A provider that does not answer is a 503, which the console reports.
    begun = Visit(browser, ignore_https_errors=True)
    for name, (url, text) in pages.items():
        begun.page.goto(url)
        heading(begun.page, text)
        look(begun.page, name)
        begun.page.goto(f"{HOME}/oauth2/start")
    begun.context.close()


def refused(browser: Browser) -> None:
    """Pages of the gateway for requests that it refuses, in English and German: nobody may open the
    page, there is none, its service does not run. Another account may be used."""
    texts = {
        "en-GB": ("You have no access to this page", "There is no such page", "The service does not respond"),
        "de-DE": ("Sie haben keinen Zugriff auf diese Seite", "Diese Seite gibt es nicht", "Der Dienst antwortet nicht"),
    }
    for locale, (forbidden, missing, gone) in texts.items():
        # The console reports a 502.
        begun = Visit(browser, locale=locale)
        page, tag = begun.page, locale[:2]
        page.goto(f"{HOME}/oauth2/nothing")
        heading(page, missing)
        look(page, f"gateway-no-page.{tag}")
        page.goto(HOME.replace("127.0.0.1", "other.localhost"))
        heading(page, missing)
        look(page, f"gateway-404.{tag}")
        page.goto(f"{HOME}/gone")
        heading(page, gone)
        look(page, f"gateway-502.{tag}")
        begun.context.close()
    with visit(browser) as begun:
        page = begun.page
        log_in(page, f"{HOME}/notes/6", "ada")
        equal("status", page.goto(f"{HOME}/managers/7?x=y").status, 403)
        heading(page, texts["en-GB"][0])
        expect(page.get_by_text("You are signed in as")).to_contain_text("ada")
        look(page, "gateway-403.en")
        page.get_by_role("link", name="Use another account").click()
        type_in(page, "bob")
        heading(page, texts["en-GB"][0])
        equal("address", page.url, f"{HOME}/managers/7?x=y")
        expect(page.get_by_text("You are signed in as")).to_contain_text("bob")
        page.get_by_role("link", name="Sign out").click()
        heading(page, "You are signed out")
        page.goto(f"{HOME}/managers/7")
        heading(page, "Sign in")
    with visit(browser, locale="de-DE") as begun:
        page = begun.page
        page.goto(f"{HOME}/managers/7")
        page.get_by_label("Benutzername").fill("ada")
        page.get_by_label("Passwort").fill(PASSWORD)
        page.keyboard.press("Enter")
        heading(page, texts["de-DE"][0])
        look(page, "gateway-403.de")
        page.get_by_role("link", name="Abmelden").click()
        heading(page, "Sie sind abgemeldet")
        look(page, "gateway-signed-out.de")
    with visit(browser, locale="de-DE", ignore_https_errors=True) as begun:
        begun.page.goto(f"{SECURE}/notes/5")
        heading(begun.page, "Anmelden")
        look(begun.page, "gateway-sign-in.de")


def main() -> None:
    """One browser for all visits. Each visit has its own cookies."""
    trap = Trap()
    with sync_playwright() as playwright:
        browser = launch(playwright, trap)
        ada = Ada(browser)
        checks: dict[str, Callable[[], None]] = {
            "whoever denies is not logged in, and may try again": ada.deny,
            "a deep link at a second origin, identity at the service": ada.identity,
            "signing out at one origin reaches the other by back-channel": ada.signed_out_there,
            "signing out at the provider, and everywhere by its operator": ada.account,
            "a form survives the end of its session": ada.form,
            "another site's link does not sign anybody out": ada.from_elsewhere,
            "no complaint in the console, no request beyond loopback": ada.end,
            "over TLS with a choice of providers: __Host- cookies": lambda: tls(browser),
            "pages for logins that cannot go on": lambda: problems(browser),
            "pages for requests that the gateway refuses": lambda: refused(browser),
        }
        for name, run in checks.items():
            check(name, run)
        browser.close()
    check("nothing but the browser's own upkeep wanted to go beyond loopback", equal, "wanted", trap.wanted(), [])


main()
