"""The process of a container.

Owns: program, arguments, environment, restarts, and the status that the pod reports of it.
Does not own: the namespaces that it runs in (pod).
"""

from __future__ import annotations

import os
import re
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .logs import Collector, now
from .volumes import Missing, Unsupported, field

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
# How long a process without a readiness probe may take until it listens.
LISTEN_S = 5.0
# Pause before the first restart; it doubles up to the second.
RESTART_S, RESTART_MOST_S = 1.0, 16.0
LISTENING = "0A"  # the state in /proc/net/tcp
Values = Callable[[str, str, bool], dict[str, bytes]]
# A kubelet does not verify certificates in probes.
_ANY_CERTIFICATE = ssl.create_default_context()
_ANY_CERTIFICATE.check_hostname = False
_ANY_CERTIFICATE.verify_mode = ssl.CERT_NONE


def environment(pod: dict, container: dict, values: Values) -> dict[str, str]:
    """The container's environment. `values` reads a Secret or ConfigMap: resource, name, whether it
    may be absent."""
    found = {"PATH": PATH, "HOME": "/root", "HOSTNAME": pod["metadata"]["name"]}
    for entry in container.get("env") or []:
        source = entry.get("valueFrom")
        if source is None:
            found[entry["name"]] = expanded(entry.get("value", ""), found)
        elif "fieldRef" in source:
            found[entry["name"]] = field(pod, source["fieldRef"]["fieldPath"])
        elif "secretKeyRef" in source or "configMapKeyRef" in source:
            resource = "secrets" if "secretKeyRef" in source else "configmaps"
            named = source.get("secretKeyRef") or source["configMapKeyRef"]
            content = values(resource, named["name"], named.get("optional", False))
            if named["key"] in content:
                found[entry["name"]] = content[named["key"]].decode()
            elif not named.get("optional"):
                raise Missing(f"the key {named['key']} of {resource}/{named['name']}")
        else:
            raise Unsupported(f"the variable {entry['name']} with {', '.join(source)}")
    if container.get("envFrom"):
        raise Unsupported("envFrom")
    return found


def expanded(text: str, variables: dict[str, str]) -> str:
    """Replaces $(NAME); $$ is a dollar sign; unknown names stay."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else variables.get(found[1], found[0])

    return re.sub(r"\$\$|\$\(([A-Za-z_][\w.-]*)\)", value, text)


class Container:
    """One container of a pod. Without a program it is only reported as running."""

    def __init__(self, spec: dict, log: Path, collector: Collector) -> None:
        self.spec, self.log, self.name = spec, log, spec["name"]
        self.ready = False
        self.restarts = 0
        self._collector = collector
        self._command: list[str] = []
        self._variables: dict[str, str] = {}
        self._process: subprocess.Popen | None = None
        self._started = ""
        self._since = 0.0
        self._restart_at = 0.0
        self._pause = RESTART_S
        self._last: dict | None = None
        self._next_probe = 0.0

    def start(self, command: list[str], variables: dict[str, str]) -> None:
        """Starts the process. Without a command only the time is noted."""
        self._command, self._variables = command, variables
        self._started, self._since = now(), time.monotonic()
        self.log.touch()
        if not command:
            self.ready = True
            return
        output = self._collector.pipe(self.log)
        try:
            self._process = subprocess.Popen(
                command, env=variables, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        finally:
            os.close(output)

    def check(self, address: str) -> bool:
        """Restarts an ended process and finds out whether it is ready. Returns whether the status has
        changed."""
        if not self._command:
            return False
        before = (self.ready, self.restarts, self._process is None)
        if self._process is None:
            if time.monotonic() >= self._restart_at:
                self.restarts += 1
                self.start(self._command, self._variables)
        elif self._process.poll() is not None:
            self._note_end(self._process.returncode)
        else:
            self._probe(address, self._process.pid)
        return before != (self.ready, self.restarts, self._process is None)

    def _note_end(self, code: int) -> None:
        code = code if code >= 0 else 128 - code
        reason = "Completed" if code == 0 else "Error"
        self._last = {"exitCode": code, "reason": reason, "startedAt": self._started, "finishedAt": now()}
        self._process, self.ready = None, False
        if time.monotonic() - self._since > 10 * RESTART_MOST_S:
            self._pause = RESTART_S
        self._restart_at = time.monotonic() + self._pause
        self._pause = min(2 * self._pause, RESTART_MOST_S)

    def _probe(self, address: str, pid: int) -> None:
        probe = self.spec.get("readinessProbe")
        if probe is None:
            if not self.ready:
                self.ready = listening(pid) or time.monotonic() - self._since > LISTEN_S
            return
        if time.monotonic() < max(self._next_probe, self._since + probe.get("initialDelaySeconds", 0)):
            return
        self.ready = probed(probe, address, self.spec)
        # Until it is ready the first time, more often than the pod asks for.
        self._next_probe = time.monotonic() + (probe.get("periodSeconds", 10) if self.ready else 0.5)

    def request_end(self) -> None:
        """Asks the process to end."""
        self._signal(signal.SIGTERM)

    def end(self, deadline: float) -> None:
        """Waits until it has ended; after the deadline by force."""
        if self._process is not None:
            try:
                self._process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._signal(signal.SIGKILL)
                self._process.wait()
            # What the process started belongs to its session.
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._command, self.ready = [], False

    def _signal(self, number: int) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def status(self) -> dict:
        """ContainerStatus."""
        running = not self._command or self._process is not None
        state = {"running": {"startedAt": self._started}} if running else {"waiting": {"reason": "CrashLoopBackOff"}}
        return {
            "name": self.name, "image": self.spec["image"], "imageID": self.spec["image"], "ready": self.ready,
            "started": running, "restartCount": self.restarts, "state": state,
            "lastState": {"terminated": self._last} if self._last else {},
        }  # fmt: skip


def listening(pid: int) -> bool:
    """Whether some process in the network namespace of this one listens."""
    for name in ("tcp", "tcp6", "udp", "udp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            if name.startswith("udp") or line.split()[3] == LISTENING:
                return True
    return False


def probed(probe: dict, address: str, spec: dict) -> bool:
    """Whether a readiness probe succeeds."""
    wait = probe.get("timeoutSeconds", 1)
    if "tcpSocket" in probe:
        try:
            socket.create_connection((address, port(probe["tcpSocket"]["port"], spec)), wait).close()
            return True
        except OSError:
            return False
    if "httpGet" not in probe:
        raise Unsupported(f"a readiness probe with {', '.join(probe)}")
    action = probe["httpGet"]
    scheme = action.get("scheme", "HTTP").lower()
    url = f"{scheme}://{address}:{port(action['port'], spec)}{action.get('path', '/')}"
    try:
        with urllib.request.urlopen(url, timeout=wait, context=_ANY_CERTIFICATE) as answer:
            return 200 <= answer.status < 400
    except (OSError, urllib.error.HTTPError):
        return False


def port(named: int | str, spec: dict) -> int:
    """The number of a container's port, which may be given by its name."""
    if isinstance(named, int):
        return named
    for one in spec.get("ports") or []:
        if one.get("name") == named:
            return one["containerPort"]
    raise Unsupported(f"a probe of the port {named}, which the container does not name")
