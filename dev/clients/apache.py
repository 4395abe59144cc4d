"""Apache with mod_auth_openidc at Postern's provider: as a relying party, and as a resource server
that introspects tokens."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import time
import urllib.parse
from pathlib import Path

from . import documents
from .form_browser import FormBrowser
from .keys import forged
from .provider import PASSWORD, Provider
from .report import Report, Skip, equal, expect
from .stage import Stage, get, program

MODULES = Path("/usr/lib/apache2/modules")
# How long a logout token may take.
PATIENCE_S = 20
CALLBACK = "/private/redirect_uri"


class Apache:
    """The running server, in front of `postern echo`."""

    def __init__(self, provider: Provider, stage: Stage) -> None:
        self._provider, self._stage = provider, stage
        self.base = f"http://localhost:{stage.port('apache')}"

    def start(self) -> None:
        """Starts it in the foreground."""
        apache = program("apache2", "dev/setup apache")
        if not (MODULES / "mod_auth_openidc.so").exists():
            raise Skip("mod_auth_openidc is not installed; run dev/setup apache")
        port, issuer = self._stage.port("apache"), {documents.ISSUER: self._provider.issuer}
        relying_party = documents.replaced(documents.block("apache", "AuthType openid-connect"), issuer | {
            "https://intranet.example": self.base, "INTRANET_SECRET": self._provider.secret,
            "PASSPHRASE": secrets.token_urlsafe(24), "groups:staff": '"groups:friends of Hedy"',
        })  # fmt: skip
        resource_server = documents.replaced(
            documents.block("apache", "AuthType oauth20"), issuer | {"ORDERS_API_SECRET": self._provider.secret}
        )
        configuration = self._stage.configuration(
            "apache.conf", FOLDER=self._stage.folder, PORT=port, MODULES=MODULES, RELYING_PARTY=relying_party,
            RESOURCE_SERVER=resource_server, ECHO_PORT=self._stage.port("echo"),
            # It refuses to serve as root.
            USER="User www-data\nGroup www-data" if os.geteuid() == 0 else "",
        )  # fmt: skip
        self._stage.server("apache", [apache, "-f", str(configuration), "-DFOREGROUND"], port).start()

    def call(self, path: str, token: str) -> tuple[int, bytes]:
        """Status and body of a request with a token."""
        return get(f"{self.base}{path}", {"Authorization": f"Bearer {token}"})


class Visitor(FormBrowser):
    """A browser whose user is Hedy."""

    def __init__(self, apache: Apache) -> None:
        super().__init__()
        self.base = apache.base

    def ask(self, path: str) -> None:
        """Opens a path of the server."""
        self.open(f"{self.base}{path}")

    def sign_in(self, *, consents: bool = False) -> None:
        """Completes the provider's pages."""
        self.type("hedy", "User name")
        self.type(PASSWORD, "Password")
        self.press("Sign in")
        if consents:
            self.press("Allow")

    def arrived(self) -> dict[str, str]:
        """Header fields that the application received with the last request."""
        expect(self.text.startswith("{"), f"no application is at {self.url}: {self.text[:300]}")
        return {name.lower(): value for name, value in json.loads(self.text)["headers"]}

    def is_asked(self) -> bool:
        """Whether the last page asks for a password."""
        return "Password" in self.text and not self.url.startswith(self.base)

    def info(self) -> dict:
        """What the server stores about the session."""
        self.ask(f"{CALLBACK}?info=json")
        return json.loads(self.text)


def run(provider: Provider, stage: Stage, report: Report) -> None:
    """Runs all checks."""
    apache = Apache(provider, stage)
    if not any(server.name == "echo" for server in stage.servers):
        stage.start_echo()
    apache.start()
    visitor = Visitor(apache)
    relying_party(visitor, report)
    sessions(apache, visitor, provider, stage, report)
    resource_server(apache, provider, report)


def relying_party(visitor: Visitor, report: Report) -> None:
    """Login, claims and authorization."""
    with report.check("apache: a login with PKCE leads back to the page, with claims as headers"):
        visitor.ask("/private/reports?page=2")
        visitor.sign_in(consents=True)
        headers = visitor.arrived()
        equal("page", urllib.parse.urlsplit(visitor.url)[2:4], ("/private/reports", "page=2"))
        wanted = {
            "x-remote-user": "hedy", "oidc_claim_preferred_username": "hedy", "oidc_claim_name": "Hedy Lamarr",
            "oidc_claim_email": "hedy@works.example", "oidc_claim_email_verified": "1",
            "oidc_claim_groups": "friends of Hedy",
        }  # fmt: skip
        equal("headers", {name: headers.get(name) for name in wanted}, wanted)
    with report.check("apache: a group opens `Require claim`, and only for its members"):
        visitor.ask("/private/staff/")
        equal("user", visitor.arrived().get("oidc_claim_preferred_username"), "hedy")
    with report.check("apache: tokens are refreshed"):
        before = visitor.info()
        back = urllib.parse.quote(f"{visitor.base}/private/refreshed", safe="")
        visitor.ask(f"{CALLBACK}?refresh={back}&access_token={before['access_token']}")
        equal("page and error", urllib.parse.urlsplit(visitor.url)[2:4], ("/private/refreshed", ""))
        after = visitor.info()
        changed = {name for name in ("access_token", "refresh_token") if before[name] != after[name]}
        equal("new", changed, {"access_token", "refresh_token"})


def sessions(apache: Apache, visitor: Visitor, provider: Provider, stage: Stage, report: Report) -> None:
    """The ends of a session, from both sides."""
    with report.check("apache: a sign-out ends both sessions"):
        visitor.ask(f"{CALLBACK}?logout={urllib.parse.quote(apache.base + '/bye', safe='')}")
        equal("page", visitor.url, f"{apache.base}/bye")
        visitor.ask("/private/reports")
        expect(visitor.is_asked(), f"nobody asks for a password: {visitor.url}")
    with report.check("apache: a session that ends at the provider ends here by back-channel logout"):
        visitor.sign_in()
        visitor.arrived()
        command = [str(stage.postern), "admin", "--config", str(provider.configuration), "user", "revoke", "hedy"]
        subprocess.run(command, capture_output=True, timeout=30, check=True)
        deadline = time.monotonic() + PATIENCE_S
        while not visitor.is_asked():
            expect(time.monotonic() < deadline, f"the session lives {PATIENCE_S} s later")
            time.sleep(0.2)
            visitor.ask("/private/reports")


def resource_server(apache: Apache, provider: Provider, report: Report) -> None:
    """Tokens in requests of programs."""
    token = provider.token("billing", scope="orders:read")
    with report.check("apache: a resource server introspects a token"):
        status, body = apache.call("/api/orders", token)
        equal("status", status, 200)
        headers = {name.lower(): value for name, value in json.loads(body)["headers"]}
        wanted = {"x-remote-user": "billing", "oidc_claim_client_id": "billing", "oidc_claim_aud": "orders"}
        equal("headers", {name: headers.get(name) for name in wanted}, wanted)
    with report.check("apache: a scope opens `Require claim`"):
        more = provider.token("billing", scope="orders:write")
        equal("statuses", [apache.call("/api/write/", t)[0] for t in (token, more)], [401, 200])
    with report.check("apache: forged tokens and those for another audience are refused"):
        bad = [forged(token), provider.token("invoicing")]
        equal("statuses", [apache.call("/api/orders", t)[0] for t in bad], [401, 401])
    with report.check("apache: a revoked token is refused at once"):
        provider.revoke("billing", token)
        equal("status", apache.call("/api/orders", token)[0], 401)
