"""Values of the charts: each key with where it was read, and the real charts rendered where they are.

The sources of charts that no Go module holds were read on 2026-11-23, and each chart rendered once with these values.
"""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import judges
import pytest
import yaml
from virtual_worlds import virtual

from tenancy.catalog import vocabulary
from tenancy.catalog.versions import CHARTS
from tenancy.lab import tools
from tenancy.planning.aws.addons import AddOn, add_ons
from tenancy.planning.common.charts import (
    SYSTEM_NODES,
    UNSHARED_CONFIG,
    HelmChart,
    cilium,
    dra_driver,
    efa_plugin,
    gpu_operator,
    karpenter,
    karpenter_crds,
    kueue,
    prometheus_crds,
    prometheus_stack,
)
from tenancy.planning.kubernetes.virtual_clusters import virtual_cluster
from tenancy.planning.observability.metrics import stack_values
from tenancy.planning.queueing.kueue import MANAGED_NAMESPACES, configuration
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.metrics import Collector, Metrics
from tests.conftest import documents, nonempty
from tests.daemonsets import DAEMONSETS, TOLERATE_ALL

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
POOL = {"key": "tenancy.gpu/pool", "operator": "Exists", "effect": "NoSchedule"}
LATER_TAINT = {"key": "bank.example/embargo", "operator": "Exists", "effect": "NoExecute"}
"""A taint that the platform's people add to a pool one day."""
SYSTEM = {"key": "CriticalAddonsOnly", "operator": "Exists"}

TIME_SLICING_CONFIG = {
    "notebooks": {"version": "v1", "sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu"}]}}}
}

