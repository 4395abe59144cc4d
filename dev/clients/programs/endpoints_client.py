"""Endpoints by DNS, in a network namespace: see `endpoints.py`. Starts a name server, pods and the
gateway, and changes the addresses while requests flow."""

from __future__ import annotations

import fcntl
import http.client
import os
import signal
import socket
import struct
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from verdicts import check, equal

FOLDER = Path(os.environ["ENDPOINTS_FOLDER"])
HOSTS = FOLDER / "addresses"
PORT, WEB = 8080, 9000
PATIENCE_S = 20


class Pod(ThreadingHTTPServer):
    """A server that says which one it is."""

    daemon_threads = True

    def __init__(self, address: str) -> None:
        self.address = address
        self.healthy = True
        self.fails = ""
        self.served = 0
        super().__init__((address, PORT), Answer)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def end(self) -> None:
        """Ends as a pod does that has finished its requests: nothing listens any more."""
        self.shutdown()
        self.server_close()


class Answer(BaseHTTPRequestHandler):
    """The answers of a pod."""

    protocol_version = "HTTP/1.1"
    server: Pod

    def do_GET(self) -> None:
        """Health, a failure, or the pod's address."""
        status = 200
        if self.path == "/healthz":
            status = 200 if self.server.healthy else 503
        else:
            self.server.served += 1
            if self.server.fails == "reset":
                self.close_connection = True
                return
            status = 503 if self.server.fails == "503" else 200
        text = self.server.address.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def raise_loopback() -> None:
    """A new network namespace has a loopback device that is down."""
    up_and_running = 0x41
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", up_and_running))


