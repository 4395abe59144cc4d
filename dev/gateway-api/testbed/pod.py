"""A pod from its start to its end.

Owns: the pod's namespaces, its containers, its status, and the end of its deletion.
Does not own: which pods there are (kubelet), what a volume contains (volumes).

Flow: `run` waits until the objects that the pod names exist. It starts a process that only keeps a
network and a mount namespace open, as a container runtime does, connects it with the bridge, and
starts the containers in it. Then it keeps the status current until the pod is deleted, ends the
containers, and removes the pod from the API.
"""

from __future__ import annotations

import copy
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from http.client import HTTPException
from pathlib import Path

from clients.cluster import Cluster
from clients.report import described

from .container import Container, environment, expanded
from .logs import Collector, now
from .network import NODE, Network
from .objects import call
from .volumes import Missing, Unsupported, Volumes, values
from .watch import key

CHECK_S = 0.2
MERGE = "application/merge-patch+json"
# Program of a container image; None: the image is not run.
Program = Callable[[str], Sequence[str] | None]


class Sandbox:
    """A network namespace and a mount namespace."""

    def __init__(self, mounts: str) -> None:
        """`mounts` are shell commands that run in the mount namespace."""
        script = f"set -e\n{mounts}echo ready\nexec sleep infinity\n"
        self._process = subprocess.Popen(
            ["unshare", "--net", "--mount", "--propagation", "private", "sh", "-c", script],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline() != b"ready\n":
            why = self._process.stderr.read().decode(errors="replace").strip()
            self.close()
            raise RuntimeError(f"the namespaces of the pod were not created: {why}")
        self.pid = self._process.pid

    def command(self, arguments: Sequence[str]) -> list[str]:
        """A command line that runs in it."""
        return ["nsenter", "--target", str(self.pid), "--net", "--mount", "--", *arguments]

    def close(self) -> None:
        """Ends it. Its devices end with it."""
        self._process.kill()
        self._process.wait()
        for end in (self._process.stdout, self._process.stderr):
            if end is not None:
                end.close()


class Pod(threading.Thread):
    """One pod, on a thread of its own."""

    def __init__(
        self, cluster: Cluster, network: Network, collector: Collector, pod: dict, program: Program, folder: Path
    ) -> None:
        """`folder` holds the volumes (in memory); the containers' output is beside it."""
        self.namespace, self.pod_name = key(pod)
        super().__init__(name=f"pod {self.namespace}/{self.pod_name}", daemon=True)
        self._cluster, self._network, self._pod, self._program = cluster, network, copy.deepcopy(pod), program
        self._path = f"/api/v1/namespaces/{self.namespace}/pods/{self.pod_name}"
        self._volumes = folder / pod["metadata"]["uid"]
        logs = folder.parent / "logs"
        self.containers = [
            Container(spec, logs / f"{self.namespace}_{self.pod_name}_{spec['name']}.log", collector)
            for spec in pod["spec"]["containers"]
        ]
        self._deleted = threading.Event()
        self._grace = pod["spec"].get("terminationGracePeriodSeconds", 30)
        self._since: dict[str, tuple[str, str]] = {}
        self._sandbox: Sandbox | None = None
        self._created = now()

    def delete(self, grace: int | None) -> None:
        """The API server wants it deleted, within `grace` seconds."""
        if grace is not None:
            self._grace = grace
        self._deleted.set()

    def run(self) -> None:
        """Until the pod is deleted."""
        try:
            mounts = self._wait_for_objects()
            if mounts is not None:
                self._start_containers(mounts)
                self._keep_status()
        except Exception as problem:  # noqa: BLE001 - any of them is this pod's failure
            self._report_failure(described(problem))
            self._deleted.wait()
        self._end()

    def _wait_for_objects(self) -> str | None:
        """Creates the volumes. None: the pod was deleted meanwhile."""
        if self._pod["spec"].get("initContainers"):
            raise Unsupported("initContainers")
        reported = ""
        while not self._deleted.is_set():
            try:
                if not any(self._program(one.spec["image"]) for one in self.containers):
                    return ""
                return Volumes(self._cluster, self._pod, self._volumes).create()
            except Missing as missing:
                if str(missing) != reported:
                    reported = str(missing)
                    self._report_failure(f"waiting for {reported}", "ContainerCreating")
                shutil.rmtree(self._volumes, ignore_errors=True)
                self._deleted.wait(CHECK_S)
        return None

    def _start_containers(self, mounts: str) -> None:
        address = self._network.address()
        self._pod["status"] = {"podIP": address, "hostIP": NODE}
        if any(self._program(one.spec["image"]) for one in self.containers):
            self._sandbox = Sandbox(mounts)
            self._network.attach(self._sandbox.pid, address)
        for container in self.containers:
            program = self._program(container.spec["image"])
            if program is None or self._sandbox is None:
                container.start([], {})
                continue
            if container.spec.get("command"):
                raise Unsupported(f"`command` of the container {container.name}; its program is {program[0]}")
            variables = self._environment(container.spec)
            arguments = [expanded(one, variables) for one in container.spec.get("args") or []]
            container.start(self._sandbox.command([*program, *arguments]), variables)

    def _environment(self, spec: dict) -> dict[str, str]:
        def read(resource: str, name: str, optional: bool) -> dict[str, bytes]:
            return values(self._cluster, self.namespace, resource, name, optional)

        server = {"KUBERNETES_SERVICE_HOST": NODE, "KUBERNETES_SERVICE_PORT": str(self._cluster.port)}
        return server | environment(self._pod, spec, read)

    def _keep_status(self) -> None:
        """Reports the status whenever it changes. Without the API server containers are started again
        all the same, and the status is reported later."""
        address = self._pod["status"]["podIP"]
        changed = True
        while not self._deleted.is_set():
            for container in self.containers:
                changed = container.check(address) or changed
            if changed:
                try:
                    self._patch(self._status(), self._cluster.call)
                    changed = False
                except (OSError, HTTPException):
                    pass
            self._deleted.wait(CHECK_S)

    def _status(self) -> dict:
        address = self._pod["status"]["podIP"]
        ready = "True" if all(one.ready for one in self.containers) else "False"
        conditions = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": ready, "Ready": ready}
        return {
            "phase": "Running", "hostIP": NODE, "hostIPs": [{"ip": NODE}], "podIP": address,
            "podIPs": [{"ip": address}], "startTime": self._created, "conditions": [self._condition(*one) for one in conditions.items()],
            "containerStatuses": [one.status() for one in self.containers],
        }  # fmt: skip

    def _condition(self, kind: str, status: str) -> dict:
        known, since = self._since.get(kind, ("", ""))
        if known != status:
            since = now()
            self._since[kind] = (status, since)
        return {"type": kind, "status": status, "lastTransitionTime": since}

    def _report_failure(self, why: str, reason: str = "CreateContainerError") -> None:
        waiting = {"ready": False, "started": False, "state": {"waiting": {"reason": reason, "message": why}}}
        self._patch({
            "phase": "Pending", "conditions": [self._condition("Ready", "False")],
            "containerStatuses": [one.status() | waiting for one in self.containers],
        })  # fmt: skip

    def _patch(self, status: dict, send: Callable[..., tuple[int, dict]] | None = None) -> None:
        """Writes the status. A pod that is gone needs none."""
        send = send or partial(call, self._cluster)
        code, answer = send("PATCH", f"{self._path}/status", {"status": status}, kind=MERGE)
        if code not in (200, 404, 409):
            why = answer.get("message", code)
            print(f"pod {self.namespace}/{self.pod_name}: its status was refused: {why}", flush=True)

    def _end(self) -> None:
        for container in self.containers:
            container.request_end()
        deadline = time.monotonic() + self._grace
        for container in self.containers:
            container.end(deadline)
        if self._sandbox is not None:
            self._sandbox.close()
        shutil.rmtree(self._volumes, ignore_errors=True)
        # Only the pod of this uid: another may have its name already.
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._pod["metadata"]["uid"]}}
        call(self._cluster, "DELETE", self._path, options)
