"""The Helm chart: every rendered combination is accepted by a real API server, its configuration by
`postern check`; and Helm installs, upgrades, rolls back and removes it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import textwrap
from pathlib import Path

from .cluster import Cluster
from .manifests import APPLY, PLACES, STRICT, Document, check_configuration, documents
from .report import Report, Skip, equal, expect
from .stage import CACHE, ROOT, Stage

CHART = ROOT / "deploy/helm/postern"
EXAMPLES = ("gateway-api", "gateway", "authorization", "login", "provider", "sidecar")
NAMESPACE = "postern-helm"
MORE_PLACES = {
    ("autoscaling/v2", "HorizontalPodAutoscaler"): "/apis/autoscaling/v2/namespaces/%s/horizontalpodautoscalers",
    ("monitoring.coreos.com/v1", "ServiceMonitor"): "/apis/monitoring.coreos.com/v1/namespaces/%s/servicemonitors",
    ("monitoring.coreos.com/v1", "PrometheusRule"): "/apis/monitoring.coreos.com/v1/namespaces/%s/prometheusrules",
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    ("gateway.networking.k8s.io/v1", "GatewayClass"): "/apis/gateway.networking.k8s.io/v1/gatewayclasses",
    ("networking.k8s.io/v1", "IngressClass"): "/apis/networking.k8s.io/v1/ingressclasses",
    ("gateway.networking.k8s.io/v1", "Gateway"): "/apis/gateway.networking.k8s.io/v1/namespaces/%s/gateways",
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): "/apis/gateway.networking.k8s.io/v1/namespaces/%s/httproutes",
    ("gateway.networking.k8s.io/v1beta1", "ReferenceGrant"): "/apis/gateway.networking.k8s.io/v1beta1/namespaces/%s/referencegrants",
}
# A listener of the file beside those of Gateways, and settings of these.
OWN_LISTENER = """
[admin]
address = "0.0.0.0:9911"
[[listener]]
name = "web"
address = "0.0.0.0:8080"
[[route]]
name = "it-runs"
public = true
respond = { status = 200 }
[gateway_api.listener]
limits = { connections = 100 }
""".strip().replace(",", "\\,")
# A configuration without a route, to which a test adds the table that it is about.
SMALL = "configuration=[admin]\naddress = '0.0.0.0:9911'\n[[listener]]\nname = 'web'\naddress = '0.0.0.0:8080'\n"
SQLITE = f"{SMALL}[security_events]\ndatabase = 'sqlite:///var/lib/postern/events.db?mode=rwc'\n"
# Values with which one pod at a time has an SQLite file.
ONE_POD = ["replicas=1", "strategy.type=Recreate"]
# Values that change what is rendered, beside each example.
VARIANTS = {
    "as it is": [],
    "autoscaling and monitoring": ["autoscaling.enabled=true", "monitoring.serviceMonitor=true", "monitoring.rules=true", "monitoring.labels.release=prometheus"],
    "outside of the cluster": ["service.type=LoadBalancer", "networkPolicy.enabled=false", "image.digest=sha256:" + "0" * 64],
    "OpenShift": ["kubernetes.ask=true", "kubernetes.openshift=true", "podSecurityContext.runAsUser=null", "podSecurityContext.runAsGroup=null", "podSecurityContext.fsGroup=null"],
    "volumes, environment, every node": ["extraEnv[0].name=HTTPS_PROXY", "extraEnv[0].value=http://proxy:3128", "extraVolumes[0].name=data", "extraVolumes[0].emptyDir.medium=Memory", "extraVolumeMounts[0].name=data", "extraVolumeMounts[0].mountPath=/var/lib/postern", "service.type=NodePort", "service.externalTrafficPolicy=Cluster"],
    "replaced with each change": ["restartOnChange=true", "podDisruptionBudget.enabled=false", "termination.sleepSeconds=0", "serviceAccount.name=existing", "priorityClassName=system-cluster-critical"],
}
# The same for one example alone.
MORE_VARIANTS = {
    "gateway-api": {
        "some namespaces": ["gatewayApi.namespaces={default,kube-system}", "gatewayApi.zone=zone-a", "gatewayApi.firstPort=30000", "gatewayApi.lastPort=30999"],
        "Ingresses, and policies with more": ["gatewayApi.ingressGateway=infra/ingress", "gatewayApi.policiesMayUse={authorizer,basic_auth}", "gatewayApi.exclusiveHosts=true"],
        "a second installation": ["gatewayApi.controllerName=example.com/postern", "gatewayApi.className=", "gatewayApi.installCrd=false", "fullnameOverride=second"],
        "ports beside those of others": ["gatewayApi.firstPort=9912", "gatewayApi.lastPort=9999"],
        "listeners of its own": ["configuration=" + OWN_LISTENER, "service.ports[0].name=web", "service.ports[0].port=80", "service.ports[0].containerPort=8080"],
    },
    "provider": {
        "alerts without a ServiceMonitor": ["monitoring.rules=true", "monitoring.upLabels.job=pods", 'monitoring.upLabels.app=it is "ours" # or: not'],
        "intervals and amounts": ["monitoring.serviceMonitor=true", "monitoring.interval=1m30s", "podDisruptionBudget.maxUnavailable=50%", "strategy.rollingUpdate.maxSurge=100%", "strategy.rollingUpdate.maxUnavailable=25%"],
        "one pod at a time": ONE_POD,
    },
}
# Faulty values, and what the error must say.
FAULTS = {
    "a misspelt value": (["replcas=3"], "replcas"),
    "a port without a listener": (["service.ports[0].name=web", "service.ports[0].port=80", "service.ports[0].containerPort=8081"], "no listener of the configuration has it: the addresses are 0.0.0.0:8080"),
    "another admin port": (["admin.port=9999"], 'set admin.address = "0.0.0.0:9999"'),
    "an admin port that no probe reaches": (["configuration=[admin]\naddress = '127.0.0.1:9911'\n"], "which no probe reaches in a pod: set admin.address = \"0.0.0.0:9911\""),
    "a listener that nobody reaches": (["configuration=[admin]\naddress = '0.0.0.0:9911'\n[[listener]]\nname = 'web'\naddress = '127.0.0.1:8080'\n"], "which only the pod itself reaches: use \"0.0.0.0:8080\""),
    "a drain that the kubelet cuts": (["configuration=[admin]\naddress = '0.0.0.0:9911'\n[server]\ndrain_timeout = '5m'\n[[listener]]\nname = 'web'\naddress = '0.0.0.0:8080'\n"], "Set it to 300"),
    "a drain of two units": ([f"{SMALL}[server]\ndrain_timeout = '1m30s'\n"], "Set it to 90"),
    "a drain in milliseconds": ([f"{SMALL}[server]\ndrain_timeout = '30001ms'\n"], "Set it to 31"),
    "a drain of a day": ([f"{SMALL}[server]\ndrain_timeout = '1d'\n"], "Set it to 86400"),
    "a drain with a zero in front": ([f"{SMALL}[server]\ndrain_timeout = '031s'\n"], "Set it to 31"),
    "a drain without a unit": ([f"{SMALL}[server]\ndrain_timeout = '30'\n"], 'server.drain_timeout is "30", which is not a duration'),
    "a drain that is a number": ([f"{SMALL}[server]\ndrain_timeout = 30\n"], "server.drain_timeout is 30, which is not a duration"),
    "a drain in the wrong order": ([f"{SMALL}[server]\ndrain_timeout = '1s1m'\n"], 'server.drain_timeout is "1s1m", which is not a duration'),
    "an empty drain": ([f"{SMALL}[server]\ndrain_timeout = ''\n"], 'server.drain_timeout is "", which is not a duration'),
    "a drain without an end": ([f"{SMALL}[server]\ndrain_timeout = '18446744073709551646s'\n"], "or far too long"),
    "SQLite with the default pods": ([SQLITE], "security_events.database is an SQLite file, which is for one pod at a time: set `replicas` to 1 (it is 2), `strategy.type` to Recreate (it is RollingUpdate)."),
    "SQLite in two pods": ([SQLITE, "strategy.type=Recreate"], "set `replicas` to 1 (it is 2)."),
    "SQLite that two pods share during an upgrade": ([SQLITE, "replicas=1"], "set `strategy.type` to Recreate (it is RollingUpdate)."),
    "SQLite with autoscaling": ([SQLITE, *ONE_POD, "autoscaling.enabled=true"], "set `autoscaling.enabled` to false (it is true)."),
    "sessions in SQLite": ([f"{SMALL}[login]\ndatabase = 'sqlite://sessions.db'\n"], "login.database is an SQLite file"),
    "a provider on SQLite": ([f"{SMALL}[provider]\ndatabase = 'sqlite:provider.db'\n"], "provider.database is an SQLite file"),
    "pods that cannot be replaced": (["strategy.rollingUpdate.maxSurge=0%"], "both 0"),
    "a strategy that there is not": (["strategy.type=OnDelete"], "strategy"),
    "alerts without a job": (["monitoring.rules=true"], "set `monitoring.upLabels`"),
    "an impossible label": (["monitoring.upLabels.a-b=c"], "upLabels"),
    "an interval without a unit": (["monitoring.interval=abc"], "interval"),
    "a port of the probes for Gateways": (["gatewayApi.enabled=true", "gatewayApi.firstPort=9000", "gatewayApi.lastPort=9999"], "`admin.port` is 9911, which lies between `gatewayApi.firstPort` (9000) and `gatewayApi.lastPort` (9999)"),
    "a port of the service for Gateways": (["gatewayApi.enabled=true", "gatewayApi.firstPort=8080", "gatewayApi.lastPort=9000"], 'the containerPort of service port "web" is 8080, which lies between'),
    "a provider on its default address": ([f"{SMALL}[provider]\nissuer = 'https://id.example'\n", "service.ports[0].name=web", "service.ports[0].port=80", "service.ports[0].containerPort=9000"], 'its listener has the address "127.0.0.1:9000", which only the pod itself reaches: use "0.0.0.0:9000"'),
    "no amount": (["podDisruptionBudget.maxUnavailable=abc"], "maxUnavailable"),
    "more than all": (["podDisruptionBudget.maxUnavailable=101%"], "maxUnavailable"),
    "a minimum above the maximum": (["autoscaling.enabled=true", "autoscaling.minReplicas=11"], "`autoscaling.minReplicas` is 11 and `autoscaling.maxReplicas` is 10: raise the latter to at least 11"),
    "a volume inside the configuration": (["extraVolumeMounts[0].name=a", "extraVolumeMounts[0].mountPath=/etc//postern/files"], "mountPath"),
    "a volume without a name": (["extraVolumeMounts[0].mountPath=/var/lib/postern"], "extraVolumeMounts"),
    "the header of a table of the chart": (["gatewayApi.enabled=true", "configuration=[admin]\naddress = '0.0.0.0:9911'\n[gateway_api]\n[[listener]]\nname = 'web'\naddress = '0.0.0.0:8080'\n"], "Remove the header `[gateway_api]`"),
    "the same header without rights": ([f"{SMALL}[gateway_api]\n"], "set `gatewayApi.enabled`"),
    "Gateways with a ConfigMap of its own": (["gatewayApi.enabled=true", "existingConfigMap=own"], "exclude each other"),
    "a Secret inside the configuration": (["secrets[0].name=a", "secrets[0].path=/etc/postern/secrets"], "secrets"),
    "a port with the name of the probes": (["service.ports[0].name=admin", "service.ports[0].port=80", "service.ports[0].containerPort=8080"], "service"),
    "no configuration": (["configuration="], "set `configuration`, or `existingConfigMap`"),
    "no TOML": (["configuration=[listener"], "is not TOML"),
    "neither a port nor Gateways": (["service.ports=null"], "set `service.ports`"),
    "a table of the chart": (["gatewayApi.enabled=true", "configuration=[gateway_api]\nzone = 'a'\n"], "the configuration has gateway_api.zone: remove it"),
    "Gateways without rights": (["configuration=[gateway_api.listener]\nprotocols = ['http1']\n"], "set `gatewayApi.enabled`"),
    "ports in the wrong order": (["gatewayApi.lastPort=19999"], "`gatewayApi.lastPort` is less"),
    "a field that needs no permission": (["gatewayApi.policiesMayUse={login}"], "policiesMayUse"),
    "another default policy": (["gatewayApi.defaultPolicy=open"], "defaultPolicy"),
    "a type that there is not": (["service.type=External"], "service"),
}  # fmt: skip
# Values that are accepted, and what is rendered for them.
RENDERED = {
    "a drain of two units": ([f"{SMALL}[server]\ndrain_timeout = '1m30s'\n", "termination.drainSeconds=90"], "terminationGracePeriodSeconds: 105\n"),
    "a drain in milliseconds": ([f"{SMALL}[server]\ndrain_timeout = '29s1000ms'\n"], "terminationGracePeriodSeconds: 45\n"),
    "a drain with zeros in front": ([f"{SMALL}[server]\ndrain_timeout = '000000000030s'\n"], "terminationGracePeriodSeconds: 45\n"),
    "SQLite for one pod at a time": ([SQLITE, *ONE_POD], "  replicas: 1\n"),
    "the end of former pods first": (ONE_POD, "  strategy:\n    type: Recreate\n  template:"),
    "new pods first": ([], "  strategy:\n    rollingUpdate:\n      maxUnavailable: 0\n      maxSurge: 1\n  template:"),
    "PostgreSQL for several pods": ([f"{SMALL}[security_events]\ndatabase = 'postgres://postern@db/postern'\n"], "  replicas: 2\n"),
    "a provider on its default address": ([f"{SMALL}[provider]\nissuer = 'http://127.0.0.1:9000'\n"], "issuer = 'http://127.0.0.1:9000'"),
    "an interval of an hour": (["monitoring.serviceMonitor=true", "monitoring.interval=1h"], "interval: 1h\n"),
    "a volume beside the configuration": (["extraVolumes[0].name=a", "extraVolumes[0].emptyDir.medium=Memory", "extraVolumeMounts[0].name=a", "extraVolumeMounts[0].mountPath=/etc/postern-files"], "mountPath: /etc/postern-files\n"),
    "alerts of the ServiceMonitor's job": (["monitoring.serviceMonitor=true", "monitoring.rules=true"], 'up{job="sound-admin",namespace="default"} == 0\n'),
    "alerts of another job": (["monitoring.rules=true", "monitoring.upLabels.job=pods"], 'absent(up{job="pods"})\n'),
}  # fmt: skip
# The chart as a part of another one.
PARENT = """
apiVersion: v2
name: parent
version: 1.0.0
dependencies:
  - name: postern
    version: ">=0.0.0-0"
    condition: postern.enabled
