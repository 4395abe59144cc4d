"""What kubelogin does for kubectl, at Postern's provider: the ID token is the credential, at the
gateway and at a real API server of Kubernetes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from . import documents
from .cluster import Cluster
from .foreign import PROGRAMS, run_program
from .provider import PASSWORD, build_native, move_in
from .report import Report
from .stage import Stage, venv_python

PERSON, FULL_NAME = "barbara", "Barbara Liskov"
# The API server puts it before names and groups of this issuer.
PREFIX = "works:"


@dataclass
class House:
    """The provider with TLS, and the gateway in its process."""

    stage: Stage
    issuer: str
    gateway: str

    @classmethod
    def start(cls, stage: Stage) -> House:
        """Starts both."""
        port, admin, provider = (stage.port(f"kubelogin{name}") for name in ("", "-admin", "-provider"))
        issuer = f"https://localhost:{provider}"
        configuration = stage.configuration(
            "kubelogin.toml", FOLDER=stage.folder, ADMIN_PORT=admin, PORT=port, PROVIDER_PORT=provider, ISSUER=issuer,
            CERTIFICATE=stage.certificate, KEY=stage.key, CA=stage.authority.certificate, ECHO_PORT=stage.port("echo"),
            CLIENT=documents.client("kubectl", None, {}),
            ISSUERS=documents.replaced(documents.block("toml", "id_tokens = true"), {documents.ISSUER: issuer}),
        )  # fmt: skip
        move_in(stage, configuration, PERSON, FULL_NAME)
        stage.serve("kubelogin", configuration, port, admin)
        return cls(stage, issuer, f"https://localhost:{port}")

    def cluster_options(self) -> list[str]:
        """The documented options of kube-apiserver."""
        text = documents.replaced(documents.block("sh", "kube-apiserver"), {
            documents.ISSUER: self.issuer, "/etc/kubernetes/id-ca.pem": str(self.stage.authority.certificate),
        })  # fmt: skip
        return shlex.split(text.replace("\\\n", " "))[1:]


def permit(cluster: Cluster) -> None:
    """Lets the person's group read config maps."""
    cluster.role("default", "family", {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]})
    group = {"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": f"{PREFIX}friends of Barbara"}
    cluster.bind("default", "family", "family", group)


def run(house: House, cluster: Cluster, stage: Stage, report: Report) -> None:
    """Runs all checks."""
    native, python = build_native(stage), venv_python("requests")
    permit(cluster)
    settings = {
        "CLIENTS_ISSUER": house.issuer, "CLIENTS_GATEWAY": house.gateway,
        "CLIENTS_CLUSTER": cluster.base, "CLIENTS_PASSWORD": PASSWORD,
        # for Go
        "SSL_CERT_FILE": str(stage.authority.certificate),
        "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost",
    }  # fmt: skip
    command = [str(native), "kubelogin", python, str(PROGRAMS / "person.py"), PERSON]
    run_program("kubelogin", command, stage, report, settings)
