"""Postern's own provider as a subject.

UNFINISHED: the provider is not routed by `postern serve` yet. What stands here is a guess at its configuration and at
`postern admin`; `start` is all there is to complete, and everything else of the benchmark asks for nothing more than the
`Running` it returns.
"""

from __future__ import annotations

import subprocess

from .process import Server, Unready, free_port
from .providers import ARGON2_ITERATIONS, ARGON2_KIB, ARGON2_LANES, REDIRECT_URI, Running, Setting, describe

TEMPLATE = """\
[server]
workers = 2

[access_log]
format = "off"

[[listener]]
name = "plain"
address = "127.0.0.1:{port}"

[provider]
issuer = "{origin}"
database = "{database}"
access_token_lifetime = "1h"
# A password that was right a moment ago must be verified again, as the peer does.
passwords = {{ memory_kib = {kib}, iterations = {iterations}, parallelism = {lanes}, remember = "0s" }}
"""

CLIENT = """
[[provider.client]]
id = "{id}"
secret = "{secret}"
grants = {grants}
scopes = ["openid", "profile", "offline_access"]
redirect_uris = ["{redirect_uri}"]
consent = true
audiences = ["bench"]
"""


def postern_subject(setting: Setting) -> Running:
    """Starts the provider with the users and clients of the run."""
    program = setting.binaries / "postern"
    if not program.exists():
        raise Unready(f"{program} is not there; leave out --no-build")
    port = free_port()
    origin = f"http://127.0.0.1:{port}"
    work = setting.folder / "postern"
    work.mkdir()
    database = setting.postgres if setting.database == "postgres" else f"sqlite:{work}/postern.db"
    config = work / "postern.toml"
    text = TEMPLATE.format(port=port, origin=origin, database=database, kib=ARGON2_KIB, iterations=ARGON2_ITERATIONS, lanes=ARGON2_LANES)  # fmt: skip
    clients = [f"bench{n}" for n in range(1, setting.clients + 1)]
    grants = '["client_credentials", "password", "refresh_token", "authorization_code"]'
    for client in clients:
        text += CLIENT.format(id=client, secret=setting.secret, grants=grants, redirect_uri=REDIRECT_URI)
    config.write_text(text)
    for number in range(1, setting.users + 1):
        _add_user(str(program), str(config), setting.user(number), setting.password)
    server = Server("postern", [str(program), "serve", "--config", str(config)], port, work / "log").start()
    description = describe(
        setting, "postern", origin,
        endpoints={"token": "/token", "authorize": "/authorize", "revoke": "/revoke", "introspect": "/introspect"},
        clients=clients, code_clients=clients, consent=("decision", "allow"),
        # Refresh tokens may need this scope:
        scopes={"password": "openid profile offline_access"},
    )  # fmt: skip
    kind = "PostgreSQL" if setting.database == "postgres" else "SQLite in a file"
    return Running(server, description, [
        f"release build, {kind}",
        f"configured: argon2id, {ARGON2_ITERATIONS} iterations, {ARGON2_KIB} KiB, parallelism {ARGON2_LANES}; no memory of verified passwords",
        # Complete: what of the limits on guessing stays on.
        "limits on guessing: as configured by default, refresh tokens rotate",
    ])  # fmt: skip


def _add_user(program: str, config: str, name: str, password: str) -> None:
    # By standard input: the command line is for everybody to see.
    command = [program, "admin", "user", "add", name, "--password-stdin", "--config", config]
    done = subprocess.run(command, input=password + "\n", capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        raise Unready(f"postern admin user add ended with {done.returncode}: {(done.stderr or done.stdout).strip()[:300]}")
