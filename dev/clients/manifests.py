"""The manifests of deploy/kubernetes: a real API server accepts them, and the gateway runs with
exactly the rights that they grant."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .cluster import ISSUER, RBAC, Cluster, account
from .report import Report, equal, expect
from .reviews import AT_ONCE_S, Gateway, until
from .stage import ROOT, Stage, get

FOLDER = ROOT / "deploy/kubernetes"
POD_FILES = "/var/run/secrets/kubernetes.io/serviceaccount/"
SECRET_FILES = "/etc/postern-secrets/"
POD_LABELS = "/etc/podinfo/"
APPLY = "application/apply-patch+yaml"
STRICT = "fieldManager=test&force=true&fieldValidation=Strict"
# API paths of the kinds; those of the namespace contain %s.
PLACES = {
    ("v1", "Namespace"): "/api/v1/namespaces",
    ("v1", "ServiceAccount"): "/api/v1/namespaces/%s/serviceaccounts",
    ("v1", "ConfigMap"): "/api/v1/namespaces/%s/configmaps",
    ("v1", "Secret"): "/api/v1/namespaces/%s/secrets",
    ("v1", "Service"): "/api/v1/namespaces/%s/services",
    ("v1", "PersistentVolumeClaim"): "/api/v1/namespaces/%s/persistentvolumeclaims",
    ("batch/v1", "Job"): "/apis/batch/v1/namespaces/%s/jobs",
    ("apps/v1", "Deployment"): "/apis/apps/v1/namespaces/%s/deployments",
    ("policy/v1", "PodDisruptionBudget"): "/apis/policy/v1/namespaces/%s/poddisruptionbudgets",
    ("networking.k8s.io/v1", "NetworkPolicy"): "/apis/networking.k8s.io/v1/namespaces/%s/networkpolicies",
    ("rbac.authorization.k8s.io/v1", "Role"): "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/roles",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "/apis/rbac.authorization.k8s.io/v1/namespaces/%s/rolebindings",
    ("rbac.authorization.k8s.io/v1", "ClusterRole"): "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    ("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"): "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}
# Kinds that have pods.
RUNNING = ("Deployment", "Job")
# Kinds that grant rights to an account.
RIGHTS = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding")
# Kinds that are not part of Kubernetes itself: the API server cannot validate them.
FOREIGN = {"GatewayClass", "Gateway", "HTTPRoute", "ReferenceGrant", "SecurityPolicy", "ServiceMonitor"}
# The files whose gateway queries Kubernetes, and the account that it uses.
ASKING = {
    "gateway.yaml": ("postern", "postern-gateway"),
    "authorization.yaml": ("postern", "postern-authorization"),
    "sidecar.yaml": ("default", "application"),
}


@dataclass
class Document:
    """One object of a file."""

    file: str
    text: str

    def line(self, key: str, indent: int = 0) -> str | None:
        """The first value of a key at that depth."""
        found = re.search(rf"^{' ' * indent}{key}: (\S+)", self.text, re.M)
        return found[1] if found else None

    @property
    def kind(self) -> str:
        """Kind and name of the object, for reports."""
        return self.line("kind") or "nothing"

    def path(self) -> str | None:
        """API path of the object. None: the kind is not built in."""
        place = PLACES.get((self.line("apiVersion") or "", self.kind))
        if place is None:
            return None
        # The metadata come first, so their name and namespace are the first ones at that depth.
        place = place % self.line("namespace", 2) if "%s" in place else place
        return f"{place}/{self.line('name', 2)}"

    def __str__(self) -> str:
        return f"{self.kind} {self.line('name', 2)} of {self.file}"


def documents() -> list[Document]:
    """All objects, in order."""
    found = []
    for file in sorted(FOLDER.glob("*.yaml")):
        parts = re.split(r"^---$", file.read_text(), flags=re.M)
        found += [Document(file.name, part) for part in parts if re.search(r"^kind:", part, re.M)]
    return found


def run(cluster: Cluster, stage: Stage, report: Report) -> None:
    """Runs all checks. The API server is running."""
    every = documents()
    with report.check("manifests: there are some of each mode"):
        files = {document.file for document in every}
        wanted = {*ASKING, "rbac.yaml", "provider.yaml", "login.yaml", "gateway-api.yaml", "envoy-gateway.yaml", "service-monitor.yaml", "lab.yaml"}
        expect(files >= wanted, f"there are {files}")
    applied, foreign = {}, []
    for document in every:
        if document.kind == "Namespace":
            cluster.expect("PATCH", f"{document.path()}?{STRICT}", document.text.encode(), APPLY)
    for document in every:
        path = document.path()
        if path is None:
            foreign.append(document)
            continue
        with report.check(f"manifests: {document} is accepted, field by field"):
            answer = cluster.expect("PATCH", f"{path}?dryRun=All&{STRICT}", document.text.encode(), APPLY)
            applied[(document.file, document.kind, answer["metadata"]["name"])] = answer
    with report.check("manifests: what is not tried is of a kind that no API server has by itself"):
        equal("the kinds", {document.kind for document in foreign}, FOREIGN)
        print(f"      not tried: {', '.join(map(str, foreign))}", flush=True)
    pods(cluster, applied, report)
    references(applied, report)
    endings(applied, report)
    configurations(cluster, stage, applied, report)
    rights(cluster, stage, every, applied, report)


def pods(cluster: Cluster, applied: dict, report: Report) -> None:
    """The pods need no more than the strictest policy of the API server permits."""
    for (file, kind, name), deployment in applied.items():
        if kind not in RUNNING:
            continue
        with report.check(f"manifests: pods of {file} are admitted where `restricted` is enforced"):
            template = deployment["spec"]["template"]
            pod = {"metadata": template["metadata"] | {"name": name}, "spec": template["spec"]}
            cluster.expect("POST", "/api/v1/namespaces/postern/pods?dryRun=All&fieldValidation=Strict", pod)
            loose = json.loads(json.dumps(pod))
            del loose["spec"]["containers"][0]["securityContext"]
            status, answer = cluster.call("POST", "/api/v1/namespaces/postern/pods?dryRun=All", loose)
            equal("status without a security context", status, 403)
            expect("PodSecurity" in answer["message"], answer["message"])


def references(applied: dict, report: Report) -> None:
    """References between the objects are valid."""
    for (file, kind, _), deployment in applied.items():
        if kind not in RUNNING:
            continue
        with report.check(f"manifests: what {file} selects and names is there"):
            template = deployment["spec"]["template"]
            labels = template["metadata"]["labels"]
            ports = {p["name"] for c in template["spec"]["containers"] for p in c.get("ports", [])}
            beside = {(k, n): answer for (f, k, n), answer in applied.items() if f == file}
            for (other, name), answer in beside.items():
                spec = answer.get("spec", {})
                if other == "Service":
                    expect(spec["selector"].items() <= labels.items(), f"service {name} selects nobody")
                    expect({p["targetPort"] for p in spec["ports"]} <= ports, f"service {name} has ports of nobody")
                if other == "PodDisruptionBudget":
                    expect(spec["selector"]["matchLabels"].items() <= labels.items(), f"budget {name} is nobody's")
                if other == "NetworkPolicy":
                    expect(spec["podSelector"]["matchLabels"].items() <= labels.items(), f"policy {name} is nobody's")
                    # A range is for the Gateways, which come later.
                    opened = {p["port"] for rule in spec.get("ingress", []) for p in rule["ports"] if "endPort" not in p}
                    expect(opened <= ports, f"policy {name} opens ports of nobody")
            volumes = template["spec"]["volumes"]
            named = {("ConfigMap", v["configMap"]["name"]) for v in volumes if "configMap" in v}
            # No file contains a Secret: applying it again would overwrite the one in the cluster.
            expect(not any(other == "Secret" for other, _ in beside), f"{file} has a secret in it")
            claims = [v["persistentVolumeClaim"] for v in volumes if "persistentVolumeClaim" in v]
            named |= {("PersistentVolumeClaim", claim["claimName"]) for claim in claims}
            account_name = template["spec"].get("serviceAccountName")
            named |= {("ServiceAccount", account_name)} if account_name else set()
            expect(named <= set(beside), f"{named - set(beside)} is not in the file")


def seconds(text: str) -> int:
    """The `drain_timeout` of a configuration."""
    found = re.search(r'^drain_timeout = "(\d+)s"$', text, re.M)
    expect(found is not None, "no drain_timeout in whole seconds")
    return int(found[1])


def endings(applied: dict, report: Report) -> None:
    """No pod is killed while requests are in flight, nor before the containers that must answer
    them."""
    for (file, kind, _), deployment in applied.items():
        if kind != "Deployment":
            continue
        with report.check(f"manifests: pods of {file} end when nothing is under way any more"):
            configuration = next(answer for (f, k, _), answer in applied.items() if (f, k) == (file, "ConfigMap"))
            drain = seconds(configuration["data"]["postern.toml"])
            spec = deployment["spec"]["template"]["spec"]
            sleeps = {c["name"]: c["lifecycle"]["preStop"]["sleep"]["seconds"] for c in spec["containers"]}
            ours = next(c["name"] for c in spec["containers"] if c["image"].startswith("postern:"))
            drained = sleeps.pop(ours) + drain
            for name, sleep in sleeps.items():
                expect(sleep > drained, f"{name} ends after {sleep} s, and Postern forwards for {drained} s")
            last = max([drained, *sleeps.values()])
            grace = spec["terminationGracePeriodSeconds"]
            expect(grace > last, f"killed after {grace} s, and under way for {last} s")


def local(text: str, cluster: Cluster, stage: Stage, file: str, folder: Path) -> str:
    """The configuration adapted to this machine: other addresses and files."""

    def address(found: re.Match[str]) -> str:
        purpose = "admin" if found[1] == "9911" else "plain"
        return f'address = "127.0.0.1:{stage.port(f"{file}-{purpose}")}"'

    text = re.sub(r'address = "0\.0\.0\.0:(\d+)"', address, text)
    text = text.replace("https://kubernetes.default.svc.cluster.local", ISSUER)
    text = text.replace("https://kubernetes.default.svc", cluster.base)
    # The default is the same URL, which leads nowhere here.
    text = text.replace("[kubernetes]\n", f'[kubernetes]\nurl = "{cluster.base}"\n')
    # Listeners of Gateways, as those of the file above.
    text = text.replace("[gateway_api]\n", '[gateway_api]\nbind = "127.0.0.1"\n')
    # The stage's ports begin at 21000, which Gateways would get.
    text = text.replace("first_port = 20000\nlast_port = 29999\n", "first_port = 10000\nlast_port = 19999\n")
    text = re.sub(r'endpoints = \["[^"]+"\]', f'endpoints = ["http://127.0.0.1:{stage.port("echo")}"]', text)
    for place in (POD_FILES, SECRET_FILES, POD_LABELS):
        text = text.replace(place, f"{folder}/")
    return text


def configurations(cluster: Cluster, stage: Stage, applied: dict, report: Report) -> None:
    """The ConfigMaps contain valid configurations."""
    for (file, kind, _), answer in applied.items():
        if kind == "ConfigMap" and file == "lab.yaml":
            scenario(stage, answer["data"], report)
        if kind != "ConfigMap" or file == "lab.yaml":
            continue
        with report.check(f"manifests: the configuration in {file} passes `postern check`, without a warning"):
            check_configuration(cluster, stage, file, answer["data"]["postern.toml"])


def check_configuration(cluster: Cluster, stage: Stage, file: str, text: str) -> None:
    """A configuration of a pod passes `postern check`, without a warning. It stays in a folder of the
    file's name, with the files that it names."""
    folder = stage.folder / f"manifest-{file.removesuffix('.yaml')}"
    folder.mkdir()
    (folder / "ca.crt").write_bytes(cluster.ca.read_bytes())
    (folder / "token").write_text("to be had\n")
    (folder / "zone").write_text("")
    (folder / "database.url").write_text("postgres://postern@127.0.0.1/postern\n")
    for name in ("provider.secret", "client.secret", "login.keys"):
        secret = subprocess.run(["openssl", "rand", "-base64", "32"], capture_output=True, check=True).stdout
        (folder / name).write_bytes(secret)
    for path in folder.iterdir():
        # File modes as Kubernetes sets them, with this user as the owner.
        path.chmod(0o440 if os.getuid() == 0 else 0o400)
    configuration = folder / "postern.toml"
    configuration.write_text(local(text, cluster, stage, file, folder))
    command = [str(stage.postern), "check", "--config", str(configuration)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    said = done.stdout + done.stderr
    sound = done.returncode == 0 and "warning" not in said.lower()
    expect(sound, f"it ended with {done.returncode}: {said[-600:]}")


def scenario(stage: Stage, data: dict, report: Report) -> None:
    """The lab's ConfigMap contains a valid scenario with its topology."""
    with report.check("manifests: the scenario in lab.yaml passes `postern lab run --check`"):
        folder = stage.folder / "manifest-lab"
        folder.mkdir()
        for name, text in data.items():
            (folder / name).write_text(text.replace("/etc/postern-lab/", f"{folder}/"))
        command = [str(stage.postern), "lab", "run", "--check", "--scenario", str(folder / "scenario.toml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        expect(done.returncode == 0, f"it ended with {done.returncode}: {done.stderr[-600:]}")
        expect("load entry: http://postern-gateway.postern.svc/" in done.stdout, done.stdout)


class Deployed(Gateway):
    """A gateway with the configuration and the account of a manifest."""

    def __init__(self, stage: Stage, name: str, configuration: Path) -> None:
        # Unlike the other gateways: configuration and token exist already.
        self._stage, self.name, self.configuration, self.server = stage, name, configuration, None


def rights(cluster: Cluster, stage: Stage, every: list[Document], applied: dict, report: Report) -> None:
    """The rights that the manifests grant suffice, and are no more than necessary."""
    for document in every:
        if document.kind in RIGHTS:
            cluster.expect("PATCH", f"{document.path()}?{STRICT}", document.text.encode(), APPLY)
    cluster.account("default", "caller")
    cluster.role("default", "application-user", {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]})
    granted = {r for rule in applied[("rbac.yaml", "ClusterRole", "postern-watch")]["rules"] for r in rule["resources"]}
    for file, (namespace, name) in ASKING.items():
        folder = stage.folder / f"manifest-{file.removesuffix('.yaml')}"
        (folder / "token").chmod(0o600)
        (folder / "token").write_text(cluster.token(namespace, name))
        gateway = Deployed(stage, file, folder / "postern.toml")
        with report.check(f"manifests: with the rights of {file} every watch runs, and each right is used"):
            gateway.start()
            until(lambda: not set(gateway.states().values()) - {"watching", "absent"}, 15, gateway.states)
            equal("what is watched", {r for (_, r), state in gateway.states().items() if state == "watching"}, granted)
            for probe in ("livez", "readyz"):
                equal(probe, get(f"http://127.0.0.1:{stage.port(f'{file}-admin')}/{probe}")[0], 200)
        if file != "authorization.yaml":
            with report.check(f"manifests: with the rights of {file} callers are known and their rights asked for"):
                caller = cluster.token("default", "caller", "postern")
                equal("status of nobody", gateway.status(secrets.token_urlsafe(12), "/"), 401)
                equal("status before the binding", gateway.status(caller, "/"), 403)
                cluster.bind("default", f"caller-{name}", "application-user", account("default", "caller"))
                until(lambda: gateway.status(caller, "/") == 200, AT_ONCE_S, lambda: gateway.status(caller, "/"))
                cluster.unbind("default", f"caller-{name}")
                until(lambda: gateway.status(caller, "/") == 403, AT_ONCE_S, lambda: gateway.status(caller, "/"))
        with report.check(f"manifests: the account of {file} may do nothing else"):
            token, own = cluster.token(namespace, name), f"/api/v1/namespaces/{namespace}"
            for method, path in [
                ("GET", f"{own}/secrets"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/configmaps"),
                ("GET", f"{own}/serviceaccounts/{name}"), ("POST", f"{own}/pods"),
                ("POST", f"{own}/serviceaccounts/{name}/token"), ("POST", f"{RBAC}/clusterrolebindings"),
            ]:  # fmt: skip
                status, _ = cluster.call(method, path, {} if method == "POST" else None, token)
                equal(f"status of {method} {path}", status, 403)
    with report.check("manifests: the account of lab.yaml may read figures of nodes, call the application, and nothing else"):
        token = cluster.token("postern", "postern-lab")
        call = {"resource": "services", "subresource": "proxy", "namespace": "default", "verb": "get"}
        for attributes, allowed in [
            ({"resource": "nodes", "subresource": "metrics", "verb": "get"}, True),
            (call | {"name": "application"}, True),
            (call | {"name": "another"}, False),
            ({"resource": "nodes", "subresource": "proxy", "verb": "get"}, False),
            ({"resource": "nodes", "verb": "list"}, False),
            ({"resource": "secrets", "namespace": "postern", "verb": "get"}, False),
            ({"resource": "pods", "namespace": "postern", "verb": "create"}, False),
        ]:
            review = {"spec": {"resourceAttributes": attributes}}
            path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
            status, answer = cluster.call("POST", path, review, token)
            equal("status of the review", status, 201)
            equal(f"whether it may {attributes}", answer["status"]["allowed"], allowed)