def until(holds, what: str) -> None:  # noqa: ANN001 - any callable
    """Waits until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE_S} s: {what}"
        time.sleep(0.02)


def get(path: str) -> tuple[int, str]:
    """Status and body of a request over its own connection."""
    connection = http.client.HTTPConnection("127.0.0.1", WEB, timeout=PATIENCE_S)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def ready() -> bool:
    """Whether the gateway listens and forwards."""
    try:
        return get("/")[0] == 200
    except OSError:
        return False


def publish(*addresses: str) -> None:
    """Changes the addresses of the name. dnsmasq reads the file again on SIGHUP."""
    HOSTS.write_text("".join(f"{address} pods.team.svc.test\n" for address in addresses))
    names.send_signal(signal.SIGHUP)


class Load:
    """Requests over kept-alive connections until the end of the block. Keeps every failure."""

    def __enter__(self) -> "Load":
        self.failures: list[str] = []
        self.answers: list[str] = []
        self.stop = False
        self.threads = [threading.Thread(target=self.send) for _ in range(4)]
        for thread in self.threads:
            thread.start()
        return self

    def send(self) -> None:
        """Sends one request after the other."""
        connection = http.client.HTTPConnection("127.0.0.1", WEB, timeout=PATIENCE_S)
        while not self.stop:
            try:
                connection.request("GET", "/")
                answer = connection.getresponse()
                body = answer.read().decode()
                if answer.status == 200:
                    self.answers.append(body)
                else:
                    self.failures.append(f"{answer.status} {body}")
            except (OSError, http.client.HTTPException) as problem:
                self.failures.append(repr(problem))
                connection.close()
        connection.close()

    def __exit__(self, *_: object) -> None:
        self.stop = True
        for thread in self.threads:
            thread.join()

    def reaches(self, pod: Pod) -> None:
        """Waits until the pod serves many requests."""
        begin = pod.served
        until(lambda: pod.served > begin + 50, f"{pod.address} is used")


def rolling() -> None:
    """Replaces each pod by another, as a rolling update does."""
    old = [Pod("127.0.0.2"), Pod("127.0.0.3")]
    publish("127.0.0.2", "127.0.0.3")
    until(ready, "the gateway is ready")
    with Load() as load:
        for pod in old:
            load.reaches(pod)
        for at, pod in enumerate(old):
            new = Pod(f"127.0.0.{10 + at}")
            current = [other.address for other in old[at + 1 :]] + [f"127.0.0.{10 + n}" for n in range(at + 1)]
            publish(*current)
            load.reaches(new)
            # A pod ends some time after its address is gone.
            last = -1
            while last != pod.served:
                last = pod.served
                time.sleep(1.5)
            pod.end()
            pods[new.address] = new
    equal("failed requests", load.failures[:3], [])
    assert {"127.0.0.2", "127.0.0.3", "127.0.0.10", "127.0.0.11"} == set(load.answers), set(load.answers)


def without_names() -> None:
    """The name server ends and starts again."""
    global names  # noqa: PLW0603
    names.terminate()
    names.wait()
    with Load() as load:
        load.reaches(pods["127.0.0.10"])
        time.sleep(3)
        load.reaches(pods["127.0.0.11"])
    equal("failed requests", load.failures[:3], [])
    names = name_server()


def unhealthy() -> None:
    """A pod that fails its health check, while the name still has its address."""
    one, other = pods["127.0.0.10"], pods["127.0.0.11"]
    one.healthy = False
    with Load() as load:
        load.reaches(other)
        last = -1
        until(lambda: settled(one), f"{one.address} receives nothing")
        last = one.served
        load.reaches(other)
        equal("requests at the unhealthy pod", one.served - last, 0)
        other.healthy = False
        until(lambda: any("503" in failure for failure in load.failures), "all are unhealthy")
        one.healthy = other.healthy = True
        load.reaches(one)
    assert all("upstream_unhealthy" in failure for failure in load.failures), load.failures[:3]


def settled(pod: Pod) -> bool:
    """Whether a pod receives nothing for a while."""
    before = pod.served
    time.sleep(0.5)
    return pod.served == before


def affinity() -> None:
    """curl with a cookie jar is a browser."""
    until(lambda: get("/")[0] == 200, "a pod is healthy")
    seen = set()
    for browser in range(8):
        jar = FOLDER / f"jar-{browser}"
        command = ["curl", "-sS", "--noproxy", "*", "-b", str(jar), "-c", str(jar), f"http://127.0.0.1:{WEB}/kept"]
        answers = {subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(6)}
        equal("pods of one browser", len(answers), 1)
        seen |= answers
    assert len(seen) == 2, f"all browsers are on {seen}"
    cookie = (FOLDER / "jar-0").read_text().split()
    assert not any(address in " ".join(cookie) for address in pods), cookie


def retries() -> None:
    """A pod that breaks connections, and one that is overloaded: the other one answers."""
    one = pods["127.0.0.10"]
    for failure in ("reset", "503"):
        one.fails = failure
        begin = one.served
        for _ in range(20):
            equal(f"the answer with {failure}", get("/retried"), (200, "127.0.0.11"))
        assert one.served > begin, "the failing pod was asked"
    one.fails = ""


def name_server() -> subprocess.Popen:
    """dnsmasq, with the addresses of one file. As a daemon it would change its group, which the
    namespace does not allow."""
    command = [
        os.environ["ENDPOINTS_DNSMASQ"], "--no-daemon", "--conf-file=/dev/null", "--no-resolv", "--no-hosts",
        f"--addn-hosts={HOSTS}", "--local=/test/", "--local-ttl=1", "--listen-address=127.0.0.1", "--bind-interfaces",
        "--pid-file",
    ]  # fmt: skip
    started = subprocess.Popen(command, stdout=(FOLDER / "dnsmasq.log").open("ab"), stderr=subprocess.STDOUT)
    # Before that, SIGHUP would end it.
    until(lambda: listens(53), "dnsmasq listens")
    return started


def listens(port: int) -> bool:
    """Whether something listens on a TCP port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


raise_loopback()
(FOLDER / "resolv.conf").write_text("nameserver 127.0.0.1\nsearch svc.test\noptions ndots:5 timeout:1 attempts:1\n")
subprocess.run(["mount", "--bind", str(FOLDER / "resolv.conf"), "/etc/resolv.conf"], check=True)
HOSTS.write_text("")
pods: dict[str, Pod] = {}
names = name_server()
gateway = subprocess.Popen(
    [os.environ["ENDPOINTS_POSTERN"], "serve", "--config", os.environ["ENDPOINTS_CONFIGURATION"]],
    stdout=(FOLDER / "postern.log").open("ab"), stderr=subprocess.STDOUT,
)  # fmt: skip
try:
    check("pods are replaced under load without a failed request", rolling)
    check("without its name server the gateway keeps the addresses", without_names)
    check("a pod that fails its health check receives no request", unhealthy)
    check("a browser stays on its pod by a cookie", affinity)
    check("requests to a failing pod are sent again to another", retries)
finally:
    for process in (gateway, names):
        process.terminate()
        process.wait()
