"""A user at Chromium who logs in at the application through the provider, and sees every page."""

from __future__ import annotations

import json
import os
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import parse_qs, urlencode, urlsplit

import requests
from browser import APP, ISSUER, Trap, Visit, launch, look, visit
from playwright.sync_api import Browser, Page, expect, sync_playwright
from verdicts import check, equal

PASSWORD = os.environ["CLIENTS_PASSWORD"]
FRESH = "seven cranes over a wet harbour"
NAME = "grace"
FIREFOX = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"


def told(page: Page) -> dict:
    """Text of the application's page."""
    expect(page).to_have_url(re.compile(re.escape(APP)))
    return json.loads(page.locator("#told").inner_text())


def type_in(page: Page, password: str = PASSWORD, name: str = NAME) -> None:
    """Fills in the login page with the keyboard only."""
    page.get_by_label(re.compile("User name|Benutzername")).fill(name)
    page.keyboard.press("Tab")
    page.keyboard.type(password)
    page.keyboard.press("Enter")


def button(page: Page, name: str) -> None:
    """Presses the button with that name."""
    page.get_by_role("button", name=name, exact=True).click()


def heading(page: Page, text: str) -> None:
    """Fails unless the page has that heading, and the same title."""
    expect(page.get_by_role("heading", level=1)).to_have_text(text)
    expect(page).to_have_title(f"{text} · Example Works")


def log_in(page: Page, path: str = "/login", password: str = PASSWORD) -> None:
    """Logs in at the application and gives the consent that it needs."""
    page.goto(APP + path)
    type_in(page, password)
    expect(page.get_by_role("heading", level=1)).not_to_have_text("Sign in")
    if page.url.startswith(ISSUER):
        button(page, "Allow")
    assert told(page)["claims"]["sub"]


class Callback(BaseHTTPRequestHandler):
    """The page that a program on the user's own machine shows after the login."""

    def do_GET(self) -> None:
        # without an icon of its own the browser asks for one, when this server may be gone already
        body = b'<!doctype html><title>Done</title><link rel="icon" href="data:,"><p>Return to your terminal.'
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the output of this program is its verdicts."""


@contextmanager
def terminal() -> Iterator[str]:
    """A program on the user's own machine that listens on loopback (RFC 8252 section 7.3). Yields its
    redirect URI. Playwright does not intercept redirects, so the browser must reach a real server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Callback) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/callback"
        finally:
            server.shutdown()


