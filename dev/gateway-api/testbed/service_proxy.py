"""Addresses of Services: those of load balancers, and their translation to the pods.

Owns: which address a Service of type LoadBalancer has (as a cloud's controller does), and the rules
that send connections to a Service's addresses to its endpoints (as kube-proxy does).
Does not own: endpoints; the endpointslice controller is the real one.

Flow: watches of Services and EndpointSlices keep two tables and set an event. One thread waits for it,
assigns addresses, and replaces the rules in one transaction of iptables-restore. Rules count from
their own connection on; open connections stay where they are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address

from clients.cluster import Cluster

from .network import LOAD_BALANCERS, PODS, command
from .pod import MERGE
from .watch import Key, Watch, key

SLICES = "/apis/discovery.k8s.io/v1/endpointslices"
# Changes that come within this time share a transaction.
GATHER_S = 0.02
RETRY_S = 1.0
Target = tuple[str, int]


class Pool:
    """Addresses of load balancers."""

    def __init__(self) -> None:
        self._given: dict[Key, str] = {}
        self._next = int(LOAD_BALANCERS[0])

    def address(self, service: Key, wanted: str) -> str | None:
        """The address of a Service: the one that it asks for, or a free one. None: it asks for an
        address that this cloud does not have, or that another Service has."""
        given = self._given.get(service)
        if given is not None and wanted in ("", given):
            return given
        self.release(service)
        taken = set(self._given.values())
        if wanted:
            if wanted in taken or not _in_pool(wanted):
                return None
        else:
            wanted = self._free(taken)
        self._given[service] = wanted
        return wanted

    def _free(self, taken: set[str]) -> str:
        # An address is used again as late as possible: clients may still have connections to it.
        for _ in range(LOAD_BALANCERS.num_addresses):
            self._next += 1
            if self._next >= int(LOAD_BALANCERS.broadcast_address) - 0xFF:  # the last 255 only on request
                self._next = int(LOAD_BALANCERS[1])
            found = str(IPv4Address(self._next))
            if found not in taken:
                return found
        raise RuntimeError(f"all addresses of {LOAD_BALANCERS} are given to Services")

    def release(self, service: Key) -> None:
        """The Service is gone or is no longer of that type."""
        self._given.pop(service, None)


def _in_pool(address: str) -> bool:
    try:
        return IPv4Address(address) in LOAD_BALANCERS
    except ValueError:
        return False


class ServiceProxy:
    """Follows Services and their endpoints."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._pool = Pool()
        self._services: dict[Key, dict] = {}
        self._slices: dict[Key, dict] = {}
        self._lock = threading.Lock()
        self._dirty = threading.Event()
        self._rules = ""

    def start(self) -> None:
        """Creates the chains and follows the objects."""
        chains = [
            "*nat", ":SERVICES - [0:0]", ":HAIRPIN - [0:0]", "-A PREROUTING -j SERVICES", "-A OUTPUT -j SERVICES",
            f"-A POSTROUTING -s {PODS} -d {PODS} -j HAIRPIN", "COMMIT",
        ]  # fmt: skip
        command("iptables-restore", "--noflush", text="\n".join(chains) + "\n")
        for path, table in (("/api/v1/services", self._services), (SLICES, self._slices)):
            Watch(self._cluster, path, self._keeper(table), self._remover(table)).start()
        threading.Thread(target=self._run, name="service proxy", daemon=True).start()

    def _keeper(self, table: dict[Key, dict]):  # noqa: ANN202
        def keep(found: dict) -> None:
            with self._lock:
                table[key(found)] = found
            self._dirty.set()

        return keep

    def _remover(self, table: dict[Key, dict]):  # noqa: ANN202
        def remove(found: dict) -> None:
            with self._lock:
                table.pop(key(found), None)
                if table is self._services:
                    self._pool.release(key(found))
            self._dirty.set()

        return remove

    def _run(self) -> None:
        while True:
            self._dirty.wait()
            time.sleep(GATHER_S)
            self._dirty.clear()
            try:
                self._update()
            except (OSError, RuntimeError) as problem:
                print(f"addresses of Services were not updated; retrying: {problem}", flush=True)
                time.sleep(RETRY_S)
                self._dirty.set()

    def _update(self) -> None:
        """Makes addresses and rules those of the current objects."""
        with self._lock:
            services, slices = list(self._services.values()), list(self._slices.values())
            addresses = {key(one): self._balancer(one) for one in services}
        rules = "\n".join(table(services, slices, addresses)) + "\n"
        if rules != self._rules:
            command("iptables-restore", "--noflush", text=rules)
            self._rules = rules
        # An address that is announced works already.
        for service in services:
            self._announce(service, addresses[key(service)])

    def _balancer(self, service: dict) -> str | None:
        spec = service["spec"]
        if spec.get("type") != "LoadBalancer" or spec.get("loadBalancerClass"):
            self._pool.release(key(service))
            return None
        return self._pool.address(key(service), spec.get("loadBalancerIP", ""))

    def _announce(self, service: dict, address: str | None) -> None:
        """Writes the address into the Service's status."""
        wanted = [{"ip": address, "ipMode": "VIP"}] if address else []
        found = service.get("status", {}).get("loadBalancer", {}).get("ingress") or []
        if found == wanted or service["spec"].get("loadBalancerClass"):
            return
        namespace, name = key(service)
        content = {"status": {"loadBalancer": {"ingress": wanted or None}}}
        path = f"/api/v1/namespaces/{namespace}/services/{name}/status"
        self._cluster.call("PATCH", path, content, kind=MERGE)


