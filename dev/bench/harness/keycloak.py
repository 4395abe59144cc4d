"""Keycloak as a subject: production mode, one realm with the users and clients of the run.

Owns: its build, its start, its realm, and the proof that passwords cost what they should. It runs as it is shipped, but
for what the notes of the subject say.
"""

from __future__ import annotations

import json
import secrets
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from .process import Server, Unready, free_port
from .providers import ARGON2_ITERATIONS, ARGON2_KIB, ARGON2_LANES, REDIRECT_URI, Running, Setting, describe

REALM = "bench"
READY_S = 120
# Clear of the runs: a token that expires under load would be counted as a fault.
TOKEN_S = 3600


class Admin:
    """Keycloak's administration over REST."""

    def __init__(self, origin: str, name: str, password: str) -> None:
        self.origin, self.name, self.password, self.token = origin, name, password, ""

    def sign_in(self) -> None:
        """Gets an access token; Unready when there is none."""
        form = {"grant_type": "password", "client_id": "admin-cli", "username": self.name, "password": self.password}
        data = urllib.parse.urlencode(form).encode()
        answer = self._send("POST", "/realms/master/protocol/openid-connect/token", data, "application/x-www-form-urlencoded")
        self.token = answer["access_token"]

    def post(self, path: str, document: dict) -> None:
        """Creates something."""
        self._send("POST", path, json.dumps(document).encode(), "application/json")

    def get(self, path: str):
        """Reads something."""
        return self._send("GET", path)

    def _send(self, method: str, path: str, data: bytes | None = None, kind: str | None = None):
        headers = {"accept": "application/json"}
        if kind:
            headers["content-type"] = kind
        if self.token:
            headers["authorization"] = f"Bearer {self.token}"
        request = urllib.request.Request(self.origin + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=300) as answer:
                body = answer.read()
        except urllib.error.HTTPError as refused:
            text = refused.read().decode(errors="replace")[:300]
            raise Unready(f"keycloak answers {refused.code} to {method} {path}: {text}") from refused
        return json.loads(body) if body else None


