"""Stands in for `kubectl` where none is installed: the commands of docs/start/sidecar.md, and no others.

It makes the same calls to the API server and prints the same lines.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

RBAC = "rbac.authorization.k8s.io"
# Resource, and whether it belongs to a namespace.
KINDS = {
    "serviceaccount": ("ServiceAccount", "", "serviceaccounts", True),
    "role": ("Role", RBAC, "roles", True),
    "rolebinding": ("RoleBinding", RBAC, "rolebindings", True),
    "clusterrole": ("ClusterRole", RBAC, "clusterroles", False),
    "clusterrolebinding": ("ClusterRoleBinding", RBAC, "clusterrolebindings", False),
}
NAMESPACE = "default"


class Server:
    """The API server that KUBECONFIG names. The file must be JSON."""

    def __init__(self) -> None:
        self.configuration = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        cluster = self.configuration["clusters"][0]["cluster"]
        self.base = cluster["server"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=ca)
        self._token = self.configuration["users"][0]["user"]["token"]

    def call(self, method: str, path: str, content: object = None) -> bytes:
        """The body of the answer. Exits with the server's message if it refuses."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.base + path, data=body, headers=headers, method=method)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as refused:
            sys.exit(f"error: {json.loads(refused.read()).get('message')}")


def place(kind: str, name: str = "") -> str:
    """The path of a kind, or of one object."""
    _, group, resource, spaced = KINDS[kind]
    root = f"/apis/{group}/v1" if group else "/api/v1"
    return f"{root}{f'/namespaces/{NAMESPACE}' if spaced else ''}/{resource}{f'/{name}' if name else ''}"


def shown(kind: str) -> str:
    """A kind as kubectl prints it."""
    _, group, _, _ = KINDS[kind]
    return f"{kind}.{group}" if group else kind


def rules(options: argparse.Namespace) -> list[dict]:
    """One rule for each API group."""
    groups: dict[str, list[str]] = {}
    for resource in (one for text in options.resource for one in text.split(",")):
        # services/proxy, roles.rbac.authorization.k8s.io
        name, _, group = re.sub(r"^([^./]+)(/[^.]+)?\.?(.*)$", r"\1\2 \3", resource).partition(" ")
        groups.setdefault(group, []).append(name)
    named = {"resourceNames": options.resource_name} if options.resource_name else {}
    return [
        {"apiGroups": [group], "resources": names, "verbs": options.verb.split(","), **named}
        for group, names in groups.items()
    ]


def create(server: Server, options: argparse.Namespace) -> None:
    """`create KIND NAME`."""
    kind, name = options.kind, options.name
    if kind == "token":
        spec = {"audiences": [options.audience]} if options.audience else {}
        path = f"{place('serviceaccount', name)}/token"
        content = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = server.call("POST", path, content)
        print(json.loads(answer)["status"]["token"])
        return
    title, group, _, _ = KINDS[kind]
    content: dict = {"apiVersion": f"{group}/v1" if group else "v1", "kind": title, "metadata": {"name": name}}
    if kind in ("role", "clusterrole"):
        content["rules"] = rules(options)
    if kind.endswith("binding"):
        space, account = options.serviceaccount.split(":")
        role = ("ClusterRole", options.clusterrole) if options.clusterrole else ("Role", options.role)
        content["roleRef"] = {"apiGroup": RBAC, "kind": role[0], "name": role[1]}
        content["subjects"] = [{"kind": "ServiceAccount", "namespace": space, "name": account}]
    server.call("POST", place(kind), content)
    print(f"{shown(kind)}/{name} created")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="kubectl", allow_abbrev=False)
    parser.add_argument("verb_", choices=("create", "delete", "get", "config"))
    parser.add_argument("kind", nargs="?")
    parser.add_argument("name", nargs="?")
    for option in ("verb", "clusterrole", "role", "serviceaccount", "audience"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--resource", action="append", default=[])
    parser.add_argument("--resource-name", action="append", default=[])
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--minify", action="store_true")
    parser.add_argument("--flatten", action="store_true")
    parser.add_argument("-o", dest="output")
    options = parser.parse_intermixed_args()
    server = Server()
    if options.verb_ == "create":
        create(server, options)
    elif options.verb_ == "delete":
        server.call("DELETE", place(options.kind, options.name))
        print(f'{shown(options.kind)} "{options.name}" deleted')
    elif options.verb_ == "get" and options.raw:
        sys.stdout.write(server.call("GET", options.kind).decode())
    elif options.kind == "view" and options.output:
        found: object = server.configuration
        for part in re.findall(r"[\w-]+", options.output.removeprefix("jsonpath=")):
            found = found[int(part)] if isinstance(found, list) else found[part]  # type: ignore[index]
        sys.stdout.write(str(found))
    else:
        parser.error("not understood here")


main()
