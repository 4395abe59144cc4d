"""A real Keycloak, and a realm whose tokens a gateway accepts."""

from __future__ import annotations

import base64
import json
import secrets
import signal
import time
from collections.abc import Callable

from .process import Server
from .administration import Administration
from .report import Skip, expect
from .stage import KEYCLOAK, Stage, get, program, wait_for

READY_S = 240
REALM = "shop"
AUDIENCE = "orders"
ROLE = "order-managers"
ALGORITHMS = ["RS256", "PS256", "RS512", "ES256", "ES512", "EdDSA"]


class Keycloak(Administration):
    """The Keycloak server."""

    def __init__(self, stage: Stage, address: str = "127.0.0.1") -> None:
        super().__init__(f"http://{address}:{stage.port('keycloak')}", secrets.token_urlsafe(16))
        self._address = address
        self.issuer = f"{self.base}/realms/{REALM}"
        self.server: Server | None = None

    def spawn(self, stage: Stage) -> None:
        """Starts it without waiting; the start takes about a minute."""
        if not (KEYCLOAK / "bin/kc.sh").exists():
            raise Skip("Keycloak is not there; run dev/setup keycloak (its log: .cache/logs/setup-keycloak.log)")
        program("java")
        port, management = stage.port("keycloak"), stage.port("keycloak-management")
        command = [
            str(KEYCLOAK / "bin/kc.sh"), "start-dev", "--db=dev-mem", f"--http-host={self._address}", f"--http-port={port}",
            f"--http-management-port={management}", f"--hostname={self.base}", "--cache=local", "--log-level=warn",
        ]  # fmt: skip
        environment = {
            "KC_BOOTSTRAP_ADMIN_USERNAME": "admin",
            "KC_BOOTSTRAP_ADMIN_PASSWORD": self.password,
            # It runs for a few minutes beside everything else: start faster, optimise less.
            "JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1 -Xmx700m",
        }
        self.server = stage.server("keycloak", command, port, environment).spawn()

    def await_ready(self) -> None:
        """Waits until it answers."""
        assert self.server is not None
        wait_for(self.server, f"{self.base}/realms/master/.well-known/openid-configuration", READY_S)


def _mapper(in_id_token: bool) -> dict:
    return {
        "name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
        "config": {"included.custom.audience": AUDIENCE, "access.token.claim": "true", "id.token.claim": str(in_id_token).lower()},
    }  # fmt: skip


def _client(name: str, *mappers: dict, algorithm: str = "RS256") -> dict:
    return {
        "clientId": name, "secret": f"secret of {name}", "publicClient": False, "standardFlowEnabled": False,
        "serviceAccountsEnabled": True, "directAccessGrantsEnabled": True, "protocolMappers": list(mappers),
        "attributes": {"access.token.signed.response.alg": algorithm},
    }  # fmt: skip


def _user(name: str, *roles: str) -> dict:
    return {
        "username": name, "enabled": True, "email": f"{name}@example.test", "emailVerified": True,
        "firstName": name.title(), "lastName": "Example", "realmRoles": list(roles),
        "credentials": [{"type": "password", "value": f"password of {name}", "temporary": False}],
    }  # fmt: skip


class Shop:
    """The realm, its tokens, and the gateway that accepts them."""

    def __init__(self, keycloak: Keycloak, stage: Stage) -> None:
        self._keycloak, self._stage = keycloak, stage
        self.gateway: Server | None = None

    def create_realm(self, *more: dict) -> None:
        """Creates realm, role, clients and users in one request, with further clients."""
        robot = _user("service-account-robot", ROLE) | {"serviceAccountClientId": "robot", "credentials": []}
        clients = [
            _client("robot", _mapper(in_id_token=False)),
            _client("talkative", _mapper(in_id_token=True)),
            _client("stray"),
            *more,
            *(_client(f"robot-{name}", _mapper(in_id_token=False), algorithm=name) for name in ALGORITHMS),
        ]
        self._keycloak.admin("POST", "", {
            "realm": REALM, "enabled": True, "accessTokenLifespan": 1800, "roles": {"realm": [{"name": ROLE}]},
            "clients": clients, "users": [_user("alice", ROLE), _user("bob"), robot],
        })  # fmt: skip

    def robot(self, client: str = "robot") -> str:
        """Returns a new token of a client (client credentials)."""
        answer = self._keycloak.tokens(
            REALM, grant_type="client_credentials", client_id=client, client_secret=f"secret of {client}"
        )
        return answer["access_token"]

    def person(self, user: str, client: str = "robot") -> dict:
        """Returns the tokens of a user."""
        return self._keycloak.tokens(
            REALM, grant_type="password", scope="openid", client_id=client, client_secret=f"secret of {client}",
            username=user, password=f"password of {user}",
        )  # fmt: skip

    def configure(self, refresh: str) -> str:
        """Writes the gateway's configuration."""
        ports = {f"{n.upper()}_PORT": self._stage.port(p) for n, p in
                 (("admin", "keycloak-admin"), ("plain", "keycloak-plain"), ("echo", "echo"))}  # fmt: skip
        path = self._stage.configuration(
            "keycloak.toml", FOLDER=self._stage.folder, ISSUER=self._keycloak.issuer, REFRESH=refresh, **ports
        )
        return str(path)

    def start_gateway(self) -> None:
        """Starts the gateway, which finds Keycloak's keys by discovery."""
        self.configure("5m")
        self.gateway = self._stage.serve(
            "keycloak-gateway", self._stage.folder / "keycloak.toml",
            self._stage.port("keycloak-plain"), self._stage.port("keycloak-admin"),
        )  # fmt: skip

    def ask(self, token: str, path: str = "/orders/1") -> tuple[int, dict]:
        """Returns the status, and what arrived at the upstream."""
        url = f"http://127.0.0.1:{self._stage.port('keycloak-plain')}{path}"
        status, body = get(url, {"Authorization": f"Bearer {token}"})
        return status, json.loads(body) if body else {}

    def reload(self, refresh: str) -> None:
        """Applies another configuration by SIGHUP, and waits until it is applied."""
        before = self.reloads()
        self.configure(refresh)
        self.gateway.process.send_signal(signal.SIGHUP)
        await_until(lambda: self.reloads() > before, 10, lambda: "the configuration was not applied")

    def reloads(self) -> int:
        """Number of configurations applied so far."""
        _, body = get(f"http://127.0.0.1:{self._stage.port('keycloak-admin')}/metrics")
        lines = [line for line in body.decode().splitlines() if line.startswith("postern_config_reloads_total")]
        return sum(int(float(line.split()[-1])) for line in lines if 'result="success"' in line)


def header(token: str) -> dict:
    """A token's header, unverified."""
    part = token.split(".")[0]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def await_until(holds: Callable[[], bool], seconds: float, found: Callable[[], str]) -> float:
    """Waits until a condition holds. Returns how long that took."""
    began = time.monotonic()
    while not holds():
        expect(time.monotonic() - began < seconds, f"{found()} after {seconds:g} s")
        time.sleep(0.25)
    return time.monotonic() - began
