"""oidc-provider, a second provider besides Keycloak: people log in at it, and its access tokens are
accepted, as JWTs and by introspection."""

from __future__ import annotations

import base64
import json
import re
import secrets
import time
import urllib.parse
import urllib.request
from pathlib import Path

from .form_browser import FormBrowser
from .keys import ec_key, forged
from .openid_client import script
from .report import Report, equal, expect
from .stage import Stage, get, wait_for

# A session is refreshed when it is older.
REFRESH_S = 2
PATIENCE_S = 20
ORDERS, INVOICES = "https://orders.example", "https://invoices.example"
PEOPLE = {
    "grete": {
        "name": "Grete Hermann", "preferred_username": "grete", "email": "grete@node.example", "email_verified": True,
        "groups": ["staff"],
    },
    "guest": {"name": "A Guest", "preferred_username": "guest", "groups": ["guests"]},
}  # fmt: skip


class NodeWorks:
    """The provider, and the gateway in front of a service."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self.issuer = f"http://127.0.0.1:{stage.port('oidc-provider')}"
        self.gateway = f"http://localhost:{stage.port('oidc-provider-gateway')}"
        self._secret = secrets.token_hex(32)
        self._key, self._public = ec_key(stage.folder, "oidc-provider-client")

    def start(self) -> None:
        """Starts both."""
        stage, port = self._stage, self._stage.port("oidc-provider")
        told = {"issuer": self.issuer, "port": port, "clients": self._clients(), "people": PEOPLE}
        command = script(stage, "oidc_provider.mjs")
        server = stage.server("oidc-provider", command, port, {"CLIENTS_PROVIDER": json.dumps(told)})
        wait_for(server.start(), f"{self.issuer}/.well-known/openid-configuration", 20)
        port, admin = stage.port("oidc-provider-gateway"), stage.port("oidc-provider-admin")
        configuration = stage.configuration(
            "oidc-provider.toml", FOLDER=stage.folder, ADMIN_PORT=admin, PORT=port, ORIGIN=self.gateway,
            ISSUER=self.issuer, REFRESH=f"{REFRESH_S}s", KEY=self._key, SECRET=self._file("secret", self._secret),
            KEYS=self._file("keys", base64.b64encode(secrets.token_bytes(32)).decode()), ECHO_PORT=stage.port("echo"),
        )  # fmt: skip
        stage.serve("oidc-provider-gateway", configuration, port, admin)

    def _file(self, name: str, text: str) -> Path:
        path = self._stage.folder / f"oidc-provider.{name}"
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def _clients(self) -> list[dict]:
        """Metadata of the clients, in the words of dynamic registration (RFC 7591)."""
        web = {
            "grant_types": ["authorization_code", "refresh_token"], "response_types": ["code"],
            "post_logout_redirect_uris": [f"{self.gateway}/oauth2/signed_out"],
            "backchannel_logout_uri": f"{self.gateway}/oauth2/backchannel_logout",
            "backchannel_logout_session_required": True,
        }  # fmt: skip
        robot = {"grant_types": ["client_credentials"], "response_types": [], "redirect_uris": []}
        callback, secret = f"{self.gateway}/oauth2/callback", {"client_secret": self._secret}
        return [
            web | secret | {"client_id": "basic", "redirect_uris": [callback]},
            web | {
                "client_id": "key", "redirect_uris": [f"{callback}/key"], "token_endpoint_auth_method": "private_key_jwt",
                "jwks": {"keys": [self._public | {"kid": "gateway-1"}]},
            },
            web | secret | {
                "client_id": "form", "redirect_uris": [f"{callback}/form"],
                "token_endpoint_auth_method": "client_secret_post",
            },
            robot | secret | {"client_id": "robot"},
            robot | secret | {"client_id": "gateway"},
        ]  # fmt: skip

    def post(self, path: str, client: str = "robot", **form: str) -> bytes:
        """Sends a request of a client."""
        basic = base64.b64encode(f"{client}:{self._secret}".encode()).decode()
        data = urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self.issuer + path, data, {"Authorization": f"Basic {basic}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()

    def token(self, resource: str, scope: str = "orders:read") -> str:
        """Returns a token of a client for a resource server (RFC 8707)."""
        form = {"grant_type": "client_credentials", "resource": resource, "scope": scope}
        return json.loads(self.post("/token", **form))["access_token"]

    def status(self, token: str) -> int:
        """Status of a request with a token at the gateway."""
        return self.call(token)[0]

    def call(self, token: str) -> tuple[int, bytes]:
        """Status and body of a request with a token at the gateway."""
        return get(f"{self.gateway}/api/orders", {"Authorization": f"Bearer {token}"})

    def refreshed(self) -> int:
        """Number of refresh tokens that the provider accepted."""
        return json.loads(get(f"{self.issuer}/issued")[1]).get("refresh_token", 0)


class Visitor(FormBrowser):
    """A browser."""

    def __init__(self, works: NodeWorks) -> None:
        super().__init__()
        self._works = works

    def log_in(self, provider: str, path: str = "/", name: str = "grete") -> None:
        """Logs in at the provider as one of its clients, with the pages that it shows."""
        query = urllib.parse.urlencode({"provider": provider, "rd": path})
        self.open(f"{self._works.gateway}/oauth2/start?{query}")
        if self.offers("Sign in"):
            self.type(name, "Name")
            self.press("Sign in")
        if self.offers("Allow"):
            self.press("Allow")
        # The page of form_post sends itself only with scripts.
        if self.offers("Continue"):
            self.press("Continue")

    def service(self) -> dict[str, str]:
        """Header fields that the service received."""
        expect(self.text.startswith("{"), f"no service is at {self.url}: {self.text[:300]}")
        return {name.lower(): value for name, value in json.loads(self.text)["headers"]}

    def page(self, path: str) -> None:
        """Opens a page of the gateway."""
        self.open(self._works.gateway + path)

    def is_out(self) -> bool:
        """Whether a page of the gateway leads to the choice of providers."""
        self.page("/reports")
        return "With a secret" in self.text


def run(stage: Stage, report: Report) -> None:
    """Runs all checks."""
    works = NodeWorks(stage)
    if not any(server.name == "echo" for server in stage.servers):
        stage.start_echo()
    works.start()
    logins(works, report)
    session(works, report)
    tokens(works, report)


def logins(works: NodeWorks, report: Report) -> None:
    """Each kind of client authentication and of response."""
    wanted = {"x-forwarded-user": "grete", "x-forwarded-email": "grete@node.example", "x-forwarded-groups": "staff"}
    for name, how in [
        ("basic", "client_secret_basic, PKCE and userinfo"),
        ("key", "private_key_jwt with an EC key"),
        ("form", "client_secret_post and response_mode=form_post"),
    ]:
        with report.check(f"oidc-provider: login with {how}"):
            visitor = Visitor(works)
            visitor.log_in(name, "/reports?page=2")
            headers = visitor.service()
            equal("page", visitor.url, f"{works.gateway}/reports?page=2")
            equal("headers", {field: headers.get(field) for field in wanted}, wanted)
    with report.check("oidc-provider: whoever lacks the group is logged in and refused"):
        visitor = Visitor(works)
        visitor.log_in("key", "/reports", "guest")
        visitor.sees("You have no access to this page")


def session(works: NodeWorks, report: Report) -> None:
    """Refresh, and the end of a session from both sides."""
    visitor = Visitor(works)
    visitor.log_in("basic", "/reports")
    with report.check("oidc-provider: a session is refreshed, with rotated refresh tokens"):
        for turn in range(2):
            before = works.refreshed()
            time.sleep(REFRESH_S + 0.5)
            visitor.page("/reports")
            equal("user", visitor.service().get("x-forwarded-user"), "grete")
            equal(f"refreshes after turn {turn + 1}", works.refreshed() - before, 1)
    with report.check("oidc-provider: a sign-out ends the provider's session too"):
        visitor.page("/oauth2/sign_out")
        visitor.press("Sign out")
        visitor.sees("You are signed out")
        expect(visitor.is_out(), f"the session lives: {visitor.text[:200]}")
        visitor.open(f"{works.gateway}/oauth2/start?provider=basic")
        expect(visitor.offers("Sign in"), f"the provider's session lives: {visitor.url}")
    with report.check("oidc-provider: a sign-out at the provider ends the session here by back-channel logout"):
        visitor = Visitor(works)
        visitor.log_in("basic", "/reports")
        visitor.service()
        visitor.open(f"{works.issuer}/session/end")
        visitor.press("Sign out")
        deadline = time.monotonic() + PATIENCE_S
        while not visitor.is_out():
            expect(time.monotonic() < deadline, f"the session lives {PATIENCE_S} s later")
            time.sleep(0.1)


def tokens(works: NodeWorks, report: Report) -> None:
    """Access tokens of programs."""
    jwt, opaque = works.token(ORDERS), works.token(INVOICES)
    with report.check("oidc-provider: a JWT access token of RFC 9068 is verified by discovery"):
        expect(jwt.count(".") == 2, "the token is no JWT")
        status, body = works.call(jwt)
        equal("status", status, 200)
        expect(re.search(rb'"robot"', body), f"the service received {body[:300]!r}")
    with report.check("oidc-provider: an opaque access token is introspected"):
        expect("." not in opaque, "the token is no opaque one")
        equal("status", works.status(opaque), 200)
    with report.check("oidc-provider: forged tokens, and those without a resource, are refused"):
        bare = json.loads(works.post("/token", grant_type="client_credentials"))["access_token"]
        bad = [forged(jwt), f"{opaque[:-6]}AAAAAA", bare]
        equal("statuses", [works.status(token) for token in bad], [401, 401, 401])
    with report.check("oidc-provider: a revoked opaque token is refused after `ttl`"):
        works.post("/token/revocation", token=opaque)
        deadline = time.monotonic() + PATIENCE_S
        while works.status(opaque) != 401:
            expect(time.monotonic() < deadline, f"the token is accepted {PATIENCE_S} s later")
            time.sleep(0.2)
