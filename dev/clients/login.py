"""Users who log in at the gateway with Chromium: at Keycloak, at Postern's own provider, behind
other proxies."""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import shutil
from dataclasses import dataclass
from pathlib import Path

from . import keycloak_key
from .foreign import PROGRAMS, run_program
from .keycloak import Keycloak
from .provider import PASSWORD, PEOPLE, move_in
from .report import Report, Skip
from .stage import CACHE, ROOT, Stage, program, target, venv_python

REALM = "people"
# The checks mostly wait for session refreshes.
TIMEOUT_S = 300
# The shortest refresh interval that leaves time for the checks between two refreshes.
REFRESH_S = 8
GROUPS_OF_THE_HOARDER = [f"archive-{number:03}-{'x' * 30}" for number in range(120)]


@dataclass
class Gateway:
    """A gateway with a browser login."""

    stage: Stage
    name: str
    tls: bool = False
    # The proxies in front of it, by the names of their ports. Empty: browsers connect directly.
    fronts: tuple[str, ...] = ()

    @property
    def port(self) -> int:
        """Port for browsers."""
        return self.stage.port(self.name)

    @property
    def admin(self) -> int:
        """Port of the admin listener."""
        return self.stage.port(f"{self.name}-admin")

    @property
    def issuer(self) -> str:
        """Issuer of the provider in its process."""
        return f"http://127.0.0.1:{self.stage.port(f'{self.name}-provider')}"

    @property
    def origins(self) -> list[str]:
        """Origins as browsers spell them. Two of them, because cookies of one do not count for the
        other."""
        if self.fronts:
            return [f"http://127.0.0.1:{self.stage.port(front)}" for front in self.fronts]
        hosts = ["localhost"] if self.tls else ["127.0.0.1", "localhost"]
        return [f"http{'s' * self.tls}://{host}:{self.port}" for host in hosts]

    def secret_file(self, what: str, text: str) -> Path:
        """Writes a file beside it that no other user may read."""
        path = self.stage.folder / f"{self.name}.{what}"
        path.touch(mode=0o600)
        path.write_text(text)
        return path

    def new_keys(self) -> Path:
        """Writes a new key for its cookies."""
        return self.secret_file("keys", base64.b64encode(secrets.token_bytes(32)).decode())

    def configure(self, providers: str, *, stored: bool, more: str = "", listeners: str = "") -> Path:
        """Writes its configuration. Sessions are in a separate database, or in cookies. Other
        proxies query `listeners`."""
        stage = self.stage
        keys = self.new_keys()
        database = f'database = "sqlite://{stage.folder}/{self.name}.db?mode=rwc"' if stored else ""
        tls = f'tls = {{ certificate = "{stage.certificate}", key = "{stage.key}" }}' if self.tls else ""
        return stage.configuration(
            "login-asked.toml" if listeners else "login.toml", f"{self.name}.toml", LISTENERS=listeners,
            ADMIN_PORT=self.admin, FOLDER=stage.folder, NAME=self.name, PORT=self.port, TLS=tls, KEYS=keys,
            ORIGINS=", ".join(map(json.dumps, self.origins)), REFRESH=f"{REFRESH_S}s", SESSIONS=database,
            PROVIDERS=providers, ECHO_PORT=stage.port("echo"), MORE=more,
        )  # fmt: skip

    def serve(self, configuration: Path) -> None:
        """Starts it."""
        self.stage.serve(self.name, configuration, self.port, self.admin)

    def told(self) -> dict[str, object]:
        """What a client program must know about it."""
        return {"name": self.name, "origins": self.origins, "admin": self.admin}


def _start_service(stage: Stage) -> None:
    """Starts the service behind all gateways, once."""
    if not any(server.name == "echo" for server in stage.servers):
        stage.start_echo()


def environment(stage: Stage, gateways: list[Gateway], issuer: str) -> dict[str, str]:
    """Settings of the programs with a browser."""
    return {
        "CLIENTS_ISSUER": issuer, "CLIENTS_APP": gateways[0].origins[0],
        "CLIENTS_GATEWAYS": json.dumps([gateway.told() for gateway in gateways]),
        "CLIENTS_CHROMIUM": program("chromium"), "CLIENTS_SCREENS": str(target() / "tmp/screens"),
        "TMPDIR": str(stage.folder), "PYTHONPATH": str(ROOT / "dev"),
        "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
    }  # fmt: skip