class Grace:
    """The visit of one browser, from the first login to the last logout."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.visit = Visit(browser)
        self.page = self.visit.page

    def wrong_password(self) -> None:
        """The error is announced, the name is kept, and the fields are marked with the problem."""
        page = self.page
        page.goto(f"{APP}/login")
        heading(page, "Sign in")
        expect(page.get_by_text("to continue to The Shop")).to_be_visible()
        expect(page.get_by_label("User name")).to_be_focused()
        look(page, "login")
        type_in(page, "not the password")
        alert = page.get_by_role("alert")
        expect(alert).to_have_text("User name or password is not right. Please try again.")
        expect(page.get_by_label("User name")).to_have_value(NAME)
        password = page.get_by_label("Password")
        expect(password).to_be_focused()
        expect(password).to_have_value("")
        expect(password).to_have_attribute("aria-invalid", "true")
        expect(password).to_have_accessible_description(alert.inner_text())
        look(page, "login-error")

    def consent(self) -> None:
        """The consent page shows what is requested. Allowing it leads to the application."""
        page = self.page
        type_in(page)
        heading(page, "Allow access?")
        expect(page.get_by_role("listitem")).to_have_count(6)
        expect(page.get_by_text("Know that it is you who signs in")).to_be_visible()
        expect(page.get_by_text(f"Afterwards you return to {APP.removeprefix('http://')}.")).to_be_visible()
        look(page, "consent")
        button(page, "Allow")
        equal("error", told(page).get("error"), None)
        assert told(page)["claims"]["sid"]

    def cookies(self) -> None:
        """Scripts cannot read the session cookie, and forms of other sites do not send it."""
        cookies = self.visit.cookies()
        equal("cookies", set(cookies), {"postern_browser", "postern_session"})
        for name, cookie in cookies.items():
            equal(f"HttpOnly and SameSite of {name}", (cookie["httpOnly"], cookie["sameSite"]), (True, "Lax"))
        equal("expiry of the session's cookie", cookies["postern_session"]["expires"], -1)
        self.page.goto(f"{ISSUER}/account")
        equal("what scripts see", self.page.evaluate("document.cookie"), "")

    def silent(self) -> None:
        """A navigation from another site, without a page in between."""
        shown = []
        self.page.on("framenavigated", lambda frame: shown.append(frame.url))
        self.page.goto(f"{APP}/login")
        assert told(self.page)["claims"]["sub"]
        assert not [url for url in shown if url.startswith(ISSUER)], f"pages were shown: {shown}"

    def form_post(self) -> None:
        """The only script submits the form. The policy permits it, and nothing else."""
        page = self.page
        page.goto(f"{APP}/login?response_mode=form_post")
        assert told(page)["claims"]["sub"]
        equal("where it ended", page.url, f"{APP}/")
        # with a 204 of the application the browser stays on the page
        page.route(f"{APP}/callback", lambda route: route.fulfill(status=204))
        page.goto(f"{APP}/login?response_mode=form_post", wait_until="commit")
        heading(page, "One moment")
        look(page, "form-post")
        page.unroute_all()

    def sent_on(self) -> None:
        """Chromium applies the form's policy to every redirect that follows, also to the
        application's own."""
        with visit(self.browser) as other:
            page = other.page
            elsewhere = APP.replace("localhost", "127.0.0.1") + "/heard"
            page.goto(f"{APP}/login?prompt=consent&then={elsewhere}")
            type_in(page)
            button(page, "Allow")
            expect(page).to_have_url(elsewhere)

    def device(self) -> None:
        """A code typed wrong, then right. Then the device gets its tokens."""
        page, form = self.page, {"client_id": "tv", "scope": "openid profile offline_access"}
        begun = requests.post(f"{ISSUER}/device_authorization", form, timeout=10).json()
        page.goto(f"{ISSUER}/device")
        heading(page, "Connect a device")
        look(page, "device-code")
        page.get_by_label("Code").fill("BCDF-BCDF")
        button(page, "Continue")
        expect(page.get_by_role("alert")).to_contain_text("No device waits with this code.")
        look(page, "device-code-error")
        page.goto(begun["verification_uri_complete"])
        expect(page.get_by_label("Code")).to_have_value(begun["user_code"])
        button(page, "Continue")
        heading(page, "Connect this device?")
        expect(page.get_by_text(begun["user_code"])).to_be_visible()
        look(page, "device-confirm")
        button(page, "Allow")
        heading(page, "Device connected")
        look(page, "device-done")
        form = {"client_id": "tv", "grant_type": "urn:ietf:params:oauth:grant-type:device_code"}
        answer = requests.post(f"{ISSUER}/token", form | {"device_code": begun["device_code"]}, timeout=10).json()
        assert "refresh_token" in answer, f"the television got {answer}"

    def passing(self) -> None:
        """Access without offline_access is listed separately, and can be revoked before the session
        ends."""
        page, verifier = self.page, secrets.token_urlsafe(32)
        challenge = urlsafe_b64encode(sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code", "client_id": "terminal", "scope": "openid profile",
            "code_challenge": challenge, "code_challenge_method": "S256",
        }
        with terminal() as back:
            page.goto(f"{ISSUER}/authorize?{urlencode(asked | {'redirect_uri': back})}")
            button(page, "Allow")
            expect(page.get_by_text("Return to your terminal.")).to_be_visible()
        form = {"grant_type": "authorization_code", "client_id": "terminal", "redirect_uri": back, "code_verifier": verifier}
        code = parse_qs(urlsplit(page.url).query)["code"]
        answer = requests.post(f"{ISSUER}/token", form | {"code": code}, timeout=10).json()
        assert "refresh_token" in answer, f"the terminal got {answer}"
        page.goto(f"{ISSUER}/account")
        passing = page.get_by_role("region", name="Access while you are signed in")
        expect(passing.get_by_text("ends with the session in Chrome on Linux")).to_be_visible()
        look(page, "account-passing")
        passing.get_by_role("button", name="Revoke Terminal").click()
        expect(page.get_by_role("status")).to_have_text("The access is revoked.")
        expect(passing).to_have_count(0)

    def end_session(self) -> None:
        """The session of another browser, identified by its name, is ended from here."""
        with visit(self.browser, user_agent=FIREFOX) as other:
            log_in(other.page)
            page = self.page
            page.goto(f"{ISSUER}/account")
            heading(page, "Your account")
            look(page, "account")
            row = page.get_by_role("listitem").filter(has_text="Firefox on Linux")
            row.get_by_role("button", name=re.compile("End session")).click()
            expect(page.get_by_role("status")).to_have_text("The session is ended.")
            expect(page.get_by_text("Firefox on Linux")).to_have_count(0)
            other.page.goto(f"{ISSUER}/account")
            heading(other.page, "Sign in")

    def withdraw(self) -> None:
        """The application must request consent again, and its tokens are invalid."""
        page = self.page
        page.goto(f"{ISSUER}/account")
        consents = page.get_by_role("region", name="Apps you have allowed")
        consents.get_by_role("button", name="Withdraw The Shop").click()
        expect(page.get_by_role("status")).to_have_text("The app no longer has access.")
        page.goto(f"{APP}/refresh")
        equal("refresh", told(page).get("error"), "invalid_grant")
        page.goto(f"{APP}/login")
        heading(page, "Allow access?")
        button(page, "Deny")
        equal("denied", told(page).get("error"), "access_denied")

    def revoke(self) -> None:
        """The lasting access of the device is revoked."""
        page = self.page
        page.goto(f"{ISSUER}/account")
        lasting = page.get_by_role("region", name="Lasting access")
        lasting.get_by_role("button", name="Revoke Living Room TV").click()
        expect(page.get_by_role("status")).to_have_text("The access is revoked.")
        expect(lasting.get_by_role("button", name="Revoke Living Room TV")).to_have_count(0)

    def change_password(self) -> None:
        """The old password is required. Afterwards all other sessions have ended, and the old
        password is invalid."""
        page = self.page
        with visit(self.browser, user_agent=FIREFOX) as other:
            log_in(other.page)
            for current, new, message in (
                ("not the password", FRESH, "The current password is not right."),
                (PASSWORD, "password123", "The new password is too easy to guess. Please choose another."),
            ):
                self.fill_in(current, new)
                expect(page.get_by_role("alert")).to_have_text(message)
                # the form is far down the page
                expect(page.get_by_role("alert")).to_be_in_viewport()
            look(page, "account-error")
            self.fill_in(PASSWORD, FRESH)
            expect(page.get_by_role("status")).to_have_text("Your password is changed.")
            other.page.goto(f"{ISSUER}/account")
            heading(other.page, "Sign in")
            type_in(other.page)
            expect(other.page.get_by_role("alert")).to_be_visible()
            type_in(other.page, FRESH)
            heading(other.page, "Your account")

    def fill_in(self, current: str, new: str) -> None:
        """The form for a new password."""
        page = self.page
        page.goto(f"{ISSUER}/account")
        page.get_by_label("Current password").fill(current)
        page.get_by_label("New password", exact=True).fill(new)
        page.get_by_label("New password once more").fill(new)
        button(page, "Change password")

    def logout(self) -> None:
        """A sign-out without an ID token hint needs confirmation."""
        page = self.page
        page.goto(f"{ISSUER}/logout")
        heading(page, "Sign out?")
        look(page, "logout")
        button(page, "Stay signed in")
        heading(page, "Your account")
        page.goto(f"{ISSUER}/logout?client_id=shop")
        expect(page.get_by_text("The Shop asks to sign you out.")).to_be_visible()
        button(page, "Sign out")
        heading(page, "You are signed out")
        look(page, "logout-done")
        equal("cookies", set(self.visit.cookies()), {"postern_browser"})
        log_in(page, password=FRESH)
        page.goto(f"{APP}/logout")
        equal("back at", told(page)["bye"]["post_logout_redirect_uri"], f"{APP}/bye")

    def errors(self) -> None:
        """Pages for users who do not come from an application."""
        page = self.page
        page.goto(f"{ISSUER}/authorize?response_type=code&client_id=shop&redirect_uri=https://elsewhere.example/")
        heading(page, "The way back is not known")
        look(page, "error")
        page.goto(f"{ISSUER}/authorize?response_type=code&client_id=nobody")
        heading(page, "Unknown application")
        page.goto(f"{ISSUER}/logout?post_logout_redirect_uri={APP}/bye")
        expect(page.get_by_text("the ID token of it (id_token_hint) is missing")).to_be_visible()
        look(page, "error-logout-hint")

    def end(self) -> None:
        """The console of the whole visit, and the destinations of its requests."""
        self.visit.close()


