"""The definition of AccessPolicy: a real API server accepts it, and refuses what its validations
refuse."""

from __future__ import annotations

import json
import re
import urllib.request

from .cluster import Cluster
from .report import Report, equal, expect
from .stage import ROOT, Stage

DEFINITION = ROOT / "deploy/crds/access.postern.dev_accesspolicies.yaml"
PAGES = ("docs/reference/access-policy.md",)
GROUP = "/apis/access.postern.dev/v1alpha1"
NAMESPACE = "access-policies"
PLACE = f"{GROUP}/namespaces/{NAMESPACE}/accesspolicies"
APPLY = "application/apply-patch+yaml"
STRICT = "fieldManager=test&force=true&fieldValidation=Strict"

STAFF = {"allow": [{"groups": ["staff"]}]}
REVIEW = {"resource": "notebooks", "api_group": "kubeflow.org", "verb": "get", "namespace": "{route.labels.notebook-namespace}"}

# Bodies that are valid, each for what it shows.
VALID = {
    "a list of groups": STAFF,
    "every form of a choice": {"allow": [
        {"groups": {"any": ["a"]}, "scopes": {"all": ["b", "c"]}, "claims": {"realm.role": ["d"], "org": {"present": True}}},
    ], "deny": [{"addresses": ["10.0.0.0/8"], "time": {"days": ["sat", "sun"], "zone": "+01:00"}}]},
    "a policy of the operator": {"policy": "staff", "body_size": "unlimited", "idle_timeout": "1h30m", "paths": "strict"},
    "everybody": {"public": True, "security_headers": {"hsts": "30d"}},
    "an access review": {"access_review": REVIEW, "login": True, "login_redirect": "all"},
    "several access reviews": {"access_reviews": {"any": [REVIEW, {"path": "/metrics", "verb": "get"}]}},
    "a rule beside a review": STAFF | {"access_review": REVIEW, "security_headers": False, "denied_detail": "ask the team"},
}  # fmt: skip
# Bodies that are not valid, and a part of the message.
INVALID = {
    "two sources of rules": (STAFF | {"policy": "staff"}, "keep one"),
    "deny without allow": ({"deny": [{"users": ["eve"]}]}, "add allow"),
    "public with rules": (STAFF | {"public": True}, "a public policy checks nothing"),
    "public with a login": ({"public": True, "login": True}, "a public policy checks nothing"),
    "nobody": ({"login": True}, "nothing says who may pass"),
    "public that is false": ({"public": False}, "nothing says who may pass"),
    "an empty body": ({}, "at least 1 propert"),
    "no rule": ({"allow": []}, "at least 1 item"),
    "a rule without conditions": ({"allow": [{}]}, "at least 1 propert"),
    "an empty list in a rule": ({"allow": [{"users": []}]}, "at least 1 item"),
    "too many rules": ({"allow": [{"users": ["a"]}] * 65}, "at most 64 items"),
    "a redirect without a login": (STAFF | {"login_redirect": "all"}, "add login"),
    "a word that there is not": (STAFF | {"login": True, "login_redirect": "nobody"}, 'supported values: "browsers"'),
    "a size without a unit": (STAFF | {"body_size": "1000"}, "body_size"),
    "a duration with a wrong unit": (STAFF | {"idle_timeout": "5 minutes"}, "idle_timeout"),
    "a network with words": ({"allow": [{"addresses": ["office"]}]}, "addresses"),
    "a text where truth is meant": (STAFF | {"login": "yes"}, "must be of type boolean"),
    "both kinds of review": ({"access_review": REVIEW, "access_reviews": {"any": [REVIEW]}}, "exclude each other"),
    "any and all": ({"access_reviews": {"any": [REVIEW], "all": [REVIEW]}}, "exactly one of all and any"),
    "a review of nothing": ({"access_review": {"verb": "get"}}, "name a resource"),
    "a review of a path and an object": ({"access_review": {"path": "/x", "name": "y"}}, "only verb has an effect"),
    "nine reviews": ({"access_reviews": {"all": [REVIEW] * 9}}, "at most 8 items"),
    "a window without bounds": ({"allow": [{"authenticated": True, "time": {"zone": "UTC"}}]}, "no bounds"),
}


