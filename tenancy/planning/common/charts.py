"""Helm charts of the platform: which release, and the values that it gets.

A taint of a pool reaches all of them through one list, `tolerations`, which is made in one place. What runs on every
node tolerates everything instead, and controllers run on the system's nodes alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import yaml

from tenancy.catalog import vocabulary
from tenancy.catalog.versions import CHARTS
from tenancy.spec.fields.environment import Environment

Toleration = Mapping[str, str]

SYSTEM_NODES: Mapping[str, str] = {vocabulary.POOL: "system"}
"""Label of the nodes of the platform's own services."""
SYSTEM_TOLERATIONS: Sequence[Toleration] = ({"key": "CriticalAddonsOnly", "operator": "Exists"},)
"""The taint of those nodes; only the platform's own services tolerate it."""
TOLERATE_ALL: Sequence[Toleration] = ({"operator": "Exists"},)

SYSTEM_NAMESPACE = "kube-system"

PLUGIN_CONFIGS = "tenancy-device-plugin-configs"
COUNTERS_CONFIG = "tenancy-dcgm-counters"
UNSHARED_CONFIG = "not.shared"
"""The device plugin's configuration of nodes that name none. With a dot, so that no pool is called so."""


@dataclass(frozen=True, slots=True)
class HelmChart:
    """A Helm release."""

    name: str
    namespace: str
    repository: str
    chart: str
    version: str
    values: dict[str, Any]


def _chart(name: str, namespace: str, values: dict[str, Any]) -> HelmChart:
    pin = CHARTS[name]
    return HelmChart(name, namespace, pin.repository, pin.chart, pin.version, values)


def toleration_dicts(tolerations: Iterable[Toleration]) -> list[dict[str, str]]:
    """Tolerations as plain dictionaries, for a chart's values."""
    return [dict(toleration) for toleration in tolerations]


def system_placement(system: Mapping[str, str]) -> dict[str, Any]:
    """Node selector and tolerations of a controller, under the keys of most charts."""
    return {"nodeSelector": dict(system), "tolerations": toleration_dicts(SYSTEM_TOLERATIONS)}


def gpu_operator(
    tolerations: Sequence[Toleration],
    *,
    device_plugin_configs: Mapping[str, Mapping[str, Any]],
    device_plugin: bool,
    exporter: bool,
    metric_labels: Sequence[str] = (),
    counters: str = "",
    system: Mapping[str, str] = SYSTEM_NODES,
) -> HelmChart:
    """NVIDIA's operator: feature discovery and, where each is wanted, device plugin and DCGM exporter.

    `device_plugin_configs` are the device plugin's, by the value of the label nvidia.com/device-plugin.config.
    `counters` are the lines of the counters that DCGM's exporter exports; empty: its default.
    """
    return _chart(
        "gpu-operator",
        vocabulary.OPERATOR_NAMESPACE,
        {
            "clusterPolicy": {"deployCR": True},
            "gpuCluster": {"deployCR": False},  # alpha; claims come from the DRA driver's own chart
            "psa": {"enabled": True},  # labels its namespace privileged, which its daemonsets are
            # Both are in EKS' NVIDIA images; the operator's would fight them.
            "driver": {"enabled": False},
            "toolkit": {"enabled": False},
            # With NRI an annotation of a pod would name the GPUs that it gets.
            "cdi": {"enabled": True, "nriPluginEnabled": False},
            # Each node's configuration says its own; the operator's would win over all of them.
            "mig": {"strategy": ""},
            # Nodes cut their GPUs before their kubelet starts. The manager would do so afterwards, restarting the
            # kubelet (gpu-operator #2415), and cut running nodes anew where a layout has changed under its name.
            "migManager": {"enabled": False},
            "devicePlugin": _device_plugin(device_plugin_configs) if device_plugin else {"enabled": False},
            # The exporter has an engine of its own. Beside a second server EKS' monitoring agent has marked healthy
            # nodes unhealthy, which are then replaced (aws/containers-roadmap#2763).
            "dcgm": {"enabled": False},
            "dcgmExporter": _dcgm_exporter(metric_labels, counters) if exporter else {"enabled": False},
            "sandboxWorkloads": {"enabled": False},
            "ccManager": {"enabled": False},  # resets GPUs by a node label, for confidential computing, unused here
            "gds": {"enabled": False},
            "gdrcopy": {"enabled": False},
            # The validator and all operands too.
            "daemonsets": {"tolerations": toleration_dicts(tolerations)},
            "operator": {"tolerations": toleration_dicts(SYSTEM_TOLERATIONS), "affinity": _node_affinity(system)},
            "nfd": {"enabled": True},
            "node-feature-discovery": {
                "worker": {"tolerations": toleration_dicts(tolerations)},
                "master": system_placement(system),
                "gc": system_placement(system),
            },
        },
    )


