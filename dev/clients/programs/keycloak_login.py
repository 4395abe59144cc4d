"""Users at Chromium who log in at the gateway through Keycloak, with sessions in cookies and in a
database."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.parse
import urllib.request
from collections.abc import Callable

from browser import ISSUER, Trap, Visit, launch, look
from clients.administration import Administration
from playwright.sync_api import Browser, Page, Response, expect, sync_playwright
from verdicts import check, equal

GATEWAYS = json.loads(os.environ["CLIENTS_GATEWAYS"])
REALM = os.environ["CLIENTS_REALM"]
REFRESH_S = float(os.environ["CLIENTS_REFRESH_S"])
HOARDED = int(os.environ["CLIENTS_HOARDED"])
DEEP = "/reports/7?year=2026&q=a%20b&next=%2Fhome"
TABS = 4
AT_ONCE = 24
keycloak = Administration(os.environ["CLIENTS_KEYCLOAK"], os.environ["CLIENTS_KEYCLOAK_PASSWORD"])


def person(name: str) -> str:
    """Identifier of a user at Keycloak."""
    return keycloak.admin("GET", f"/{REALM}/users?exact=true&username={name}")[0]["id"]


def told(page: Page) -> dict:
    """The request as it arrived at the service behind the gateway."""
    return json.loads(page.locator("pre").inner_text())


def sent(page: Page, name: str) -> list[str]:
    """Values of a header field that arrived there."""
    return [value for key, value in told(page)["headers"] if key.lower() == name]


def asks_for_password(page: Page) -> None:
    """Fails unless Keycloak's login page is shown."""
    expect(page.locator("#password")).to_be_visible()
    assert page.url.startswith(ISSUER), page.url


def type_in(page: Page, name: str) -> None:
    """Fills in Keycloak's login page."""
    page.locator("#username").fill(name)
    page.locator("#password").fill(f"password of {name}")
    page.locator("#kc-login").click()


def redirects(response: Response | None) -> list[str]:
    """The addresses of the redirects that led to a page."""
    found, request = [], response.request.redirected_from if response else None
    while request is not None:
        found.append(request.url)
        request = request.redirected_from
    return found[::-1]


