"""Who may pass: policies, reviews, certificates, endpoints, and what one team cannot do to another."""

from __future__ import annotations

from pathlib import Path

from api_server import GATEWAY_GROUP, RBAC, Api, until
from clients.report import Report, equal, expect

from .scene import Postern, Stopwatch, Traffic, everywhere, fetch, http_route, policy, presented, self_signed

PUBLIC = {"public": True}
OWNERS = {"access_review": {
    "verb": "get", "api_group": "kubeflow.org", "resource": "notebooks",
    "namespace": "{route.labels.notebook-namespace}", "name": "{route.labels.notebook-name}",
}}  # fmt: skip


class Access:
    """The checks. `address` is that of the Gateway `gateway` in `infra`."""

    def __init__(self, api: Api, postern: Postern, report: Report, address: str, folder: Path) -> None:
        self._api, self._postern, self._report, self._address, self._folder = api, postern, report, address, folder

    def run(self) -> None:
        """Runs all."""
        self._closed_by_default()
        self._notebooks()
        self._overrides()
        self._host_names()
        self._grants()
        self._files()
        self._certificates()
        self._endpoints()

    def _get(self, host: str, path: str = "/", token: str | None = None) -> int:
        return fetch(self._address, host, path, token).status

    def _closed_by_default(self) -> None:
        api = self._api
        with self._report.check("policies: without one a route is closed, with one it opens, and its end closes it"):
            api.apply("HTTPRoute", "team-a", "shop", spec=http_route(["shop.test"]))
            everywhere("403 that says why", lambda: "no_policy" in fetch(self._address, "shop.test").text)
            until("the route says why", lambda: "-NoPolicy" in api.conditions("HTTPRoute", "team-a", "shop").values())
            watch = Stopwatch()
            api.apply("AccessPolicy", "team-a", "shop", spec=policy("HTTPRoute", "shop", PUBLIC))
            opened = watch.until("200 with a policy", lambda: self._get("shop.test") == 200, 1)
            until("the policy is accepted", lambda: api.conditions("AccessPolicy", "team-a", "shop").get("Accepted") == "Accepted")
            watch = Stopwatch()
            api.delete("AccessPolicy", "team-a", "shop")
            closed = watch.until("403 without it", lambda: self._get("shop.test") == 403, 1)
            print(f"      opened after {opened:.0f} ms, closed after {closed:.0f} ms")
        with self._report.check("policies: one that becomes invalid closes its route, and says so"):
            api.apply("AccessPolicy", "team-a", "shop", spec=policy("HTTPRoute", "shop", PUBLIC))
            until("200", lambda: self._get("shop.test") == 200)
            broken = policy("HTTPRoute", "shop", {"allow": [{"issuers": ["nobody"]}]})
            api.apply("AccessPolicy", "team-a", "shop", spec=broken)
            until("403", lambda: self._get("shop.test") == 403)
            api.apply("AccessPolicy", "team-a", "shop", spec=policy("HTTPRoute", "shop", PUBLIC))
            until("200 again", lambda: self._get("shop.test") == 200)

    def _notebooks(self) -> None:
        """Routes of notebooks in one central namespace, by labels, with one policy on the Gateway."""
        api = self._api
        with self._report.check("notebooks: one policy on the Gateway lets each owner reach his own, for as long as he may"):
            for name in ("central", "alice", "mallory"):
                api.apply("Namespace", None, name)
            for name in ("alice", "mallory"):
                api.apply("ServiceAccount", name, name)
            api.apply("Role", "alice", "reader", rules=[
                {"apiGroups": ["kubeflow.org"], "resources": ["notebooks"], "resourceNames": ["work"], "verbs": ["get"]},
            ])  # fmt: skip
            binding = {
                "roleRef": {"apiGroup": RBAC.partition("/")[0], "kind": "Role", "name": "reader"},
                "subjects": [{"kind": "ServiceAccount", "namespace": "alice", "name": "alice"}],
            }
            api.apply("RoleBinding", "alice", "reader", **binding)
            self._grant("team-a", "Service", "HTTPRoute", "central", "notebooks")
            api.apply("AccessPolicy", "infra", "notebooks", spec=policy("Gateway", "gateway", OWNERS))
            labels = {"notebook-namespace": "alice", "notebook-name": "work"}
            spec = http_route(
                ["workbench.test"], backend_ref={"namespace": "team-a"},
                matches=[{"path": {"type": "PathPrefix", "value": "/notebook/alice/work"}}],
            )  # fmt: skip
            api.apply("HTTPRoute", "central", "nb-alice-work", labels=labels, spec=spec)
            path = "/notebook/alice/work/lab"
            alice, mallory = api.token("alice", "alice"), api.token("mallory", "mallory")
            everywhere("200 for alice", lambda: self._get("workbench.test", path, alice) == 200)
            equal("the answer to mallory", self._get("workbench.test", path, mallory), 403)
            equal("the answer to nobody", self._get("workbench.test", path), 401)
            for _ in range(20):
                equal("the answer to alice", self._get("workbench.test", path, alice), 200)
            watch = Stopwatch()
            api.delete("RoleBinding", "alice", "reader")
            refused = watch.until("403 for alice", lambda: self._get("workbench.test", path, alice) == 403, 1)
            api.apply("RoleBinding", "alice", "reader", **binding)
            until("200 for alice again", lambda: self._get("workbench.test", path, alice) == 200)
            print(f"      refused {refused:.0f} ms after its RoleBinding was deleted")
        with self._report.check("notebooks: a route without the labels is closed, and says so as its policy does"):
            spec = http_route(["none.test"], backend_ref={"namespace": "team-a"})
            api.apply("HTTPRoute", "central", "nb-none", spec=spec)
            until("403", lambda: self._get("none.test", token=alice) == 403)
            until("the route says why", lambda: self._applied("nb-none") == "-InvalidPolicy")
            until("the policy says so", lambda: self._partial("notebooks") == "UnsupportedValue")
            api.apply("HTTPRoute", "central", "nb-none", labels=labels, spec=spec)
            until("the policy applies", lambda: self._applied("nb-none") == "Applied")
            until("the policy fits", lambda: self._partial("notebooks") is None)

    def _applied(self, route: str) -> str | None:
        return self._api.conditions("HTTPRoute", "central", route).get("access.postern.dev/PolicyApplied")

    def _partial(self, name: str) -> str | None:
        return self._api.conditions("AccessPolicy", "infra", name).get("PartiallyInvalid")

    def _overrides(self) -> None:
        api = self._api
        with self._report.check("teams: a policy of a route cannot weaken an override of its Gateway"):
            api.apply("HTTPRoute", "team-a", "weak", spec=http_route(["weak.test"]))
            api.apply("AccessPolicy", "team-a", "weak", spec=policy("HTTPRoute", "weak", PUBLIC))
            until("200 by its own policy", lambda: self._get("weak.test") == 200)
            strict = policy("Gateway", "gateway", {"allow": [{"users": ["system:serviceaccount:alice:alice"]}]}, "overrides")
            api.apply("AccessPolicy", "infra", "notebooks", spec=strict)
            until("401 by the override", lambda: self._get("weak.test") == 401)
            api.apply("AccessPolicy", "infra", "notebooks", spec=policy("Gateway", "gateway", OWNERS))
            everywhere("200 without it", lambda: self._get("weak.test") == 200)
        with self._report.check("teams: a younger policy with the same target is refused, and changes nothing"):
            api.apply("AccessPolicy", "team-a", "weaker", spec=policy("HTTPRoute", "weak", {"allow": [{"users": ["x"]}]}))
            until("it is refused", lambda: (
                api.conditions("AccessPolicy", "team-a", "weaker").get("Accepted") == "-Conflicted"
            ))  # fmt: skip
            equal("the answer", self._get("weak.test"), 200)

    def _host_names(self) -> None:
        api = self._api
        with self._report.check("teams: a host name of another team cannot be taken, not even by a longer path"):
            api.apply("HTTPRoute", "team-a", "owned", spec=http_route(["owned.test"]))
            api.apply("AccessPolicy", "team-a", "owned", spec=policy("HTTPRoute", "owned", PUBLIC))
            everywhere("200", lambda: fetch(self._address, "owned.test", "/login").pod.startswith("echo-"))
            self._grant("team-a", "Service", "HTTPRoute", "team-b", "from-b")
            theirs = http_route(["owned.test"], "echo-b", matches=[{"path": {"type": "PathPrefix", "value": "/login"}}])
            api.apply("HTTPRoute", "team-b", "theirs", spec=theirs)
            api.apply("AccessPolicy", "team-b", "theirs", spec=policy("HTTPRoute", "theirs", PUBLIC))
            until("it is refused", lambda: api.conditions("HTTPRoute", "team-b", "theirs").get("Accepted", "").startswith("-"))
            for _ in range(20):
                answer = fetch(self._address, "owned.test", "/login")
                expect('"namespace": "team-a"' in answer.text, f"answered by {answer}")

    def _grant(self, space: str, to: str, kind: str, source: str, name: str) -> None:
        group = "" if to in ("Service", "Secret") else GATEWAY_GROUP
        self._api.apply("ReferenceGrant", space, name, spec={
            "from": [{"group": GATEWAY_GROUP, "kind": kind, "namespace": source}], "to": [{"group": group, "kind": to}],
        })  # fmt: skip

    def _grants(self) -> None:
        api = self._api
        with self._report.check("teams: a Service of another team is reached with its ReferenceGrant only"):
            api.apply("HTTPRoute", "team-c", "foreign", spec=http_route(["foreign.test"], backend_ref={"namespace": "team-a"}))
            api.apply("AccessPolicy", "team-c", "foreign", spec=policy("HTTPRoute", "foreign", PUBLIC))
            until("500", lambda: self._get("foreign.test") == 500)
            until("the route says why", lambda: (
                api.conditions("HTTPRoute", "team-c", "foreign").get("ResolvedRefs") == "-RefNotPermitted"
            ))  # fmt: skip
            self._grant("team-a", "Service", "HTTPRoute", "team-c", "to-c")
            until("200", lambda: self._get("foreign.test") == 200)
            watch = Stopwatch()
            api.delete("ReferenceGrant", "team-a", "to-c")
            watch.until("500 without the grant", lambda: self._get("foreign.test") == 500, 1)

    def _files(self) -> None:
        api = self._api
        with self._report.check("teams: a policy cannot have a file of the gateway read"):
            api.apply("HTTPRoute", "team-a", "files", spec=http_route(["files.test"]))
            body = PUBLIC | {"request_headers": {"set": {"X-Key": {"file": "/etc/passwd"}}}}
            api.apply("AccessPolicy", "team-a", "files", spec=policy("HTTPRoute", "files", body))
            until("403", lambda: self._get("files.test") == 403)
            until("the policy says why", lambda: api.conditions("AccessPolicy", "team-a", "files").get("Accepted") == "-Invalid")

    def _certificates(self) -> None:
        api = self._api
        with self._report.check("certificates: a renewed Secret is presented to new handshakes"):
            first, shown = self_signed(self._folder, "secure.test")
            api.apply("Secret", "infra", "tls", type="kubernetes.io/tls", data=first)
            until("the first certificate", lambda: presented(self._address, "secure.test") == shown)
            second, renewed = self_signed(self._folder, "secure.test")
            watch = Stopwatch()
            api.apply("Secret", "infra", "tls", type="kubernetes.io/tls", data=second)
            took = watch.until("the second one", lambda: presented(self._address, "secure.test") == renewed, 1)
            print(f"      presented {took:.0f} ms after it was written")

    def _pods_that_answer(self) -> int:
        return len({fetch(self._address, "steady.test").pod for _ in range(60)})

    def _endpoints(self) -> None:
        api = self._api
        with self._report.check("endpoints: pods come and go, and no request fails"):
            api.apply("HTTPRoute", "team-a", "steady", spec=http_route(["steady.test"]))
            api.apply("AccessPolicy", "team-a", "steady", spec=policy("HTTPRoute", "steady", PUBLIC))
            everywhere("200", lambda: self._get("steady.test") == 200)
            scale = f"{api.path('Deployment', 'team-a', 'echo')}/scale"
            with Traffic(self._address, "steady.test") as traffic:
                for replicas in (4, 1, 3, 2):
                    wanted = api("GET", scale)
                    wanted["spec"]["replicas"] = replicas
                    api("PUT", scale, wanted)
                    until(f"{replicas} pods", lambda replicas=replicas: self._echo_pods() == replicas)
                    # The pods are ready before the gateway hears of it.
                    until(f"{replicas} pods answer", lambda replicas=replicas: self._pods_that_answer() == replicas)
            print(f"      {traffic.all_passed()}")

    def _echo_pods(self) -> int:
        status = self._api.get("Deployment", "team-a", "echo").get("status", {})
        pods = self._api("GET", f"{self._api.path('Pod', 'team-a')}?labelSelector=app%3Decho")["items"]
        return status.get("readyReplicas", 0) if len(pods) == status.get("readyReplicas", 0) else -1