def _node_affinity(labels: Mapping[str, str]) -> dict[str, Any]:
    """The operator takes no node selector, but an affinity. A term without expressions would match no node."""
    if not labels:
        return {}
    terms = [{"key": key, "operator": "In", "values": [value]} for key, value in labels.items()]
    required = {"nodeSelectorTerms": [{"matchExpressions": terms}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def _device_plugin(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    if not configs:
        return {"enabled": True}
    # What a node without the label gets is written here, not left to how the plugin falls back.
    unshared = {UNSHARED_CONFIG: {"version": "v1", "flags": {"migStrategy": "none"}}}
    return {
        "enabled": True,
        "config": {
            "create": True,
            "name": PLUGIN_CONFIGS,
            "default": UNSHARED_CONFIG,
            "data": {name: _yaml(config) for name, config in {**unshared, **configs}.items()},
        },
    }


def _dcgm_exporter(labels: Sequence[str], counters: str) -> dict[str, Any]:
    """Metrics per GPU with the pod and the namespace that use it, and a namespace is one tenant's.

    More labels only by name: for them a daemonset on every GPU node may read all pods of the cluster, environment
    variables included, so there are none by default. It listens on the pod network; the network policies of the
    namespace say who may ask, and it is no port of the node.
    """
    settings: dict[str, Any] = {}
    if labels:
        settings["podLabelAllowlistRegex"] = [f"^{re.escape(label)}$" for label in labels]
    if counters:
        settings["config"] = {"name": COUNTERS_CONFIG, "create": True, "data": counters}
    return {
        "enabled": True,
        "hostNetwork": False,
        "enablePodLabels": bool(labels),
        **settings,
        "service": {"internalTrafficPolicy": "Cluster"},
        "serviceMonitor": {"enabled": False},  # the chart's default asks for CRDs of Prometheus
    }


def efa_plugin(tolerations: Sequence[Toleration], pools: Iterable[str]) -> HelmChart:
    """Advertises vpc.amazonaws.com/efa on the nodes of the pools that have it, and on no others of their type."""
    return _chart(
        "aws-efa-k8s-device-plugin",
        SYSTEM_NAMESPACE,
        {
            "supportedInstanceLabels": {
                "keys": [vocabulary.POOL],
                "values": sorted(set(pools)),
            },
            "tolerations": toleration_dicts(tolerations),
        },
    )


def karpenter(*, cluster: str, queue: str, region: str, system: Mapping[str, str] = SYSTEM_NODES) -> HelmChart:
    """Its role comes by Pod Identity, for the service account karpenter in kube-system."""
    return _chart(
        "karpenter",
        SYSTEM_NAMESPACE,
        {
            "serviceAccount": {"create": True, "name": "karpenter"},
            "nodeSelector": {"kubernetes.io/os": "linux", **system},
            "tolerations": toleration_dicts(SYSTEM_TOLERATIONS),
            "dnsPolicy": "Default",  # the VPC's: nodes come although the cluster's DNS is down
            "controller": {
                # It would ask the metadata service, which pods cannot reach.
                "env": [{"name": "AWS_REGION", "value": region}],
                "resources": {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"memory": "1Gi"}},
            },
            "settings": {
                "clusterName": cluster,
                "interruptionQueue": queue,
                "featureGates": {
                    "nodeOverlay": True,  # slices and replicas exist only after a node has started
                    "reservedCapacity": True,
                    "nodeRepair": True,  # a node whose GPU the monitoring agent calls broken is replaced
                    "staticCapacity": False,  # fixed nodes are managed node groups
                },
            },
        },
    )


def karpenter_crds() -> HelmChart:
    """Installed before Karpenter's own chart: Helm never updates the CRDs inside a chart, and no release owns them."""
    return _chart("karpenter-crd", SYSTEM_NAMESPACE, {})


def cilium(*, wireguard: bool = False, system: Mapping[str, str] = SYSTEM_NODES) -> HelmChart:
    """Enforces policies, chained to the VPC CNI, which keeps giving the addresses (`cni-chaining-aws-cni.rst`)."""
    return _chart(
        "cilium",
        SYSTEM_NAMESPACE,
        {
            "cni": {
                "chainingMode": "aws-cni",
                "exclusive": False,
                # Else packets that WireGuard has made longer are split (`encryption-wireguard.rst`).
                "enableRouteMTUForCNIChaining": wireguard,
            },
            "enableIPv4Masquerade": False,
            "routingMode": "native",
            # What denies by default are our policies; `always` would also cut off the pods of kube-system.
            "policyEnforcementMode": "default",
            "encryption": {"enabled": wireguard, "type": "wireguard"},
            "l7Proxy": True,  # policies by host name look into DNS answers
            # A name that is refused, and not just unknown, ends a pod's search through its other domains.
            "dnsProxy": {"dnsRejectResponseCode": "nameError"},
            "envoy": {"enabled": False},  # nothing looks into HTTP: no daemonset for it
            "hubble": {"enabled": False},  # its certificates are new in every rendering, and so is every preview
            "tolerations": toleration_dicts(TOLERATE_ALL),
            "operator": {
                "nodeSelector": {"kubernetes.io/os": "linux", **system},
                "tolerations": [
                    *toleration_dicts(SYSTEM_TOLERATIONS),
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
                ],
            },
        },
    )


def kueue(configuration: Mapping[str, Any], memory: str, *, system: Mapping[str, str] = SYSTEM_NODES) -> HelmChart:
    """Kueue. Its CRDs are templates of the chart: removing the release removes every queue with it.

    `memory` is what it may use: it caches jobs, pods and workloads whole, and work of all tenants waits while it starts
    again. The chart sets no environment of its container, so Go knows nothing of the limit.
    """
    version = CHARTS["kueue"].version
    return _chart(
        "kueue",
        vocabulary.QUEUE_NAMESPACE,
        {
            "managerConfig": {"controllerManagerConfigYaml": _yaml(configuration)},
            "controllerManager": {
                # Nothing starts while it is away: one leads, one waits.
                "replicas": 2,
                "podDisruptionBudget": {"enabled": True, "minAvailable": 1},
                "manager": {
                    "image": {
                        "repository": "registry.k8s.io/kueue/kueue",
                        "tag": f"v{version}",
                        "pullPolicy": "IfNotPresent",
                    },
                    "priorityClassName": "system-cluster-critical",
                    "resources": {
                        "requests": {"cpu": "500m", "memory": memory},
                        "limits": {"cpu": "2", "memory": memory},
                    },
                },
                **system_placement(system),
            },
        },
    )


def prometheus_crds(namespace: str) -> HelmChart:
    """Before the operator's own chart: Helm never updates the definitions that are inside a chart."""
    return _chart("prometheus-operator-crds", namespace, {})


def prometheus_stack(
    namespace: str,
    exporter_values: Mapping[str, Any],
    *,
    labels: Mapping[str, str],
    retention: str,
    storage: str,
    storage_class: str,
    system: Mapping[str, str] = SYSTEM_NODES,
) -> HelmChart:
    """Prometheus with its operator, Alertmanager, node exporter and kube-state-metrics.

    `read` are the values with which its exporters export what rules and bills read; `labels` those by which it picks up
    rules and monitors, `retention` and `storage` how long and how much Prometheus keeps.

    Objects in a tenant's namespace have no effect on it: it reads rules, monitors and routes from two namespaces alone.
    Its own rules and dashboards are left out: they name no tenant, so their alerts would reach no receiver.
    """
    platform_namespaces = [namespace, SYSTEM_NAMESPACE]
    namespace_selector = {
        "matchExpressions": [{"key": vocabulary.SPACE_NAME, "operator": "In", "values": platform_namespaces}]
    }
    label_selector = {"matchLabels": dict(labels)}
    selectors = {
        f"{kind}{selector}": value
        for kind in ("rule", "serviceMonitor", "podMonitor", "probe", "scrapeConfig")
        for selector, value in (("Selector", label_selector), ("NamespaceSelector", namespace_selector))
    }
    claim = {
        "storageClassName": storage_class,
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": storage}},
    }
    placement = system_placement(system)
    # EKS' control plane runs outside the cluster, and kube-proxy's metrics are open to its own node alone.
    unreachable_parts = ("kubeControllerManager", "kubeScheduler", "kubeEtcd", "kubeProxy")
    values = {
        "crds": {"enabled": False},
        "defaultRules": {"create": False},
        "grafana": {"enabled": False},
        **{part: {"enabled": False} for part in unreachable_parts},
        "prometheusOperator": {
            # They would judge our own rules, which tests have judged; the operator's certificate comes with them.
            "admissionWebhooks": {"enabled": False},
            "tls": {"enabled": False},
            "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "512Mi"}},
            **placement,
        },
        "prometheus": {
            "prometheusSpec": {
                **selectors,
                "retention": retention,
                "storageSpec": {"volumeClaimTemplate": {"spec": claim}},
                "resources": {"requests": {"cpu": "500m", "memory": "4Gi"}, "limits": {"memory": "8Gi"}},
                **placement,
            }
        },
        "alertmanager": {
            "alertmanagerSpec": {
                "alertmanagerConfigSelector": label_selector,
                "alertmanagerConfigNamespaceSelector": namespace_selector,
                "resources": {"requests": {"cpu": "20m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
                **placement,
            }
        },
        "kube-state-metrics": {
            "resources": {"requests": {"cpu": "50m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
            **placement,
        },
        "prometheus-node-exporter": {
            # It sees the node's own network, processes and disks: beside the CNI, where no Pod Security forbids that.
            "namespaceOverride": SYSTEM_NAMESPACE,
            "tolerations": toleration_dicts(TOLERATE_ALL),
            # Else tenants' pods, which came first or are more urgent, keep it off their node.
            "priorityClassName": "system-node-critical",
            "resources": {"requests": {"cpu": "50m", "memory": "50Mi"}, "limits": {"memory": "100Mi"}},
        },
    }
    return _chart("kube-prometheus-stack", namespace, _merge_values(values, exporter_values))


def _merge_values(base: Mapping[str, Any], addition: Mapping[str, Any]) -> dict[str, Any]:
    """Both mappings merged; they have no leaf in common."""
    merged = dict(base)
    for key, value in addition.items():
        merged[key] = _merge_values(merged[key], value) if key in merged else value
    return merged


def dra_driver(tolerations: Sequence[Toleration]) -> HelmChart:
    """Devices by claim instead of by the device plugin, which is off then."""
    return _chart(
        "dra-driver-nvidia-gpu",
        vocabulary.OPERATOR_NAMESPACE,
        {
            "gpuResourcesEnabledOverride": True,  # the chart's question whether the device plugin is off
            "nvidiaDriverRoot": "/",
            "resources": {"gpus": {"enabled": True}, "computeDomains": {"enabled": False}},
            "webhook": {"enabled": False},  # needs cert-manager, and judges only what the guards refuse to tenants
            "kubeletPlugin": {"tolerations": toleration_dicts(tolerations)},
        },
    )


def _yaml(data: Mapping[str, Any]) -> str:
    return yaml.safe_dump(dict(data), sort_keys=False)


def from_mirror(environment: Environment, chart: HelmChart) -> HelmChart:
    """The chart from the environment's mirror, if it has one."""
    mirror = environment.platform.chart_mirror
    return replace(chart, repository=mirror) if mirror else chart