class At:
    """One browser at one of the gateways."""

    def __init__(self, browser: Browser, gateway: dict) -> None:
        self.browser, self.gateway, self.name = browser, gateway, gateway["name"]
        self.home, self.second = gateway["origins"]
        self.visit = Visit(browser)
        self.page = self.visit.page
        # Keycloak keeps one session for each browser that logged in.
        self.due = 0.0

    def log_in(self, name: str = "alice", path: str = "/") -> None:
        """Logs in from a new browser to the requested page."""
        self.page.goto(self.home + path)
        asks_for_password(self.page)
        type_in(self.page, name)
        expect(self.page).to_have_url(self.home + path)

    def other(self) -> At:
        """Another browser at the same gateway."""
        return At(self.browser, self.gateway)

    def count(self, metric: str, **labels: str) -> int:
        """A counter of the gateway."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.gateway['admin']}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        label = ",".join(f'{name}="{value}"' for name, value in labels.items())
        found = re.search(rf"^{metric}_total{{{label}}} (\d+)", text, re.MULTILINE)
        assert found, f"{metric} with {label} is not among the metrics"
        return int(found[1])

    def renewals(self) -> tuple[int, int, int]:
        """Refreshes by their outcome."""
        good, refused, failed = (
            self.count("postern_session_renewals", result=result) for result in ("good", "refused", "failed")
        )
        return good, refused, failed

    def events(self, kind: str) -> int:
        """Number of events of a kind that Keycloak recorded for this client."""
        query = urllib.parse.urlencode({"type": kind, "client": self.name, "max": 1000})
        return len(keycloak.admin("GET", f"/{REALM}/events?{query}"))


class Checks:
    """Runs the same steps at both gateways; waits once for both."""

    def __init__(self, browser: Browser) -> None:
        self.browser = browser
        self.all = [At(browser, gateway) for gateway in GATEWAYS]

    def await_due(self) -> None:
        """Waits until every session must be refreshed."""
        time.sleep(REFRESH_S + 0.5)

    def deep_link(self) -> None:
        """The query is kept. The service receives the user, and nothing of the session."""
        for at in self.all:
            at.visit.context.add_cookies([{"name": "theme", "value": "dark", "url": at.home}])
            at.log_in(path=DEEP)
            equal("target at the service", told(at.page)["target"], DEEP)
            equal("X-Forwarded-User", sent(at.page, "x-forwarded-user"), ["alice"])
            equal("X-Forwarded-Email", sent(at.page, "x-forwarded-email"), ["alice@example.test"])
            equal("groups", sorted(sent(at.page, "x-forwarded-groups")[0].split(",")), ["managers", "staff"])
            equal("cookies at the service", sent(at.page, "cookie"), ["theme=dark"])
            equal("Authorization at the service", sent(at.page, "authorization"), [])

    def cookies(self) -> None:
        """Scripts see none of our cookies. With a database the cookie is a short identifier."""
        for at in self.all:
            ours = {c["name"]: c for c in at.visit.context.cookies(at.home) if c["name"].startswith("postern")}
            equal("cookies", set(ours), {"postern", "postern-login"})
            for name, cookie in ours.items():
                equal(f"HttpOnly and SameSite of {name}", (cookie["httpOnly"], cookie["sameSite"]), (True, "Lax"))
            equal("what scripts see", at.page.evaluate("document.cookie"), "theme=dark")
            length = len(ours["postern"]["value"])
            equal(f"a short cookie at {at.name} ({length} bytes)", length < 100, at.name == "login-database")

    def second_origin(self) -> None:
        """Another origin of the gateway needs another cookie; Keycloak asks nothing."""
        for at in self.all:
            page = at.visit.context.new_page()
            shown: list[str] = []
            page.on("framenavigated", lambda frame, shown=shown: shown.append(frame.url))
            page.goto(f"{at.second}/elsewhere?x=y")
            expect(page).to_have_url(f"{at.second}/elsewhere?x=y")
            equal("X-Forwarded-User", sent(page, "x-forwarded-user"), ["alice"])
            equal("pages shown", shown, [f"{at.second}/elsewhere?x=y"])
            page.close()

    def tabs(self) -> None:
        """Several tabs wait for the password. It is typed once, and each tab reaches its own
        page."""
        for at in self.all:
            new = at.other()
            pages = [new.page, *(new.visit.context.new_page() for _ in range(TABS - 1))]
            for number, page in enumerate(pages):
                page.goto(f"{at.home}/tab/{number}?n={number}")
                asks_for_password(page)
            type_in(pages[0], "bob")
            for number, page in enumerate(pages):
                page.bring_to_front()
                expect(page).to_have_url(f"{at.home}/tab/{number}?n={number}", timeout=15_000)
                equal("X-Forwarded-User", sent(page, "x-forwarded-user"), ["bob"])
            ours = [c["name"] for c in new.visit.context.cookies(at.home) if c["name"].startswith("postern")]
            equal("cookies", sorted(ours), ["postern", "postern-login"])
            new.visit.close()

    def renewal(self) -> None:
        """Keycloak is asked once; the browser is not redirected."""
        before = {at.name: at.renewals() for at in self.all}
        self.await_due()
        for at in self.all:
            for path in ("/later", "/later/still"):
                answer = at.page.goto(at.home + path)
                equal("status and redirects", (answer.status, redirects(answer)), (200, []))
            good, refused, failed = before[at.name]
            equal(f"renewals at {at.name}", at.renewals(), (good + 1, refused, failed))

    def race(self) -> None:
        """However many requests need it, Keycloak sees one refresh token once. The next one is
        valid as well."""
        refreshed = {at.name: (at.events("REFRESH_TOKEN"), at.renewals()) for at in self.all}
        for turn in (1, 2):
            self.await_due()
            for at in self.all:
                events, (good, *others) = refreshed[at.name]
                answers = at.page.evaluate("""async count => Promise.all(Array.from({ length: count }, async (_, n) => {
                    const answer = await fetch(`/race/${n}`, { headers: { accept: "text/html" } });
                    return `${answer.status} ${answer.redirected}`;
                }))""", AT_ONCE)
                equal("answers", set(answers), {"200 false"})
                equal(f"renewals at {at.name}", at.renewals(), (good + turn, *others))
                equal("refresh tokens used", at.events("REFRESH_TOKEN"), events + turn)
                equal("refused by Keycloak", at.events("REFRESH_TOKEN_ERROR"), 0)

    def new_key(self) -> None:
        """A new key signs and the old one is gone: sessions and logins continue."""
        keycloak.add_key(REALM, "second", 200)
        keycloak.disable_key(REALM, "rsa-generated")
        before = {at.name: at.renewals() for at in self.all}
        for at in self.all:
            new = at.other()
            new.log_in("bob", "/new-key")
            new.visit.close()
        self.await_due()
        for at in self.all:
            answer = at.page.goto(f"{at.home}/after")
            equal("status and redirects", (answer.status, redirects(answer)), (200, []))
            good, refused, failed = before[at.name]
            equal(f"renewals at {at.name}", at.renewals(), (good + 1, refused, failed))

    def group(self) -> None:
        """A removed group membership counts until the next refresh."""
        alice = person("alice")
        for at in self.all:
            equal("status before", at.page.goto(f"{at.home}/managers/1").status, 200)
        managers = keycloak.admin("GET", f"/{REALM}/groups?exact=true&search=managers")[0]["id"]
        keycloak.admin("DELETE", f"/{REALM}/users/{alice}/groups/{managers}")
        self.await_due()
        for at in self.all:
            equal("status after", at.page.goto(f"{at.home}/managers/1").status, 403)
            at.page.goto(at.home)
            equal("groups", sent(at.page, "x-forwarded-groups"), ["staff"])

    def backchannel(self) -> None:
        """An operator ends a session at Keycloak: the next request is redirected to the login."""
        before = {at.name: at.count("postern_logouts", by="provider") for at in self.all}
        keycloak.admin("POST", f"/{REALM}/users/{person('alice')}/logout")
        ended = time.monotonic()
        for at in self.all:
            at.page.goto(f"{at.home}/reports")
            took = time.monotonic() - ended
            asks_for_password(at.page)
            assert took < 1, f"{at.name}: that took {took:.1f} s"
            ended = time.monotonic()
            assert at.count("postern_logouts", by="provider") > before[at.name], "no message arrived"

    def again(self) -> None:
        """A user who was logged out returns to the requested page."""
        for at in self.all:
            type_in(at.page, "alice")
            expect(at.page).to_have_url(f"{at.home}/reports")

    def sign_out(self) -> None:
        """Keycloak's session ends as well; the former cookie is refused."""
        alice = person("alice")
        for at in self.all:
            sessions = keycloak.admin("GET", f"/{REALM}/users/{alice}/sessions")
            kept = [c for c in at.visit.context.cookies(at.home) if c["name"] == "postern"]
            answer = at.page.goto(f"{at.home}/oauth2/sign_out")
            expect(at.page.get_by_role("heading", level=1)).to_have_text("You are signed out")
            assert any(url.startswith(ISSUER) for url in redirects(answer)), f"the way was {redirects(answer)}"
            left = keycloak.admin("GET", f"/{REALM}/users/{alice}/sessions")
            equal("sessions at Keycloak", len(left), len(sessions) - 1)
            equal("our cookies", [c for c in at.visit.context.cookies(at.home) if c["name"].startswith("postern")], [])
            at.page.get_by_role("link", name="Sign in again").click()
            asks_for_password(at.page)
            at.visit.context.add_cookies([{"name": "postern", "value": kept[0]["value"], "url": at.home}])
            at.page.goto(at.home)
            asks_for_password(at.page)

    def hoard(self) -> None:
        """A user with too many claims for a cookie: a page that says so, or a database."""
        for at in self.all:
            new = at.other()
            new.page.goto(at.home)
            type_in(new.page, "hoarder")
            if at.name == "login-database":
                expect(new.page).to_have_url(f"{at.home}/")
                equal("groups", len(sent(new.page, "x-forwarded-groups")[0].split(",")), HOARDED)
                new.visit.close()
            else:
                expect(new.page.get_by_role("heading", level=1)).to_have_text("You cannot be signed in")
                look(new.page, "gateway-too-large")
                # the console reports the page's status
                new.visit.context.close()

    def end(self) -> None:
        """The console of all visits, and the destinations of their requests."""
        for at in self.all:
            at.visit.close()