def german(browser: Browser) -> None:
    """By Accept-Language alone. A client may request another language."""
    with visit(browser, locale="de-DE") as begun:
        page = begun.page
        page.goto(f"{APP}/login?prompt=consent")
        heading(page, "Anmelden")
        equal("lang", page.locator("html").get_attribute("lang"), "de")
        look(page, "login-german")
        type_in(page, FRESH)
        heading(page, "Zugriff erlauben?")
        look(page, "consent-german")
        page.goto(f"{APP}/login?ui_locales=en&prompt=login")
        heading(page, "Sign in")


def dark(browser: Browser) -> None:
    """By the system's setting: dark background, light text, and the browser's own parts alike."""
    with visit(browser, color_scheme="dark") as begun:
        page = begun.page
        page.goto(f"{ISSUER}/account")
        shades = page.evaluate("""() => {
            const light = text => text.match(/[0-9.]+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0) / 765;
            const page = getComputedStyle(document.documentElement);
            const field = getComputedStyle(document.querySelector("#username"));
            return [page.backgroundColor, page.color, field.backgroundColor, field.color].map(light);
        }""")
        paper, ink, field, typed = shades
        assert paper < 0.25 < 0.75 < ink and field < 0.3 < 0.7 < typed, f"brightness: {shades}"


