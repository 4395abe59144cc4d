"""Clusters of provider nodes on one PostgreSQL, with a gateway each and a broker between them: examples/two-clusters, on free ports."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from . import process
from .process import Server, Unready

ROOT = Path(__file__).resolve().parents[3]
EXAMPLE = ROOT / "examples/two-clusters"
sys.path.insert(0, str(EXAMPLE))

import refusal  # noqa: E402

SECRET = "a-secret-for-measurements-on-this-machine-alone"
PORTS = [9000, 9001, 9002, 9003, 9004, 9010, 9020, 9100, 9910, 9911, 9912, 9913, 9914, 9915, 9916, 9200]
# No event stream comes through: nobody is there.
DEAF = """
[[upstream]]
name = "nobody"
endpoints = ["http://127.0.0.1:1"]

[[route]]
name = "events"
path = { exact = "/coherence/events" }
upstream = "nobody"
public = true
"""


@dataclass(frozen=True)
class Broker:
    """A broker, and how it is spoken to."""

    program: str
    scheme: str
    addressing: str = "plain"


BROKERS: dict[str, Broker | None] = {
    "none": None,
    "nats": Broker("nats", "nats"),
    "artemis": Broker("artemis", "amqp"),
    "activemq": Broker("activemq", "amqp", "scheme"),
    "rabbitmq": Broker("rabbitmq", "amqp", "path"),
}


@dataclass
class Town:
    """One or two clusters of two nodes each."""

    work: Path
    binaries: Path
    name: str
    broker: str = "none"
    clusters: int = 2
    # Whether gateways follow what is revoked.
    follow: bool = True
    # Whether gateways hear of it over HTTP before they ask; if not, the broker alone tells them.
    listen: bool = True
    # Further configuration of nodes.
    more: str = ""
    # A database to begin with, and the provider's secret that fits it.
    database: str | None = None
    secret: str | None = None
    servers: dict[str, Server] = field(default_factory=dict)
    port_of: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.work = self.work / self.name
        (self.work / "run").mkdir(parents=True)
        self.ports = {port: process.free_port() for port in PORTS}
        letters = "ab"[: self.clusters]
        self.nodes = [f"node-{letter}{number}" for letter in letters for number in (1, 2)]
        self.gateways = [f"gateway-{letter}" for letter in letters]
        for file in EXAMPLE.glob("*.toml"):
            self.write(file.stem, file.read_text())
        name = self.database_name = f"{re.sub('[^a-z0-9]', '_', self.name)}_{os.getpid()}"
        from_ = f" TEMPLATE {self.database}" if self.database else ""
        subprocess.run(["psql", "-q", os.environ["POSTERN_TEST_POSTGRES"], "-c", f"CREATE DATABASE {name}{from_}"], check=True)
        server, _ = os.environ["POSTERN_TEST_POSTGRES"].rsplit("/", 1)
        self.secret = secret = self.secret or subprocess.run(["openssl", "rand", "-base64", "32"], check=True, capture_output=True, text=True).stdout
        for file, content in [("provider.secret", secret), ("client.secret", SECRET), ("database.url", f"{server}/{name}")]:
            self.private(file, content)

    def private(self, file: str, content: str) -> None:
        path = self.work / "run" / file
        path.touch(mode=0o600)
        path.write_text(content)

    def write(self, name: str, text: str) -> None:
        """A configuration of the example, with this town's ports and what is in force here."""
        if name == "front":
            nodes = ", ".join(f'"http://127.0.0.1:{9001 + at}"' for at in range(len(self.nodes)))
            text = re.sub(r"^endpoints = .*$", f"endpoints = [{nodes}]", text, flags=re.M)
        if name == "front" and not self.listen:
            text += DEAF
        if name.startswith("gateway") and not self.follow:
            text = re.sub(r"^follow_secret_file.*\n", "", text, flags=re.M)
        if name.startswith("node"):
            text += self.more
        text = re.sub(r"\b9\d{3}\b", lambda found: str(self.ports.get(int(found[0]), int(found[0]))), text)
        self.port_of[name] = int(re.findall(r'^address = "127.0.0.1:(\d+)"$', text, re.M)[-1])
        (self.work / f"{name}.toml").write_text(text)

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port_of[name]}"

    def serve(self, name: str, command: list[str], port: int) -> Server:
        server = Server(name, command, port, self.work / f"{name}.log")
        self.servers[name] = server
        return server.start()

    def postern(self, name: str) -> Server:
        command = [str(self.binaries / "postern"), "serve", "--config", str(self.work / f"{name}.toml")]
        return self.serve(name, command, self.port_of[name])

    def start(self) -> "Town":
        broker = BROKERS[self.broker]
        if broker:
            port = self.ports[9200]
            self.serve("broker", [str(ROOT / "dev/brokers/start"), broker.program, str(port), str(self.work / "run/broker")], port)
            lines = [f'brokers = ["{broker.scheme}://127.0.0.1:{port}"]', f'addressing = "{broker.addressing}"']
            if broker.scheme == "amqp":
                lines += ['user = "postern"', 'password_file = "run/broker/password"']
            for name in self.nodes + self.gateways:
                with (self.work / f"{name}.toml").open("a") as file:
                    file.write("\n[coherence]\n" + "\n".join(lines) + "\n")
        echo = [str(self.binaries / "postern"), "echo", "--listen", f"127.0.0.1:{self.ports[9100]}"]
        self.serve("echo", echo, self.ports[9100])
        for name in [*self.nodes, "front"]:
            self.postern(name)
        if self.follow:
            admin = [str(self.binaries / "postern"), "admin", "--config", str(self.work / "node-a1.toml"), "follow-secret"]
            self.private("follow.secret", subprocess.run(admin, check=True, capture_output=True, text=True).stdout)
        for name in self.gateways:
            self.postern(name)
        deadline = time.monotonic() + 60
        while not all(self.is_well(name) for name in self.nodes + self.gateways):
            if time.monotonic() > deadline:
                raise Unready(f"{self.name}: not everybody hears of everybody")
            time.sleep(0.1)
        return self

    def is_well(self, name: str) -> bool:
        text = (self.work / f"{name}.toml").read_text()
        admin = re.findall(r'^address = "(127.0.0.1:\d+)"$', text, re.M)[0]
        shown = subprocess.run(["curl", "-s", f"http://{admin}/readyz"], capture_output=True, text=True, check=False)
        return shown.stdout == "ready\n"

    def stop(self) -> None:
        for server in reversed(self.servers.values()):
            server.stop()

    def token(self) -> str:
        told = refusal.post(self.url(random.choice(self.nodes)), "/token", SECRET, grant_type="client_credentials")
        return json.loads(told)["access_token"]

    def revoke_for(self, seconds: float, patience: float = 30) -> dict[str, list[float]]:
        """Revokes tokens for so long; for each gateway the times for which they were still admitted, at most `patience`."""
        times: dict[str, list[float]] = {name: [] for name in self.gateways}
        places = [refusal.Place(name, self.url(name), SECRET) for name in self.gateways]
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            token, last = self.token(), {}
            warm, over = threading.Barrier(len(places) + 1), threading.Event()
            threads = [threading.Thread(target=refusal.watch, args=(place, token, warm, last, over), daemon=True) for place in places]
            for thread in threads:
                thread.start()
            warm.wait(30)
            # Somewhere between two questions of a gateway.
            time.sleep(random.uniform(0.02, 0.52))
            refusal.post(self.url(random.choice(self.nodes)), "/revoke", SECRET, token=token)
            revoked = time.monotonic()
            for thread in threads:
                thread.join(max(0.0, revoked + patience - time.monotonic()))
            over.set()
            for thread in threads:
                thread.join(30)
            for name in self.gateways:
                times[name].append(max(0.0, last.get(name, revoked) - revoked))
        return times

    def freeze(self, seconds: float) -> None:
        """Stops the broker in its tracks, and lets it go on."""
        for sign in ("-STOP", "-CONT"):
            for pid in process.tree(self.servers["broker"].pid)[1:]:
                subprocess.run(["kill", sign, str(pid)], check=False)
            if sign == "-STOP":
                time.sleep(seconds)
