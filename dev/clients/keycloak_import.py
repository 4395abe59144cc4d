"""A realm of a real Keycloak, exported by its own program and imported: people log in with the
passwords they had."""

from __future__ import annotations

import base64
import json
import os
import shutil
import sqlite3
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from .keycloak import READY_S, Keycloak
from .process import Unready
from .report import Report, equal, expect
from .stage import KEYCLOAK, Stage, get, program, wait_for

REALM = "shop"
# The realm's password policy, and the people that are created under it. `None`: Keycloak's default,
# Argon2id.
ALGORITHMS = {
    "argon2id": None,
    "sha1": "hashAlgorithm(pbkdf2) and hashIterations(20000)",
    "sha256": "hashAlgorithm(pbkdf2-sha256) and hashIterations(27500)",
    "sha512": "hashAlgorithm(pbkdf2-sha512) and hashIterations(30000)",
}
TILL_SECRET = "the secret of the till"
EXPORT_S = 900


class ExportingKeycloak(Keycloak):
    """A Keycloak whose database is a file, so that its export program can read it later. It has its
    own copy of the program, because an export changes files of it."""

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self.home = stage.folder / "exporting-keycloak"

    def _options(self) -> list[str]:
        return ["--db=dev-file", f"--db-url=jdbc:h2:file:{self.home}/data/export;NON_KEYWORDS=VALUE"]

    def _environment(self) -> dict[str, str]:
        return {"JAVA_OPTS_APPEND": "-XX:TieredStopAtLevel=1 -Xmx700m"}

    def start(self, stage: Stage) -> None:
        """Starts it and waits until it answers."""
        program("java")
        shutil.copytree(KEYCLOAK, self.home, symlinks=True)
        port, management = stage.port("keycloak-export"), stage.port("keycloak-export-management")
        self.base = f"http://127.0.0.1:{port}"
        command = [
            str(self.home / "bin/kc.sh"), "start-dev", *self._options(), "--http-host=127.0.0.1", f"--http-port={port}",
            f"--http-management-port={management}", f"--hostname={self.base}", "--cache=local", "--log-level=warn",
        ]  # fmt: skip
        environment = self._environment() | {
            "KC_BOOTSTRAP_ADMIN_USERNAME": "admin", "KC_BOOTSTRAP_ADMIN_PASSWORD": self.password,
        }  # fmt: skip
        self.server = stage.server("exporting-keycloak", command, port, environment).spawn()
        wait_for(self.server, f"{self.base}/realms/master/.well-known/openid-configuration", READY_S)

    def export(self, *target: str) -> None:
        """Runs the export program; the server must have stopped."""
        command = [str(self.home / "bin/kc.sh"), "export", *self._options(), "--realm", REALM, *target]
        done = subprocess.run(
            command, env=os.environ | self._environment(), capture_output=True, text=True, timeout=EXPORT_S, check=False
        )
        if done.returncode:
            raise Unready(f"kc.sh export ended with {done.returncode}: {(done.stdout + done.stderr)[-800:]}")


def password(name: str) -> str:
    """The password of a person in Keycloak."""
    return f"Pässword of {name} 42"


def _person(name: str, **more: object) -> dict:
    return {
        "username": name, "enabled": True, "email": f"{name}@example.test", "emailVerified": True,
        "firstName": name.title(), "lastName": "Example",
        "credentials": [{"type": "password", "value": password(name), "temporary": False}],
    } | more  # fmt: skip


def _totp() -> dict:
    return {
        "type": "otp", "userLabel": "phone", "secretData": json.dumps({"value": "NZVWG2LFMRUWC3TE"}),
        "credentialData": json.dumps({"subType": "totp", "digits": 6, "counter": 0, "period": 30, "algorithm": "HmacSHA1"}),
    }  # fmt: skip


