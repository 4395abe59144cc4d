"""The implementation under test: a folder of dev/gateway-api/implementations.

Owns: what such a folder contains, and the wait until its GatewayClass is accepted.
Does not own: how its pods run; they are pods like all others.

    manifests.yaml   what is applied first: namespace, account and rights, Deployment, Services, the
                     GatewayClass. A container with the image IMAGE runs `run`.
    run              the program of that image, executable. It gets the container's arguments and
                     environment, and runs in the pod's network namespace.
    options.yaml     options of the suite in its own format (`-conformance-options-file`): who makes
                     the implementation, and features if its GatewayClass does not list them in its status
    setup            parts of dev/setup that it needs, one a line (optional)
    definitions      files with definitions of its own kinds, from the top of the repository, one a
                     line (optional); they are applied before its manifests
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from clients.cluster import Cluster
from clients.report import Fault
from clients.stage import ROOT

from .objects import Objects, documents

HOME = ROOT / "dev/gateway-api/implementations"
IMAGE = "postern.example/implementation"
ACCEPTED_S = 120


def names() -> list[str]:
    """The implementations that there are."""
    return sorted(one.name for one in HOME.iterdir() if one.is_dir())


class Implementation:
    """One of them."""

    def __init__(self, name: str) -> None:
        self.name, self.folder = name, HOME / name
        self.program, self.options = self.folder / "run", self.folder / "options.yaml"
        self._manifests = self.folder / "manifests.yaml"
        for file in (self.program, self.options, self._manifests):
            if not file.exists():
                raise Fault(f"{file.relative_to(ROOT)} is missing; dev/gateway-api/README.md says what it contains")
        if not os.access(self.program, os.X_OK):
            raise Fault(f"{self.program.relative_to(ROOT)} is not executable; run chmod +x")
        files = [*(ROOT / one for one in self._lines("definitions")), self._manifests]
        self._documents = [one for file in files for one in documents(file, file.read_text())]
        classes = [one.line("name", 2) for one in self._documents if one.kind == "GatewayClass"]
        if len(classes) != 1 or classes[0] is None:
            raise Fault(f"{self._manifests.relative_to(ROOT)} must contain exactly one GatewayClass, not {len(classes)}")
        self.gateway_class = classes[0]

    @property
    def setup(self) -> list[str]:
        """Parts of dev/setup."""
        return self._lines("setup")

    def _lines(self, name: str) -> list[str]:
        file = self.folder / name
        return file.read_text().split() if file.exists() else []

    def apply(self, cluster: Cluster) -> None:
        """Creates its objects."""
        objects = Objects(cluster)
        for document in self._documents:
            objects.apply(document)

    def wait_until_accepted(self, cluster: Cluster) -> None:
        """Waits for the condition Accepted of its GatewayClass: the suite reads supported features from
        its status. Raises Fault."""
        path = f"/apis/gateway.networking.k8s.io/v1/gatewayclasses/{self.gateway_class}"
        deadline = time.monotonic() + ACCEPTED_S
        while time.monotonic() < deadline:
            conditions = cluster.expect("GET", path).get("status", {}).get("conditions", [])
            if any(one["type"] == "Accepted" and one["status"] == "True" for one in conditions):
                return
            time.sleep(0.2)
        raise Fault(f"the GatewayClass {self.gateway_class} was not accepted within {ACCEPTED_S} s: {conditions}")