SOURCES: dict[str, dict[str, str]] = {
    "gpu-operator": {
        # podLabelAllowlistRegex is commented out there; templates/clusterpolicy.yaml reads it.
        "NVIDIA/gpu-operator@v26.7.0 deployments/gpu-operator/values.yaml": """
            clusterPolicy.deployCR gpuCluster.deployCR psa.enabled driver.enabled toolkit.enabled
            cdi.enabled cdi.nriPluginEnabled mig.strategy
            migManager.enabled
            devicePlugin.enabled devicePlugin.config.create devicePlugin.config.name devicePlugin.config.default
            devicePlugin.config.data dcgm.enabled
            dcgmExporter.enabled dcgmExporter.hostNetwork dcgmExporter.enablePodLabels
            dcgmExporter.podLabelAllowlistRegex dcgmExporter.service.internalTrafficPolicy
            dcgmExporter.serviceMonitor.enabled
            sandboxWorkloads.enabled ccManager.enabled gds.enabled gdrcopy.enabled
            daemonsets.tolerations operator.tolerations operator.affinity nfd.enabled
            node-feature-discovery.worker.tolerations
        """,
        # Of the chart inside the chart; the operator's own values name only some of them.
        "NVIDIA/gpu-operator@v26.7.0 deployments/gpu-operator/charts/node-feature-discovery/values.yaml": """
            node-feature-discovery.master.nodeSelector node-feature-discovery.master.tolerations
            node-feature-discovery.gc.nodeSelector node-feature-discovery.gc.tolerations
        """,
    },
    "aws-efa-k8s-device-plugin": {
        "aws/eks-charts@5239609242f3430be50fb0b714a24d3ef2b47983 stable/aws-efa-k8s-device-plugin/values.yaml": """
            supportedInstanceLabels.keys supportedInstanceLabels.values tolerations
        """,
    },
    "dra-driver-nvidia-gpu": {
        # No tag of 0.5.0 could be read: main, whose chart says 0.5.0-dev.
        "kubernetes-sigs/dra-driver-nvidia-gpu@95932046683719c43b6a0dd9613c2e5aad5d6703 "
        "deployments/helm/dra-driver-nvidia-gpu/values.yaml": """
            gpuResourcesEnabledOverride nvidiaDriverRoot resources.gpus.enabled resources.computeDomains.enabled
            webhook.enabled kubeletPlugin.tolerations
        """,
    },
    "karpenter": {
        "aws/karpenter-provider-aws@v1.14.1 charts/karpenter/values.yaml": """
            serviceAccount.create serviceAccount.name nodeSelector tolerations dnsPolicy
            controller.env controller.resources settings.clusterName settings.interruptionQueue
            settings.featureGates.nodeOverlay settings.featureGates.reservedCapacity
            settings.featureGates.nodeRepair settings.featureGates.staticCapacity
        """,
    },
    "karpenter-crd": {},
    "cilium": {
        "cilium/cilium@v1.18.0 install/kubernetes/cilium/values.yaml": """
            cni.chainingMode cni.exclusive cni.enableRouteMTUForCNIChaining enableIPv4Masquerade routingMode
            policyEnforcementMode encryption.enabled encryption.type l7Proxy envoy.enabled hubble.enabled
            dnsProxy.dnsRejectResponseCode tolerations operator.nodeSelector operator.tolerations
        """,
    },
    "prometheus-operator-crds": {},
    "kube-prometheus-stack": {
        # The newest that could be read, a fortnight before 89.2.2.
        "prometheus-community/helm-charts@kube-prometheus-stack-88.5.3 charts/kube-prometheus-stack/values.yaml": """
            crds.enabled defaultRules.create grafana.enabled kubeControllerManager.enabled kubeScheduler.enabled
            kubeEtcd.enabled kubeProxy.enabled prometheusOperator.admissionWebhooks.enabled
            prometheusOperator.tls.enabled prometheusOperator.resources prometheusOperator.nodeSelector
            prometheusOperator.tolerations
            prometheus.prometheusSpec.ruleSelector prometheus.prometheusSpec.ruleNamespaceSelector
            prometheus.prometheusSpec.serviceMonitorSelector prometheus.prometheusSpec.serviceMonitorNamespaceSelector
            prometheus.prometheusSpec.podMonitorSelector prometheus.prometheusSpec.podMonitorNamespaceSelector
            prometheus.prometheusSpec.probeSelector prometheus.prometheusSpec.probeNamespaceSelector
            prometheus.prometheusSpec.scrapeConfigSelector prometheus.prometheusSpec.scrapeConfigNamespaceSelector
            prometheus.prometheusSpec.retention prometheus.prometheusSpec.storageSpec
            prometheus.prometheusSpec.resources prometheus.prometheusSpec.nodeSelector
            prometheus.prometheusSpec.tolerations
            alertmanager.alertmanagerSpec.alertmanagerConfigSelector
            alertmanager.alertmanagerSpec.alertmanagerConfigNamespaceSelector
            alertmanager.alertmanagerSpec.alertmanagerConfigMatcherStrategy
            alertmanager.alertmanagerSpec.resources alertmanager.alertmanagerSpec.nodeSelector
            alertmanager.alertmanagerSpec.tolerations
        """,
        "prometheus-community/helm-charts@kube-state-metrics-8.4.0 charts/kube-state-metrics/values.yaml": """
            kube-state-metrics.metricLabelsAllowlist kube-state-metrics.collectors kube-state-metrics.rbac.extraRules
            kube-state-metrics.resources kube-state-metrics.nodeSelector kube-state-metrics.tolerations
        """,
        # priorityClassName is commented out there; templates/daemonset.yaml reads it.
        "prometheus-community/helm-charts@prometheus-node-exporter-4.56.1 "
        "charts/prometheus-node-exporter/values.yaml": """
            prometheus-node-exporter.namespaceOverride prometheus-node-exporter.tolerations
            prometheus-node-exporter.priorityClassName prometheus-node-exporter.resources
            prometheus-node-exporter.prometheus.monitor.relabelings
        """,
    },
    "vcluster": {
        "loft-sh/vcluster@v0.34.0 chart/values.yaml": """
            sync.toHost.endpoints.enabled sync.toHost.endpointSlices.enabled sync.toHost.ingresses.enabled
            sync.toHost.networkPolicies.enabled sync.toHost.podDisruptionBudgets.enabled
            sync.toHost.serviceAccounts.enabled sync.toHost.volumeSnapshots.enabled sync.toHost.namespaces.enabled
            sync.toHost.persistentVolumes.enabled sync.toHost.priorityClasses.enabled
            sync.toHost.storageClasses.enabled sync.toHost.volumeSnapshotContents.enabled
            sync.toHost.resourceClaims.enabled sync.toHost.resourceClaimTemplates.enabled
            sync.toHost.services.enabled sync.toHost.persistentVolumeClaims.enabled
            sync.toHost.configMaps.enabled sync.toHost.configMaps.all sync.toHost.secrets.enabled
            sync.toHost.secrets.all sync.toHost.pods.enabled sync.toHost.pods.useSecretsForSATokens
            sync.toHost.pods.priorityClassName sync.toHost.pods.rewriteHosts.enabled
            sync.toHost.pods.hybridScheduling.enabled
            sync.fromHost.configMaps.enabled sync.fromHost.secrets.enabled sync.fromHost.nodes.enabled
            sync.fromHost.csiDrivers.enabled sync.fromHost.csiNodes.enabled
            sync.fromHost.csiStorageCapacities.enabled sync.fromHost.deviceClasses.enabled
            sync.fromHost.ingressClasses.enabled sync.fromHost.priorityClasses.enabled
            sync.fromHost.runtimeClasses.enabled sync.fromHost.storageClasses.enabled
            sync.fromHost.volumeSnapshotClasses.enabled sync.fromHost.events.enabled
            controlPlane.distro.k8s.enabled controlPlane.distro.k8s.image.registry
            controlPlane.distro.k8s.image.repository controlPlane.distro.k8s.image.tag
            controlPlane.distro.k8s.apiServer.extraArgs controlPlane.distro.k8s.scheduler.enabled
            controlPlane.distro.k8s.securityContext controlPlane.distro.k8s.resources
            controlPlane.backingStore.database.embedded.enabled
            controlPlane.coredns.enabled controlPlane.coredns.embedded controlPlane.coredns.overwriteConfig
            controlPlane.coredns.priorityClassName controlPlane.coredns.deployment.image
            controlPlane.coredns.deployment.pods.labels controlPlane.coredns.deployment.resources
            controlPlane.coredns.deployment.tolerations
            controlPlane.service.enabled controlPlane.service.spec controlPlane.ingress.enabled
            controlPlane.tlsRoute.enabled controlPlane.serviceMonitor.enabled
            controlPlane.statefulSet.image.registry controlPlane.statefulSet.image.repository
            controlPlane.statefulSet.image.tag controlPlane.statefulSet.labels controlPlane.statefulSet.pods.labels
            controlPlane.statefulSet.resources controlPlane.statefulSet.highAvailability.replicas
            controlPlane.statefulSet.enableServiceLinks controlPlane.statefulSet.security.podSecurityContext
            controlPlane.statefulSet.security.containerSecurityContext
            controlPlane.statefulSet.persistence.volumeClaim.enabled
            controlPlane.statefulSet.persistence.volumeClaim.size
            controlPlane.statefulSet.persistence.volumeClaim.storageClass
            controlPlane.statefulSet.scheduling.priorityClassName controlPlane.statefulSet.scheduling.tolerations
            controlPlane.advanced.defaultImageRegistry controlPlane.advanced.serviceAccount.enabled
            controlPlane.advanced.serviceAccount.name controlPlane.advanced.workloadServiceAccount.enabled
            controlPlane.advanced.workloadServiceAccount.name controlPlane.advanced.virtualScheduler.enabled
            rbac.role.enabled rbac.clusterRole.enabled rbac.enableVolumeSnapshotRules.enabled
            policies.resourceQuota.enabled policies.limitRange.enabled policies.networkPolicy.enabled
            networking.advanced.proxyKubelets.byHostname networking.advanced.proxyKubelets.byIP
            experimental.syncSettings.setOwner telemetry.enabled
        """,
        # Not among the defaults; the syncer reads it.
        "loft-sh/vcluster@v0.34.0 chart/values.schema.json": """
            policies.podSecurityStandard
        """,
    },
    "kueue": {
        "kubernetes-sigs/kueue@v0.19.2 charts/kueue/values.yaml": """
            managerConfig.controllerManagerConfigYaml controllerManager.replicas
            controllerManager.podDisruptionBudget.enabled controllerManager.podDisruptionBudget.minAvailable
            controllerManager.manager.image.repository controllerManager.manager.image.tag
            controllerManager.manager.image.pullPolicy controllerManager.manager.priorityClassName
            controllerManager.manager.resources controllerManager.nodeSelector controllerManager.tolerations
        """,
    },
}
"""Keys that a chart has. Helm takes any other without a word, and nothing happens."""