def realm() -> dict:
    """Realm, clients, roles, groups, and the people whose data Keycloak takes only with a realm."""
    clients = [
        {
            "clientId": "web", "name": "Web shop", "secret": "the secret of the web shop", "publicClient": False,
            "standardFlowEnabled": True, "directAccessGrantsEnabled": True, "consentRequired": True,
            "redirectUris": ["https://shop.example/callback", "https://shop.example/app/*"],
            "attributes": {
                "post.logout.redirect.uris": "+##https://shop.example/bye", "access.token.lifespan": "600",
                "backchannel.logout.url": "https://shop.example/logged-out", "pkce.code.challenge.method": "S256",
            },
            "protocolMappers": [
                {
                    "name": "department", "protocol": "openid-connect", "protocolMapper": "oidc-usermodel-attribute-mapper",
                    "config": {
                        "user.attribute": "department", "claim.name": "department", "jsonType.label": "String",
                        "access.token.claim": "true", "id.token.claim": "true", "userinfo.token.claim": "true",
                    },
                },
                {
                    "name": "audience", "protocol": "openid-connect", "protocolMapper": "oidc-audience-mapper",
                    "config": {"included.client.audience": "orders", "access.token.claim": "true"},
                },
            ],
        },
        {"clientId": "orders", "name": "Order service", "secret": "the secret of the order service", "standardFlowEnabled": False, "bearerOnly": False},
        {
            "clientId": "till", "secret": TILL_SECRET, "standardFlowEnabled": False, "directAccessGrantsEnabled": True,
            "fullScopeAllowed": True,
        },
        {"clientId": "spa", "publicClient": True, "redirectUris": ["http://localhost:3000/callback"]},
        {"clientId": "robot", "secret": "the secret of the robot", "standardFlowEnabled": False, "serviceAccountsEnabled": True},
    ]  # fmt: skip
    consents = [{"clientId": "web", "grantedClientScopes": ["profile", "email"]}]
    people = [
        _person("ada", attributes={"department": ["orders"], "phoneNumber": ["+44 20 7946 0000"]}, groups=["/staff/leads"], clientConsents=consents),
        _person("bob", enabled=False, realmRoles=["order-managers"]),
        _person("carol", requiredActions=["UPDATE_PASSWORD"], clientRoles={"orders": ["view"]}),
        _person("dora", credentials=[{"type": "password", "value": password("dora"), "temporary": False}, _totp()]),
        {"username": "service-account-robot", "enabled": True, "serviceAccountClientId": "robot", "realmRoles": ["order-managers"]},
    ]  # fmt: skip
    return {
        "realm": REALM, "displayName": "The Shop", "enabled": True, "accessTokenLifespan": 300, "ssoSessionIdleTimeout": 1800,
        "ssoSessionMaxLifespan": 36000, "bruteForceProtected": True, "failureFactor": 7,
        "roles": {
            "realm": [
                {"name": "order-managers", "description": "may change every order"},
                {"name": "lead", "composite": True, "composites": {"realm": ["order-managers"], "client": {"orders": ["approve"]}}},
            ],
            "client": {"orders": [{"name": "approve"}, {"name": "view"}]},
        },
        "groups": [{"name": "staff", "clientRoles": {"orders": ["view"]}, "subGroups": [{"name": "leads", "realmRoles": ["lead"]}]}],
        "clients": clients, "users": people,
    }  # fmt: skip


def populate(keycloak: ExportingKeycloak) -> list[str]:
    """Creates the realm, and a person for each algorithm. Returns the names of those who log in."""
    keycloak.admin("POST", "", realm())
    names = ["ada", "carol"]
    for name, policy in ALGORITHMS.items():
        settings = keycloak.admin("GET", f"/{REALM}")
        keycloak.admin("PUT", f"/{REALM}", settings | {"passwordPolicy": policy or ""})
        keycloak.admin("POST", f"/{REALM}/users", _person(name))
        names.append(name)
    return names


