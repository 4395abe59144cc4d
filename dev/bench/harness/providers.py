"""What the compared OpenID providers have in common: how one is described to postern-load, and what a subject is.

Each provider has a module of its own (keycloak.py, postern_provider.py) that starts it with the same users and the same
cost of a password.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from .process import Server

# argon2id as Keycloak has it by default; both subjects get it.
ARGON2_ITERATIONS, ARGON2_KIB, ARGON2_LANES = 5, 7168, 1
# Nobody listens there: the driver never follows the redirect.
REDIRECT_URI = "http://127.0.0.1:9/callback"
USER_PATTERN = "user{n}"

SCENARIOS = ["client_credentials", "password", "password_revoke", "refresh", "introspection", "code_consent"]
# One password is verified in each transaction of these.
WITH_PASSWORD = {"password", "password_revoke", "code_consent"}


@dataclass
class Setting:
    """What all subjects of a run share."""

    root: Path
    folder: Path
    binaries: Path
    users: int
    clients: int
    database: str
    # URL of a PostgreSQL server (postgres://USER@HOST:PORT/…) when `database` is postgres.
    postgres: str | None = None
    password: str = field(default_factory=lambda: "Quartz-lamp-" + secrets.token_hex(6))
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(32))

    def user(self, number: int) -> str:
        """The name of a user, from 1."""
        return USER_PATTERN.replace("{n}", str(number))


@dataclass
class Running:
    """A provider that is ready to be loaded."""

    server: Server
    description: Path
    # What a reader must know of how it was set up.
    notes: list[str]
    insecure: bool = False


@dataclass(frozen=True)
class Subject:
    """A row of the tables."""

    name: str
    title: str
    start: Callable[[Setting], Running]


def describe(setting: Setting, name: str, origin: str, *, endpoints: dict, clients: list[str], code_clients: list[str],
             consent: tuple[str, str], scopes: dict | None = None) -> Path:  # fmt: skip
    """Writes the description that `postern-load provider` reads."""

    def pool(names: list[str]) -> list[dict]:
        return [{"id": client, "secret": setting.secret} for client in names]

    path = setting.folder / f"{name}.json"
    path.touch(mode=0o600)
    path.write_text(json.dumps({
        "name": name,
        "origin": origin,
        "endpoints": endpoints,
        "clients": pool(clients),
        "code_clients": pool(code_clients),
        "users": {"pattern": USER_PATTERN, "count": setting.users, "password": setting.password},
        "redirect_uri": REDIRECT_URI,
        "scopes": {"code": "openid profile", "password": "openid profile", "client_credentials": "", **(scopes or {})},
        "prompt": "consent",
        "fields": {"username": "username", "password": "password",
                   "consent": {"name": consent[0], "value": consent[1]}},
    }, indent=1))  # fmt: skip
    return path
