"""A real Kubernetes API server with its database, etcd, and the part of its API that the checks
need."""

from __future__ import annotations

import base64
import http.client
import json
import re
import secrets
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from .keys import openssl
from .process import Server
from .report import Fault, Skip
from .stage import CACHE, Stage, program

ISSUER = "https://cluster.test"
READY_S = 120
RBAC = "/apis/rbac.authorization.k8s.io/v1"
JSON = "application/json"


class Cluster:
    """etcd and kube-apiserver. Nothing else runs: no controller, no kubelet."""

    def __init__(
        self, stage: Stage, address: str = "127.0.0.1", services: str = "10.0.0.0/24",
        certificate: tuple[Path, Path] | None = None,
    ) -> None:  # fmt: skip
        """The API server listens on `address` with this certificate and key (that of the stage) and
        gives Services addresses of the range `services`."""
        self.folder = stage.folder / "kubernetes"
        self.folder.mkdir(exist_ok=True)
        self.port = stage.port("apiserver")
        self.base = f"https://{address}:{self.port}"
        self._address, self._services = address, services
        self._certificate = certificate or (stage.certificate, stage.key)
        self.ca = stage.authority.certificate
        self._stage = stage
        self.admin = secrets.token_urlsafe(24)
        self.context = ssl.create_default_context(cafile=str(self.ca))
        self._key, public = self.folder / "accounts.key", self.folder / "accounts.pub"
        openssl("genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", str(self._key))
        openssl("rsa", "-in", str(self._key), "-pubout", "-out", str(public))
        (self.folder / "tokens.csv").write_text(f'{self.admin},admin,admin,"system:masters"\n')
        self.etcd: Server | None = None
        self.server: Server | None = None

    def start(self, options: Sequence[str] = ()) -> None:
        """Starts both, with further options of the API server, and waits until they are ready."""
        executable = CACHE / "bin/kube-apiserver"
        if not executable.exists():
            log = ".cache/logs/setup-kubernetes.log"
            raise Skip(f"kube-apiserver is not there; run dev/setup kubernetes (its log: {log})")
        port, peer = self._stage.port("etcd"), self._stage.port("etcd-peer")
        url, peer_url = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        self.etcd = self._stage.server("etcd", [
            program("etcd"), "--name=one", f"--data-dir={self.folder / 'etcd'}", "--log-level=error",
            f"--listen-client-urls={url}", f"--advertise-client-urls={url}", f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}", f"--initial-cluster=one={peer_url}",
        ], port).start()  # fmt: skip
        self.server = self._stage.server("kube-apiserver", [
            str(executable), f"--etcd-servers={url}", f"--bind-address={self._address}",
            f"--advertise-address={self._address}",
            f"--secure-port={self.port}", f"--tls-cert-file={self._certificate[0]}",
            f"--tls-private-key-file={self._certificate[1]}", f"--cert-dir={self.folder}",
            f"--token-auth-file={self.folder / 'tokens.csv'}", "--authorization-mode=RBAC", "--anonymous-auth=false",
            f"--service-account-issuer={ISSUER}", f"--service-account-key-file={self.folder / 'accounts.pub'}",
            f"--service-account-signing-key-file={self._key}", f"--api-audiences={ISSUER}",
            f"--service-cluster-ip-range={self._services}", "--endpoint-reconciler-type=none", "--profiling=false",
            "--disable-admission-plugins=ServiceAccount", "--v=1", *options,
        ], self.port)  # fmt: skip
        self.resume()

    def resume(self) -> None:
        """Starts the API server on the existing database."""
        assert self.server is not None
        self.server.spawn()
        deadline = time.monotonic() + READY_S
        while time.monotonic() < deadline:
            self.server.check_alive()
            try:
                if self.call("GET", "/readyz")[0] == http.client.OK:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        raise Fault(f"the API server is not ready after {READY_S} s: {self.server.last_words()}")

    def call(
        self, method: str, path: str, content: object = None, token: str | None = None, kind: str = JSON
    ) -> tuple[int, dict]:
        """Calls the API. Returns status and response, whatever the status. Without a token the
        administrator calls."""
        body = content if isinstance(content, bytes) or content is None else json.dumps(content).encode()
        headers = {"Authorization": f"Bearer {token or self.admin}", "Content-Type": kind, "Accept": JSON}
        request = urllib.request.Request(self.base + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30, context=self.context) as answer:
                status, text = answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            status, text = refused.code, refused.read()
        try:
            return status, json.loads(text)
        except ValueError:
            return status, {"text": text.decode(errors="replace")}

    def expect(self, method: str, path: str, content: object = None, kind: str = JSON) -> dict:
        """A call that must succeed."""
        status, answer = self.call(method, path, content, kind=kind)
        if status >= http.client.MULTIPLE_CHOICES:
            raise Fault(f"the API server answered {method} {path} with {status}: {answer.get('message', answer)}")
        return answer

    def wait_for(self, path: str) -> None:
        """Waits until a path of the API exists: that of a kind that was just defined."""
        deadline = time.monotonic() + READY_S
        while self.call("GET", path)[0] != http.client.OK:
            if time.monotonic() > deadline:
                raise Fault(f"the API server has no {path} after {READY_S} s")
            time.sleep(0.1)

    def namespace(self, name: str) -> None:
        """Creates a namespace."""
        self.expect("POST", "/api/v1/namespaces", {"metadata": {"name": name}})

    def account(self, namespace: str, name: str) -> str:
        """Creates a service account. Returns its uid."""
        created = self.expect("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        return created["metadata"]["uid"]

    def token(self, namespace: str, name: str, audience: str | None = None, seconds: int = 3600) -> str:
        """Returns a token of a service account (TokenRequest). Without an audience it is for the
        API server."""
        spec: dict = {"expirationSeconds": seconds}
        if audience is not None:
            spec["audiences"] = [audience]
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        return self.expect("POST", path, {"spec": spec})["status"]["token"]

    def resigned(self, token: str, **claims: object) -> str:
        """Returns the token with other claims, signed with the server's own key."""
        head, payload, _ = token.split(".")
        content = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))) | claims
        payload = base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()
        signature = openssl("dgst", "-sha256", "-sign", str(self._key), data=f"{head}.{payload}".encode())
        return f"{head}.{payload}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"

    def role(self, namespace: str | None, name: str, *rules: dict) -> None:
        """Creates a Role, or without a namespace a ClusterRole."""
        where, kind = (f"/namespaces/{namespace}/roles", "Role") if namespace else ("/clusterroles", "ClusterRole")
        self.expect("POST", RBAC + where, {"kind": kind, "apiVersion": "rbac.authorization.k8s.io/v1",
                                           "metadata": {"name": name}, "rules": list(rules)})  # fmt: skip

    def bind(self, namespace: str | None, name: str, role: str, subject: dict, kind: str | None = None) -> None:
        """Creates a RoleBinding of that name, or without a namespace a ClusterRoleBinding."""
        where, binding = ("clusterrolebindings", "ClusterRoleBinding")
        if namespace:
            where, binding = (f"namespaces/{namespace}/rolebindings", "RoleBinding")
        kind = kind or ("Role" if namespace else "ClusterRole")
        self.expect("POST", f"{RBAC}/{where}", {
            "kind": binding, "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role}, "subjects": [subject],
        })  # fmt: skip

    def unbind(self, namespace: str | None, name: str) -> None:
        """Deletes a binding."""
        where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
        self.expect("DELETE", f"{RBAC}/{where}/{name}")

    def created(self, resource: str) -> int:
        """Number of objects of this resource created since the server started. Reviews are created
        too."""
        _, body = self.call("GET", "/metrics")
        labels = f'(?=[^}}]*resource="{resource}")(?=[^}}]*verb="POST")[^}}]*'
        counts = re.findall(rf"apiserver_request_total\{{{labels}\}} (\S+)", body["text"])
        return sum(int(float(count)) for count in counts)


def user(name: str) -> dict:
    """A user as the subject of a binding."""
    return {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name}


def account(namespace: str, name: str) -> dict:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "namespace": namespace, "name": name}


def connections(pid: int, port: int) -> set[str]:
    """Local addresses of a process's connections to a loopback port."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(descriptor.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            sockets.add(target[8:-1])
    found = set()
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[9] in sockets and fields[3] == "01" and int(fields[2].split(":")[1], 16) == port:
            found.add(fields[1])
    return found
