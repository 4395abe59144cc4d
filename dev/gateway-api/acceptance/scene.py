"""The cluster as the checks use it: specs of objects, requests, and Postern's pods.

Owns: how a request is sent, what a pod of Postern says of itself.
Does not own: calls to the API server (api_server), what is expected.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from api_server import GATEWAY_GROUP, Api, until
from clients.report import Fault, expect

ECHO = "registry.k8s.io/gateway-api/echo-basic:v1"
CLASS = "postern"
HOME = "postern"
ADMIN_PORT = 9901


def everywhere(what: str, holds: Callable[[], object]) -> None:
    """Waits until something holds many times in a row: replicas learn of a change one by one."""
    until(what, lambda: all(holds() for _ in range(12)))


def http_route(hosts: list[str], backend: str = "echo", parent: str = "gateway", **more: object) -> dict:
    """Spec of an HTTPRoute to port 80 of a Service."""
    rule = {"backendRefs": [{"name": backend, "port": 80, **more.pop("backend_ref", {})}], **more}  # type: ignore[dict-item]
    return {"parentRefs": [{"name": parent, "namespace": "infra"}], "hostnames": hosts, "rules": [rule]}


def policy(kind: str, name: str, body: dict, form: str = "defaults") -> dict:
    """Spec of an AccessPolicy with one target."""
    return {"targetRefs": [{"group": GATEWAY_GROUP, "kind": kind, "name": name}], form: body}


class Answer:
    """An answer to a request; status 0: there was none."""

    def __init__(self, status: int, text: str) -> None:
        self.status, self.text = status, text

    @property
    def pod(self) -> str:
        """The echo server that answered."""
        found = re.search(r'"pod": ?"([^"]*)"', self.text)
        return found.group(1) if found else ""

    def __repr__(self) -> str:
        return f"{self.status} {self.text[:120]!r}"


def fetch(address: str, host: str, path: str = "/", token: str | None = None) -> Answer:
    """Sends one request on a connection of its own."""
    headers = {"Host": host} | ({"Authorization": f"Bearer {token}"} if token else {})
    try:
        connection = HTTPConnection(address, 80, timeout=5)
        connection.request("GET", path, headers=headers)
        answer = connection.getresponse()
        return Answer(answer.status, answer.read().decode(errors="replace"))
    except (OSError, HTTPException):
        return Answer(0, "")


class Traffic(threading.Thread):
    """Requests for one host without a pause, on a connection that is kept and on new ones."""

    def __init__(self, address: str, host: str, token: str | None = None) -> None:
        super().__init__(daemon=True)
        self._address, self._host = address, host
        self._headers = {"Host": host} | ({"Authorization": f"Bearer {token}"} if token else {})
        self._ended = threading.Event()
        self.answers: dict[int, int] = {}
        self.failures: list[str] = []

    def run(self) -> None:
        kept = HTTPConnection(self._address, 80, timeout=10)
        turn = 0
        while not self._ended.is_set():
            turn += 1
            connection = kept if turn % 2 else HTTPConnection(self._address, 80, timeout=10)
            try:
                connection.request("GET", "/", headers=self._headers)
                answer = connection.getresponse()
                answer.read()
                self.answers[answer.status] = self.answers.get(answer.status, 0) + 1
            except (OSError, HTTPException) as problem:
                self.failures.append(repr(problem))
                kept.close()
                kept = HTTPConnection(self._address, 80, timeout=10)
                time.sleep(0.05)
            if connection is not kept:
                connection.close()
            time.sleep(0.002)

    def __enter__(self) -> Traffic:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join()

    def all_passed(self, status: int = 200) -> str:
        """Checks that every request got this status. Says how many there were."""
        expect(not self.failures, f"{len(self.failures)} requests failed, the first with {self.failures[:1]}")
        expect(set(self.answers) == {status}, f"answers by status: {self.answers}")
        return f"{self.answers[status]} requests"


class Stopwatch:
    """How long a change takes from its acceptance by the API server until requests see it."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    def until(self, what: str, holds: Callable[[], bool], within: float) -> float:
        """Waits. Returns milliseconds. Fails after `within` seconds."""
        until(what, holds, within + 5, 0.002)
        took = time.monotonic() - self._began
        expect(took < within, f"{what}: after {took:.2f} s, allowed are {within:g} s")
        return took * 1000


