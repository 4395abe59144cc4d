"""Stands in for `kubectl` where none is installed: the commands of the pages that dev/start-pages
follows, and no others.

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
import time
import urllib.error
import urllib.request
from pathlib import Path

RBAC = "rbac.authorization.k8s.io"
ADMISSION = "admissionregistration.k8s.io"
STANDARD, POLICIES = "gateway.networking.k8s.io", "access.postern.dev"
# Kind, group, resource, whether it belongs to a namespace, version.
KINDS = {
    "serviceaccount": ("ServiceAccount", "", "serviceaccounts", True, "v1"),
    "namespace": ("Namespace", "", "namespaces", False, "v1"),
    "secret": ("Secret", "", "secrets", True, "v1"),
    "service": ("Service", "", "services", True, "v1"),
    "deployment": ("Deployment", "apps", "deployments", True, "v1"),
    "role": ("Role", RBAC, "roles", True, "v1"),
    "rolebinding": ("RoleBinding", RBAC, "rolebindings", True, "v1"),
    "clusterrole": ("ClusterRole", RBAC, "clusterroles", False, "v1"),
    "clusterrolebinding": ("ClusterRoleBinding", RBAC, "clusterrolebindings", False, "v1"),
    "customresourcedefinition": ("CustomResourceDefinition", "apiextensions.k8s.io", "customresourcedefinitions", False, "v1"),
    "validatingadmissionpolicy": ("ValidatingAdmissionPolicy", ADMISSION, "validatingadmissionpolicies", False, "v1"),
    "validatingadmissionpolicybinding": ("ValidatingAdmissionPolicyBinding", ADMISSION, "validatingadmissionpolicybindings", False, "v1"),
    "gatewayclass": ("GatewayClass", STANDARD, "gatewayclasses", False, "v1"),
    "gateway": ("Gateway", STANDARD, "gateways", True, "v1"),
    "httproute": ("HTTPRoute", STANDARD, "httproutes", True, "v1"),
    "referencegrant": ("ReferenceGrant", STANDARD, "referencegrants", True, "v1"),
    "accesspolicy": ("AccessPolicy", POLICIES, "accesspolicies", True, "v1alpha1"),
}
JSON, APPLY = "application/json", "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
NAMESPACE = "default"
WAIT_S = 60


class Server:
    """The API server that KUBECONFIG names. The file must be JSON."""

    def __init__(self) -> None:
        self.configuration = json.loads(Path(os.environ["KUBECONFIG"]).read_text())
        cluster = self.configuration["clusters"][0]["cluster"]
        self.base = cluster["server"]
        ca = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._context = ssl.create_default_context(cadata=ca)
        self._token = self.configuration["users"][0]["user"]["token"]

    def ask(self, method: str, path: str, content: object = None, kind: str = JSON, accept: str = JSON) -> tuple[int, bytes]:
        """Status and body."""
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": kind, "Accept": accept}
        body = content.encode() if isinstance(content, str) else None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(self.base + path, data=body, headers=headers, method=method)
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=self._context)
        )
        try:
            with opener.open(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()

    def call(self, method: str, path: str, content: object = None, kind: str = JSON, accept: str = JSON) -> bytes:
        """The body of the answer. Exits with the server's message if it refuses."""
        status, body = self.ask(method, path, content, kind, accept)
        if status >= 300:
            try:
                message = json.loads(body).get("message")
            except ValueError:
                message = body.decode(errors="replace")
            sys.exit(f"error: {message}")
        return body


def place(kind: str, name: str = "", namespace: str | None = None) -> str:
    """The path of a kind, or of one object."""
    _, group, resource, spaced, version = KINDS[kind]
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}{f'/namespaces/{namespace or NAMESPACE}' if spaced else ''}/{resource}{f'/{name}' if name else ''}"


def shown(kind: str) -> str:
    """A kind as kubectl prints it."""
    group = KINDS[kind][1]
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
    kind, name = options.words[:2]
    if kind == "token":
        spec = {"audiences": [options.audience]} if options.audience else {}
        path = f"{place('serviceaccount', name, options.namespace)}/token"
        content = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer = server.call("POST", path, content)
        print(json.loads(answer)["status"]["token"])
        return
    if kind == "secret":
        secret(server, options)
        return
    title, group, _, _, version = KINDS[kind]
    content: dict = {"apiVersion": f"{group}/{version}" if group else version, "kind": title, "metadata": {"name": name}}
    if kind in ("role", "clusterrole"):
        content["rules"] = rules(options)
    if kind.endswith("binding"):
        space, account = options.serviceaccount.split(":")
        role = ("ClusterRole", options.clusterrole) if options.clusterrole else ("Role", options.role)
        content["roleRef"] = {"apiGroup": RBAC, "kind": role[0], "name": role[1]}
        content["subjects"] = [{"kind": "ServiceAccount", "namespace": space, "name": account}]
    server.call("POST", place(kind, namespace=options.namespace), content)
    print(f"{shown(kind)}/{name} created")


def secret(server: Server, options: argparse.Namespace) -> None:
    """`create secret generic NAME --from-file=FILE`, `create secret tls NAME --cert=FILE --key=FILE`."""
    form, name = options.words[1:]
    files = {Path(file).name: file for file in options.from_file} or {"tls.crt": options.cert, "tls.key": options.key}
    data = {key: base64.b64encode(Path(file).read_bytes()).decode() for key, file in files.items()}
    kind = "kubernetes.io/tls" if form == "tls" else "Opaque"
    content = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "type": kind, "data": data}
    server.call("POST", place("secret", namespace=options.namespace), content)
    print(f"secret/{name} created")