def run_keycloak_login(keycloak: Keycloak, stage: Stage, report: Report) -> None:
    """Keycloak is the provider. Sessions are in cookies at one gateway, in SQLite at another."""
    if keycloak.server is None:
        raise Skip("Keycloak did not start")
    python = venv_python("playwright", "axe_playwright_python")
    keycloak.await_ready()
    carried, kept = Gateway(stage, "login-cookie"), Gateway(stage, "login-database")
    create_people(keycloak, [carried, kept])
    _start_service(stage)
    for gateway, stored in ((carried, False), (kept, True)):
        gateway.serve(gateway.configure(keycloak_provider(keycloak, gateway), stored=stored))
    settings = environment(stage, [carried, kept], f"{keycloak.base}/realms/{REALM}") | {
        "CLIENTS_KEYCLOAK": keycloak.base, "CLIENTS_KEYCLOAK_PASSWORD": keycloak.password, "CLIENTS_REALM": REALM,
        "CLIENTS_REFRESH_S": str(REFRESH_S), "CLIENTS_HOARDED": str(len(GROUPS_OF_THE_HOARDER)),
    }  # fmt: skip
    command = [python, str(PROGRAMS / "keycloak_login.py")]
    run_program("keycloak-login", command, stage, report, settings, timeout=TIMEOUT_S)
    keycloak_key.run(keycloak, stage, report, REALM)


def keycloak_provider(keycloak: Keycloak, gateway: Gateway) -> str:
    """The gateway's provider section."""
    secret = gateway.secret_file("secret", f"secret of {gateway.name}\n")
    return (
        f'[[login.provider]]\nname = "house"\ntitle = "Keycloak"\nurl = "{keycloak.base}/realms/{REALM}"\n'
        f'client_id = "{gateway.name}"\nclient_secret_file = "{secret}"\n'
    )


def create_people(keycloak: Keycloak, gateways: list[Gateway]) -> None:
    """A realm in which each refresh token is valid once, with a client for each gateway."""
    keycloak.admin("POST", "", {
        "realm": REALM, "enabled": True, "accessTokenLifespan": 60, "revokeRefreshToken": True,
        "refreshTokenMaxReuse": 0, "eventsEnabled": True, "enabledEventTypes": ["REFRESH_TOKEN", "REFRESH_TOKEN_ERROR"],
        "groups": [{"name": name} for name in ("managers", "staff", *GROUPS_OF_THE_HOARDER)],
        "clients": [_client(gateway) for gateway in gateways],
        "users": [_person("alice", "managers", "staff"), _person("bob"), _person("hoarder", *GROUPS_OF_THE_HOARDER)],
    })  # fmt: skip


def _client(gateway: Gateway) -> dict:
    back = [f"{origin}/oauth2/signed_out" for origin in gateway.origins]
    mapper = {
        "name": "groups", "protocol": "openid-connect", "protocolMapper": "oidc-group-membership-mapper",
        "config": {
            "claim.name": "groups", "full.path": "false", "id.token.claim": "true", "access.token.claim": "false",
        },
    }  # fmt: skip
    return {
        "clientId": gateway.name, "secret": f"secret of {gateway.name}", "publicClient": False,
        "redirectUris": [f"{origin}/oauth2/callback" for origin in gateway.origins],
        "protocolMappers": [mapper],
        "attributes": {
            "post.logout.redirect.uris": "##".join(back), "pkce.code.challenge.method": "S256",
            "backchannel.logout.url": f"{gateway.origins[0]}/oauth2/backchannel_logout",
            "backchannel.logout.session.required": "true",
        },
    }  # fmt: skip


def _person(name: str, *groups: str) -> dict:
    return {
        "username": name, "enabled": True, "email": f"{name}@example.test", "emailVerified": True,
        "firstName": name.title(), "lastName": "Example", "groups": list(groups),
        "credentials": [{"type": "password", "value": f"password of {name}", "temporary": False}],
    }  # fmt: skip


