"""A user without scripts who logs in where other proxies query the gateway: nginx, Envoy and
Caddy."""

from __future__ import annotations

import json
import os
import subprocess
import time

import requests
from person import ISSUER, Person
from verdicts import check, equal

FRONTS = json.loads(os.environ["CLIENTS_FRONTS"])
REFRESH_S = float(os.environ["CLIENTS_REFRESH_S"])
# A logout notification waits in the provider's queue for a moment.
PATIENCE_S = 3
READY_S = 10
OURS = {"postern", "postern-login"}


class Visitor(Person):
    """A client that identifies itself as a browser."""

    def __init__(self, base: str, name: str = "ada") -> None:
        super().__init__(name)
        self.base = base
        self.session.headers["accept"] = "text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"

    def open(self, path: str) -> requests.Response:
        """A page, without following redirects."""
        return self.session.get(self.base + path, allow_redirects=False, timeout=20)

    def cookie(self) -> str | None:
        """The session cookie."""
        return next((cookie.value for cookie in self.session.cookies if cookie.name == "postern"), None)


def arrived(page: requests.Response) -> dict:
    """The request as it arrived at the service. Fails if none did."""
    equal("status", page.status_code, 200)
    return page.json()


def sent(page: requests.Response, name: str) -> list[str]:
    """Values of a header field that arrived there, except empty ones."""
    return [value for key, value in arrived(page)["headers"] if key.lower() == name and value]


class Front:
    """The checks behind each proxy."""

    def __init__(self, name: str, port: int) -> None:
        self.name, self.base = name, f"http://127.0.0.1:{port}"
        self.ada = Visitor(self.base)

    def await_ready(self) -> None:
        """Waits until the proxy forwards: Envoy first checks Postern's health."""
        deadline = time.monotonic() + READY_S
        while self.ada.open("/").status_code in (502, 503) and time.monotonic() < deadline:
            time.sleep(0.1)

    def log_in(self) -> None:
        """Login and return to the requested page; the service receives the user."""
        self.await_ready()
        first = self.ada.open("/notes?q=a%20b&z=%26")
        wanted = f"{self.base}/oauth2/start?rd=%2Fnotes%3Fq%3Da%2520b%26z%3D%2526"
        equal("the first answer", (first.status_code, first.headers.get("location")), (302, wanted))
        page = self.ada.visit(f"{self.base}/notes?q=a%20b&z=%26")
        assert "password" in self.ada.asked, f"asked for {self.ada.asked}"
        equal("address", page.url, f"{self.base}/notes?q=a%20b&z=%26")
        equal("target at the service", arrived(page)["target"], "/notes?q=a%20b&z=%26")
        equal("X-Forwarded-Email", sent(page, "x-forwarded-email"), ["ada@works.example"])
        equal("X-Forwarded-Groups", sent(page, "x-forwarded-groups"), ["friends of Ada"])
        equal("managers' pages", self.ada.open("/managers/1").status_code, 403)

    def cookies(self) -> None:
        """Envoy removes our cookies. Behind the others the service gets only an identifier, or the
        proxy must remove them."""
        crumbs = ";".join(sent(self.ada.open("/"), "cookie")).split(";")
        seen = {crumb.split("=")[0].strip() for crumb in crumbs}
        equal("ours at the service", seen & OURS, set() if self.name == "envoy" else OURS)

    def programs(self) -> None:
        """A program gets a status, not a redirect."""
        headers = {"accept": "application/json"}
        answer = requests.get(self.base + "/notes", headers=headers, timeout=20, allow_redirects=False)
        equal("status and location", (answer.status_code, answer.headers.get("location")), (401, None))
        assert answer.headers.get("www-authenticate", "").startswith("Bearer"), dict(answer.headers)

    def forms(self) -> None:
        """A form that is sent without a session gets a page about how to keep it; nginx has its own
        page for 401."""
        headers = {"accept": "text/html", "sec-fetch-mode": "navigate"}
        answer = requests.post(self.base + "/notes", {"note": "x"}, headers=headers, timeout=20, allow_redirects=False)
        equal("status", answer.status_code, 401)
        equal("the page says so", "<h1>Sign in again</h1>" in answer.text, self.name != "nginx")

    def pages(self) -> None:
        """The login's own pages are shown, and let no request pass, whatever a client claims to
        check."""
        headers = {"accept": "text/html", "x-forwarded-user": "root", "x-original-method": "GET"}
        headers |= {"x-forwarded-method": "GET", "x-forwarded-uri": "/oauth2/done", "x-original-uri": "/oauth2/done"}
        for name, text in (("sign_in", "Sign in"), ("signed_out", "You are signed out"), ("done", "You are signed in")):
            for more in ({"accept": "text/html"}, headers):
                answer = requests.get(f"{self.base}/oauth2/{name}", headers=more, timeout=20, allow_redirects=False)
                said = f"{name}: {answer.status_code} {answer.text[:200]}"
                assert "<h1>" in answer.text or answer.status_code >= 400, said
                assert more is headers or f"<h1>{text}</h1>" in answer.text, said

    def renewal(self) -> None:
        """The cookie of a refreshed session reaches the browser and is valid; with a database it
        stays the same."""
        before = self.ada.cookie()
        for _ in range(2):
            time.sleep(REFRESH_S + 0.5)
            page = self.ada.open("/notes/later")
            equal("X-Forwarded-Email", sent(page, "x-forwarded-email"), ["ada@works.example"])
            changed = self.ada.cookie() != before
            assert changed == (self.name != "caddy"), f"the cookie changed: {changed}"
            before = self.ada.cookie()

    def sign_out(self) -> None:
        """Sign-out here and at the provider."""
        page = self.ada.get(f"{self.base}/oauth2/sign_out")
        assert "You are signed out" in page.text, f"{page.url} {page.status_code}: {page.text[:200]}"
        assert any(step.url.startswith(ISSUER) for step in page.history), [step.url for step in page.history]
        equal("cookie", self.ada.cookie(), None)
        equal("next visit", self.ada.open("/notes").status_code, 302)
        page = self.ada.visit(f"{self.base}/notes/again")
        assert "password" in self.ada.asked, f"asked for {self.ada.asked}"
        equal("address", page.url, f"{self.base}/notes/again")

    def logged_out(self) -> None:
        """The operator of the provider ends all sessions; the provider notifies the gateway."""
        bob = Visitor(self.base, "bob")
        equal("before", bob.visit(f"{self.base}/notes").status_code, 200)
        command = [os.environ["CLIENTS_POSTERN"], "admin", "--config", os.environ["CLIENTS_CONFIGURATION"]]
        command += ["user", "revoke", "bob"]
        subprocess.run(command, check=True, capture_output=True, timeout=30)
        began = time.monotonic()
        while bob.open("/notes").status_code != 302:
            assert time.monotonic() - began < PATIENCE_S, f"the session still holds after {PATIENCE_S} s"
            time.sleep(0.1)


def main() -> None:
    """Runs the checks one after another."""
    for name, port in FRONTS.items():
        front = Front(name, port)
        for what, run in {
            "login, back to the page, identity at the service": front.log_in,
            "whose cookies the service sees": front.cookies,
            "programs are 401": front.programs,
            "a form without a session": front.forms,
            "pages of the login's let nobody through": front.pages,
            "renewals reach the browser": front.renewal,
            "signing out ends the provider's session": front.sign_out,
            "a back-channel logout arrives": front.logged_out,
        }.items():
            check(f"{name}: {what}", run)


main()