class Imported:
    """The realm as a provider of Postern: its configuration, its database, its tokens."""

    def __init__(self, stage: Stage, export: Path) -> None:
        self._stage, self._export = stage, export
        self.base = f"http://127.0.0.1:{stage.port('imported')}"
        self.database = stage.folder / "imported.db"
        self.folder = stage.folder / "imported"

    @property
    def configuration(self) -> Path:
        return self.folder / "postern.toml"

    def postern(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Runs a command of Postern."""
        command = [str(self._stage.postern), *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def translate(self) -> None:
        """Writes the configuration, and sets what an export does not know: addresses."""
        done = self.postern(
            "migrate", "keycloak", str(self._export), "--out", str(self.folder), "--issuer", self.base,
            "--database", f"sqlite://{self.database}?mode=rwc",
        )  # fmt: skip
        expect(done.returncode == 0, f"migrate ended with {done.returncode}: {done.stderr}")
        address = f'address = "127.0.0.1:{self._stage.port("imported")}"'
        text = self.configuration.read_text().replace("[provider]\n", f"[provider]\n{address}\n", 1)
        self.configuration.write_text(f'{text}\n[admin]\naddress = "127.0.0.1:{self._stage.port("imported-admin")}"\n')
        checked = self.postern("check", str(self.configuration))
        expect(checked.returncode == 0, f"check ended with {checked.returncode}: {checked.stdout}{checked.stderr}")

    def move_in(self, *flags: str, code: int = 0) -> str:
        """Imports the people. Returns what was printed."""
        done = self.postern("migrate", "keycloak", str(self._export), "--import", "--config", str(self.configuration), *flags)
        printed = done.stdout + done.stderr
        equal(f"exit code ({printed[-400:]})", done.returncode, code)
        return printed

    def accounts(self) -> list[tuple]:
        """Names and password hashes in the database."""
        with sqlite3.connect(f"file:{self.database}?mode=ro", uri=True) as connection:
            return connection.execute("SELECT name, password FROM users ORDER BY name").fetchall()

    def log_in(self, name: str, typed: str) -> tuple[int, dict]:
        """Logs a person in by the client of the till. Returns the status and the response."""
        form = {
            "grant_type": "password", "client_id": "till", "client_secret": TILL_SECRET, "scope": "openid profile email",
            "username": name, "password": typed,
        }  # fmt: skip
        status, body = get(f"{self.base}/.well-known/openid-configuration")
        equal("status of the discovery", status, 200)
        request = urllib.request.Request(json.loads(body)["token_endpoint"], data=urllib.parse.urlencode(form).encode())
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)


def claims(token: str) -> dict:
    """The claims of a token, unverified."""
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def _shape(found: dict) -> dict:
    """What an application sees of a person: `sub` and the roles, without Keycloak's own."""
    realm_roles = {role for role in found.get("realm_access", {}).get("roles", []) if not role.startswith("default-roles-")}
    access = {client: set(held["roles"]) for client, held in found.get("resource_access", {}).items() if held["roles"]}
    access.pop("account", None)
    return {"sub": found["sub"], "realm": realm_roles - {"offline_access", "uma_authorization"}, "access": access}


def run(stage: Stage, report: Report) -> None:
    """Runs all checks: a real Keycloak is filled, exported and stopped; then its realm is imported."""
    keycloak = ExportingKeycloak(stage)
    keycloak.start(stage)
    names = populate(keycloak)
    before = {
        name: _shape(claims(keycloak.tokens(
            REALM, grant_type="password", client_id="till", client_secret=TILL_SECRET, scope="openid",
            username=name, password=password(name),
        )["access_token"]))
        for name in names if name != "carol"
    }  # fmt: skip
    masked = stage.folder / "partial.json"
    exported = keycloak.admin("POST", f"/{REALM}/partial-export?exportClients=true&exportGroupsAndRoles=true")
    masked.write_text(json.dumps(exported))
    keycloak.server.stop()
    folder, file = stage.folder / "export", stage.folder / "realm.json"
    keycloak.export("--dir", str(folder), "--users", "different_files", "--users-per-file", "3")
    keycloak.export("--file", str(file))
    shutil.rmtree(keycloak.home)

    imported = Imported(stage, folder)
    with report.check("keycloak-import: the realm becomes a configuration that `check` accepts"):
        imported.translate()
    with report.check("keycloak-import: one file and a folder give the same configuration"):
        done = imported.postern(
            "migrate", "keycloak", str(file), "--out", str(stage.folder / "of-file"), "--issuer", imported.base,
            "--database", f"sqlite://{imported.database}?mode=rwc",
        )  # fmt: skip
        equal(f"exit code ({done.stderr})", done.returncode, 0)
        mine = [(path / "migration.md").read_text() for path in (stage.folder / "of-file", imported.folder)]
        equal("report", mine[0], mine[1])
    with report.check("keycloak-import: an export of the console says that it has no people and no secrets"):
        done = imported.postern("migrate", "keycloak", str(masked), "--out", str(stage.folder / "of-masked"))
        equal("exit code", done.returncode, 0)
        expect("the export has no people" in done.stdout and "stars in place of secrets" in done.stdout, done.stdout)
        done = imported.postern("migrate", "keycloak", str(masked), "--import", "--config", str(imported.configuration))
        expect(done.returncode == 3 and "the export has no people" in done.stderr, f"{done.returncode}: {done.stderr}")
    with report.check("keycloak-import: a dry run counts and writes nothing"):
        printed = imported.move_in("--dry-run")
        expect("nothing was written" in printed and f"{len(names) + 2} people ({len(names) + 2} with a password, 2 disabled)" in printed, printed)
        equal("accounts", imported.accounts(), [])
    with report.check("keycloak-import: the import names who is locked, and a second one is refused as a whole"):
        printed = imported.move_in()
        expect("second factor" in printed and "dora" in printed, printed)
        equal("accounts", [name for name, _ in imported.accounts()], sorted([*names, "bob", "dora"]))
        expect("conflict" in imported.move_in(code=1), "no conflict is named")
    stage.serve("imported", imported.configuration, stage.port("imported"), stage.port("imported-admin"))
    # Whoever must choose a new password does so in a browser.
    people = [name for name in names if name != "carol"]
    for name in people:
        with report.check(f"keycloak-import: {name} logs in with the old password, twice, and a wrong one is refused"):
            equal("status of a wrong one", imported.log_in(name, password(name) + "3")[0], 400)
            statuses = [imported.log_in(name, password(name))[0] for _ in range(2)]
            equal("statuses", statuses, [200, 200])
    with report.check("keycloak-import: each login replaced the hash"):
        schemes = {name: phc.split("$")[1:4] for name, phc in imported.accounts()}
        equal("hashes", {name: schemes[name] for name in people}, dict.fromkeys(people, ["argon2id", "v=19", "m=19456,t=2,p=1"]))
        equal("dora's", schemes["dora"], ["argon2id", "v=19", "m=7168,t=5,p=1"])
    with report.check("keycloak-import: an access token has the `sub` and the roles that Keycloak's had"):
        for name, shape in before.items():
            equal(name, _shape(claims(imported.log_in(name, password(name))[1]["access_token"])), shape)
    with report.check("keycloak-import: carol must choose a new password, as in Keycloak"):
        status, answer = imported.log_in("carol", password("carol"))
        equal("status", status, 400)
        expect("password" in answer["error_description"], f"the answer is {answer}")
        equal("a wrong one's status", imported.log_in("carol", password("carol") + "3")[0], 400)
    for name in ("bob", "dora"):
        with report.check(f"keycloak-import: {name} is disabled"):
            equal("status", imported.log_in(name, password(name))[0], 400)
