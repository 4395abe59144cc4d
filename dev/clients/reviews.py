"""A gateway in front of a service, with a real Kubernetes for authentication and authorization."""

from __future__ import annotations

import concurrent.futures
import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .process import Server
from . import credentials
from .cluster import ISSUER, RBAC, Cluster, account, connections, user
from .report import Report, equal, expect
from .stage import Stage, get

# Maximum time from the API server's response to a change until the gateway's first refusal.
AT_ONCE_S = 1.0
# Time to live of answers here, unless a watch drops them: longer than the whole group takes.
LONG = "1h"
# What a gateway's account needs, and nothing else. deploy/kubernetes grants the same.
ASK = [
    {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
]
WATCH = [
    {
        "apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
        "verbs": ["list", "watch"],
    },
    {"apiGroups": [""], "resources": ["serviceaccounts"], "verbs": ["list", "watch"]},
]
# The watches of the configuration: four for reviews, and service accounts for both clients of the
# API.
WATCHES = 6


class Gateway:
    """A gateway that queries the cluster with one of its accounts."""

    def __init__(self, stage: Stage, cluster: Cluster, name: str, ttl: str) -> None:
        self._stage, self.name = stage, name
        token = cluster.folder / f"{name}.token"
        token.write_text(cluster.token("postern", name))
        template = stage.configuration(
            "kubernetes.toml", FOLDER=stage.folder, API=cluster.base, CA=cluster.ca, TOKEN_FILE=token, TTL=ttl,
            ISSUER=credentials.ISSUER, AUDIENCE=credentials.AUDIENCE, JWKS=stage.issuer.jwks, CLUSTER_ISSUER=ISSUER,
            ADMIN_PORT=stage.port(f"{name}-admin"), PLAIN_PORT=stage.port(f"{name}-plain"),
            ECHO_PORT=stage.port("echo"),
        )  # fmt: skip
        self.configuration = template.rename(stage.folder / f"kubernetes-{name}.toml")
        self.server: Server | None = None

    def start(self) -> "Gateway":
        """Starts it and waits until it is ready."""
        ports = self._stage.port(f"{self.name}-plain"), self._stage.port(f"{self.name}-admin")
        self.server = self._stage.serve(f"gateway-{self.name}", self.configuration, *ports)
        return self

    def status(self, token: str, path: str, method: str = "GET") -> int:
        """Status of the response to a request."""
        return self.answer(token, path, method)[0]

    def answer(self, token: str, path: str, method: str = "GET") -> tuple[int, dict[str, str], bytes]:
        """Status, header fields and body."""
        url = f"http://127.0.0.1:{self._stage.port(f'{self.name}-plain')}{path}"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return answer.status, {k.lower(): v for k, v in answer.headers.items()}, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, {k.lower(): v for k, v in refused.headers.items()}, refused.read()

    def metrics(self) -> dict[str, float]:
        """Metric series and their values."""
        _, body = get(f"http://127.0.0.1:{self._stage.port(f'{self.name}-admin')}/metrics")
        found = re.findall(r"^([a-z_]+(?:\{[^}]*\})?) (\S+)$", body.decode(), re.M)
        return {series: float(value) for series, value in found}

    def states(self) -> dict[tuple[str, str], str]:
        """The state of each watch."""
        pattern = re.compile(r'postern_kubernetes_watch_state\{watcher="([^"]+)",resource="([^"]+)",state="([^"]+)"\}')
        held = (pattern.fullmatch(series) for series, value in self.metrics().items() if value == 1)
        return {(found[1], found[2]): found[3] for found in held if found}

    def count(self, state: str) -> int:
        """Number of watches in this state."""
        return sum(found == state for found in self.states().values())


def until(holds: Callable[[], bool], seconds: float, found: Callable[[], object]) -> float:
    """Waits until a condition holds. Returns how long that took."""
    began = time.monotonic()
    while not holds():
        expect(time.monotonic() - began < seconds, f"{found()} after {seconds:g} s")
        time.sleep(0.01)
    return time.monotonic() - began


def prepare(cluster: Cluster) -> None:
    """Creates namespaces, accounts and rights."""
    for name in ("postern", "team-a", "team-b"):
        cluster.namespace(name)
    for name in ("gateway", "unprivileged"):
        cluster.account("postern", name)
    cluster.role(None, "postern-ask", *ASK)
    cluster.role(None, "postern-watch", *WATCH)
    for name in ("gateway", "unprivileged"):
        cluster.bind(None, f"postern-ask-{name}", "postern-ask", account("postern", name))
    cluster.bind(None, "postern-watch", "postern-watch", account("postern", "gateway"))
    for name in ("reader", "doomed", "stranger", *(f"crowd-{n}" for n in range(20))):
        cluster.account("team-a", name)
    for namespace in ("team-a", "team-b"):
        rule = {"apiGroups": [""], "resources": ["services", "services/proxy"], "verbs": ["get"]}
        cluster.role(namespace, "reader", rule)
    cluster.bind("team-a", "reader", "reader", account("team-a", "reader"))
    cluster.bind("team-b", "alice", "reader", user("alice"))


def run(cluster: Cluster, stage: Stage, report: Report) -> None:
    """Runs all checks. The API server is running."""
    prepare(cluster)
    gateway = Gateway(stage, cluster, "gateway", LONG).start()
    with report.check("kubernetes: every resource is watched, and there is no OpenShift"):
        until(lambda: gateway.count("watching") == WATCHES, 15, gateway.states)
        equal("tokens of OpenShift", gateway.states()[("authority:cluster", "oauthaccesstokens")], "absent")
    tokens(cluster, stage, gateway, report)
    reviews(cluster, stage, gateway, report)
    revocation(cluster, stage, gateway, report)
    crowd(cluster, gateway, report)
    outage(cluster, stage, gateway, report)
    without_watches(cluster, stage, report)


def tokens(cluster: Cluster, stage: Stage, gateway: Gateway, report: Report) -> None:
    """TokenReview: which tokens are authenticated."""
    good = cluster.token("team-a", "reader", "postern")
    with report.check("kubernetes: a service account's token for this gateway names it, with its groups"):
        status, _, body = gateway.answer(good, "/whoami")
        equal("status", status, 200)
        sent = {key.lower(): value for key, value in json.loads(body)["headers"]}
        equal("X-Forwarded-User", sent.get("x-forwarded-user"), "system:serviceaccount:team-a:reader")
        expect("system:serviceaccounts:team-a" in sent.get("x-forwarded-groups", ""), f"groups are {sent}")
    nobody = {
        "sub": "system:serviceaccount:team-a:nobody",
        "kubernetes.io": {"namespace": "team-a", "serviceaccount": {"name": "nobody", "uid": "7"}},
    }
    for name, token in [
        ("a token for the API server alone", cluster.token("team-a", "reader")),
        ("a token for somebody else", cluster.token("team-a", "reader", "elsewhere")),
        ("an expired token", cluster.resigned(good, exp=int(time.time()) - 60)),
        ("a token whose signature is another's", good[:-8] + ("A" * 8 if good[-8:] != "A" * 8 else "B" * 8)),
        ("a token of an account that never was", cluster.resigned(good, **nobody)),
    ]:
        with report.check(f"kubernetes: {name} is refused"):
            equal("status", gateway.status(token, "/whoami"), 401)
    with report.check("kubernetes: a token is asked about once, and a JWT of a configured issuer never"):
        before = cluster.created("tokenreviews")
        fresh = cluster.token("team-a", "reader", "postern", 7200)
        equal("statuses", {gateway.status(fresh, "/whoami") for _ in range(5)}, {200})
        equal("token reviews for five requests", cluster.created("tokenreviews") - before, 1)
        equal("statuses", {gateway.status(stage.issuer.token("alice", jti=str(n)), "/whoami") for n in range(5)}, {200})
        equal("status of a forged one", gateway.status(credentials.forged(stage.token), "/whoami"), 401)
        equal("token reviews for JWTs of an issuer", cluster.created("tokenreviews") - before, 1)


def reviews(cluster: Cluster, stage: Stage, gateway: Gateway, report: Report) -> None:
    """SubjectAccessReview: authorization, with names from path and query."""
    reader = cluster.token("team-a", "reader", "postern")
    alice = stage.issuer.token("alice")
    for who, token, path, wanted in [
        ("an account may in its namespace", reader, "/services/team-a/db", 200),
        ("and not in another, named by the path", reader, "/services/team-b/db", 403),
        ("nor in another, named by a parameter", reader, "/models?namespace=team-b", 403),
        ("but in its own, named by a parameter", reader, "/models?namespace=team-a", 200),
        ("one of two namespaces is not enough", reader, "/models?namespace=team-a&namespace=team-b", 403),
        ("no namespace is not all of them", reader, "/models", 400),
        ("a person of the issuer may where bound", alice, "/services/team-b/db", 200),
        ("and not elsewhere", alice, "/services/team-a/db", 403),
        ("a path that is no object's is asked about as such", alice, "/metrics", 403),
    ]:
        with report.check(f"kubernetes: {who}"):
            equal("status", gateway.status(token, path), wanted)
    with report.check("kubernetes: another verb is another question"):
        equal("status of DELETE", gateway.status(reader, "/services/team-a/db", "DELETE"), 403)
    with report.check("kubernetes: a review is asked for once, yes or no"):
        # Answers are dropped again two seconds after the bindings of these checks were created.
        time.sleep(2.5)
        before = cluster.created("subjectaccessreviews")
        for _ in range(5):
            statuses = [gateway.status(alice, f"/services/{namespace}/x") for namespace in ("team-b", "team-a")]
            equal("statuses", statuses, [200, 403])
        equal("reviews for ten requests", cluster.created("subjectaccessreviews") - before, 2)


def revocation(cluster: Cluster, stage: Stage, gateway: Gateway, report: Report) -> None:
    """Changes apply at once, although answers would be cached for an hour."""

    def change(what: str, act: Callable[[], object], token: str, path: str, before: int, after: int) -> None:
        with report.check(f"kubernetes: {what}"):
            equal("status before", {gateway.status(token, path) for _ in range(3)}, {before})
            act()
            took = until(lambda: gateway.status(token, path) == after, 10, lambda: gateway.status(token, path))
            print(f"      {what}: in force after {took * 1000:.0f} ms", flush=True)
            expect(took < AT_ONCE_S, f"it took {took:.2f} s")
            time.sleep(2.5)
            equal("status later", {gateway.status(token, path) for _ in range(3)}, {after})

    alice, path = stage.issuer.token("alice"), "/services/team-b/shop"
    change("a RoleBinding is deleted", lambda: cluster.unbind("team-b", "alice"), alice, path, 200, 403)
    change("a RoleBinding is created", lambda: cluster.bind("team-b", "alice", "reader", user("alice")),
           alice, path, 403, 200)  # fmt: skip
    rules = [{"op": "replace", "path": "/rules/0/resources", "value": ["services"]}]
    role = f"{RBAC}/namespaces/team-b/roles/reader"
    change("a Role loses a right", lambda: cluster.expect("PATCH", role, rules, "application/json-patch+json"),
           alice, path, 200, 403)  # fmt: skip
    cluster.role(None, "everywhere", {"apiGroups": [""], "resources": ["services/proxy"], "verbs": ["get"]})
    change("a ClusterRoleBinding is created", lambda: cluster.bind(None, "everywhere", "everywhere", user("alice")),
           alice, path, 403, 200)  # fmt: skip
    change("a ClusterRole is deleted", lambda: cluster.expect("DELETE", f"{RBAC}/clusterroles/everywhere"),
           alice, path, 200, 403)  # fmt: skip
    doomed = cluster.token("team-a", "doomed", "postern")
    where = "/api/v1/namespaces/team-a/serviceaccounts/doomed"
    change("a ServiceAccount is deleted", lambda: cluster.expect("DELETE", where), doomed, "/whoami", 200, 401)
    with report.check("kubernetes: an account of the same name is another, and the old token stays refused"):
        cluster.account("team-a", "doomed")
        new = cluster.token("team-a", "doomed", "postern")
        until(lambda: gateway.status(new, "/whoami") == 200, AT_ONCE_S, lambda: gateway.status(new, "/whoami"))
        equal("status of the old token", gateway.status(doomed, "/whoami"), 401)
    with report.check("kubernetes: events are counted, and no watch had to begin anew"):
        series = gateway.metrics()
        bindings = 'postern_kubernetes_watch_events_total{watcher="kubernetes",resource="rolebindings"}'
        expect(series[bindings] >= 2, f"there are {series[bindings]:g} events of role bindings")
        begun = [count for name, count in series.items() if name.startswith("postern_kubernetes_watch_lists_total")]
        equal("lists of each watch", sorted(begun), [0.0] + [1.0] * WATCHES)
    with report.check("kubernetes: other namespaces' changes leave answers alone"):
        reader = cluster.token("team-a", "reader", "postern")
        time.sleep(2.5)
        equal("status", gateway.status(reader, "/services/team-a/kept"), 200)
        before = cluster.created("subjectaccessreviews")
        cluster.bind("team-b", "other", "reader", user("bob"))
        time.sleep(0.5)
        equal("status", gateway.status(reader, "/services/team-a/kept"), 200)
        equal("reviews", cluster.created("subjectaccessreviews") - before, 0)


def crowd(cluster: Cluster, gateway: Gateway, report: Report) -> None:
    """Many requests at once share connections."""
    with report.check("kubernetes: many questions at once and every watch use few connections"):
        assert gateway.server is not None
        tokens = [cluster.token("team-a", f"crowd-{n}", "postern") for n in range(20)]
        asked = cluster.created("subjectaccessreviews")
        seen: set[str] = set()
        with concurrent.futures.ThreadPoolExecutor(20) as pool:
            work = [pool.submit(gateway.status, token, f"/services/team-a/{n}") for token in tokens for n in range(10)]
            while not all(task.done() for task in work):
                seen |= connections(gateway.server.pid, cluster.port)
                time.sleep(0.005)
        equal("statuses", {task.result() for task in work}, {403})
        equal("reviews for two hundred requests", cluster.created("subjectaccessreviews") - asked, 200)
        print(f"      connections to the API server: {len(seen)}", flush=True)
        # One for each client of the API: reviews, and the token authority.
        expect(len(seen) <= 4, f"there were {len(seen)} connections")


def outage(cluster: Cluster, stage: Stage, gateway: Gateway, report: Report) -> None:
    """Without the API server no new caller is admitted, and none gets 401 or 403."""
    known = stage.issuer.token("alice")
    fresh = cluster.token("team-a", "reader", "postern")
    time.sleep(2.5)
    equal("status of what is known", gateway.status(known, "/services/team-b/shop"), 403)
    assert cluster.server is not None
    cluster.server.stop()
    before = gateway.metrics()

    def grown(series: str) -> float:
        return gateway.metrics().get(series, 0) - before.get(series, 0)

    with report.check("kubernetes: with the API server gone, who cannot be asked about gets 503, and it is counted"):
        for token, path in [(fresh, "/whoami"), (known, "/services/team-c/x")]:
            status, fields, _ = gateway.answer(token, path)
            equal(f"status and Retry-After of {path}", (status, fields.get("retry-after")), (503, "1"))
        failed = grown('postern_token_authority_requests_total{authority="cluster",result="failed"}')
        equal("failed token reviews", failed, 1)
        equal("failed reviews", grown('postern_access_reviews_total{result="failed"}'), 1)
        equal("status of what needs nobody", gateway.status(known, "/whoami"), 200)
    with report.check("kubernetes: broken watches are shown"):
        until(lambda: gateway.count("broken") == WATCHES, 15, gateway.states)
    with report.check("kubernetes: it comes back and is asked and watched again, without a restart"):
        cluster.resume()
        took = until(lambda: gateway.status(fresh, "/whoami") == 200, 15, lambda: gateway.status(fresh, "/whoami"))
        watched = until(lambda: gateway.count("watching") == WATCHES, 30, gateway.states)
        print(f"      asked again after {took * 1000:.0f} ms, watched after {took + watched:.1f} s", flush=True)
    with report.check("kubernetes: and its changes are in force at once as before"):
        cluster.bind("team-b", "again", "reader", user("carol"))
        carol = stage.issuer.token("carol")
        until(lambda: gateway.status(carol, "/models?namespace=team-b") == 200, 5, lambda: "carol may not")
        time.sleep(2.5)
        cluster.unbind("team-b", "again")
        took = until(lambda: gateway.status(carol, "/models?namespace=team-b") == 403, 10, lambda: "carol may")
        expect(took < AT_ONCE_S, f"it took {took:.2f} s")


def without_watches(cluster: Cluster, stage: Stage, report: Report) -> None:
    """An account that may send reviews but not watch."""
    gateway = Gateway(stage, cluster, "unprivileged", "2s").start()
    with report.check("kubernetes: who may not watch says so in metrics and in the log, naming the right"):
        until(lambda: gateway.count("denied") == WATCHES, 15, gateway.states)
        assert gateway.server is not None
        log = Path(gateway.server.log).read_text(errors="replace")
        for right in ("on `rolebindings` of the API group", "on `serviceaccounts` of the API group"):
            expect(f"`list` and `watch` {right}" in log, f"the log does not name {right!r}")
        equal("times it is said of role bindings", log.count("on `rolebindings` of"), 1)
    with report.check("kubernetes: and believes answers for their time and no longer"):
        cluster.bind("team-b", "dave", "reader", user("dave"))
        dave, path = stage.issuer.token("dave"), "/models?namespace=team-b"
        until(lambda: gateway.status(dave, path) == 200, 5, lambda: "dave may not")
        cluster.unbind("team-b", "dave")
        took = until(lambda: gateway.status(dave, path) == 403, 5, lambda: "dave may")
        print(f"      without a watch: in force after {took * 1000:.0f} ms, with answers believed for 2 s", flush=True)
        expect(took <= 2.5, f"it took {took:.2f} s")
