"""Calls to the API server: manifests (files of YAML with one or more objects) are applied, and calls
are repeated while the server does not answer.

Owns: which path of the API an object has.
Does not own: the content; the API server parses and validates it, field by field.
"""

from __future__ import annotations

import http.client
import re
import time
from pathlib import Path

from clients.cluster import JSON, Cluster
from clients.manifests import APPLY, Document
from clients.report import Fault

ANSWER_S = 60
RETRY_S = 0.2
STRICT = "fieldManager=testbed&force=true&fieldValidation=Strict"


def documents(file: Path, text: str) -> list[Document]:
    """The objects of a file."""
    parts = re.split(r"^---$", text, flags=re.M)
    return [Document(file.name, part) for part in parts if re.search(r"^kind:", part, re.M)]


def call(cluster: Cluster, method: str, path: str, content: object, kind: str = JSON) -> tuple[int, dict]:
    """Cluster.call, repeated while the server does not answer, as all parts of Kubernetes do."""
    deadline = time.monotonic() + ANSWER_S
    while True:
        try:
            return cluster.call(method, path, content, kind=kind)
        except (OSError, http.client.HTTPException):
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_S)


class Objects:
    """Applies objects of any kind that the API server knows."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # Resource and whether it belongs to a namespace, by kind, for each version of a group.
        self._kinds: dict[str, dict[str, tuple[str, bool]]] = {}

    def apply(self, document: Document) -> None:
        """Creates an object, or changes it to this content (server-side apply)."""
        self._cluster.expect("PATCH", f"{self.path(document)}?{STRICT}", document.text.encode(), APPLY)

    def path(self, document: Document) -> str:
        """API path of an object."""
        version = document.line("apiVersion") or ""
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if document.kind not in self._kinds.get(root, {}):
            found = self._cluster.expect("GET", root)["resources"]
            self._kinds[root] = {
                one["kind"]: (one["name"], one["namespaced"]) for one in found if "/" not in one["name"]
            }
        if document.kind not in self._kinds[root]:
            raise Fault(f"{document}: the API server has no kind {document.kind} in {version}")
        resource, in_namespace = self._kinds[root][document.kind]
        space = f"/namespaces/{document.line('namespace', 2) or 'default'}" if in_namespace else ""
        name = (document.line("name", 2) or "").strip("'\"")
        return f"{root}{space}/{resource}/{name}"