def run_login(stage: Stage, report: Report) -> None:
    """Postern's own provider, in a gateway's process and beside one with TLS; and every page of the
    login."""
    python = venv_python("playwright", "axe_playwright_python", "requests")
    house, choice = Gateway(stage, "login-house"), Gateway(stage, "login-choice", tls=True)
    issuer = house.issuer
    _start_service(stage)
    at_house, at_choice = _house(house, issuer), _house(choice, issuer)
    more = _gone(stage) + _provider(house, [house, choice])
    configuration = house.configure(at_house, stored=True, more=more)
    for name, full in PEOPLE.items():
        move_in(stage, configuration, name, full)
    house.serve(configuration)
    # Nothing listens there.
    partner = (
        f'[[login.provider]]\nname = "partner"\ntitle = "Our partner\'s account"\nclient_id = "postern"\n'
        f'url = "http://127.0.0.1:{stage.port("login-partner")}"\n'
    )
    choice.serve(choice.configure(at_choice + partner, stored=False))
    settings = environment(stage, [house, choice], issuer) | {
        "CLIENTS_PASSWORD": PASSWORD, "CLIENTS_POSTERN": str(stage.postern),
        "CLIENTS_CONFIGURATION": str(configuration),
    }  # fmt: skip
    run_program("login", [python, str(PROGRAMS / "own_login.py")], stage, report, settings)
    print(f"      screenshots: {settings['CLIENTS_SCREENS']}", flush=True)


def _provider(home: Gateway, gateways: list[Gateway]) -> str:
    """The provider section for the process of `home`."""
    clients = "".join(_registered(gateway) for gateway in gateways)
    return f"""
[provider]
issuer = "{home.issuer}"
address = "{home.issuer.removeprefix('http://')}"
database = "sqlite://{home.stage.folder}/{home.name}-provider.db?mode=rwc"

[provider.passwords]
memory = "7MiB"
iterations = 5

[pages.brand]
name = "Example Works"
colour = "#7a1f5c"
{clients}"""


def _gone(stage: Stage) -> str:
    """A route to a service that does not run."""
    return f"""
[[upstream]]
name = "gone"
endpoints = ["http://127.0.0.1:{stage.port('login-gone')}"]

[[route]]
name = "gone"
hosts = ["127.0.0.1", "localhost"]
path = {{ prefix = "/gone" }}
upstream = "gone"
public = true
"""


def _house(gateway: Gateway, issuer: str) -> str:
    secret = gateway.secret_file("secret", secrets.token_urlsafe(32))
    return (
        f'[[login.provider]]\nname = "house"\ntitle = "Example Works"\nurl = "{issuer}"\nclient_id = "{gateway.name}"\n'
        f'client_secret_file = "{secret}"\nscopes = ["openid", "profile", "email", "groups"]\n'
    )


def _registered(gateway: Gateway) -> str:
    """The gateway as a client of the provider. The provider can only reach gateways whose
    certificate it trusts."""
    back, out = (json.dumps([f"{at}/oauth2/{name}" for at in gateway.origins]) for name in ("callback", "signed_out"))
    # A gateway with several origins is notified once, for all of them.
    told = "" if gateway.tls else f'backchannel_logout_uri = "{gateway.origins[0]}/oauth2/backchannel_logout"\n'
    return (
        f'\n[[provider.client]]\nid = "{gateway.name}"\nname = "Notebooks"\n'
        f'secret_files = ["{gateway.stage.folder}/{gateway.name}.secret"]\n'
        f'grants = ["authorization_code", "refresh_token"]\nredirect_uris = {back}\n'
        f'post_logout_redirect_uris = {out}\n{told}'
        f'scopes = ["openid", "profile", "email", "groups"]\nclaims_in_id_token = true\nrequires_pkce = true\n'
    )


# Ports in the documentation and the examples: the proxy's own, Postern's and the service's.
EXAMPLE_PORTS = ("8080", "9002", "9003")


