"""The network of the cluster: a bridge, and for each pod a veth pair into its network namespace.

Owns: address ranges, devices, and the rules that make the node route between them.
Does not own: addresses of Services (service_proxy).

The node is the network namespace of the run. A pod's address has a host mask, so traffic between pods
passes the node like all other traffic, and the translation of a Service's address is undone on the
way back. Clients keep their addresses.
"""

from __future__ import annotations

import subprocess
import threading
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path

PODS = IPv4Network("10.244.0.0/16")
NODE = "10.244.0.1"
SERVICES = IPv4Network("10.96.0.0/16")
LOAD_BALANCERS = IPv4Network("10.100.0.0/16")
# For tests of requested addresses. The first is in the pool; the second is for documentation
# (RFC 5737), so no load balancer has it.
USABLE_ADDRESS, UNUSABLE_ADDRESS = "10.100.255.1", "203.0.113.1"
BRIDGE = "pods"


def command(*arguments: str, text: str | None = None) -> None:
    """Runs a tool of the network. Raises RuntimeError with its message."""
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(arguments)} failed: {done.stderr.strip()}")


class Network:
    """The node's side. One per run, in the network namespace that isolation made."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = int(PODS[1])
        lines = [
            "link set lo up",
            f"link add {BRIDGE} type bridge",
            f"addr add {NODE}/{PODS.prefixlen} dev {BRIDGE}",
            f"link set {BRIDGE} up",
            # Addresses without a Service or port refuse connections, as those of a host do. The
            # source is the node, as for every connection of the node.
            f"route add local {SERVICES} dev lo src {NODE}",
            f"route add local {LOAD_BALANCERS} dev lo src {NODE}",
        ]
        command("ip", "-batch", "-", text="\n".join(lines) + "\n")
        for name, value in {
            "ip_forward": "1", "conf/all/rp_filter": "0", f"conf/{BRIDGE}/rp_filter": "0",
            "conf/all/send_redirects": "0", f"conf/{BRIDGE}/send_redirects": "0",
        }.items():  # fmt: skip
            (Path("/proc/sys/net/ipv4") / name).write_text(value)
        # Else a translated packet is bridged to the pod, past the node. The setting is there if the
        # kernel has bridge netfilter.
        bridged = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
        if bridged.exists():
            bridged.write_text("0")

    def address(self) -> str:
        """An address for a pod. None is used twice, so that no cache has an entry of a former pod."""
        with self._lock:
            self._next += 1
            address = IPv4Address(self._next)
        if address not in PODS or address == PODS.broadcast_address:
            raise RuntimeError(f"all addresses of {PODS} were used; start a new cluster")
        return str(address)

    def attach(self, pid: int, address: str) -> None:
        """Connects the network namespace of a process with the bridge, under this address. The kernel
        deletes the devices with the namespace."""
        device = f"pod{int(IPv4Address(address)) - int(PODS[0])}"
        lines = [
            f"link add {device} type veth peer name eth0 netns {pid}",
            f"link set {device} master {BRIDGE}",
            f"link set {device} up",
        ]
        command("ip", "-batch", "-", text="\n".join(lines) + "\n")
        inside = [
            "link set lo up",
            f"addr add {address}/32 dev eth0",
            "link set eth0 up",
            f"route add {NODE} dev eth0 scope link",
            f"route add default via {NODE}",
        ]
        command("nsenter", "--target", str(pid), "--net", "ip", "-batch", "-", text="\n".join(inside) + "\n")
