"""Keycloak's tokens by introspection: a session that ends there ends here, and lightweight access
tokens, which do not name the caller."""

from __future__ import annotations

import base64
import json

from .keycloak import AUDIENCE, REALM, ROLE, Keycloak, Shop, await_until
from .report import Report, equal, expect
from .stage import Stage, get

PATIENCE_S = 15


def lightweight_client() -> dict:
    """A client with lightweight access tokens. Without mappers for them they have no `aud`."""
    audience = {
        "name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
        "config": {
            "included.custom.audience": AUDIENCE, "access.token.claim": "true", "introspection.token.claim": "true",
        },
    }  # fmt: skip
    return {
        "clientId": "lightweight", "secret": "secret of lightweight", "publicClient": False, "standardFlowEnabled": False,
        "directAccessGrantsEnabled": True, "protocolMappers": [audience],
        "attributes": {"client.use.lightweight.access.token.enabled": "true"},
    }  # fmt: skip


def gateway_client() -> dict:
    """The gateway as a client that introspects."""
    return {"clientId": "gateway", "secret": "secret of gateway", "publicClient": False, "standardFlowEnabled": False}


class Gateway:
    """A gateway that introspects."""

    def __init__(self, keycloak: Keycloak, stage: Stage) -> None:
        self._port, admin = (stage.port(f"keycloak-introspection{name}") for name in ("", "-admin"))
        secret = stage.folder / "keycloak-introspection.secret"
        secret.touch(mode=0o600)
        secret.write_text("secret of gateway\n")
        configuration = stage.configuration(
            "keycloak-introspection.toml", FOLDER=stage.folder, ADMIN_PORT=admin, PORT=self._port, ISSUER=keycloak.issuer,
            SECRET=secret, ECHO_PORT=stage.port("echo"),
        )  # fmt: skip
        stage.serve("keycloak-introspection", configuration, self._port, admin)

    def ask(self, token: str, path: str = "/orders/1") -> tuple[int, dict[str, str]]:
        """Status, and the header fields that the service received."""
        status, body = get(f"http://127.0.0.1:{self._port}{path}", {"Authorization": f"Bearer {token}"})
        seen = json.loads(body)["headers"] if status == 200 else []
        return status, {name.lower(): value for name, value in seen}


def run(keycloak: Keycloak, shop: Shop, stage: Stage, report: Report) -> None:
    """Runs all checks. The realm is there."""
    gateway = Gateway(keycloak, stage)
    alice = shop.person("alice")["access_token"]
    with report.check("keycloak: introspection tells user and roles"):
        status, headers = gateway.ask(alice, "/orders/managers/1")
        equal("status", status, 200)
        equal("user", headers.get("x-forwarded-user"), "alice")
        expect(ROLE in headers.get("x-forwarded-groups", "").split(","), f"headers are {headers}")
        bob = shop.person("bob")["access_token"]
        equal("bob's statuses", [gateway.ask(bob, path)[0] for path in ("/orders/1", "/orders/managers/1")], [200, 403])
    with report.check("keycloak: introspection refuses a token for another audience"):
        equal("status", gateway.ask(shop.robot("stray"))[0], 401)
    with report.check("keycloak: introspection completes a lightweight access token, whose claims alone are refused"):
        light = shop.person("alice", "lightweight")["access_token"]
        claims = json.loads(base64.urlsafe_b64decode(light.split(".")[1] + "=="))
        expect("preferred_username" not in claims and "realm_access" not in claims, f"the token has {sorted(claims)}")
        status, headers = gateway.ask(light, "/orders/managers/1")
        equal("status and user", (status, headers.get("x-forwarded-user")), (200, "alice"))
        # Its audience is only in the introspection response.
        equal("status at the gateway that verifies tokens itself", shop.ask(light)[0], 401)
    with report.check("keycloak: introspection refuses the token of a session that an operator ended"):
        user = keycloak.admin("GET", f"/{REALM}/users?username=alice&exact=true")[0]["id"]
        keycloak.admin("POST", f"/{REALM}/users/{user}/logout")
        await_until(lambda: gateway.ask(alice)[0] == 401, PATIENCE_S, lambda: "the token is still accepted")
        equal("status at the gateway that verifies tokens itself", shop.ask(alice)[0], 200)