def apply(server: Server, options: argparse.Namespace) -> None:
    """`apply -f FILE`, or a folder of files. The objects are applied by the server."""
    given = Path(options.filename)
    for file in sorted(given.glob("*.yaml")) if given.is_dir() else [given]:
        for text in re.split(r"^---$", file.read_text(), flags=re.M):
            keys = ("kind", "  name", "  namespace")
            named = {key: found[1] for key in keys if (found := re.search(rf'^{key}: "?([^\s"]+)', text, re.M))}
            if "kind" not in named:
                continue
            kind = named["kind"].lower()
            path = place(kind, named["  name"], named.get("  namespace", options.namespace))
            there = server.ask("GET", path)[0] == 200
            server.call("PATCH", f"{path}?fieldManager=kubectl&force=true&fieldValidation=Strict", text, APPLY)
            done = "serverside-applied" if options.server_side else "configured" if there else "created"
            print(f"{shown(kind)}/{named['  name']} {done}")


def follow(value: object, path: str) -> str:
    """What a jsonpath names: fields, indexes, and `[?(@.field=="value")]`."""
    for field, quoted, key, wanted in re.findall(r"\.?([\w-]+)|\['([^']+)'\]|\[\?\(@\.(\w+)==\"([^\"]+)\"\)\]", path.strip("{}")):
        if key:
            value = next((one for one in value if one.get(key) == wanted), None)  # type: ignore[attr-defined]
        elif isinstance(value, list):
            value = value[int(field)] if int(field) < len(value) else None
        else:
            value = (value or {}).get(field or quoted)  # type: ignore[attr-defined]
    return "" if value is None else str(value)


def get(server: Server, options: argparse.Namespace) -> None:
    """`get KIND [NAME]`, as a table or by a jsonpath."""
    kind, name = options.words[0], options.words[1] if len(options.words) > 1 else ""
    path = place(kind, name, options.namespace)
    if options.output:
        sys.stdout.write(follow(json.loads(server.call("GET", path)), options.output.removeprefix("jsonpath=")))
        return
    table = json.loads(server.call("GET", path, accept=TABLE))
    columns = [at for at, one in enumerate(table["columnDefinitions"]) if not one.get("priority")]
    lines = [[table["columnDefinitions"][at]["name"].upper() for at in columns]]
    lines += [["" if row["cells"][at] is None else str(row["cells"][at]) for at in columns] for row in table["rows"]]
    widths = [max(len(line[at]) for line in lines) for at in range(len(columns))]
    for line in lines:
        print("   ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())


def wait(server: Server, options: argparse.Namespace) -> None:
    """`wait --for=condition=TYPE KIND/NAME`. It waits no longer than a test does, whatever `--timeout` says."""
    kind, _, name = options.words[0].partition("/")
    wanted = options.for_.removeprefix("condition=")
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = json.loads(server.call("GET", place(kind, name, options.namespace))).get("status", {}).get("conditions", [])
        if any(one["type"] == wanted and one["status"] == "True" for one in found):
            print(f"{shown(kind)}/{name} condition met")
            return
        time.sleep(0.1)
    sys.exit(f"error: timed out waiting for the condition on {KINDS[kind][2]}/{name}")


def rollout(server: Server, options: argparse.Namespace) -> None:
    """`rollout status deployment/NAME`."""
    kind, _, name = options.words[1].partition("/")
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = json.loads(server.call("GET", place(kind, name, options.namespace)))
        wanted, status = found["spec"].get("replicas", 1), found.get("status", {})
        seen = status.get("observedGeneration", 0) >= found["metadata"]["generation"]
        counts = {status.get(key, 0) for key in ("replicas", "updatedReplicas", "availableReplicas")}
        if seen and counts == {wanted}:
            print(f'deployment "{name}" successfully rolled out')
            return
        time.sleep(0.1)
    sys.exit(f"error: deployment {name} exceeded its time")


def delete(server: Server, options: argparse.Namespace) -> None:
    """`delete KIND NAME`."""
    kind, name = options.words[:2]
    server.call("DELETE", place(kind, name, options.namespace))
    within = f" from {options.namespace or NAMESPACE} namespace" if KINDS[kind][3] else ""
    print(f'{shown(kind)} "{name}" deleted{within}')


def view(server: Server, options: argparse.Namespace) -> None:
    """`config view`: a field of the file."""
    sys.stdout.write(follow(server.configuration, options.output.removeprefix("jsonpath=")))


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="kubectl", allow_abbrev=False)
    acts = {"create": create, "delete": delete, "get": get, "config": view, "apply": apply, "wait": wait, "rollout": rollout}
    parser.add_argument("act", choices=acts)
    parser.add_argument("words", nargs="*")
    for option in ("verb", "clusterrole", "role", "serviceaccount", "audience", "cert", "key"):
        parser.add_argument(f"--{option}")
    parser.add_argument("--resource", action="append", default=[])
    parser.add_argument("--resource-name", action="append", default=[])
    parser.add_argument("--from-file", action="append", default=[])
    parser.add_argument("--for", dest="for_")
    parser.add_argument("--timeout")
    for flag in ("raw", "minify", "flatten", "server-side"):
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("-n", "--namespace")
    parser.add_argument("-f", dest="filename")
    parser.add_argument("-o", dest="output")
    options = parser.parse_intermixed_args()
    server = Server()
    if options.act == "get" and options.raw:
        sys.stdout.write(server.call("GET", options.words[0]).decode())
    else:
        acts[options.act](server, options)


main()
