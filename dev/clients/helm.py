"""The Helm chart: every rendered combination is accepted by a real API server, its configuration by
`postern check`; and Helm installs, upgrades, rolls back and removes it."""

from __future__ import annotations

import json
import re
import subprocess
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
        "listeners of its own": ["configuration=" + OWN_LISTENER, "service.ports[0].name=web", "service.ports[0].port=80", "service.ports[0].containerPort=8080"],
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


def run(cluster: Cluster, stage: Stage, report: Report) -> None:
    """Runs all checks. The API server is running."""
    helm = CACHE / "bin/helm"
    if not helm.exists():
        raise Skip("Helm is not there; run dev/setup helm (its log: .cache/logs/setup-helm.log)")
    chart = Chart(helm, cluster, stage, report)
    chart.lint()
    chart.crds()
    # Where the manifests are tried, too.
    namespace = b"apiVersion: v1\nkind: Namespace\nmetadata: { name: postern }\n"
    cluster.expect("PATCH", "/api/v1/namespaces/postern?fieldManager=helm-test&force=true", namespace, APPLY)
    chart.manifests()
    for example in EXAMPLES:
        for variant, values in (VARIANTS | MORE_VARIANTS.get(example, {})).items():
            chart.accepted(example, variant, values)
    chart.faults()
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

    def lint(self) -> None:
        for example in EXAMPLES:
            with self.report.check(f"helm: the chart with the values of {example} passes `helm lint --strict`"):
                self.succeed("lint", "--strict", CHART, "--values", self.values(example))

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
        with self.report.check(f"helm: {example}, {variant}: the API server accepts each object, `postern check` the configuration"):
            options = [word for value in values for word in ("--set", value)]
            text = self.succeed("template", f"try-{example}", CHART, "--namespace", "postern", "--values", self.values(example), *options)
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
        with self.report.check("helm: uninstalling leaves nothing"):
            self.succeed("uninstall", "postern", "--namespace", NAMESPACE)
            for path in (base, f"/api/v1/namespaces/{NAMESPACE}/configmaps/postern", f"/api/v1/namespaces/{NAMESPACE}/services/postern"):
                status, answer = self.cluster.call("GET", path)
                # Without a garbage collector a deleted object may wait for it.
                expect(status == 404 or "deletionTimestamp" in answer["metadata"], f"{path} is still there")