""".lstrip()
# The alerts of a release without a pod.
NO_POD = """
rule_files: [rules.yaml]
evaluation_interval: 30s
tests:
  - interval: 30s
    input_series:
      - { series: 'up{job="other-admin", namespace="default", instance="a:9911"}', values: "1x20" }
    alert_rule_test:
      - eval_time: 5m
        alertname: PosternDown
        exp_alerts:
          - exp_labels: { severity: critical, job: sound-admin, namespace: default }
            exp_annotations:
              summary: "there is no process of Postern in the job sound-admin"
              runbook: docs/guides/alerts.md#posterndown
"""


def run(cluster: Cluster, stage: Stage, report: Report) -> None:
    """Runs all checks. The API server is running."""
    helm = CACHE / "bin/helm"
    if not helm.exists():
        raise Skip("Helm is not there; run dev/setup helm (its log: .cache/logs/setup-helm.log)")
    chart = Chart(helm, cluster, stage, report)
    chart.crds()
    # Where the manifests are tried, too.
    namespace = b"apiVersion: v1\nkind: Namespace\nmetadata: { name: postern }\n"
    cluster.expect("PATCH", "/api/v1/namespaces/postern?fieldManager=helm-test&force=true", namespace, APPLY)
    chart.manifests()
    for example in EXAMPLES:
        for variant, values in (VARIANTS | MORE_VARIANTS.get(example, {})).items():
            chart.accepted(example, variant, values)
    chart.faults()
    chart.rendered()
    chart.alerts()
    chart.dependency()
    chart.notes()
    chart.lifecycle()
    with report.check("helm: deploy/kubernetes has what dev/render-manifests writes"):
        done = subprocess.run([ROOT / "dev/render-manifests", "--check"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        equal(f"the exit code ({done.stdout[-1500:]})", done.returncode, 0)


class Chart:
    """The chart, and where it is tried."""

    def __init__(self, helm: Path, cluster: Cluster, stage: Stage, report: Report) -> None:
        self.helm, self.cluster, self.stage, self.report = helm, cluster, stage, report
        self.folder = stage.folder / "helm"
        self.folder.mkdir()
        self.access = self.folder / "kubeconfig"
        self.access.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": cluster.base, "certificate-authority": str(cluster.ca)}}],
            "users": [{"name": "admin", "user": {"token": cluster.admin}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
        }))  # fmt: skip

    def call(self, *words: str | Path) -> tuple[int, str, str]:
        environment = {"PATH": "/usr/bin:/bin", "HOME": str(self.folder), "KUBECONFIG": str(self.access)}
        done = subprocess.run([str(self.helm), *map(str, words)], capture_output=True, text=True, env=environment, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr

    def succeed(self, *words: str | Path) -> str:
        code, said, complained = self.call(*words)
        expect(code == 0, f"helm {words[0]} ended with {code}: {complained[-800:]}")
        return said

    def lint(self, name: str, *options: str | Path) -> None:
        """Lints with the values that are tried, because a part of a template that is left out is not linted."""
        with self.report.check(f"helm: {name}: the chart passes `helm lint --strict`"):
            self.succeed("lint", "--strict", CHART, "--namespace", "postern", *options)

    def values(self, example: str) -> Path:
        return CHART / f"examples/{example}.yaml"

    def crds(self) -> None:
        with self.report.check("helm: the kinds of the Prometheus operator and of the Gateway API are installed"):
            for file in sorted((CACHE / "crds").glob("*.yaml")):
                name = re.search(r"^  name: (\S+)$", file.read_text(), re.M)
                assert name is not None
                path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name[1]}?fieldManager=test&force=true"
                self.cluster.expect("PATCH", path, file.read_bytes(), APPLY)
            for kind in ("monitoring.coreos.com/v1/prometheusrules", "gateway.networking.k8s.io/v1/httproutes", "gateway.networking.k8s.io/v1beta1/referencegrants"):
                self.cluster.wait_for(f"/apis/{kind}")

    def manifests(self) -> None:
        """The plain manifests with kinds that are not Kubernetes' own."""
        for document in documents():
            place = MORE_PLACES.get((document.line("apiVersion") or "", document.kind))
            if place is None:
                continue
            with self.report.check(f"helm: {document}, a plain manifest, is accepted, field by field"):
                namespaced = place % document.line("namespace", 2) if "%s" in place else place
                path = f"{namespaced}/{document.line('name', 2)}"
                self.cluster.expect("PATCH", f"{path}?dryRun=All&{STRICT}", document.text.encode(), APPLY)

    def accepted(self, example: str, variant: str, values: list[str]) -> None:
        options = ["--values", self.values(example), *(word for value in values for word in ("--set", value))]
        self.lint(f"{example}, {variant}", *options)
        with self.report.check(f"helm: {example}, {variant}: the API server accepts each object, `postern check` the configuration"):
            text = self.succeed("template", f"try-{example}", CHART, "--namespace", "postern", *options)
            parts = [part for part in re.split(r"^---$", text, flags=re.M) if re.search(r"^kind:", part, re.M)]
            expect(len(parts) >= 5, f"only {len(parts)} objects")
            for part in parts:
                document = Document(f"{example}.yaml", part)
                place = (PLACES | MORE_PLACES).get((document.line("apiVersion") or "", document.kind))
                expect(place, f"{document} is of an unknown kind")
                assert place is not None
                namespaced = place % document.line("namespace", 2) if "%s" in place else place
                answer = self.cluster.expect(
                    "PATCH", f"{namespaced}/{document.line('name', 2)}?dryRun=All&{STRICT}", part.encode(), APPLY
                )
                if document.kind == "ConfigMap":
                    slug = re.sub(r"\W+", "-", f"helm-{example}-{variant}")
                    check_configuration(self.cluster, self.stage, f"{slug}.yaml", answer["data"]["postern.toml"])

    def faults(self) -> None:
        for name, (values, expected) in FAULTS.items():
            with self.report.check(f"helm: {name} is an error that says what to do"):
                options = [word for value in values for word in ("--set", value)]
                code, _, complained = self.call("template", "faulty", CHART, *options)
                expect(code != 0 and expected in complained, f"it ended with {code}: {complained[-500:]}")

    def rendered(self) -> None:
        for name, (values, expected) in RENDERED.items():
            options = [word for value in values for word in ("--set", value)]
            self.lint(name, *options)
            with self.report.check(f"helm: {name}: the chart accepts it"):
                text = self.succeed("template", "sound", CHART, *options)
                expect(expected in text, f"{expected!r} is not in what is rendered")

    def alerts(self) -> None:
        name = "helm: PosternDown of the chart fires without a pod"
        if shutil.which("promtool") is None:
            self.report.note("skip", name, "promtool is not there; run dev/setup helm")
            return
        with self.report.check(name):
            text = self.succeed(
                "template", "sound", CHART, "--set", "monitoring.serviceMonitor=true,monitoring.rules=true",
                "--show-only", "templates/prometheusrule.yaml",
            )  # fmt: skip
            # The object's `spec` is a rule file.
            (self.folder / "rules.yaml").write_text(textwrap.dedent(text.split("\nspec:\n", 1)[1]))
            (self.folder / "rules-test.yaml").write_text(NO_POD)
            done = subprocess.run(["promtool", "test", "rules", self.folder / "rules-test.yaml"], capture_output=True, text=True, check=False)
            equal(f"the exit code ({(done.stdout + done.stderr)[-800:]})", done.returncode, 0)

    def dependency(self) -> None:
        parent = self.folder / "parent"
        shutil.copytree(CHART, parent / "charts/postern")
        (parent / "Chart.yaml").write_text(PARENT)
        for enabled, kinds in (("true", True), ("false", False)):
            with self.report.check(f"helm: a chart that depends on this one switches it with `condition` ({enabled})"):
                text = self.succeed("template", "whole", parent, "--set", f"postern.enabled={enabled}", "--set", "global.team=ours")
                equal("whether there is a Deployment", "kind: Deployment" in text, kinds)

    def notes(self) -> None:
        def said(*values: str) -> str:
            options = [word for value in ("monitoring.serviceMonitor=true", *values) for word in ("--set", value)]
            # Lines are broken where they are long.
            return " ".join(self.succeed("install", "noted", CHART, "--dry-run=client", *options).split())

        with self.report.check("helm: whoever reads metrics learns whom the network policy admits"):
            admitted = said()
            expect("networkPolicy.monitoring` admits it. That is now: - namespaceSelector: matchLabels: kubernetes.io/metadata.name: monitoring" in admitted, admitted[-900:])
            expect("openshift-monitoring" in admitted and "PosternDown fires" in admitted, admitted[-900:])
        with self.report.check("helm: a network policy that admits nobody to the metrics is a warning"):
            nobody = said("networkPolicy.monitoring=null")
            expect("WARNING: `networkPolicy.monitoring` is empty" in nobody, nobody[-900:])
        with self.report.check("helm: without a network policy nothing is said of it"):
            expect("networkPolicy.monitoring" not in said("networkPolicy.enabled=false").split("NOTES:")[1], "it is named")

    def lifecycle(self) -> None:
        self.cluster.namespace(NAMESPACE)
        base = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/postern"
        words = ("postern", CHART, "--namespace", NAMESPACE)

        def replicas() -> int:
            return self.cluster.expect("GET", base)["spec"]["replicas"]

        with self.report.check("helm: it installs without any value, and says what to do next"):
            # No kubelet runs here, so nothing becomes ready.
            said = self.succeed("install", *words)
            expect("rollout status deployment/postern" in said, said)
            equal("the replicas", replicas(), 2)
        with self.report.check("helm: an upgrade changes the configuration and nothing that selects the pods"):
            before = self.cluster.expect("GET", base)
            self.succeed("upgrade", *words, "--values", self.values("gateway"), "--set", "replicas=3")
            after = self.cluster.expect("GET", base)
            equal("the replicas", after["spec"]["replicas"], 3)
            equal("the selector", after["spec"]["selector"], before["spec"]["selector"])
            configuration = self.cluster.expect("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/postern")
            expect("[kubernetes]" in configuration["data"]["postern.toml"], "the configuration is the former one")
        with self.report.check("helm: switching to autoscaling keeps the number of pods"):
            self.succeed("upgrade", *words, "--values", self.values("gateway"), "--set", "autoscaling.enabled=true")
            equal("the replicas", replicas(), 3)
        with self.report.check("helm: a faulty upgrade changes nothing"):
            code, _, _ = self.call("upgrade", *words, "--set", "admin.port=9999", "--set", "replicas=7")
            expect(code != 0, "it was accepted")
            equal("the replicas", replicas(), 3)
        with self.report.check("helm: a rollback brings the former objects back"):
            self.succeed("rollback", "postern", "1", "--namespace", NAMESPACE)
            equal("the replicas", replicas(), 2)
            configuration = self.cluster.expect("GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/postern")
            expect("it-runs" in configuration["data"]["postern.toml"], "the configuration is not the former one")
            status, _ = self.cluster.call("GET", f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{NAMESPACE}-postern")
            equal("the status of the former right", status, 404)
        with self.report.check("helm: an upgrade to SQLite ends the former pods first, and one to several pods does not"):
            self.succeed("upgrade", *words, *(word for value in (SQLITE, *ONE_POD) for word in ("--set", value)))
            equal("the strategy", self.cluster.expect("GET", base)["spec"]["strategy"], {"type": "Recreate"})
            # Without values it would keep those of before.
            self.succeed("upgrade", *words, "--reset-values")
            rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
            equal("the strategy", self.cluster.expect("GET", base)["spec"]["strategy"], rolling)
        with self.report.check("helm: uninstalling leaves nothing"):
            self.succeed("uninstall", "postern", "--namespace", NAMESPACE)
            for path in (base, f"/api/v1/namespaces/{NAMESPACE}/configmaps/postern", f"/api/v1/namespaces/{NAMESPACE}/services/postern"):
                status, answer = self.cluster.call("GET", path)
                # Without a garbage collector a deleted object may wait for it.
                expect(status == 404 or "deletionTimestamp" in answer["metadata"], f"{path} is still there")
