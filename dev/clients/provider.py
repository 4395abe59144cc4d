"""Clients of Postern's own provider: OpenID client libraries, a device without a keyboard, and a
browser."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import secrets
import subprocess
import urllib.parse
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from . import documents
from .keys import Signer
from .process import Unready
from .foreign import PROGRAMS, run_program
from .report import Report
from .stage import HERE, Stage, program, target, venv_python

# No name is part of the password. Each group has its own user, so none waits because of another's
# failed logins.
PASSWORD = "plough the winter dunes"
PEOPLE = {
    "ada": "Ada Lovelace", "bob": "Bob Kahn", "carol": "Carol Shaw", "grace": "Grace Hopper",
    "edsger": "Edsger Dijkstra", "frances": "Frances Allen", "hedy": "Hedy Lamarr",
}  # fmt: skip


@dataclass
class Provider:
    """The running provider, and the application beside it."""

    environment: dict[str, str]
    issuer: str
    secret: str
    configuration: Path

    @classmethod
    def start(cls, stage: Stage) -> Provider:
        """Creates a database and accounts, and starts the provider."""
        port, admin, app, apache = (stage.port(name) for name in ("provider", "provider-admin", "shop", "apache"))
        issuer, address = f"http://127.0.0.1:{port}", f"http://localhost:{app}"
        database, secret = f"sqlite://{stage.folder}/provider.db?mode=rwc", secrets.token_urlsafe(32)
        robot = stage.folder / "robot"
        robot.mkdir()
        keys = Signer(robot, "robot-1")
        digest = hashlib.sha256(secret.encode()).hexdigest()
        documented = [
            documents.client("billing", digest, {}),
            documents.client("webshop", digest, {"https://shop.example": f"{address}/webshop"}),
            documents.client("intranet", digest, {"https://intranet.example": f"http://localhost:{apache}"}),
            documents.client("orders-api", digest, {}),
        ]
        configuration = stage.configuration(
            "provider.toml", ADMIN_PORT=admin, PORT=port, ISSUER=issuer, APP=address, DATABASE=database,
            DIGEST=digest, ROBOT_KEYS=keys.jwks, DOCUMENTED="\n".join(documented),
        )  # fmt: skip
        for name, full in PEOPLE.items():
            move_in(stage, configuration, name, full)
        stage.serve("provider", configuration, port, admin)
        return cls({
            "CLIENTS_ISSUER": issuer, "CLIENTS_APP": address, "CLIENTS_APP_PORT": str(app), "CLIENTS_SECRET": secret,
            "CLIENTS_PASSWORD": PASSWORD, "CLIENTS_ROBOT_KEY": str(keys.private), "CLIENTS_ROBOT_KEY_ID": "robot-1",
            "CLIENTS_SCREENS": str(target() / "tmp/screens"),
            # Authlib requires TLS unless it is told that this is a test.
            "AUTHLIB_INSECURE_TRANSPORT": "1",
            "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
        }, issuer, secret, configuration)  # fmt: skip

    def token(self, client: str, **form: str) -> str:
        """Returns an access token that a client with a secret gets for itself."""
        return json.loads(self._post(client, "/token", grant_type="client_credentials", **form))["access_token"]

    def revoke(self, client: str, token: str) -> None:
        """Revokes a token of a client with a secret."""
        self._post(client, "/revoke", token=token)

    def _post(self, client: str, path: str, **form: str) -> bytes:
        basic = base64.b64encode(f"{client}:{self.secret}".encode()).decode()
        data = urllib.parse.urlencode(form).encode()
        request = urllib.request.Request(self.issuer + path, data, {"Authorization": f"Basic {basic}"})
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()

    def start_app(self, stage: Stage) -> None:
        """Starts the web application, once."""
        if any(server.name == "shop" for server in stage.servers):
            return
        command = [venv_python("authlib", "flask", "requests"), str(PROGRAMS / "shop.py")]
        environment = self.environment | {"PYTHONDONTWRITEBYTECODE": "1"}
        stage.server("shop", command, stage.port("shop"), environment).start()


def move_in(stage: Stage, configuration: Path, name: str, full: str) -> None:
    """Creates an account in its own group."""
    given, family = full.split()
    claims = {"name": full, "given_name": given, "family_name": family, "locale": "en-GB"}
    told = {"password": PASSWORD, "claims.json": json.dumps(claims)}
    for file, text in told.items():
        path = stage.folder / file
        path.touch(mode=0o600)
        path.write_text(text)
    group = f"friends of {given}"
    add = ["user", "add", name, "--email", f"{name}@works.example", "--verified"]
    add += ["--claims", str(stage.folder / "claims.json"), "--password-file", str(stage.folder / "password")]
    for words in (add, ["group", "add", group], ["group", "add-member", group, name]):
        command = [str(stage.postern), "admin", "--config", str(configuration), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise Unready(f"postern admin {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[:300]}")


def run_authlib(provider: Provider, stage: Stage, report: Report) -> None:
    """Authlib as a web application with Flask, as a resource server, and as a client with a key."""
    python = venv_python("authlib", "joserfc", "flask", "requests")
    provider.start_app(stage)
    run_program("authlib", [python, str(PROGRAMS / "authlib_client.py")], stage, report, provider.environment)


def build_native(stage: Stage) -> Path:
    """Builds the programs of dev/clients/native, once."""
    native = stage.folder / "native"
    if native.exists():
        return native
    done = subprocess.run(
        [program("go"), "build", "-mod=readonly", "-o", str(native), "."], cwd=HERE / "native",
        env=os.environ | {"GOFLAGS": "", "CGO_ENABLED": "0"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        raise Unready(f"go build failed: {done.stderr.strip()[-500:]}")
    return native


def run_go_oidc(provider: Provider, stage: Stage, report: Report) -> None:
    """Go's x/oauth2 and go-oidc as a native application (RFC 8252). A script acts as the browser
    that it opens."""
    native, python = build_native(stage), venv_python("requests")
    command = [str(native), "terminal", python, str(PROGRAMS / "person.py"), "bob"]
    run_program("go-oidc", command, stage, report, provider.environment)


def run_device(provider: Provider, stage: Stage, report: Report) -> None:
    """A device without a keyboard (RFC 8628)."""
    command = [venv_python("requests"), str(PROGRAMS / "device_client.py")]
    run_program("device", command, stage, report, provider.environment)


def run_browser(provider: Provider, stage: Stage, report: Report) -> None:
    """Chromium, with accessibility rules checked on every page."""
    python, chromium = venv_python("playwright", "axe_playwright_python", "requests"), program("chromium")
    provider.start_app(stage)
    # the browser's profile is deleted with the run's folder
    environment = provider.environment | {"CLIENTS_CHROMIUM": chromium, "TMPDIR": str(stage.folder)}
    run_program("browser", [python, str(PROGRAMS / "browser_client.py")], stage, report, environment)
    print(f"      screenshots: {provider.environment['CLIENTS_SCREENS']}", flush=True)