def run_fronts(stage: Stage, report: Report) -> None:
    """Behind Envoy and nginx with sessions in cookies, behind Caddy in SQLite, configured as
    documented."""
    python = venv_python("requests")
    path = os.pathsep.join([str(CACHE / "bin"), os.environ.get("PATH", os.defpath), "/usr/sbin"])
    for name in ("envoy", "nginx", "caddy"):
        if shutil.which(name, path=path) is None:
            raise Skip(f"{name} is not installed; run dev/setup fronts")
    carried = Gateway(stage, "login-asked-cookie", fronts=("login-nginx", "login-envoy"))
    kept = Gateway(stage, "login-asked-database", fronts=("login-caddy",))
    issuer = carried.issuer
    _start_service(stage)
    at_carried, at_kept = _house(carried, issuer), _house(kept, issuer)
    listeners = _listener(stage, "login-nginx-asks", ', http = "x-original"') + _listener(stage, "login-envoy-asks")
    provider = _provider(carried, [carried, kept])
    configuration = carried.configure(at_carried, stored=False, more=provider, listeners=listeners)
    for name, full in PEOPLE.items():
        move_in(stage, configuration, name, full)
    stage.serve(carried.name, configuration, stage.port("login-nginx-asks"), carried.admin)
    listeners = _listener(stage, "login-caddy-asks", ', http = "x-forwarded"')
    configuration_kept = kept.configure(at_kept, stored=True, listeners=listeners)
    stage.serve(kept.name, configuration_kept, stage.port("login-caddy-asks"), kept.admin)
    _start_fronts(stage, path)
    settings = {
        "CLIENTS_ISSUER": issuer, "CLIENTS_PASSWORD": PASSWORD, "CLIENTS_REFRESH_S": str(REFRESH_S),
        "CLIENTS_FRONTS": json.dumps({name: stage.port(f"login-{name}") for name in ("nginx", "envoy", "caddy")}),
        "CLIENTS_POSTERN": str(stage.postern), "CLIENTS_CONFIGURATION": str(configuration),
    }  # fmt: skip
    run_program("login-fronts", [python, str(PROGRAMS / "login_fronts.py")], stage, report, settings)


def _listener(stage: Stage, name: str, http: str = "") -> str:
    return (
        f'[[listener]]\nname = "{name}"\naddress = "127.0.0.1:{stage.port(name)}"\n'
        f'authorization = {{ from = ["127.0.0.1"]{http} }}\n\n'
    )


def _start_fronts(stage: Stage, path: str) -> None:
    documentation = (ROOT / "docs/guides/login-behind-a-proxy.md").read_text()
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path run/{kind};\n" for kind in kinds)
    block = {name: re.search(rf"```{name}\n(.*?)```", documentation, re.DOTALL)[1] for name in ("nginx", "caddy")}
    texts = {
        # As root, nginx would write bodies into the run's folder as a user without access to it.
        "nginx": "daemon off;\npid run/nginx.pid;\nerror_log stderr;\n" + ("user root;\n" if os.geteuid() == 0 else "")
        + f"events {{}}\nhttp {{\naccess_log off;\n{temporary}{block['nginx']}}}\n",
        "caddy": f"{{\n\tadmin off\n\tauto_https off\n}}\n{block['caddy']}",
        "envoy": (ROOT / "examples/3x-envoy/envoy.yaml").read_text(),
    }  # fmt: skip
    commands = {
        "nginx": ["nginx", "-p", "{folder}", "-c", "{file}"],
        "caddy": ["caddy", "run", "--adapter", "caddyfile", "--config", "{file}"],
        "envoy": ["envoy", "-c", "{file}", "--concurrency", "1", "--log-level", "warning", "--disable-hot-restart"],
    }
    for name, text in texts.items():
        folder = stage.folder / f"login-{name}"
        (folder / "run").mkdir(parents=True)
        own = [stage.port(port) for port in (f"login-{name}", f"login-{name}-asks", "echo")]
        ports = dict(zip(EXAMPLE_PORTS, map(str, own), strict=True))
        file = folder / ("envoy.yaml" if name == "envoy" else name)
        file.write_text(re.sub(rf"\b({'|'.join(EXAMPLE_PORTS)})\b", lambda found, ports=ports: ports[found[1]], text))
        command = [word.format(folder=folder, file=file) for word in commands[name]]
        stage.server(f"login-{name}", command, own[0], {"PATH": path, "HOME": str(folder)}).start()
