"""The gateway that is put through something, with its configuration template in this folder's parent, and the backend behind it."""

from __future__ import annotations

import http.client
import re
from dataclasses import dataclass
from pathlib import Path

from . import credentials
from .process import Server, Unready, free_port

TEMPLATES = Path(__file__).resolve().parent.parent
TEMPLATE = "postern.toml"
BODY_BYTES = 100


@dataclass
class Setting:
    """What all gateways and backends of a run share."""

    folder: Path
    credentials: credentials.Credentials
    postern: str
    backend_port: int
    workers: int


def fill(template: str, values: dict[str, str]) -> str:
    """Replaces @NAME@; a name without a value is an error, not an empty string."""
    text = (TEMPLATES / template).read_text()
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match.group(1)], text)


def start(setting: Setting) -> Server:
    """Configures and starts a gateway; waits until it forwards."""
    plain, secure, admin = free_port(), free_port(), free_port()
    work = setting.folder / f"postern-{plain}"
    work.mkdir()
    made = setting.credentials
    values = {
        "PORT": str(plain),
        "TLS_PORT": str(secure),
        "ADMIN_PORT": str(admin),
        "BACKEND_PORT": str(setting.backend_port),
        "WORKERS": str(setting.workers),
        "MAX_REQUESTS": "1024",
        "CERTIFICATE": str(made.certificate),
        "KEY": str(made.key),
        "JWKS": str(made.jwks),
        "ISSUER": credentials.ISSUER,
        "AUDIENCE": credentials.AUDIENCE,
    }
    config = work / TEMPLATE
    config.write_text(fill(TEMPLATE, values))
    server = Server("postern", [setting.postern, "serve", "--config", str(config)], plain, work / "log")
    server.start()
    try:
        check(server.port, made)
    except BaseException:
        server.stop()
        raise
    return server


def start_backend(setting: Setting) -> Server:
    """The backend: 100 bytes to every request, one worker."""
    port = setting.backend_port
    words = [setting.postern, "echo", "--listen", f"127.0.0.1:{port}", "--body-bytes", str(BODY_BYTES)]
    return Server("backend", words, port, setting.folder / "backend.log").start()


def status(port: int, token: str | None = None) -> int:
    """The status of one request; Unready when there is no answer, or another one than the backend's."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/", headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 200 and len(body) != BODY_BYTES:
            raise Unready(f"port {port} answers {len(body)} bytes instead of the backend's {BODY_BYTES}")
        return answer.status
    except (OSError, http.client.HTTPException) as error:
        raise Unready(f"port {port} does not answer: {error}") from error
    finally:
        connection.close()


def check(port: int, made: credentials.Credentials) -> None:
    """A gateway that lets anyone in, or nobody, would be measured for nothing."""
    seen = status(port, made.token)
    if seen != 200:
        raise Unready(f"the gateway answers {seen} to the token")
    for name, token in (("no token", None), ("a forged token", made.forged)):
        seen = status(port, token)
        if seen not in (401, 403):
            raise Unready(f"the gateway answers {seen} to {name}: it does not authenticate")
