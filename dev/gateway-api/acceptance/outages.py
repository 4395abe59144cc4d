"""What happens while something is away: the leader, the API server, parts of its history, rights."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from pathlib import Path

from api_server import Api, until
from clients.report import Fault, Report, equal, expect

from .access import PUBLIC
from .scene import HOME, Postern, Process, Traffic, alive, everywhere, fetch, http_route, policy, processes

FAULTY = 1000


class Outages:
    """The checks. `address` is that of the Gateway `gateway` in `infra`."""

    def __init__(self, api: Api, postern: Postern, report: Report, address: str) -> None:
        self._api, self._postern, self._report, self._address = api, postern, report, address

    def run(self) -> None:
        """Runs all."""
        self._public("steady", "steady.test")
        self._leader()
        self._api_server()
        self._slow()
        self._history()
        self._faulty()
        self._rights()

    def _get(self, host: str) -> int:
        return fetch(self._address, host).status

    def _public(self, name: str, host: str) -> None:
        """A route that everybody may pass, in force."""
        self._api.apply("HTTPRoute", "team-a", name, spec=http_route([host]))
        self._api.apply("AccessPolicy", "team-a", name, spec=policy("HTTPRoute", name, PUBLIC))
        everywhere(f"200 for {host}", lambda: self._get(host) == 200)

    def _accepted(self, name: str) -> bool:
        return self._api.conditions("HTTPRoute", "team-a", name).get("Accepted") == "Accepted"

    def _leader(self) -> None:
        with self._report.check("leader: when it is killed, another replica writes status; routes stay"):
            leader = str(until("a leader", self._postern.leader))
            self._postern.process(leader).kill()
            began = time.monotonic()
            self._public("after-leader", "after-leader.test")
            until("another leader, or the same pod again", lambda: self._accepted("after-leader"))
            print(f"      status was written {time.monotonic() - began:.1f} s after the leader was killed")
            until("two ready pods", lambda: len(self._postern.ready()) == 2)

    def _server(self) -> Process:
        found = processes("kube-apiserver")
        expect(len(found) == 1, f"{len(found)} API servers run")
        return Process(found[0])

    def _wait_for_server(self, server: Process) -> None:
        """Waits until the API server answers. Starts it again when it has ended, as a kubelet does: it
        ends itself when something fails at its start."""

        def answers() -> bool:
            if not alive(server.pid):
                said = server.log.read_text(errors="replace").splitlines()[-3:]
                print("      the API server ended and is started again; it said last:", *said, sep="\n        ", flush=True)
                server.start()
            try:
                return self._api.text("GET", "/readyz")[0] == 200
            except OSError:
                return False

        until("the API server answers", answers, 90)

    def _api_server(self) -> None:
        server = self._server()
        pods = self._postern.ready()
        with self._report.check("API server: killed, the last state serves; readiness and a metric say so"):
            with Traffic(self._address, "steady.test") as traffic:
                server.kill()
                until("every pod notes it", lambda: all(
                    "watch of httproutes does not run" in self._postern.admin(pod, "/readyz").text for pod in pods
                ))  # fmt: skip
                for pod in pods:
                    equal("readiness", self._postern.admin(pod, "/readyz").status, 200)
                    up = self._postern.metric(pod, "postern_gateway_api_watch_up", kind="HTTPRoute", namespace="")
                    equal("the metric", up, 0)
                time.sleep(3)
            print(f"      {traffic.all_passed()}")
        with self._report.check("API server: a pod that starts without it waits, and says for what"):
            pod = pods[0]
            process = self._postern.process(pod["metadata"]["name"])
            process.kill()
            answer = until("it waits", lambda: self._waiting(pod))
            expect("objects of the cluster are not known" in str(answer), f"readiness says {answer}")
        with self._report.check("API server: back, pods become ready and changes come into force"):
            server.start()
            self._wait_for_server(server)
            until("both pods are ready", lambda: all(
                self._postern.admin(pod, "/readyz").status == 200 for pod in pods
            ), 60)  # fmt: skip
            self._public("after-server", "after-server.test")
            until("no notes", lambda: all(
                "does not run" not in self._postern.admin(pod, "/readyz").text for pod in pods
            ))  # fmt: skip
            until("its status", lambda: self._accepted("after-server"))

    def _waiting(self, pod: dict) -> str | None:
        answer = self._postern.admin(pod, "/readyz")
        return answer.text if answer.status == 503 and "not known" in answer.text else None

    def _slow(self) -> None:
        with self._report.check("API server: frozen for ten seconds, requests pass, and changes follow"):
            server = self._server()
            with Traffic(self._address, "steady.test") as traffic:
                server.freeze()
                time.sleep(10)
                server.thaw()
                self._wait_for_server(server)
                self._public("after-frost", "after-frost.test")
            print(f"      {traffic.all_passed()}")

    def _history(self) -> None:
        """Postern sleeps while objects change, the database forgets the changes, and the API server
        starts anew: its watches cannot go on where they ended (410)."""
        with self._report.check("history: compacted while a watch slept, everything is listed again and right"):
            kept = [f"kept-{at}" for at in range(20)]
            for name in kept:
                self._public(name, f"{name}.test")
            pods = self._postern.ready()
            lists = {pod["metadata"]["name"]: self._lists(pod) for pod in pods}
            sleeping = self._postern.processes()
            for process in sleeping:
                process.freeze()
            try:
                for name in kept[:10]:
                    self._api.delete("HTTPRoute", "team-a", name)
                for at in range(20):
                    self._api.apply("HTTPRoute", "team-a", f"new-{at}", spec=http_route([f"new-{at}.test"]))
                    target = policy("HTTPRoute", f"new-{at}", PUBLIC)
                    self._api.apply("AccessPolicy", "team-a", f"new-{at}", spec=target)
                self._api.delete("AccessPolicy", "team-a", kept[-1])
                server = self._server()
                compact()
                server.kill()
                server.start()
                self._wait_for_server(server)
            finally:
                for process in sleeping:
                    process.thaw()
            hosts = {f"{name}.test": 404 for name in kept[:10]} | {f"{name}.test": 200 for name in kept[10:-1]}
            hosts |= {f"new-{at}.test": 200 for at in range(20)} | {f"{kept[-1]}.test": 403}
            for pod in pods:
                address, name = pod["status"]["podIP"], pod["metadata"]["name"]
                until(f"{name} has the present state", lambda name=name, pod=pod: (
                    self._lists(pod) > lists[name]
                    and {host: self._get(host) for host in hosts} == hosts
                ))  # fmt: skip
                print(f"      {name} ({address}) listed the routes {self._lists(pod) - lists[name]:.0f} times more")

    def _lists(self, pod: dict) -> float:
        return self._postern.metric(pod, "postern_gateway_api_watch_lists_total", kind="HTTPRoute", namespace="")

    def _faulty(self) -> None:
        api = self._api
        with self._report.check(f"faults: {FAULTY} faulty objects affect no sound one, and each is told its fault"):
            with Traffic(self._address, "steady.test") as traffic:
                for at in range(FAULTY // 2):
                    name = f"bad-{at}"
                    wrong = [
                        http_route([f"{name}.test"], "missing"),
                        http_route([f"{name}.test"], backend_ref={"namespace": "infra"}),
                        http_route([f"{name}.test"]) | {"parentRefs": [{"name": "gateway", "namespace": "infra", "sectionName": "no"}]},
                        http_route([f"{name}.test"], backend_ref={"group": "example.com", "kind": "Bucket"}),
                    ][at % 4]
                    api.apply("HTTPRoute", "team-a", name, spec=wrong)
                    body = [{"allow": [{"nobody": ["x"]}]}, {"policy": "none"}][at % 2]
                    api.apply("AccessPolicy", "team-a", name, spec=policy("HTTPRoute", name, body))
                self._public("sound", "sound.test")
                until("every route and policy has its conditions", self._all_told, 60, 0.5)
            print(f"      {traffic.all_passed()}")
            for at in range(8):
                expect(self._get(f"bad-{at}.test") in (403, 404), f"bad-{at}.test answers {self._get(f'bad-{at}.test')}")

    def _all_told(self) -> bool:
        """Whether each faulty object has a condition that is not true."""

        def told(kind: str, entries: str) -> int:
            objects = self._api("GET", self._api.path(kind, "team-a"))["items"]
            bad = [one for one in objects if one["metadata"]["name"].startswith("bad-")]
            return sum(
                any(condition["status"] == "False" for entry in one.get("status", {}).get(entries, []) for condition in entry["conditions"])
                for one in bad
            )  # fmt: skip

        return told("HTTPRoute", "parents") == FAULTY // 2 and told("AccessPolicy", "ancestors") == FAULTY // 2

    def _rights(self) -> None:
        """The role that the manifests have is enough, as all checks show. Without one of its rights a
        pod says which is missing."""
        api = self._api
        with self._report.check("rights: a missing one is named in the readiness, and nothing is served"):
            role = api.get("ClusterRole", None, "postern")
            without = json.loads(json.dumps(role["rules"]).replace('"secrets", ', "").replace(', "secrets"', ""))
            api("PATCH", api.path("ClusterRole", None, "postern"), {"rules": without}, "application/merge-patch+json")
            pod = self._postern.ready()[0]
            self._postern.process(pod["metadata"]["name"]).kill()
            text = str(until("it waits", lambda: self._waiting(pod)))
            expect(re.search(r'secrets: .*cannot (list|watch) resource "secrets"', text), f"readiness says {text}")
            api("PATCH", api.path("ClusterRole", None, "postern"), {"rules": role["rules"]}, "application/merge-patch+json")
            until("it is ready", lambda: self._postern.admin(pod, "/readyz").status == 200)
        with self._report.check("rights: the account may do nothing beyond its role"):
            for verb, group, resource, space in (
                ("get", "", "secrets", "team-a"), ("create", "", "secrets", HOME), ("update", "", "services", "team-a"),
                ("delete", "gateway.networking.k8s.io", "httproutes", "team-a"), ("patch", "access.postern.dev", "accesspolicies", "team-a"),
                ("create", "", "pods", HOME), ("get", "", "nodes", ""), ("impersonate", "", "users", ""),
                ("create", "", "services", "team-a"), ("patch", "gateway.networking.k8s.io", "gateways", "infra"),
            ):  # fmt: skip
                wanted = {"verb": verb, "group": group, "resource": resource, "namespace": space}
                review = {"spec": {"user": f"system:serviceaccount:{HOME}:postern", "resourceAttributes": wanted,
                                   "groups": ["system:serviceaccounts", "system:authenticated"]}}  # fmt: skip
                answer = api("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", {
                    "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", **review,
                })  # fmt: skip
                expect(not answer["status"]["allowed"], f"it may {verb} {resource}.{group} in {space!r}")


def compact() -> None:
    """Lets the database forget all but the present state."""
    etcd = next((pid for pid in processes("etcd") if alive(pid)), None)
    if etcd is None:
        raise Fault("etcd does not run")
    command = Path(f"/proc/{etcd}/cmdline").read_text().split("\0")
    base = next(one.split("=", 1)[1] for one in command if one.startswith("--listen-client-urls="))

    def call(path: str, content: dict) -> dict:
        request = urllib.request.Request(base + path, data=json.dumps(content).encode(), method="POST")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    revision = int(call("/v3/kv/range", {"key": "AA==", "limit": "1"})["header"]["revision"])
    call("/v3/kv/compaction", {"revision": str(revision), "physical": True})
