"""The chain of Open Data Hub in one process: a browser logs in at Keycloak for a notebook, a service
account reaches a model, and both are refused when their right goes."""

from __future__ import annotations

import base64
import json
import secrets
import subprocess
from collections.abc import Callable
from pathlib import Path

from api_server import RBAC, Api, until
from clients.keycloak import Keycloak
from clients.report import Report, equal, expect
from clients.stage import ROOT, Stage, program, venv_python
from testbed.network import NODE

from .access import OWNERS
from .scene import HOME, Postern, Stopwatch, everywhere, fetch, http_route, policy, self_signed

HOST = "workbench.test"
NOTEBOOK = "/notebook/alice/work"
REALM = "people"
CLIENT = "workbench"
FILES = "/etc/postern-login"
MODELS = {"access_review": {
    "verb": "get", "api_group": "serving.kserve.io", "resource": "inferenceservices", "namespace": "{route.namespace}",
    "name": "{route.labels.serving.kserve.io/inferenceservice}",
}}  # fmt: skip


class Browser:
    """Chromium with a profile of its own, in a program that reads commands."""

    def __init__(self, folder: Path, address: str) -> None:
        python = venv_python("playwright")
        script = ROOT / "dev/gateway-api/acceptance/browser.py"
        self._process = subprocess.Popen(
            [python, str(script), program("chromium"), f"MAP {HOST} {address}"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env={"TMPDIR": str(folder), "HOME": str(folder), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip

    def __call__(self, *command: str) -> dict:
        """Status, address and text of the page that a command leads to."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        expect(line, f"the browser ended at {command}")
        return json.loads(line)

    def open(self, path: str) -> dict:
        """Opens a page of the workbench."""
        return self("open", f"https://{HOST}{path}")

    def close(self) -> None:
        """Ends it."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait(20)


class Login:
    """The checks. `configuration` makes Postern's file with more tables."""

    def __init__(
        self, api: Api, postern: Postern, report: Report, address: str, folder: Path, configuration: Callable[[str], str]
    ) -> None:
        self._api, self._postern, self._report, self._address = api, postern, report, address
        self._folder, self._configuration = folder, configuration
        self._stage = Stage(folder, postern=Path("postern"))
        # Ports are sought on loopback, and other servers of the node have some of those.
        self._stage.ports |= {"keycloak": 23000, "keycloak-management": 23001}
        self._keycloak = Keycloak(self._stage, NODE)

    def spawn(self) -> None:
        """Starts Keycloak, which takes a minute."""
        self._keycloak.spawn(self._stage)

    def run(self) -> None:
        """Runs all."""
        try:
            self._keycloak.await_ready()
            self._people()
            self._configure()
            self._notebook()
            self._model()
        finally:
            self._stage.stop()

    def _people(self) -> None:
        def person(name: str) -> dict:
            return {
                "username": name, "enabled": True, "email": f"{name}@example.test", "emailVerified": True,
                "firstName": name.title(), "lastName": "Example",
                "credentials": [{"type": "password", "value": f"password of {name}", "temporary": False}],
            }  # fmt: skip

        client = {
            "clientId": CLIENT, "secret": f"secret of {CLIENT}", "publicClient": False,
            "redirectUris": [f"https://{HOST}/oauth2/callback"],
        }  # fmt: skip
        self._keycloak.admin("POST", "", {
            "realm": REALM, "enabled": True, "sslRequired": "none", "clients": [client],
            "users": [person("alice"), person("mallory")],
        })  # fmt: skip

    def _configure(self) -> None:
        """Adds the login to Postern's file, a certificate to the Gateway, and the policies."""
        api = self._api
        api.apply("Secret", HOME, "login", data={
            "keys": base64.b64encode(base64.b64encode(secrets.token_bytes(32))).decode(),
            "secret": base64.b64encode(f"secret of {CLIENT}".encode()).decode(),
        })  # fmt: skip
        login = f"""
[login]
origins = ["https://{HOST}"]
keys_file = "{FILES}/keys"

[[login.provider]]
name = "house"
title = "Keycloak"
url = "{self._keycloak.base}/realms/{REALM}"
insecure_http = true
client_id = "{CLIENT}"
client_secret_file = "{FILES}/secret"
"""
        api.apply("ConfigMap", HOME, "postern", data={"postern.toml": self._configuration(login)})
        old = {pod["metadata"]["name"] for pod in self._postern.pods()}
        mounts = [{"name": "login", "mountPath": FILES}]
        volumes = [{"name": "login", "secret": {"secretName": "login", "defaultMode": 0o400}}]
        api.apply("Deployment", HOME, "postern", spec={"template": {"spec": {
            "containers": [{"name": "postern", "volumeMounts": mounts}], "volumes": volumes,
        }}})  # fmt: skip
        data, _ = self_signed(self._folder, HOST)
        api.apply("Secret", "infra", "workbench", type="kubernetes.io/tls", data=data)
        certificates = {"mode": "Terminate", "certificateRefs": [{"name": "tls"}, {"name": "workbench"}]}
        everywhere = {"namespaces": {"from": "All"}}
        gateway = api.get("Gateway", "infra", "gateway")["spec"]["listeners"]
        listeners = [
            {key: one[key] for key in ("name", "port", "protocol")} | {"allowedRoutes": everywhere}
            | ({"tls": certificates} if one["name"] == "https" else {}) for one in gateway
        ]  # fmt: skip
        api.apply("Gateway", "infra", "gateway", spec={"gatewayClassName": "postern", "listeners": listeners})
        api.apply("AccessPolicy", "infra", "notebooks", spec=policy("Gateway", "gateway", OWNERS | {"login": True}))
        until("new pods are ready, and the old ones are gone", lambda: (
            len(self._postern.ready()) == 2 and not old & {pod["metadata"]["name"] for pod in self._postern.pods()}
        ), 90)  # fmt: skip

    def _bind(self, subject: dict) -> None:
        role = {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": "reader"}
        self._api.apply("RoleBinding", "alice", "person", roleRef=role, subjects=[subject])

    def _notebook(self) -> None:
        alice = {"kind": "User", "apiGroup": RBAC.partition("/")[0], "name": "house:alice"}
        with self._report.check("login: a browser logs in at Keycloak and reaches its notebook, another user does not"):
            self._bind(alice)
            first, second = Browser(self._folder, self._address), Browser(self._folder, self._address)
            try:
                shown = first.open(f"{NOTEBOOK}/lab?reset=1")
                expect(shown["url"].startswith(self._keycloak.base), f"it is at {shown['url']}: {shown['text'][:200]}")
                shown = first("log in", "alice", "password of alice")
                equal("the page after the login", shown["url"], f"https://{HOST}{NOTEBOOK}/lab?reset=1")
                equal("its status", shown["status"], 200)
                expect('"namespace": "team-a"' in shown["text"], f"it shows {shown['text'][:200]}")
                second.open(f"{NOTEBOOK}/lab")
                shown = second("log in", "mallory", "password of mallory")
                equal("the status for mallory", shown["status"], 403)
                watch = Stopwatch()
                self._api.delete("RoleBinding", "alice", "person")
                took = watch.until("403 for alice", lambda: first.open(NOTEBOOK)["status"] == 403, 1)
                print(f"      refused {took:.0f} ms after the RoleBinding was deleted, page load included")
                self._bind(alice)
                until("200 for alice again", lambda: first.open(NOTEBOOK)["status"] == 200)
            finally:
                first.close()
                second.close()

    def _model(self) -> None:
        api = self._api
        with self._report.check("models: a service account reaches a model, until its right goes and until it is deleted"):
            api.apply("ServiceAccount", "team-a", "client")
            api.apply("Role", "team-a", "models", rules=[{
                "apiGroups": ["serving.kserve.io"], "resources": ["inferenceservices"], "resourceNames": ["llama"],
                "verbs": ["get"],
            }])  # fmt: skip
            binding = {
                "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": "models"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "team-a", "name": "client"}],
            }
            api.apply("RoleBinding", "team-a", "models", **binding)
            labels = {"serving.kserve.io/inferenceservice": "llama"}
            api.apply("HTTPRoute", "team-a", "llama", labels=labels, spec=http_route(["llama.test"]))
            api.apply("AccessPolicy", "team-a", "llama", spec=policy("HTTPRoute", "llama", MODELS))
            token = api.token("team-a", "client")

            def status() -> int:
                return fetch(self._address, "llama.test", "/v1/completions", token).status

            everywhere("200 for the service account", lambda: status() == 200)
            equal("the answer without a token", fetch(self._address, "llama.test").status, 401)
            watch = Stopwatch()
            api.delete("RoleBinding", "team-a", "models")
            watch.until("403 without its right", lambda: status() == 403, 1)
            api.apply("RoleBinding", "team-a", "models", **binding)
            until("200 again", lambda: status() == 200)
            watch = Stopwatch()
            api.delete("ServiceAccount", "team-a", "client")
            took = watch.until("401 for an account that is deleted", lambda: status() == 401, 1)
            print(f"      refused {took:.0f} ms after the service account was deleted")