def self_signed(folder: Path, host: str) -> tuple[dict, str]:
    """Data of a TLS Secret with a new certificate, and the certificate's fingerprint."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    subprocess.run([
        "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3",
        "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-keyout", str(key), "-out", str(certificate),
    ], check=True, capture_output=True)  # fmt: skip
    data = {"tls.crt": b64encode(certificate.read_bytes()).decode(), "tls.key": b64encode(key.read_bytes()).decode()}
    return data, ssl.PEM_cert_to_DER_cert(certificate.read_text()).hex()


def presented(address: str, host: str) -> str:
    """The certificate that a new handshake gets; empty: none."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection((address, 443), 5) as plain, context.wrap_socket(plain, server_hostname=host) as tls:
            return (tls.getpeercert(binary_form=True) or b"").hex()
    except (OSError, ssl.SSLError):
        return ""


class Process:
    """A process of the cluster that a check stops and starts again. It goes on with its log."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.log = Path(os.readlink(f"/proc/{pid}/fd/1"))
        self._command = Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        self._environment = dict(
            entry.split("=", 1) for entry in Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0") if "=" in entry
        )

    def kill(self) -> None:
        """Ends it at once."""
        os.kill(self.pid, signal.SIGKILL)
        until(f"process {self.pid} is gone", lambda: not alive(self.pid))

    def start(self) -> None:
        """Starts the same command again. It ends with the run."""
        with self.log.open("ab") as log:
            began = subprocess.Popen(
                self._command, env=self._environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self.pid = began.pid

    def freeze(self) -> None:
        """Lets it do nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)


def alive(pid: int) -> bool:
    """Whether the process runs; a zombie does not. While a process ends, its first thread may be a
    zombie before the others are gone, which still hold its sockets."""

    def runs(thread: Path) -> bool:
        try:
            return (thread / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
        except OSError:
            return False

    return any(runs(thread) for thread in Path(f"/proc/{pid}/task").glob("*"))


def processes(name: str) -> list[int]:
    """Processes with this name."""
    found = []
    for comm in Path("/proc").glob("[0-9]*/comm"):
        try:
            pid = int(comm.parent.name)
            found += [pid] if comm.read_text().strip() == name[:15] and alive(pid) else []
        except OSError:
            continue
    return found


class Postern:
    """Postern's pods."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def pods(self) -> list[dict]:
        """Those that are not being deleted."""
        path = f"{self._api.path('Pod', HOME)}?labelSelector=app%3Dpostern"
        return [pod for pod in self._api("GET", path)["items"] if "deletionTimestamp" not in pod["metadata"]]

    def ready(self) -> list[dict]:
        """Those that are ready."""

        def is_ready(pod: dict) -> bool:
            conditions = pod.get("status", {}).get("conditions", [])
            return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

        return [pod for pod in self.pods() if is_ready(pod)]

    def process(self, pod: str) -> Process:
        """The process of a pod."""
        for comm in Path("/proc").glob("[0-9]*/comm"):
            try:
                environment = (comm.parent / "environ").read_bytes().decode().split("\0")
                if comm.read_text().startswith("postern") and f"HOSTNAME={pod}" in environment:
                    return Process(int(comm.parent.name))
            except OSError:
                continue
        raise Fault(f"the pod {pod} has no process")

    def processes(self) -> list[Process]:
        """The processes of all pods."""
        return [self.process(pod["metadata"]["name"]) for pod in self.pods()]

    def leader(self) -> str:
        """The pod that holds the Lease; empty: none."""
        spec = self._api.get("Lease", HOME, "postern-gateway-api").get("spec", {})
        return (spec.get("holderIdentity") or "").rpartition("_")[0]

    @staticmethod
    def admin(pod: dict, path: str) -> Answer:
        """What the admin listener of a pod says."""
        try:
            connection = HTTPConnection(pod["status"]["podIP"], ADMIN_PORT, timeout=5)
            connection.request("GET", path)
            answer = connection.getresponse()
            return Answer(answer.status, answer.read().decode())
        except (OSError, HTTPException):
            return Answer(0, "")

    def metric(self, pod: dict, name: str, **labels: str) -> float:
        """A sample of a pod."""
        # A label without a value is not shown.
        shown = ",".join(f'{key}="{value}"' for key, value in labels.items() if value)
        wanted = f"{name}{{{shown}}} " if shown else f"{name} "
        for line in self.admin(pod, "/metrics").text.splitlines():
            if line.startswith(wanted):
                return float(line.split()[-1])
        return -1

    def restart(self) -> None:
        """Replaces all pods, and waits for as many that are ready."""
        old = {pod["metadata"]["name"] for pod in self.pods()}
        for name in old:
            self._api.delete("Pod", HOME, name)
        until("new pods are ready", lambda: len([
            pod for pod in self.ready() if pod["metadata"]["name"] not in old
        ]) == len(old), 60)  # fmt: skip