def main() -> None:
    """One browser for all visits. Each visit has its own cookies."""
    trap = Trap()
    with sync_playwright() as playwright:
        browser = launch(playwright, trap)
        checks = Checks(browser)
        listed: dict[str, Callable[[], None]] = {
            "a deep link: login, back to it, identity at the service": checks.deep_link,
            "cookies are HttpOnly and SameSite=Lax, ours stay at the gateway": checks.cookies,
            "a second origin shows no page": checks.second_origin,
            "four tabs, one password, each to its own page": checks.tabs,
            "a renewal leads nobody anywhere": checks.renewal,
            "racing requests use a rotated refresh token once, twice over": checks.race,
            "keys are exchanged: logins and renewals go on": checks.new_key,
            "a group taken away counts with the next renewal": checks.group,
            "an operator's logout is felt within a second": checks.backchannel,
            "and whoever was logged out comes back": checks.again,
            "signing out ends Keycloak's session too": checks.sign_out,
            "what is too much for a cookie fits into a database": checks.hoard,
            "no complaint in the console, no request beyond loopback": checks.end,
        }
        for name, run in listed.items():
            check(name, run)
        browser.close()
    check("nothing but the browser's own upkeep wanted to go beyond loopback", equal, "wanted", trap.wanted(), [])


main()
