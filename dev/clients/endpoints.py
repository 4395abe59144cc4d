"""Endpoints by DNS: dnsmasq as the name server, HTTP servers on several loopback addresses as pods,
curl as a browser. Everything runs in a network namespace of its own, where port 53 and
/etc/resolv.conf are free."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from .foreign import PROGRAMS, run_program
from .report import Report, Skip
from .stage import Stage

NAMESPACE = ["unshare", "--user", "--map-root-user", "--net", "--mount"]


def run(stage: Stage, report: Report) -> None:
    """Runs all checks."""
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = {name: shutil.which(name, path=path) for name in ("dnsmasq", "curl", "unshare")}
    for name, program in found.items():
        if program is None:
            raise Skip(f"{name} is not installed; run dev/setup fronts")
    if subprocess.run([*NAMESPACE, "true"], capture_output=True, check=False).returncode:
        raise Skip("this system allows no network namespaces of its own (unshare --user --net)")
    folder = stage.folder / "endpoints"
    folder.mkdir()
    # Ports are free in the namespace.
    configuration = stage.configuration("endpoints.toml", FOLDER=folder)
    environment = {
        "ENDPOINTS_FOLDER": str(folder), "ENDPOINTS_POSTERN": str(stage.postern),
        "ENDPOINTS_CONFIGURATION": str(configuration), "ENDPOINTS_DNSMASQ": str(found["dnsmasq"]),
    }  # fmt: skip
    command = [*NAMESPACE, sys.executable, str(PROGRAMS / "endpoints_client.py")]
    run_program("endpoints", command, stage, report, environment)
