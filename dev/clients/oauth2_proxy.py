"""The real oauth2-proxy, and the gateway that took over its settings with `postern migrate`: its
flags, and forty requests to both."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import secrets
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from .foreign import PROGRAMS
from .process import Server, Unready
from .provider import PASSWORD, move_in
from .report import Report, equal, expect
from .stage import ROOT, Stage, program, venv_python, wait_for

FLAGS = ROOT / "crates/migrate/tests/it/oauth2-proxy.flags"
GUIDE = ROOT / "docs/migrate/oauth2-proxy.md"
TITLE = "## Differences seen side by side"
GROUPS = {"ada": ("Ada Lovelace", "staff"), "bob": ("Bob Kahn", "guests")}
TOKENS = ("expired", "audience")
TIMEOUT_S = 120

# Headers of every answer to a caller who is known: oauth2-proxy sets them for browsers, too.
ANSWER = {
    "answer.authorization": ("Bearer JWT", None), "answer.x-auth-request-access-token": ("JWT", None),
    "answer.x-auth-request-email": ("ada@works.example", None),
    "answer.x-auth-request-groups": ("friends of Ada,staff", None),
    "answer.x-auth-request-preferred-username": ("ada", None), "answer.x-auth-request-user": ("the subject", None),
}  # fmt: skip
# The same, and the session's cookie, which oauth2-proxy passes on to the service.
PAGE = ANSWER | {"service.cookies": ("a session", "none of the proxy")}
SIGN_IN = {"status": (302, 401), "to": ("sign in", None)}

# What differs, by the request: oauth2-proxy's and the gateway's. The reasons are in the guide.
DIFFERENCES: dict[str, dict[str, tuple[object, object]]] = {
    "nobody: a page, by a program": SIGN_IN,
    "nobody: a form, by a browser": SIGN_IN,
    "nobody: an open path, with a forged answer": {
        "service.identity.x-auth-request-email": ("root@works.example", None),
        "service.identity.x-auth-request-user": ("root", None),
    },
    "nobody: an open path by a pattern": {
        "status": (200, 401), "service.request": ("POST /hooks/push", None),
        "service.cookies": ("none of the proxy", None),
    },
    "nobody: out of an open path, with dots": {"status": (301, 400), "to": ("/page", None)},
    "nobody: out of an open path, with escaped dots": {"status": (401, 400)},
    "nobody: robots.txt": {"status": (200, 401)},
    "nobody: a trusted address": {
        "status": (200, 401), "service.request": ("GET /page", None), "service.cookies": ("none of the proxy", None),
    },
    "ada: signs in": PAGE,
    "ada: a page": PAGE,
    "ada: another service": PAGE,
    "ada: a forged identity": PAGE,
    "ada: a page with the check's parameter": {
        "status": (403, 200), "service.request": (None, "GET /page?allowed_groups=admins"),
        "service.identity.x-forwarded-email": (None, "ada@works.example"),
        "service.identity.x-forwarded-groups": (None, "friends of Ada,staff"),
        "service.identity.x-forwarded-preferred-username": (None, "ada"),
        "service.identity.x-forwarded-user": (None, "the subject"),
        "service.identity.x-forwarded-access-token": (None, "JWT"),
        "service.identity.authorization": (None, "Bearer JWT"), "service.cookies": (None, "none of the proxy"),
    },
    "a program: a good token, an API path": ANSWER | {
        "service.identity.authorization": ("Bearer JWT", None),
        "service.identity.x-forwarded-access-token": ("JWT", None),
    },
    "a program: a good token, the check": {"answer.authorization": ("Bearer JWT", None)},
    "a program: a password": {
        "answer.x-auth-request-groups": ("staff", None), "answer.x-auth-request-user": ("scraper", None),
        "service.identity.x-forwarded-groups": ("staff", None),
        "service.identity.x-forwarded-preferred-username": (None, "scraper"),
    },
    "bob, without the group: the check": {"status": (401, 403)},
    "ada: signs out, to another host": {"status": (302, 303), "to": ("/", "the provider's /logout")},
}  # fmt: skip


def run(stage: Stage, report: Report) -> None:
    """The flags, then the requests: the same file for both, one after the other."""
    proxy, python = program("oauth2-proxy"), venv_python("requests")
    with report.check("oauth2-proxy: the flags of its --help are those that are translated"):
        compare_flags(proxy)
    issuer, tokens, secret = _provider(stage)
    for port in ("oauth2-service", "oauth2-api"):
        listen = f"127.0.0.1:{stage.port(port)}"
        stage.server(port, [str(stage.postern), "echo", "--reflect", "--listen", listen], stage.port(port)).start()
    stage.write_password("scraper", "open sesame")
    port, admin = stage.port("oauth2-proxy"), stage.port("oauth2-proxy-admin")
    file = stage.configuration(
        "oauth2-proxy.cfg", PORT=port, ADMIN_PORT=admin, ISSUER=issuer, SECRET=secret,
        HTPASSWD=stage.folder / "users.htpasswd", SERVICE_PORT=stage.port("oauth2-service"),
        API_PORT=stage.port("oauth2-api"),
    )  # fmt: skip
    settings = {
        "CLIENTS_ISSUER": issuer, "CLIENTS_PASSWORD": PASSWORD, "CLIENTS_PORT": str(port),
        "CLIENTS_TOKENS": json.dumps(tokens), "CLIENTS_SECRET": secret,
        "CLIENTS_TOOL": f"http://127.0.0.1:{stage.port('oauth2-service')}/tool", "CLIENTS_SCRAPER": "open sesame", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip
    command = [python, str(PROGRAMS / "oauth2_proxy_client.py")]
    server = stage.server("oauth2-proxy", [proxy, "--config", str(file)], port).start()
    wait_for(server, f"http://127.0.0.1:{port}/ready", 20)
    theirs = _observe(command, stage, settings, "oauth2-proxy")
    _end(stage, server)
    server = stage.serve("migrated", _migrate(stage, file), port, admin)
    ours = _observe(command, stage, settings, "migrated")
    _end(stage, server)
    compare(theirs, ours, report)


def compare_flags(proxy: str) -> None:
    """The flags of the real program are those of the list that the translation is tested with."""
    done = subprocess.run([proxy, "--help"], capture_output=True, text=True, timeout=20, check=False)
    real = set(re.findall(r"^ +(?:-\w, )?--([a-z0-9-]+)", done.stdout + done.stderr, re.MULTILINE)) - {"help"}
    listed = {line for line in FLAGS.read_text().splitlines() if not line.startswith("#")}
    equal("flags that are not translated", sorted(real - listed), [])
    equal("translated flags that the program has not", sorted(listed - real), [])


def compare(theirs: dict[str, dict], ours: dict[str, dict], report: Report) -> None:
    """Each request is answered alike, or differs as listed."""
    equal("requests", list(theirs), list(ours))
    equal("number of requests", len(theirs), 40)
    for name, their in theirs.items():
        with report.check(f"oauth2-proxy: {name}"):
            equal("the difference", differences(their, ours[name]), DIFFERENCES.get(name, {}))
    with report.check("oauth2-proxy: the guide names every difference"):
        section = GUIDE.read_text().partition(TITLE)[2].partition("\n## ")[0]
        named = re.findall(r"^\| ([^|]+?) \|", section, re.MULTILINE)[1:]
        equal("requests in the guide", sorted(named), sorted(DIFFERENCES))
        expect(set(DIFFERENCES) <= set(theirs), f"no such request: {set(DIFFERENCES) - set(theirs)}")


def differences(theirs: dict, ours: dict) -> dict[str, tuple[object, object]]:
    """What differs, by the path of a value."""
    theirs, ours = dict(_flat(theirs)), dict(_flat(ours))
    keys = {**theirs, **ours}
    return {key: (theirs.get(key), ours.get(key)) for key in keys if theirs.get(key) != ours.get(key)}


def _flat(told: dict, path: str = "") -> Iterator[tuple[str, object]]:
    for key, value in told.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{path}{key}.")
        else:
            yield path + key, value


def _provider(stage: Stage) -> tuple[str, dict[str, str], str]:
    """Starts the provider. Returns its issuer, tokens of programs, and the secret of its clients."""
    port, admin = stage.port("oauth2-provider"), stage.port("oauth2-provider-admin")
    issuer, secret = f"http://127.0.0.1:{port}", secrets.token_urlsafe(32)
    configuration = stage.configuration(
        "oauth2-proxy.toml", ADMIN_PORT=admin, PORT=port, ISSUER=issuer,
        DATABASE=f"sqlite://{stage.folder}/oauth2-provider.db?mode=rwc",
        DIGEST=hashlib.sha256(secret.encode()).hexdigest(), APP=f"http://127.0.0.1:{stage.port('oauth2-proxy')}",
        TOOL=f"http://127.0.0.1:{stage.port('oauth2-service')}",
    )  # fmt: skip
    for name, (full, group) in GROUPS.items():
        move_in(stage, configuration, name, full)
        for words in (["group", "add", group], ["group", "add-member", group, name]):
            command = [str(stage.postern), "admin", "--config", str(configuration), *words]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode:
                raise Unready(f"postern admin {' '.join(words)} ended with {done.returncode}: {done.stderr.strip()[:300]}")
    stage.serve("oauth2-provider", configuration, port, admin)
    tokens = {client: _token(issuer, client, secret) for client in TOKENS}
    # One is to be over, also for a clock that is late.
    expired = tokens["expired"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(expired + "=" * (-len(expired) % 4)))
    time.sleep(max(0.0, claims["exp"] + SKEW_S + 1 - time.time()))
    return issuer, tokens, secret


# The gateway's own `clock_skew`, in seconds.
SKEW_S = 30


def _token(issuer: str, client: str, secret: str) -> str:
    """A token of a program."""
    key = base64.b64encode(f"{client}:{secret}".encode()).decode()
    body = urllib.parse.urlencode({"grant_type": "client_credentials"}).encode()
    request = urllib.request.Request(f"{issuer}/token", body, {"Authorization": f"Basic {key}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)["access_token"]


def _migrate(stage: Stage, file: Path) -> Path:
    """Translates the file. Returns the configuration."""
    folder = stage.folder / "migrated"
    command = [str(stage.postern), "migrate", "oauth2-proxy", "--out", str(folder), "--file", f"{file}={file}"]
    done = subprocess.run([*command, "--", f"--config={file}"], capture_output=True, text=True, timeout=20, check=False)
    if done.returncode:
        raise Unready(f"postern migrate ended with {done.returncode}: {done.stderr.strip()[:500]}")
    return folder / "postern.toml"


def _observe(command: list[str], stage: Stage, settings: dict[str, str], name: str) -> dict[str, dict]:
    """What became of each request."""
    done = subprocess.run(
        command, env=os.environ | settings, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    (stage.folder / f"client-{name}.log").write_text(done.stderr)
    if done.returncode:
        raise Unready(f"{name}: the client ended with {done.returncode}: {done.stderr.strip()[-300:]}")
    (stage.folder / f"client-{name}.json").write_text(done.stdout)
    return json.loads(done.stdout)


def _end(stage: Stage, server: Server) -> None:
    """Stops a server whose port another one takes over."""
    server.check_alive()
    server.stop()
    stage.servers.remove(server)