def _operator(*taints: Mapping[str, str], **changed_values: Any) -> HelmChart:
    values = {"device_plugin_configs": TIME_SLICING_CONFIG, "device_plugin": True, "exporter": True, **changed_values}
    return gpu_operator(list(taints or (GPU, POOL)), **values)


def _all(*taints: Mapping[str, str]) -> dict[str, HelmChart]:
    pool_taints = list(taints or (GPU, POOL))
    charts = (
        _operator(*pool_taints, metric_labels=("tenancy.gpu/tenant",)),
        efa_plugin(pool_taints, ["train-efa", "other"]),
        dra_driver(pool_taints),
        karpenter(cluster="small", queue="small-karpenter", region="eu-central-1"),
        karpenter_crds(),
        cilium(wireguard=True),
        kueue({"kind": "Configuration"}, "1Gi"),
        prometheus_crds("monitoring"),
        prometheus_stack(
            "monitoring",
            stack_values(Metrics(collector=Collector.INSTALL)),
            labels={"release": "kube-prometheus-stack"},
            retention="45d",
            storage="200Gi",
            storage_class="tenancy-gp3",
        ),
    )
    return {chart.chart: chart for chart in (*charts, _of_a_part())}


@functools.cache
def _of_a_part() -> HelmChart:
    with tempfile.TemporaryDirectory() as folder:
        loaded = virtual(Path(folder) / "small").load()
    tenant = next(tenant for tenant in loaded.tenants if tenant.in_virtual_clusters)
    chart = virtual_cluster(loaded.environment, tenant, tenant.namespaces[0])
    assert chart
    return chart


