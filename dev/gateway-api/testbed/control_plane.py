"""etcd, the API server and the controllers.

Owns: their options, the kinds of the Gateway API, and the kubeconfig.
Does not own: pods and addresses of Services. Of the real controllers only those run that the suite
needs; no scheduler, node controller or cloud controller does.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path

from clients.cluster import Cluster
from clients.process import Server
from clients.report import Skip
from clients.stage import CACHE, Stage

from .network import NODE, SERVICES
from .objects import Objects, documents

HOME = CACHE / "gateway-api"
CONTROLLERS = (
    "deployment-controller", "replicaset-controller", "endpointslice-controller", "namespace-controller",
    "garbage-collector-controller", "serviceaccount-controller", "root-ca-certificate-publisher-controller",
)  # fmt: skip
KUBELET_PORT = 10250
# Names of the API server for clients in pods.
NAMES = "DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:localhost"


class ControlPlane:
    """A running API server with its database and controllers."""

    def __init__(self, folder: Path, channel: str) -> None:
        """`channel` is that of the kinds: standard or experimental."""
        self.folder = folder
        # The stage's gateway is not used here.
        self.stage = Stage(folder, postern=Path("postern"))
        issue = self.stage.authority.issue
        certificate = issue("apiserver", "/CN=kube-apiserver", "serverAuth", f"{NAMES},IP:{NODE},IP:127.0.0.1")
        self.client = issue("kubelet-client", "/CN=kube-apiserver", "clientAuth", "DNS:kube-apiserver")
        self.cluster = Cluster(self.stage, address=NODE, services=str(SERVICES), certificate=certificate)
        self.kubeconfig = folder / "kubeconfig"
        self._channel = channel

    def start(self) -> None:
        """Starts everything and waits until the kinds of the Gateway API are served."""
        certificate, key = self.client
        self.cluster.start([
            f"--kubelet-client-certificate={certificate}", f"--kubelet-client-key={key}",
            f"--kubelet-certificate-authority={self.stage.authority.certificate}",
            "--kubelet-preferred-address-types=InternalIP", "--allow-privileged=true",
        ])  # fmt: skip
        self._write_kubeconfig()
        self._start_controllers()
        self._define_kinds()

    def alive(self) -> None:
        """Raises Unready if one of them has ended."""
        for server in self.stage.servers:
            server.check_alive()

    def stop(self) -> None:
        """Ends all, last first."""
        self.stage.stop()

    def _write_kubeconfig(self) -> None:
        """In JSON, which is YAML too."""
        ca = base64.b64encode(self.cluster.ca.read_bytes()).decode()
        self.kubeconfig.touch(mode=0o600)
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": {"server": self.cluster.base, "certificate-authority-data": ca}}],
            "users": [{"name": "admin", "user": {"token": self.cluster.admin}}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "admin"}}],
        }, indent=1))  # fmt: skip

    def _start_controllers(self) -> None:
        executable = CACHE / "bin/kube-controller-manager"
        if not executable.exists():
            raise Skip("kube-controller-manager is not there; run dev/setup kubernetes")
        port = self.stage.port("controllers")
        server: Server = self.stage.server("kube-controller-manager", [
            str(executable), f"--kubeconfig={self.kubeconfig}", f"--controllers={','.join(CONTROLLERS)}",
            "--leader-elect=false", f"--root-ca-file={self.cluster.ca}", "--bind-address=127.0.0.1",
            f"--secure-port={port}", f"--cert-dir={self.folder / 'controllers'}", "--profiling=false",
            # Clients wait for these controllers, not the other way round.
            "--kube-api-qps=500", "--kube-api-burst=1000", "--concurrent-deployment-syncs=10",
        ], port)  # fmt: skip
        server.start()

    def _define_kinds(self) -> None:
        folder = HOME / "crds" / self._channel
        objects = Objects(self.cluster)
        for file in sorted(folder.glob("*.yaml")):
            for document in documents(file, file.read_text()):
                objects.apply(document)
        for resource in ("gatewayclasses", "gateways", "httproutes", "grpcroutes"):
            self.cluster.wait_for(f"/apis/gateway.networking.k8s.io/v1/{resource}")