def _home(setting: Setting) -> Path:
    """A copy of Keycloak built for production with that database; made once, with a fresh data folder each time."""
    source = setting.root / ".cache/keycloak"
    if not (source / "bin/kc.sh").exists():
        raise Unready(f"{source} is not there; run dev/setup keycloak")
    version = (source / "version").read_text().strip()
    home = setting.root / f".cache/keycloak-bench-{setting.database}"
    stamp = home / "built"
    if not stamp.exists() or stamp.read_text() != version:
        shutil.rmtree(home, ignore_errors=True)
        shutil.copytree(source, home, ignore=shutil.ignore_patterns("data"))
        vendor = "postgres" if setting.database == "postgres" else "dev-file"
        command = [str(home / "bin/kc.sh"), "build", f"--db={vendor}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode:
            raise Unready(f"kc.sh build ended with {done.returncode}: {(done.stdout + done.stderr).strip()[-300:]}")
        stamp.write_text(version)
    shutil.rmtree(home / "data", ignore_errors=True)
    return home


def _postgres(setting: Setting) -> dict[str, str]:
    """The environment that points Keycloak to an empty database on the server of the run."""
    url = urllib.parse.urlsplit(setting.postgres or "")
    name = "keycloak_bench"
    for statement in (f"DROP DATABASE IF EXISTS {name}", f"CREATE DATABASE {name}"):
        done = subprocess.run(["psql", "-q", setting.postgres or "", "-c", statement], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unready(f"psql cannot prepare a database: {done.stderr.strip()}")
    return {
        "KC_DB_URL": f"jdbc:postgresql://{url.hostname}:{url.port}/{name}",
        "KC_DB_USERNAME": url.username or "",
        "KC_DB_PASSWORD": url.password or "none",
    }


def _realm(setting: Setting) -> dict:
    def client(name: str, **more) -> dict:
        return {"clientId": name, "secret": setting.secret, "enabled": True, "protocol": "openid-connect",
                "publicClient": False, "clientAuthenticatorType": "client-secret", **more}  # fmt: skip

    numbers = range(1, setting.clients + 1)
    back = [client(f"bench{n}", directAccessGrantsEnabled=True, serviceAccountsEnabled=True, standardFlowEnabled=False)
            for n in numbers]  # fmt: skip
    # A client that asks for consent may not use the password grant in Keycloak, hence clients of two kinds.
    code = [client(f"code{n}", standardFlowEnabled=True, consentRequired=True, redirectUris=[REDIRECT_URI]) for n in numbers]
    users = [{"username": setting.user(n), "enabled": True, "email": f"user{n}@bench.test", "emailVerified": True,
              "firstName": "User", "lastName": f"Number{n}",
              "credentials": [{"type": "password", "value": setting.password, "temporary": False}]}
             for n in range(1, setting.users + 1)]  # fmt: skip
    return {
        "realm": REALM, "enabled": True, "sslRequired": "none", "bruteForceProtected": False,
        "passwordPolicy": "hashAlgorithm(argon2)", "accessTokenLifespan": TOKEN_S, "defaultSignatureAlgorithm": "ES256",
        "ssoSessionIdleTimeout": 10 * TOKEN_S, "ssoSessionMaxLifespan": 10 * TOKEN_S,
        "revokeRefreshToken": True, "refreshTokenMaxReuse": 0,
        "clients": back + code, "users": users,
    }  # fmt: skip


def _stored_cost(admin: Admin, setting: Setting) -> str:
    """What the password of a user really costs, from the stored credential; Unready when that is not the agreed cost."""
    name = urllib.parse.quote(setting.user(1))
    found = admin.get(f"/admin/realms/{REALM}/users?username={name}&exact=true")
    credentials = admin.get(f"/admin/realms/{REALM}/users/{found[0]['id']}/credentials")
    data = json.loads(next(had for had in credentials if had["type"] == "password")["credentialData"])
    more = {key: values[0] for key, values in data.get("additionalParameters", {}).items()}
    seen = (data["algorithm"], more.get("type"), data["hashIterations"], int(more.get("memory", 0)), int(more.get("parallelism", 0)))
    if seen != ("argon2", "id", ARGON2_ITERATIONS, ARGON2_KIB, ARGON2_LANES):
        raise Unready(f"keycloak stores passwords with {seen}: the comparison would not be fair")
    return f"stored credential: argon2{more['type']}, {seen[2]} iterations, {seen[3]} KiB, parallelism {seen[4]}"


def start(setting: Setting) -> Running:
    """Starts Keycloak and fills its realm."""
    home = _home(setting)
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    administrator = secrets.token_urlsafe(18)
    environment = {"KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": administrator}
    if setting.database == "postgres":
        environment |= _postgres(setting)
    command = [str(home / "bin/kc.sh"), "start", "--optimized", "--http-enabled=true", "--hostname-strict=false",
               "--cache=local", "--http-host=127.0.0.1",
               f"--http-port={port}", "--log-level=warn"]  # fmt: skip
    server = Server("keycloak", command, port, setting.folder / "keycloak.log", environment=environment)
    server.spawn()
    try:
        admin = _await(server, Admin(origin, "admin", administrator))
        admin.post("/admin/realms", _realm(setting))
        # The import may outlast the token.
        admin.sign_in()
        cost = _stored_cost(admin, setting)
    except BaseException:
        server.stop()
        raise
    below = f"/realms/{REALM}/protocol/openid-connect"
    endpoints = {"token": f"{below}/token", "authorize": f"{below}/auth", "revoke": f"{below}/revoke",
                 "introspect": f"{below}/token/introspect"}  # fmt: skip
    numbers = range(1, setting.clients + 1)
    # The consent button of the current theme has no value.
    description = describe(
        setting, "keycloak", origin, endpoints=endpoints, clients=[f"bench{n}" for n in numbers],
        code_clients=[f"code{n}" for n in numbers], consent=("accept", ""),
    )  # fmt: skip
    database = "PostgreSQL" if setting.database == "postgres" else "H2 in a file (`dev-file`)"
    return Running(server, description, [
        f"production mode (`kc.sh build`, `start --optimized`), {database}, local caches, heap as shipped",
        cost,
        "brute force detection off, refresh tokens rotate (`revokeRefreshToken`), tokens are signed with ES256",
    ])  # fmt: skip


def _await(server: Server, admin: Admin) -> Admin:
    deadline = time.monotonic() + READY_S
    last = "nothing"
    while time.monotonic() < deadline:
        server.check_alive()
        try:
            admin.sign_in()
            return admin
        except (OSError, Unready) as problem:
            last = str(problem)
            time.sleep(0.25)
    raise Unready(f"keycloak is not ready within {READY_S} s ({last}): {server.last_words()}")