def target(**fields: str) -> dict:
    """A target, an HTTPRoute unless the fields say otherwise."""
    return {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": "app"} | fields


# Specs that are not valid, and a part of the message.
INVALID_SPECS = {
    "neither defaults nor overrides": ({}, "exactly one of defaults and overrides"),
    "both": ({"defaults": STAFF, "overrides": STAFF}, "exactly one of defaults and overrides"),
    "no target": ({"defaults": STAFF, "targetRefs": []}, "at least 1 item"),
    "a target of another kind": ({"defaults": STAFF, "targetRefs": [target(kind="Service")]}, "kind"),
    "a target of another group": ({"defaults": STAFF, "targetRefs": [target(group="")]}, "group"),
    "a target without a name": ({"defaults": STAFF, "targetRefs": [target(name="")]}, "name"),
    "a target twice": ({"defaults": STAFF, "targetRefs": [target(), target()]}, "listed twice"),
    "seventeen targets": ({"defaults": STAFF, "targetRefs": [target(name=f"a{n}") for n in range(17)]}, "at most 16"),
}


def policy(name: str, **spec: object) -> dict:
    """A policy for an HTTPRoute, unless the spec has other targets."""
    return {
        "apiVersion": "access.postern.dev/v1alpha1", "kind": "AccessPolicy",
        "metadata": {"name": name, "namespace": NAMESPACE}, "spec": {"targetRefs": [target()]} | spec,
    }  # fmt: skip


def run(cluster: Cluster, stage: Stage, report: Report) -> None:
    """Runs all checks. The API server is running."""
    del stage
    cluster.namespace(NAMESPACE)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/accesspolicies.access.postern.dev"
    with report.check("access policy: the definition is accepted, field by field, and is structural"):
        cluster.expect("PATCH", f"{path}?{STRICT}", DEFINITION.read_bytes(), APPLY)
        cluster.wait_for(PLACE)
        conditions = {c["type"]: c for c in cluster.expect("GET", path)["status"]["conditions"]}
        equal("Established", conditions["Established"]["status"], "True")
        expect("NonStructuralSchema" not in conditions, str(conditions.get("NonStructuralSchema")))
    with report.check("access policy: valid objects are accepted, and kept as they are"):
        for number, (what, body) in enumerate(VALID.items()):
            for side in ("defaults", "overrides"):
                sent = policy(f"valid-{number}", **{side: body})
                kept = cluster.expect("POST", f"{PLACE}?dryRun=All&fieldValidation=Strict", sent)
                equal(f"the spec with {what}", kept["spec"], sent["spec"])
    for what, (body, message) in INVALID.items():
        with report.check(f"access policy: {what} is refused"):
            for side in ("defaults", "overrides"):
                refused(cluster, policy("invalid", **{side: body}), message)
    for what, (spec, message) in INVALID_SPECS.items():
        with report.check(f"access policy: {what} is refused"):
            refused(cluster, policy("invalid", **spec), message)
    with report.check("access policy: a field that the API server does not know is kept for the controller"):
        body = {"allow": [{"groups": ["staff"], "adresses": ["10.0.0.0/8"]}], "denny": [{"users": ["eve"]}]}
        sent = policy("unknown", defaults=body, targetRefs=[target(sectionNam="rule")])
        kept = cluster.expect("POST", f"{PLACE}?dryRun=All&fieldValidation=Ignore", sent)
        equal("the spec", kept["spec"], sent["spec"])
    with report.check("access policy: the status is a resource of its own, and shows in the columns"):
        status_and_columns(cluster)
    with report.check("access policy: the examples of the documents are accepted"):
        count = 0
        for page in PAGES:
            for block in re.findall(r"```yaml\n(.*?)```", (ROOT / page).read_text(), re.S):
                for document in re.split(r"^---$", block, flags=re.M):
                    if re.search(r"^kind: AccessPolicy$", document, re.M):
                        count += 1
                        name = re.search(r"name: ([a-z0-9-]+)", document)[1]
                        text = re.sub(r"namespace: [a-z0-9-]+", f"namespace: {NAMESPACE}", document, count=1)
                        cluster.expect("PATCH", f"{PLACE}/{name}?dryRun=All&{STRICT}", text.encode(), APPLY)
        expect(count > 1, f"{count} examples")


def refused(cluster: Cluster, sent: dict, message: str) -> None:
    """The API server refuses an object, with a message."""
    status, answer = cluster.call("POST", f"{PLACE}?dryRun=All&fieldValidation=Strict", sent)
    equal("the status", status, 422)
    expect(message.lower() in answer["message"].lower(), answer["message"])


def status_and_columns(cluster: Cluster) -> None:
    """What the controller writes is accepted, and `kubectl get` shows it."""
    created = cluster.expect("POST", PLACE, policy("staff", defaults=STAFF, targetRefs=[target(kind="Gateway", name="gw")]))
    equal("the generation", created["metadata"]["generation"], 1)
    condition = {
        "type": "Accepted", "status": "False", "reason": "Conflicted", "message": "an older one",
        "observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    reference = target(kind="Gateway", name="gw", namespace=NAMESPACE, sectionName="https")
    entry = {"ancestorRef": reference, "controllerName": "postern.dev/gateway-controller", "conditions": [condition]}
    document = {key: created[key] for key in ("apiVersion", "kind")} | {
        "metadata": {"name": "staff", "namespace": NAMESPACE}, "spec": {"defaults": {"public": True}}, "status": {"ancestors": [entry]},
    }  # fmt: skip
    path = f"{PLACE}/staff/status?fieldManager=controller&force=true&fieldValidation=Strict"
    written = cluster.expect("PATCH", path, json.dumps(document).encode(), APPLY)
    equal("the status", written["status"], {"ancestors": [entry]})
    equal("the spec", written["spec"]["defaults"], STAFF)
    headers = {"Authorization": f"Bearer {cluster.admin}", "Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}
    request = urllib.request.Request(f"{cluster.base}{PLACE}", headers=headers)
    with urllib.request.urlopen(request, timeout=30, context=cluster.context) as answer:
        table = json.load(answer)
    equal("the columns", [c["name"] for c in table["columnDefinitions"]], ["Name", "Target", "Target Name", "Accepted", "Reason", "Age"])
    equal("the row", table["rows"][0]["cells"][:5], ["staff", "Gateway", "gw", "False", "Conflicted"])