def _emitted(values: Mapping[str, Any], recorded_keys: set[str], before: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{before}{key}"
        if isinstance(value, dict) and path not in recorded_keys:
            yield from _emitted(value, recorded_keys, f"{path}.")
        else:
            yield path


def _at(values: Mapping[str, Any], path: str) -> Any:
    return functools.reduce(lambda node, key: node[key], path.split("."), values)


# Keys


@pytest.mark.parametrize("name", CHARTS)
def test_each_key_of_a_chart_is_on_record(name: str) -> None:
    recorded_keys = {path for paths in SOURCES[name].values() for path in paths.split()}
    assert set(_emitted(_all()[name].values, recorded_keys)) == recorded_keys


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_the_pinned_one(name: str) -> None:
    chart, pin = _all()[name], CHARTS[name]
    assert (chart.repository, chart.chart, chart.version) == (pin.repository, pin.chart, pin.version)


@pytest.mark.parametrize("name", CHARTS)
def test_values_are_plain_json(name: str) -> None:
    values = _all()[name].values
    assert json.loads(json.dumps(values)) == values


# One taint changes everything


def _tolerates(tolerations: Any, taint: Mapping[str, str]) -> bool:
    """As the scheduler judges; a daemonset may also have a switch for all taints."""
    if isinstance(tolerations, bool):
        return tolerations
    return any(
        toleration.get("key") in (None, taint["key"])
        and toleration.get("effect") in (None, taint["effect"])
        and toleration["operator"] == "Exists"
        for toleration in tolerations
    )


def _platform(*taints: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Values and configurations of all charts and add-ons."""
    own_charts = [chart for name, chart in _all(*taints).items() if name != "vcluster"]
    parts: list[HelmChart | AddOn] = [
        *own_charts,
        *add_ons(list(taints), cni="cilium", volume_tags={}, interface_tags={}, kubernetes="1.36"),
    ]
    return {part.name: part.values if isinstance(part, HelmChart) else part.configuration for part in parts}


def _lacking(platform: Mapping[str, Mapping[str, Any]], taint: Mapping[str, str]) -> set[str]:
    places = [(name, path) for name, paths in DAEMONSETS.items() for path in paths]
    return {f"{name} {path}" for name, path in places if not _tolerates(_at(platform[name], path), taint)}


@pytest.mark.parametrize("taint", [GPU, POOL, LATER_TAINT], ids=["gpu", "pool", "later"])
def test_a_taint_reaches_every_daemonset_of_the_platform(taint: Mapping[str, str]) -> None:
    assert _lacking(_platform(GPU, POOL, LATER_TAINT), taint) == set()


@pytest.mark.parametrize("place", [f"{name} {path}" for name, paths in DAEMONSETS.items() for path in paths])
def test_one_daemonset_that_forgets_a_taint_is_noticed(place: str) -> None:
    platform = copy.deepcopy(_platform(GPU, POOL, LATER_TAINT))
    name, path = place.split()
    parent_path, _, key = path.rpartition(".")
    holder = _at(platform[name], parent_path) if parent_path else platform[name]
    holder[key] = (
        False
        if isinstance(holder[key], bool)
        else [t for t in holder[key] if t not in (LATER_TAINT, {"operator": "Exists"})]
    )
    assert _lacking(platform, LATER_TAINT) == {place}


def test_a_taint_that_is_not_tolerated_is_reported() -> None:
    assert len(_lacking(_platform(GPU, POOL), LATER_TAINT)) == 5, "all but those that tolerate everything"


def test_every_chart_and_add_on_is_judged_or_has_no_daemonset() -> None:
    without = {"karpenter", "karpenter-crd", "kueue", "prometheus-operator-crds", "coredns", "metrics-server"}
    assert set(_platform(GPU)) == {*DAEMONSETS, *TOLERATE_ALL, *without}


# GPU Operator


def test_the_operator_leaves_driver_and_toolkit_to_the_image() -> None:
    values = _operator().values
    assert (values["driver"], values["toolkit"]) == ({"enabled": False}, {"enabled": False})


def test_the_operator_injects_by_cdi_and_never_by_an_annotation() -> None:
    assert _operator().values["cdi"] == {"enabled": True, "nriPluginEnabled": False}


def test_no_controller_cuts_the_gpus_of_a_node_that_runs() -> None:
    assert _operator().values["migManager"] == {"enabled": False}


def test_each_nodes_own_strategy_counts() -> None:
    assert _operator().values["mig"] == {"strategy": ""}, "one of the operator's would win over the nodes'"


def test_a_node_that_names_no_sharing_does_not_share() -> None:
    config = _operator().values["devicePlugin"]["config"]
    assert config["default"] == UNSHARED_CONFIG
    assert yaml.safe_load(config["data"][UNSHARED_CONFIG]) == {"version": "v1", "flags": {"migStrategy": "none"}}
    assert yaml.safe_load(config["data"]["notebooks"]) == TIME_SLICING_CONFIG["notebooks"]


def test_no_pool_can_be_called_like_the_unshared_configuration() -> None:
    assert "." in UNSHARED_CONFIG, "a pool's name is a DNS label"


def test_without_sharing_the_plugin_has_no_configuration() -> None:
    assert _operator(device_plugin_configs={}).values["devicePlugin"] == {"enabled": True}


def test_the_device_plugin_and_the_exporter_are_left_out_one_by_one() -> None:
    for part, key in (("device_plugin", "devicePlugin"), ("exporter", "dcgmExporter")):
        without, complete = (_operator(**{part: is_enabled}).values for is_enabled in (False, True))
        assert without[key] == {"enabled": False}
        assert complete[key]["enabled"] is True
        assert {k: v for k, v in without.items() if k != key} == {k: v for k, v in complete.items() if k != key}


def test_claims_and_the_device_plugin_exclude_each_other() -> None:
    assert dra_driver([GPU]).values["gpuResourcesEnabledOverride"] is True


def test_metrics_carry_no_label_of_a_pod_unless_it_is_named() -> None:
    exporter = _operator().values["dcgmExporter"]
    assert exporter["enablePodLabels"] is False
    assert "podLabelAllowlistRegex" not in exporter


def test_a_label_that_is_named_matches_itself_alone() -> None:
    exporter = _operator(metric_labels=["tenancy.gpu/tenant"]).values["dcgmExporter"]
    assert exporter["podLabelAllowlistRegex"] == [r"^tenancy\.gpu/tenant$"]
    assert exporter["enablePodLabels"] is True


def test_metrics_are_no_port_of_the_node() -> None:
    assert _operator().values["dcgmExporter"]["hostNetwork"] is False


@pytest.mark.parametrize("part", ["master", "gc"])
def test_feature_discoverys_controllers_stay_off_gpu_nodes(part: str) -> None:
    discovery = _operator().values["node-feature-discovery"]
    assert discovery[part] == {"nodeSelector": dict(SYSTEM_NODES), "tolerations": [SYSTEM]}


def test_the_operator_itself_stays_on_the_systems_nodes() -> None:
    operator = _operator(system={"role": "platform"}).values["operator"]
    required = operator["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert required["nodeSelectorTerms"] == [
        {"matchExpressions": [{"key": "role", "operator": "In", "values": ["platform"]}]}
    ]
    assert operator["tolerations"] == [SYSTEM]


# The others


def test_efa_is_advertised_in_the_pools_given_and_nowhere_else() -> None:
    values = efa_plugin([GPU], ["train-efa", "other", "train-efa"]).values
    assert values["supportedInstanceLabels"] == {"keys": [vocabulary.POOL], "values": ["other", "train-efa"]}


def test_the_dra_driver_runs_where_its_privileges_are_allowed() -> None:
    assert dra_driver([GPU]).namespace == vocabulary.OPERATOR_NAMESPACE == _operator().namespace


def test_cilium_alone_decides_what_wireguard_is_for() -> None:
    plain, encrypted = cilium().values, cilium(wireguard=True).values
    assert plain["encryption"]["enabled"] is plain["cni"]["enableRouteMTUForCNIChaining"] is False
    assert encrypted["encryption"] == {"enabled": True, "type": "wireguard"}
    assert encrypted["cni"]["enableRouteMTUForCNIChaining"] is True


# The real charts

Render = Callable[..., list[dict[str, Any]]]


def chart_folder(name: str) -> Path:
    """Kueue's is a tool of the lab's, which runs it."""
    return tools.ensure(only=["kueue-chart"])["kueue-chart"] if name == "kueue" else judges.folder(f"chart-{name}")


@pytest.fixture(scope="session")
def render() -> Render:
    """Objects that Helm makes of a chart's values; it refuses values against the chart's schema."""
    helm = tools.ensure(only=["helm"])["helm"]

    @functools.cache
    def rendered(name: str, namespace: str, values: str) -> str:
        where = chart_folder(name)
        command = [helm, "template", name, where, "-n", namespace, "--kube-version", "1.36.3", "-f", "-"]
        completed = subprocess.run(command, input=values, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stderr
        return completed.stdout

    def objects(name: str, namespace: str, values: Mapping[str, Any]) -> list[dict[str, Any]]:
        return documents(rendered(name, namespace, json.dumps(values)))

    return objects


def _discovery(*taints: Mapping[str, str]) -> dict[str, Any]:
    return _operator(*taints).values["node-feature-discovery"]


REAL: dict[str, Callable[..., tuple[str, Mapping[str, Any]]]] = {
    "cilium": lambda *_: ("kube-system", cilium(wireguard=True).values),
    "node-feature-discovery": lambda *taints: (vocabulary.OPERATOR_NAMESPACE, _discovery(*taints)),
    "karpenter": lambda *_: (
        "kube-system",
        karpenter(cluster="small", queue="small-karpenter", region="eu-central-1").values,
    ),
    "kueue": lambda *_: (
        vocabulary.QUEUE_NAMESPACE,
        kueue({"managedJobsNamespaceSelector": MANAGED_NAMESPACES}, "1Gi").values,
    ),
}


def _kind(objects: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    """Pod specs of workloads, by name."""
    return {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if o["kind"] == kind}


@pytest.mark.parametrize("name", ["cilium", "node-feature-discovery"])
def test_every_daemonset_that_helm_makes_tolerates_every_taint(name: str, render: Render) -> None:
    daemonsets = _kind(render(name, *REAL[name](GPU, POOL, LATER_TAINT)), "DaemonSet")
    assert daemonsets, "a chart whose daemonset is gone proves nothing"
    for daemonset, pod in daemonsets.items():
        assert [taint for taint in (GPU, POOL, LATER_TAINT) if not _tolerates(pod["tolerations"], taint)] == [], (
            daemonset
        )


def test_feature_discovery_without_the_taint_would_miss_it(render: Render) -> None:
    (pod,) = _kind(render("node-feature-discovery", *REAL["node-feature-discovery"](GPU)), "DaemonSet").values()
    assert not _tolerates(pod["tolerations"], POOL), "what the worker tolerates comes from us alone"


@pytest.mark.parametrize("name", REAL)
def test_every_controller_that_helm_makes_runs_on_the_systems_nodes_alone(name: str, render: Render) -> None:
    deployments = _kind(render(name, *REAL[name](GPU, POOL)), "Deployment")
    assert deployments
    for deployment, pod in deployments.items():
        assert SYSTEM_NODES.items() <= pod["nodeSelector"].items(), deployment
        assert SYSTEM in pod["tolerations"], deployment
        assert not _tolerates(pod["tolerations"], GPU), f"{deployment} takes room of a GPU node"
        assert not _tolerates(pod["tolerations"], POOL), deployment


@pytest.mark.parametrize("name", REAL)
def test_a_key_of_ours_is_a_key_of_the_chart(name: str) -> None:
    chart_values = yaml.safe_load((chart_folder(name) / "values.yaml").read_text("utf-8"))
    recorded = {path for chart in SOURCES.values() for paths in chart.values() for path in paths.split()}
    recorded_keys = {path.removeprefix(f"{name}.") for path in recorded}
    unknown = []
    for path in _emitted(REAL[name]()[1], recorded_keys):
        parent_path, _, key = path.rpartition(".")
        holder = _at(chart_values, parent_path) if parent_path else chart_values
        if key not in holder:
            unknown.append(path)
    assert unknown == []


def test_karpenter_gets_the_gates_cluster_and_queue(render: Render) -> None:
    (pod,) = _kind(render("karpenter", *REAL["karpenter"]()), "Deployment").values()
    (controller,) = pod["containers"]
    environment = {variable["name"]: variable.get("value") for variable in controller["env"]}
    gates = dict(gate.split("=") for gate in environment["FEATURE_GATES"].split(","))
    assert gates["NodeOverlay"] == gates["ReservedCapacity"] == gates["NodeRepair"] == "true"
    assert gates["StaticCapacity"] == "false"
    assert environment["CLUSTER_NAME"] == "small"
    assert environment["INTERRUPTION_QUEUE"] == "small-karpenter"
    assert environment["AWS_REGION"] == "eu-central-1"


def test_karpenter_runs_as_the_account_that_pod_identity_knows(render: Render) -> None:
    objects = render("karpenter", *REAL["karpenter"]())
    (account,) = [o for o in objects if o["kind"] == "ServiceAccount"]
    (pod,) = _kind(objects, "Deployment").values()
    assert account["metadata"]["name"] == pod["serviceAccountName"] == "karpenter"
    assert account["metadata"]["namespace"] == "kube-system"
    assert "annotations" not in account["metadata"], "a role by annotation is IRSA's"


def test_karpenter_does_not_run_on_nodes_that_it_makes(render: Render) -> None:
    (pod,) = _kind(render("karpenter", *REAL["karpenter"]()), "Deployment").values()
    required = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert {"key": "karpenter.sh/nodepool", "operator": "DoesNotExist"} in required["nodeSelectorTerms"][0][
        "matchExpressions"
    ], "the chart's own affinity stands"


def test_the_crds_are_those_that_our_pools_are_made_of(render: Render) -> None:
    chart = karpenter_crds()
    names = {o["metadata"]["name"] for o in render(chart.name, chart.namespace, chart.values)}
    assert {"nodepools.karpenter.sh", "nodeoverlays.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"} <= names


def test_cilium_enforces_behind_the_vpc_cni(render: Render) -> None:
    (config,) = [
        o
        for o in render("cilium", *REAL["cilium"]())
        if (o["kind"], o["metadata"]["name"]) == ("ConfigMap", "cilium-config")
    ]
    data = config["data"]
    assert data["cni-chaining-mode"] == "aws-cni"
    assert data["cni-exclusive"] == "false", "else it would remove the VPC CNI's configuration"
    assert data["routing-mode"] == "native"
    assert data["enable-ipv4-masquerade"] == "false"
    assert data["enable-policy"] == "default"
    assert data["enable-l7-proxy"] == "true"
    assert data["enable-wireguard"] == "true"
    assert data["enable-route-mtu-for-cni-chaining"] == "true"


def test_cilium_renders_the_same_twice() -> None:
    helm = tools.ensure(only=["helm"])["helm"]
    command = [helm, "template", "cilium", judges.folder("chart-cilium"), "--kube-version", "1.36.3", "-f", "-"]
    values = json.dumps(cilium().values)
    first, second = (
        subprocess.run(command, input=values, capture_output=True, text=True, check=True).stdout for _ in range(2)
    )
    assert first == second, "a certificate made anew is a change in every preview"


# The queue


@pytest.fixture
def queue(render: Render, environment: Environment) -> list[dict[str, Any]]:
    chart = kueue(configuration(environment), "3Gi")
    return render(chart.name, chart.namespace, chart.values)


def test_kueue_reads_the_configuration_that_the_environment_makes(
    queue: list[dict[str, Any]], environment: Environment
) -> None:
    (config_data,) = [
        o["data"] for o in queue if o["kind"] == "ConfigMap" and "manager-config" in o["metadata"]["name"]
    ]
    (text,) = config_data.values()
    read = yaml.safe_load(text)
    assert read.pop("internalCertManagement")["enable"] is True, "the chart's own part"
    assert read == configuration(environment)


def test_kueues_image_is_the_release_and_not_the_branch(queue: list[dict[str, Any]]) -> None:
    (pod,) = _kind(queue, "Deployment").values()
    images = {container["image"] for container in pod["containers"]}
    assert images == {f"registry.k8s.io/kueue/kueue:v{CHARTS['kueue'].version}"}, "the chart's own is staging's"


def test_the_system_starts_while_kueue_is_away(queue: list[dict[str, Any]]) -> None:
    """Its webhooks fail closed; they judge only jobs and pods of tenants."""
    judging = [
        webhook
        for item in queue
        if item["kind"].endswith("WebhookConfiguration")
        for webhook in item["webhooks"]
        if any("kueue.x-k8s.io" not in rule["apiGroups"] for rule in webhook["rules"])
    ]
    judged = {resource for webhook in judging for rule in webhook["rules"] for resource in rule["resources"]}
    assert {"pods", "jobs", "deployments", "statefulsets"} <= judged
    for webhook in nonempty(judging):
        assert webhook["namespaceSelector"] == MANAGED_NAMESPACES, webhook["name"]


def test_one_of_two_kueues_is_always_there(queue: list[dict[str, Any]]) -> None:
    (deployment,) = [o["spec"] for o in queue if o["kind"] == "Deployment"]
    (budget,) = [o["spec"] for o in queue if o["kind"] == "PodDisruptionBudget"]
    assert (deployment["replicas"], budget["minAvailable"]) == (2, 1)
    pod = deployment["template"]["spec"]
    assert pod["priorityClassName"] == "system-cluster-critical"
    assert not [c for c in pod["containers"] if "cpu" not in c["resources"]["requests"]]


def test_kueue_has_the_memory_that_the_plan_gives_it_and_go_knows_nothing_of_it(queue: list[dict[str, Any]]) -> None:
    """The chart passes no environment, so the plan reckons with a heap that doubles before Go collects."""
    (pod,) = _kind(queue, "Deployment").values()
    (manager,) = pod["containers"]
    assert (manager["resources"]["limits"]["memory"], manager["resources"]["requests"]["memory"]) == ("3Gi", "3Gi")
    assert "env" not in manager


def test_kueues_kinds_go_with_its_release(queue: list[dict[str, Any]]) -> None:
    """The warning about removing it: its definitions are templates, so every queue goes too."""
    names = {o["metadata"]["name"] for o in queue if o["kind"] == "CustomResourceDefinition"}
    assert {f"{kind}.kueue.x-k8s.io" for kind in ("clusterqueues", "localqueues", "cohorts", "topologies")} <= names