def table(services: Iterable[dict], slices: Iterable[dict], addresses: dict[Key, str | None]) -> Iterator[str]:
    """The rules, as input of iptables-restore."""
    by_service: dict[Key, list[dict]] = {}
    for one in slices:
        name = one["metadata"].get("labels", {}).get("kubernetes.io/service-name")
        if name and one["addressType"] == "IPv4":
            by_service.setdefault((one["metadata"]["namespace"], name), []).append(one)
    yield from ("*nat", ":SERVICES - [0:0]", ":HAIRPIN - [0:0]")
    pods = set()
    for service in services:
        for port in service["spec"].get("ports") or []:
            targets = sorted(endpoints(by_service.get(key(service), []), port.get("name", "")))
            pods |= {address for address, _ in targets}
            for address in visible(service, addresses[key(service)]):
                yield from translation(address, port, targets)
    # A pod that reaches itself through a Service must see another client than itself.
    yield from (f"-A HAIRPIN -s {pod} -d {pod} -j MASQUERADE" for pod in sorted(pods))
    yield "COMMIT"


def visible(service: dict, balancer: str | None) -> Iterator[str]:
    """Addresses at which a Service is reached."""
    spec = service["spec"]
    if spec.get("clusterIP", "None") not in ("None", ""):
        yield spec["clusterIP"]
    yield from spec.get("externalIPs") or []
    if balancer:
        yield balancer


def endpoints(slices: Iterable[dict], port: str) -> set[Target]:
    """Addresses and ports of the ready endpoints for a port of the Service."""
    found = set()
    for one in slices:
        numbers = [p["port"] for p in one.get("ports") or [] if (p.get("name") or "") == port and p.get("port")]
        for endpoint in one.get("endpoints") or []:
            if endpoint.get("conditions", {}).get("ready") is not False:
                found |= {(address, number) for address in endpoint["addresses"] for number in numbers}
    return found


def translation(address: str, port: dict, targets: list[Target]) -> Iterator[str]:
    """Rules for one port of an address: each new connection goes to one of the targets at random."""
    protocol = port.get("protocol", "TCP").lower()
    match = f"-A SERVICES -d {address}/32 -p {protocol} --dport {port['port']}"
    for index, (pod, number) in enumerate(targets):
        left = len(targets) - index
        share = f" -m statistic --mode random --probability {1 / left:.8f}" if left > 1 else ""
        yield f"{match}{share} -j DNAT --to-destination {pod}:{number}"
