"""Postern's own provider as a subject: `postern serve` with a provider and nothing else, its users added by `postern admin`."""

from __future__ import annotations

import base64
import os
import subprocess
from collections.abc import Callable

from .process import Server, Unready, free_port
from .providers import ARGON2_ITERATIONS, ARGON2_KIB, ARGON2_LANES, REDIRECT_URI, Running, Setting, describe

TEMPLATE = """\
[admin]
enabled = false

[provider]
issuer = "{origin}"
address = "127.0.0.1:{port}"
database_file = "database.url"
secret_file = "provider.secret"
audiences = ["bench"]
access_token_lifetime = "1h"
# As the peer's tokens.
access_token_algorithm = "ES256"
id_token_algorithm = "ES256"

# The same cost as the peer's. A password that was right a moment ago is verified again: remember_verified stays off.
[provider.passwords]
memory = "{kib}KiB"
iterations = {iterations}
parallelism = {lanes}
# As many may wait as the largest number of virtual users.
queue = 1024
# What rules there are about new passwords is not what is measured.
min_length = 8
"""

CLIENT = """
[[provider.client]]
id = "{id}"
secret_files = ["client.secret"]
grants = ["client_credentials", "password", "refresh_token", "authorization_code"]
scopes = ["openid", "profile", "offline_access"]
redirect_uris = ["{redirect_uri}"]
audiences = ["bench"]
"""


def postern_subject(
    setting: Setting, name: str = "postern", client_settings: str = "", before_start: Callable[[str], None] | None = None
) -> Running:
    """Starts the provider with the users and clients of the run; `before_start` may do something to its database."""
    program = setting.binaries / "postern"
    if not program.exists():
        raise Unready(f"{program} is not there; leave out --no-build")
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    work = setting.folder / name
    work.mkdir()
    database = setting.postgres if setting.database == "postgres" else f"sqlite://{work}/postern.db?mode=rwc"
    config = work / "postern.toml"
    for file, text in (
        ("database.url", database),
        ("provider.secret", base64.b64encode(os.urandom(32)).decode()),
        ("client.secret", setting.secret),
        ("password", setting.password),
    ):
        path = work / file
        path.touch(mode=0o600)
        path.write_text(text + "\n")
    text = TEMPLATE.format(port=port, origin=origin, kib=ARGON2_KIB, iterations=ARGON2_ITERATIONS, lanes=ARGON2_LANES)  # fmt: skip
    clients = [f"bench{n}" for n in range(1, setting.clients + 1)]
    for client in clients:
        text += CLIENT.format(id=client, redirect_uri=REDIRECT_URI) + client_settings
    config.write_text(text)
    for number in range(1, setting.users + 1):
        add_user(str(program), str(config), setting.user(number), str(work / "password"))
    if before_start:
        before_start(database)
    server = Server(name, [str(program), "serve", "--config", str(config)], port, work / "log").start()
    description = describe(
        setting, name, origin,
        endpoints={"token": "/token", "authorize": "/authorize", "revoke": "/revoke", "introspect": "/introspect"},
        clients=clients, code_clients=clients, consent=("decision", "allow"),
    )  # fmt: skip
    kind = "PostgreSQL" if setting.database == "postgres" else "SQLite in a file"
    return Running(server, description, [
        f"profile dist, {kind}",
        f"configured: argon2id, {ARGON2_ITERATIONS} iterations, {ARGON2_KIB} KiB, parallelism {ARGON2_LANES}; no memory of verified passwords; 1 024 passwords may wait",
        "limits on guessing as by default, per account and per network; refresh tokens rotate; tokens are signed with ES256",
    ])  # fmt: skip


def add_user(program: str, config: str, name: str, password_file: str) -> None:
    """Adds a person to a provider's database."""
    command = [program, "admin", "--config", config, "user", "add", name, "--password-file", password_file]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Unready(f"postern admin user add ended with {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}")