def no_scripts(browser: Browser) -> None:
    """The whole login, also with form_post: there is a button."""
    with visit(browser, java_script_enabled=False) as begun:
        page = begun.page
        page.goto(f"{APP}/login?response_mode=form_post&prompt=consent")
        type_in(page, FRESH)
        heading(page, "Allow access?")
        button(page, "Allow")
        heading(page, "One moment")
        button(page, "Continue")
        assert told(page)["claims"]["sub"]
        page.goto(f"{APP}/logout")
        assert told(page)["bye"]


def framed(browser: Browser) -> None:
    """No other site can put the pages into a frame."""
    begun = Visit(browser)
    begun.page.goto(f"{APP}/")
    begun.page.evaluate(f"""() => new Promise(done => {{
        const frame = document.createElement("iframe");
        frame.onload = done;
        frame.src = "{ISSUER}/account";
        document.body.append(frame);
    }})""")
    refused = [told for told in begun.complaints if "frame-ancestors" in told or "X-Frame-Options" in told]
    begun.context.close()
    assert refused, f"a page let itself be framed; the console said {begun.complaints}"


def main() -> None:
    """One browser for all visits. Each visit has its own cookies."""
    trap = Trap()
    with sync_playwright() as playwright:
        browser = launch(playwright, trap)
        grace = Grace(browser)
        checks: dict[str, Callable[[], None]] = {
            "a wrong password is announced": grace.wrong_password,
            "login by keyboard, consent, back at the application": grace.consent,
            "cookies are HttpOnly and SameSite=Lax": grace.cookies,
            "a second login shows no page": grace.silent,
            "form_post by its script": grace.form_post,
            "the application sends on to another host": grace.sent_on,
            "device page: wrong code, right code": grace.device,
            "account: end another session": grace.end_session,
            "account: withdraw a consent": grace.withdraw,
            "account: revoke lasting access": grace.revoke,
            "account: revoke access that would end with the session": grace.passing,
            "account: change the password": grace.change_password,
            "logout: stay, sign out, from the application": grace.logout,
            "errors": grace.errors,
            "no complaint in the console, no request beyond loopback": grace.end,
            "German by Accept-Language": lambda: german(browser),
            "dark by the system's setting": lambda: dark(browser),
            "login and form_post without scripts": lambda: no_scripts(browser),
            "no page in another site's frame": lambda: framed(browser),
        }
        for name, run in checks.items():
            check(name, run)
        browser.close()
    check("nothing but the browser's own upkeep wanted to go beyond loopback", equal, "wanted", trap.wanted(), [])


main()
