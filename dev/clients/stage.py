"""Shared state of a run: folder, programs, ports, servers, and the gateway with its
configuration."""

from __future__ import annotations

import http.client
import os
import re
import shutil
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from .process import Server, Unready, free_port
from . import credentials
from .report import Skip

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CACHE = ROOT / ".cache"
VENV_PYTHON = CACHE / "venv/bin/python"
KEYCLOAK = CACHE / "keycloak"


@dataclass
class Stage:
    """Resources that all checks share."""

    folder: Path
    postern: Path
    servers: list[Server] = field(default_factory=list)
    ports: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.issuer = credentials.Issuer(self.folder)
        self.authority = credentials.Authority(self.folder, "authority")
        self.certificate, self.key = self.authority.issue(
            "server", "/CN=localhost", "serverAuth", "DNS:localhost,DNS:secure.localhost,IP:127.0.0.1"
        )
        self.token = self.issuer.token("alice", groups=["staff"])

    def port(self, name: str) -> int:
        """The port with that name; a free one if it is new."""
        if name not in self.ports:
            self.ports[name] = free_port(21000)
        return self.ports[name]

    def url(self, listener: str, path: str) -> str:
        """URL of a path at a listener of the gateway."""
        scheme = "http" if listener == "plain" else "https"
        return f"{scheme}://localhost:{self.port(listener)}{path}"

    def server(
        self, name: str, command: list[str], port: int, environment: dict[str, str] | None = None
    ) -> Server:
        """A server of this run, not started yet. It is stopped with the stage."""
        server = Server(name, command, port, self.folder / f"{name}.log", environment=environment)
        self.servers.append(server)
        return server

    def configuration(self, template: str, name: str | None = None, /, **values: object) -> Path:
        """Writes a configuration file of the gateway from its template, under another name if
        given."""

        def value(found: re.Match[str]) -> str:
            return str(values[found[1]])

        path = self.folder / (name or template)
        path.write_text(re.sub(r"@([A-Z_]+)@", value, (HERE / template).read_text()))
        return path

    def serve(self, name: str, configuration: Path, listener_port: int, admin_port: int) -> Server:
        """Starts `postern serve` and waits until it is ready."""
        command = [str(self.postern), "serve", "--config", str(configuration)]
        server = self.server(name, command, listener_port).start()
        wait_for(server, f"http://127.0.0.1:{admin_port}/readyz", 20)
        return server

    def start_echo(self) -> None:
        """Starts `postern echo --reflect` as the upstream of HTTP/1.1 clients."""
        listen = f"127.0.0.1:{self.port('echo')}"
        self.server("echo", [str(self.postern), "echo", "--reflect", "--listen", listen], self.port("echo")).start()

    def start_gateway(self) -> None:
        """Starts the gateway in front of all upstreams but Keycloak's."""
        self.write_password("scraper", "open sesame:\u00e4")
        configuration = self.configuration(
            "postern.toml",
            FOLDER=self.folder, CERTIFICATE=self.certificate, KEY=self.key,
            CA=self.authority.certificate, CLIENT_CA=self.authority.certificate,
            ISSUER=credentials.ISSUER, AUDIENCE=credentials.AUDIENCE, JWKS=self.issuer.jwks,
            **{f"{name.upper().replace('-', '_')}_PORT": self.port(name) for name in
               ("admin", "plain", "secure", "mutual", "echo", "go", "grpc", "grpc-tls")},
        )  # fmt: skip
        self.serve("gateway", configuration, self.port("plain"), self.port("admin"))

    def write_password(self, user: str, password: str) -> None:
        """Sets the password of a user in the gateway's htpasswd file, which it creates if there is none."""
        file = self.folder / "users.htpasswd"
        create = [] if file.exists() else ["-c"]
        command = [program("htpasswd"), *create, "-iBC", "5", str(file), user]
        subprocess.run(command, input=password.encode(), capture_output=True, check=True)

    def stop(self) -> list[str]:
        """Ends all servers, last first. Returns those that had ended by themselves before."""
        ended = []
        for server in reversed(self.servers):
            if server.process is not None and not server.alive():
                ended.append(f"{server.name} ended by itself: {server.last_words()}")
            server.stop()
        return ended

    def show_logs(self) -> None:
        """Prints the end of every log of the run."""
        for log in sorted(self.folder.glob("*.log")):
            # the clients' verdicts say what failed; a few lines of an access log are enough
            lines = 5 if log.name.endswith("access.log") else 25
            tail = log.read_text(errors="replace").splitlines()[-lines:]
            print(f"\n-- {log} (last {len(tail)} lines)")
            print("\n".join(f"   {line[:400]}" for line in tail), flush=True)


def program(name: str, remedy: str = "dev/setup test") -> str:
    """The path of a program. Raises Skip if it is missing; `remedy` installs it."""
    folders = [str(CACHE / "bin"), os.environ.get("PATH", os.defpath), "/usr/sbin"]
    found = shutil.which(name, path=os.pathsep.join(folders))
    if found is None:
        raise Skip(f"{name} is not installed; run {remedy}")
    return found


def venv_python(*modules: str) -> str:
    """An interpreter that can import these modules. Raises Skip if there is none."""
    if not VENV_PYTHON.exists():
        raise Skip("there is no .cache/venv; run dev/setup test")
    for module in modules:
        done = subprocess.run([VENV_PYTHON, "-c", f"import {module}"], capture_output=True, check=False)
        if done.returncode:
            raise Skip(f"the Python module {module} is not installed; run dev/setup test")
    return str(VENV_PYTHON)


def get(url: str, headers: dict[str, str] | None = None, timeout: float = 10) -> tuple[int, bytes]:
    """Status and body, whatever the status."""
    request = urllib.request.Request(url, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read()


def wait_for(server: Server, url: str, seconds: float, status: int = http.client.OK) -> None:
    """Waits until `url` answers with that status."""
    deadline = time.monotonic() + seconds
    last = "no answer"
    while time.monotonic() < deadline:
        server.check_alive()
        try:
            found, body = get(url, timeout=2)
            if found == status:
                return
            last = f"{found} {body[:200].decode(errors='replace')}"
        except OSError as problem:
            last = str(problem)
        time.sleep(0.1)
    raise Unready(f"{server.name}: {url} was not ready after {seconds:g} s: {last}")


def build(release: bool) -> Path:
    """Builds the gateway. Returns its path."""
    command = ["cargo", "build", "--quiet", "-p", "postern"] + (["--release"] if release else [])
    subprocess.run(command, cwd=ROOT, check=True)
    return target() / ("release" if release else "debug") / "postern"


def target() -> Path:
    """cargo's target folder."""
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
