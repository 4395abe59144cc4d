"""A login at Keycloak with a key instead of a secret (`private_key_jwt`)."""

from __future__ import annotations

import base64
import json
import secrets
import time

from . import documents
from .form_browser import FormBrowser
from .keycloak import Keycloak
from .keys import ec_key
from .report import Report, equal, expect
from .stage import ROOT, Stage, get

# A session is refreshed when it is older.
REFRESH_S = 2
CLIENT = "gateway-with-key"


def _configure(stage: Stage, keycloak: Keycloak, realm: str) -> str:
    """Registers the client, and starts the gateway. Returns its origin."""
    port, admin = stage.port("keycloak-key"), stage.port("keycloak-key-admin")
    origin, (private, public) = f"http://localhost:{port}", ec_key(stage.folder, "keycloak-key")
    client = json.loads(documents.block("json", "client-jwt", ROOT / "docs/guides/keycloak.md"))
    client |= {"clientId": CLIENT, "publicClient": False, "redirectUris": [f"{origin}/oauth2/callback"]}
    client["attributes"] |= {
        "jwks.string": json.dumps({"keys": [public | {"kid": CLIENT}]}),
        "post.logout.redirect.uris": f"{origin}/oauth2/signed_out",
    }
    keycloak.admin("POST", f"/{realm}/clients", client)
    keys = stage.folder / "keycloak-key.keys"
    keys.touch(mode=0o600)
    keys.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
    provider = (
        f'[[login.provider]]\nname = "house"\nurl = "{keycloak.base}/realms/{realm}"\nclient_id = "{CLIENT}"\n'
        f'client_authentication = "private_key_jwt"\nclient_key_file = "{private}"\nclient_key_id = "{CLIENT}"\n'
    )
    configuration = stage.configuration(
        "login.toml", "keycloak-key.toml", ADMIN_PORT=admin, FOLDER=stage.folder, NAME="keycloak-key", PORT=port, TLS="",
        KEYS=keys, ORIGINS=json.dumps(origin), REFRESH=f"{REFRESH_S}s", SESSIONS="", PROVIDERS=provider,
        ECHO_PORT=stage.port("echo"), MORE="",
    )  # fmt: skip
    stage.serve("keycloak-key", configuration, port, admin)
    return origin


def run(keycloak: Keycloak, stage: Stage, report: Report, realm: str) -> None:
    """Runs all checks, in a realm with a user `bob`."""
    visitor = FormBrowser()

    def user() -> str | None:
        visitor.open(f"{origin}/reports")
        return {name.lower(): value for name, value in json.loads(visitor.text)["headers"]}.get("x-forwarded-user")

    with report.check("keycloak-login: login with private_key_jwt"):
        origin = _configure(stage, keycloak, realm)
        visitor.open(f"{origin}/reports")
        visitor.type("bob", "Username or email")
        visitor.type("password of bob", "Password")
        visitor.press("Sign In")
        equal("page", visitor.url, f"{origin}/reports")
        equal("user", user(), "bob")
    with report.check("keycloak-login: a refresh with private_key_jwt"):
        time.sleep(REFRESH_S + 0.5)
        equal("user", user(), "bob")
        metrics = get(f"http://127.0.0.1:{stage.port('keycloak-key-admin')}/metrics")[1].decode()
        expect('postern_session_renewals_total{result="good"} 1\n' in metrics, "no session was renewed")
    with report.check("keycloak-login: a sign-out with private_key_jwt revokes the tokens"):
        visitor.open(f"{origin}/oauth2/sign_out")
        visitor.sees("You are signed out")
        log = (stage.folder / "keycloak-key.log").read_text()
        expect("WARN" not in log, f"the gateway complains: {log[-300:]}")
