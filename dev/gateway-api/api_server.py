"""The API server of the cluster that dev/gateway-api-conformance starts, for checks.

Owns: calls, server-side apply, and waiting until something holds.
Does not own: which objects there are.
"""

from __future__ import annotations

import json
import os
import ssl
import time
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable
from pathlib import Path

from clients.report import Fault, expect

WAIT_S = 30
JSON, APPLY = "application/json", "application/apply-patch+yaml"
GATEWAY_GROUP = "gateway.networking.k8s.io"
POLICY_GROUP = "access.postern.dev"
RBAC = "rbac.authorization.k8s.io/v1"
ISSUER = "https://cluster.test"
# Resource and whether it belongs to a namespace, by kind.
KINDS = {
    "Namespace": ("namespaces", False), "ServiceAccount": ("serviceaccounts", True), "Secret": ("secrets", True),
    "ConfigMap": ("configmaps", True), "Service": ("services", True), "Pod": ("pods", True),
    "Deployment": ("deployments", True), "GatewayClass": ("gatewayclasses", False), "Gateway": ("gateways", True),
    "HTTPRoute": ("httproutes", True), "ReferenceGrant": ("referencegrants", True), "AccessPolicy": ("accesspolicies", True),
    "Role": ("roles", True), "RoleBinding": ("rolebindings", True), "ClusterRole": ("clusterroles", False),
    "ClusterRoleBinding": ("clusterrolebindings", False), "Lease": ("leases", True),
    "CustomResourceDefinition": ("customresourcedefinitions", False),
}  # fmt: skip
VERSIONS = {
    "Deployment": "apps/v1", "AccessPolicy": f"{POLICY_GROUP}/v1alpha1", "Lease": "coordination.k8s.io/v1",
    "CustomResourceDefinition": "apiextensions.k8s.io/v1",
    **dict.fromkeys(("GatewayClass", "Gateway", "HTTPRoute", "ReferenceGrant"), f"{GATEWAY_GROUP}/v1"),
    **dict.fromkeys(("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"), RBAC),
}  # fmt: skip


def until(what: str, holds: Callable[[], object], within: float = WAIT_S, pause: float = 0.05) -> object:
    """Waits until something holds. Returns it."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        found = holds()
        if found:
            return found
        time.sleep(pause)
    raise Fault(f"not within {within:g} s: {what}")


class Api:
    """The API server of KUBECONFIG, as dev/gateway-api-conformance writes it."""

    def __init__(self) -> None:
        found = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        cluster = found["clusters"][0]["cluster"]
        self.base, self._token = cluster["server"], found["users"][0]["user"]["token"]
        self._context = ssl.create_default_context(cadata=b64decode(cluster["certificate-authority-data"]).decode())

    def text(self, method: str, path: str, content: object = None, kind: str = JSON) -> tuple[int, str]:
        """Status and body, whatever the status."""
        body = content.encode() if isinstance(content, str) else None if content is None else json.dumps(content).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind}
        request = urllib.request.Request(self.base + path, data=body, headers=headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S, context=self._context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def __call__(self, method: str, path: str, content: object = None, kind: str = JSON) -> dict:
        """A call that must succeed."""
        status, text = self.text(method, path, content, kind)
        expect(status < 300, f"{method} {path}: {status} {text[:300]}")
        return json.loads(text)

    def path(self, kind: str, space: str | None = None, name: str | None = None) -> str:
        """Path of a resource or an object."""
        version, (resource, in_namespace) = VERSIONS.get(kind, "v1"), KINDS[kind]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        place = f"/namespaces/{space}" if in_namespace and space else ""
        return f"{root}{place}/{resource}" + (f"/{name}" if name else "")

    def apply(self, kind: str, space: str | None, name: str, **content: object) -> dict:
        """Creates an object or changes it. Labels are given as `labels`."""
        labels = content.pop("labels", None)
        metadata = {"name": name} | ({"namespace": space} if KINDS[kind][1] else {}) | ({"labels": labels} if labels else {})
        body = {"apiVersion": VERSIONS.get(kind, "v1"), "kind": kind, "metadata": metadata, **content}
        return self("PATCH", f"{self.path(kind, space, name)}?fieldManager=checks&force=true", body, APPLY)

    def get(self, kind: str, space: str | None, name: str) -> dict:
        """An object."""
        return self("GET", self.path(kind, space, name))

    def delete(self, kind: str, space: str | None, name: str) -> None:
        """Deletes an object."""
        self("DELETE", self.path(kind, space, name))

    def token(self, space: str, account: str) -> str:
        """A token of a service account, for an hour."""
        path = f"{self.path('ServiceAccount', space, account)}/token"
        request = {"spec": {"audiences": [ISSUER], "expirationSeconds": 3600}}
        made = self("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", **request})
        return made["status"]["token"]

    def conditions(self, kind: str, space: str, name: str) -> dict[str, str]:
        """Reasons of an object's conditions by their types; of a route or policy those of its first
        parent. A condition that is not true has a dash before the reason."""
        status = self.get(kind, space, name).get("status", {})
        for parents in ("parents", "ancestors"):
            if parents in status:
                status = (status[parents] or [{}])[0]
        found = status.get("conditions", [])
        return {one["type"]: ("" if one["status"] == "True" else "-") + one["reason"] for one in found}
