"""Scheduler and kubelet of the cluster's only node.

Owns: the Node, the binding of pods to it, and the set of running pods.
Does not own: what happens in a pod (pod), and which pods there should be: the deployment and
replicaset controllers are the real ones.
"""

from __future__ import annotations

import threading
from pathlib import Path

from .control_plane import KUBELET_PORT, ControlPlane
from .kubelet_server import serve
from .logs import Collector, now
from .network import NODE, PODS, Network
from .objects import call
from .pod import MERGE, Pod, Program
from .watch import Watch

NODE_NAME = "node"


class Kubelet:
    """Runs the pods."""

    def __init__(self, plane: ControlPlane, network: Network, program: Program, folder: Path) -> None:
        """`program` returns the command that runs an image; None: pods with the image are reported as
        running and ready, without a process."""
        self._plane, self._network, self._program = plane, network, program
        self._folder = folder / "pods"
        (folder / "logs").mkdir(exist_ok=True)
        self._collector = Collector()
        self._pods: dict[str, Pod] = {}
        self._lock = threading.Lock()

    def start(self) -> None:
        """Registers the node and follows the pods."""
        self._collector.start()
        authority = self._plane.stage.authority
        serve(
            NODE, KUBELET_PORT, authority.issue("kubelet", "/CN=kubelet", "serverAuth", f"DNS:{NODE_NAME},IP:{NODE}"),
            authority.certificate, self._log,
        )  # fmt: skip
        self._register()
        Watch(self._plane.cluster, "/api/v1/pods", self._changed, self._removed).start()

    def _register(self) -> None:
        cluster = self._plane.cluster
        cluster.expect("POST", "/api/v1/nodes", {
            "metadata": {
                "name": NODE_NAME, "labels": {"kubernetes.io/hostname": NODE_NAME, "kubernetes.io/os": "linux"},
            },
            "spec": {"podCIDR": str(PODS)},
        })  # fmt: skip
        size = {"cpu": "64", "memory": "256Gi", "pods": "10000"}
        cluster.expect("PATCH", f"/api/v1/nodes/{NODE_NAME}/status", {"status": {
            "addresses": [{"type": "InternalIP", "address": NODE}, {"type": "Hostname", "address": NODE_NAME}],
            "capacity": size, "allocatable": size, "daemonEndpoints": {"kubeletEndpoint": {"Port": KUBELET_PORT}},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": now()}],
        }}, kind=MERGE)  # fmt: skip

    def _changed(self, found: dict) -> None:
        uid = found["metadata"]["uid"]
        with self._lock:
            pod = self._pods.get(uid)
            if pod is None and found.get("status", {}).get("phase") not in ("Succeeded", "Failed"):
                pod = Pod(
                    self._plane.cluster, self._network, self._collector, found, self._program, self._folder
                )
                self._pods[uid] = pod
                threading.Thread(target=self._begin, args=(pod, found), daemon=True).start()
        if pod is not None and "deletionTimestamp" in found["metadata"]:
            pod.delete(found["metadata"].get("deletionGracePeriodSeconds"))

    def _begin(self, pod: Pod, found: dict) -> None:
        """Binds a pod to the node, as a scheduler does, and starts it."""
        if not found["spec"].get("nodeName"):
            path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.pod_name}/binding"
            call(self._plane.cluster, "POST", path, {
                "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.pod_name, "namespace": pod.namespace},
                "target": {"apiVersion": "v1", "kind": "Node", "name": NODE_NAME},
            })  # fmt: skip
        pod.start()

    def _removed(self, found: dict) -> None:
        with self._lock:
            pod = self._pods.pop(found["metadata"]["uid"], None)
        if pod is not None:
            pod.delete(0)

    def _log(self, namespace: str, pod: str, container: str) -> Path | None:
        with self._lock:
            for running in self._pods.values():
                for one in running.containers:
                    if (running.namespace, running.pod_name, one.name) == (namespace, pod, container) and one.log.exists():
                        return one.log
        return None
