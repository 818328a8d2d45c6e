"""Collection of metrics and access to them: objects for a Prometheus Operator, tenants' queries, exporters' values.

A tenant asks through two proxies in one pod. kube-rbac-proxy takes a token and the URL's parameters `namespace`, and
asks the API server of each whether who has that token may read the logs of its pods; prom-label-proxy then puts what
it was given as `namespace` into every selector of the query. So the right to read a namespace's logs is the right to
read its series: no list of people is kept here, and nothing here changes with tenants.

Sources: prometheus-operator v0.93.0 CRDs; prom-label-proxy v0.11.1 `main.go`, `injectproxy/routes.go`;
prom-label-proxy `injectproxy/routes.go` (/healthz) and `Dockerfile` (busybox, any user);
kube-rbac-proxy `examples/rewrites`, `pkg/proxy/proxy.go`, `cmd/kube-rbac-proxy/app/` (/healthz), `Dockerfile` (65532);
gpu-operator `values.yaml` (dcgmExporter.config); kube-state-metrics' chart `values.yaml`; OpenCost and Kubecost charts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from tenancy.catalog import vocabulary
from tenancy.catalog.exporters import LABELS
from tenancy.catalog.versions import COST_CHARTS, IMAGES
from tenancy.kube.objects import Object
from tenancy.planning.common import replicas
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.kubernetes.namespaces import pod_security
from tenancy.planning.observability.alerts import PLATFORM, rule_file
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.metrics import CostTool, Metrics
from tenancy.spec.fields.tenant import Tenant

API = "monitoring.coreos.com"
NAME = "tenancy"
VIEW = "tenancy-metrics"
VIEW_PORT, LABEL_PORT, HEALTH_PORT = 8443, 8080, 8643
NAMESPACE_PARAMETER = "namespace"
"""The label that is enforced, and the parameter that names it."""
PATHS = ("/api/v1/query", "/api/v1/query_range", "/api/v1/series", "/api/v1/labels", "/api/v1/label/*/values")

COUNTERS = """\
DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, Part of the time in which the engine was active.
DCGM_FI_PROF_DRAM_ACTIVE, gauge, Part of the cycles in which memory was read or written.
DCGM_FI_PROF_PCIE_TX_BYTES, gauge, Bytes a second that the GPU sends over PCIe.
DCGM_FI_PROF_PCIE_RX_BYTES, gauge, Bytes a second that the GPU receives over PCIe.
DCGM_FI_DEV_GPU_UTIL, gauge, GPU utilization (in %).
DCGM_FI_DEV_GPU_TEMP, gauge, GPU temperature (in C).
DCGM_FI_DEV_POWER_USAGE, gauge, Power draw (in W).
DCGM_FI_DEV_FB_FREE, gauge, Framebuffer memory free (in MiB).
DCGM_FI_DEV_FB_USED, gauge, Framebuffer memory used (in MiB).
DCGM_FI_DEV_XID_ERRORS, gauge, Last XID.
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL, counter, Double-bit errors since the driver was loaded.
DCGM_FI_DEV_ROW_REMAP_FAILURE, gauge, Whether remapping of rows has failed.
DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL, counter, NVLink retries.
DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL, counter, NVLink recovery errors.
DCGM_FI_DEV_THERMAL_VIOLATION, counter, Time slowed down by temperature.
"""
"""Counters that DCGM's exporter exports; half of those that the alerts need are commented out in its default."""


def metrics_objects(environment: Environment, tenants: Sequence[Tenant]) -> tuple[Object, ...]:
    """In the order in which they are made; empty where no metrics are collected."""
    if not environment.metrics.collected:
        return ()
    alert_routes = _operator_form(routes(environment, tenants))
    # Others' alerts go other ways.
    alert_routes["route"]["matchers"] = [{"name": "environment", "value": environment.environment, "matchType": "="}]
    return (
        _object(environment, f"{API}/v1", "PrometheusRule", NAME, rule_file(environment, tenants)),
        *_monitors(environment),
        _object(environment, f"{API}/v1alpha1", "AlertmanagerConfig", NAME, alert_routes),
        *(_view(environment) if environment.metrics.tenant_queries else ()),
    )


def metrics_prerequisites(environment: Environment) -> tuple[Object, ...]:
    """Objects that the Prometheus installed here depends on."""
    if not environment.metrics.installed:
        return ()
    namespace_labels = {**platform_labels(environment), **pod_security(environment.cluster.kubernetes)}
    return (manifest("v1", "Namespace", environment.metrics.namespace, namespace_labels, {}),)


def _object(environment: Environment, api: str, kind: str, name: str, spec: Any) -> Object:
    labels = {**platform_labels(environment), **environment.metrics.labels}
    return manifest(api, kind, name, labels, {"spec": spec}, namespace=environment.metrics.namespace)


def _monitors(environment: Environment) -> Iterator[Object]:
    def monitor(name: str, namespace: str, selector: dict[str, str], **endpoint: Any) -> Object:
        spec = {
            "namespaceSelector": {"matchNames": [namespace]},
            "selector": {"matchLabels": selector},
            # Exporters say whose pod it is; without this Prometheus would say that it is their own.
            "endpoints": [{"honorLabels": True, "interval": "30s", **endpoint}],
        }
        return _object(environment, f"{API}/v1", "ServiceMonitor", f"{NAME}-{name}", spec)

    yield monitor("dcgm", vocabulary.OPERATOR_NAMESPACE, {"app": "nvidia-dcgm-exporter"}, port="gpu-metrics")
    if environment.has_queues:
        yield monitor(
            "kueue",
            vocabulary.QUEUE_NAMESPACE,
            {"app.kubernetes.io/component": "metrics-service"},
            port="https",
            scheme="https",
            bearerTokenFile="/var/run/secrets/kubernetes.io/serviceaccount/token",
            # It signs its certificate itself.
            tlsConfig={"insecureSkipVerify": True},
        )
    if environment.queues.clock_image:
        yield monitor(
            "clock", vocabulary.PLATFORM_NAMESPACE, {"app.kubernetes.io/name": vocabulary.CLOCK}, port="metrics"
        )


def routes(environment: Environment, tenants: Sequence[Tenant]) -> dict[str, Any]:
    """Alertmanager's route, receivers and inhibitions: each tenant gets its own alerts, the platform all critical ones
    and those without a tenant."""
    mail = environment.metrics.mail

    def receiver(name: str, address: str) -> dict[str, Any]:
        if mail is None:
            return {"name": name}
        email = {
            "to": address,
            "from": mail.sender,
            "smarthost": mail.server,
            "require_tls": True,
            "send_resolved": True,
        }
        return {"name": name, "email_configs": [email]}

    ordered = sorted(tenants, key=lambda tenant: tenant.tenant)
    tenant_routes = [
        {"matchers": [f'tenant="{tenant.tenant}"'], "receiver": f"tenant-{tenant.tenant}", "group_by": ["alertname"]}
        for tenant in ordered
    ]
    everything_critical = {"matchers": ['severity="critical"'], "receiver": PLATFORM, "continue": True}
    return {
        "route": {
            "receiver": PLATFORM,
            "group_by": ["alertname", "tenant"],
            "group_wait": "30s",
            "group_interval": "5m",
            "repeat_interval": "12h",
            "routes": [everything_critical, *tenant_routes],
        },
        "receivers": [
            receiver(PLATFORM, mail.platform if mail else ""),
            *(receiver(f"tenant-{tenant.tenant}", tenant.owner.mail) for tenant in ordered),
        ],
        "inhibit_rules": [
            {
                "source_matchers": [f'alertname="{loud}"'],
                "target_matchers": [f'alertname="{quiet}"'],
                "equal": ["tenant", "namespace", "resource"],
            }
            for loud, quiet in (("QuotaUsed", "QuotaNearlyUsed"), ("BudgetSpent", "BudgetNearlySpent"))
        ],
    }


_MATCHER = re.compile(r'(\w+)="(.*)"')


def _operator_form(config: Any) -> Any:
    """The same in the operator's words: camelCase, matchers as objects."""
    if isinstance(config, list):
        return [_operator_form(entry) for entry in config]
    if not isinstance(config, dict):
        return config
    renamed = {"source_matchers": "sourceMatch", "target_matchers": "targetMatch", "require_tls": "requireTLS"}
    converted: dict[str, Any] = {}
    for key, value in config.items():
        name = renamed.get(key) or re.sub(r"_(\w)", lambda letter: letter[1].upper(), key)
        if key.endswith("matchers"):
            pairs = [match.groups() for text in value if (match := _MATCHER.fullmatch(text))]
            converted[name] = [{"name": label, "value": text, "matchType": "="} for label, text in pairs]
        else:
            converted[name] = _operator_form(value)
    return converted


def _view(environment: Environment) -> Iterator[Object]:
    metrics, labels = environment.metrics, platform_labels(environment)
    pod_labels = {"app.kubernetes.io/name": VIEW}
    rbac = "rbac.authorization.k8s.io"

    def view_object(api: str, kind: str, body: dict[str, Any]) -> Object:
        return manifest(api, kind, VIEW, {**labels, **pod_labels}, body, namespace=metrics.namespace)

    yield view_object("v1", "ServiceAccount", {})
    yield manifest(
        f"{rbac}/v1",
        "ClusterRoleBinding",
        VIEW,
        labels,
        {
            # Kubernetes' own role: to ask whose a token is and what that one may do.
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "system:auth-delegator"},
            "subjects": [{"kind": "ServiceAccount", "name": VIEW, "namespace": metrics.namespace}],
        },
    )
    # prom-label-proxy takes namespaces from a body too, which kube-rbac-proxy never reads. A request with a body is a
    # POST, which kube-rbac-proxy authorizes as `create`: no role may create logs, but roles that run work create pods.
    attributes = {"apiVersion": "v1", "resource": "pods", "subresource": "log", "namespace": "{{ .Value }}"}
    config = {
        "authorization": {
            "rewrites": {"byQueryParameter": {"name": NAMESPACE_PARAMETER}},
            "resourceAttributes": attributes,
        }
    }
    yield view_object("v1", "ConfigMap", {"data": {"config.yaml": yaml.safe_dump(config, sort_keys=False)}})
    home = replicas.placement(environment)
    yield view_object("apps/v1", "Deployment", {"spec": _deployment(metrics.address, pod_labels, home)})
    yield view_object("policy/v1", "PodDisruptionBudget", {"spec": replicas.disruption_budget(pod_labels)})
    port = {"name": "https", "port": VIEW_PORT, "targetPort": "https"}
    yield view_object("v1", "Service", {"spec": {"selector": pod_labels, "ports": [port]}})
    # The containers behind the token check listen on the loopback address alone. Probes come from the pod's own node,
    # whose traffic a network policy does not stop.
    yield view_object("networking.k8s.io/v1", "NetworkPolicy", {"spec": replicas.ingress_on(pod_labels, VIEW_PORT)})


def label_proxy_arguments(upstream: str, port: int) -> list[str]:
    """Arguments of prom-label-proxy, which limits queries to one value of a label."""
    return [
        f"-insecure-listen-address=127.0.0.1:{port}",
        f"-upstream={upstream}",
        f"-label={NAMESPACE_PARAMETER}",
        f"-query-param={NAMESPACE_PARAMETER}",
        "-enable-label-apis",
    ]


def _deployment(upstream: str, pod_labels: dict[str, str], home: dict[str, Any]) -> dict[str, Any]:
    security_context = dict(replicas.RESTRICTED_SECURITY_CONTEXT)
    small = {
        "requests": {"cpu": "20m", "memory": "32Mi", "ephemeral-storage": "64Mi"},
        # They write no file; the kubelet keeps five files of 10 MiB of a container's log.
        "limits": {"cpu": "500m", "memory": "128Mi", "ephemeral-storage": "128Mi"},
    }
    # It listens on the loopback address of the pod, which the kubelet reaches by a program inside alone.
    health_check = {"exec": {"command": ["wget", "-q", "-O", "/dev/null", f"http://127.0.0.1:{LABEL_PORT}/healthz"]}}
    containers = [
        {
            "name": "token",
            "image": IMAGES["kube-rbac-proxy"],
            "args": [
                f"--secure-listen-address=0.0.0.0:{VIEW_PORT}",
                f"--upstream=http://127.0.0.1:{LABEL_PORT}/",
                "--config-file=/etc/tenancy/config.yaml",
                f"--allow-paths={','.join(PATHS)}",
                f"--proxy-endpoints-port={HEALTH_PORT}",
            ],
            "ports": [
                {"name": "https", "containerPort": VIEW_PORT},
                {"name": "health", "containerPort": HEALTH_PORT},
            ],
            # The port of queries answers nothing without a token, a probe's request either.
            "readinessProbe": _probe({"tcpSocket": {"port": VIEW_PORT}}, failures=3),
            "livenessProbe": _probe(
                {"httpGet": {"path": "/healthz", "port": HEALTH_PORT, "scheme": "HTTPS"}}, failures=6
            ),
            "volumeMounts": [{"name": "config", "mountPath": "/etc/tenancy", "readOnly": True}],
            "securityContext": security_context,
            "resources": small,
        },
        {
            "name": "label",
            "image": IMAGES["prom-label-proxy"],
            "args": label_proxy_arguments(upstream, LABEL_PORT),
            "readinessProbe": _probe(health_check, failures=3),
            "livenessProbe": _probe(health_check, failures=6),
            "securityContext": security_context,
            "resources": small,
        },
    ]
    pod = {
        "serviceAccountName": VIEW,
        **home,
        "affinity": replicas.spread_over_nodes(pod_labels),
        # Images that name a user and no group run in the group of root.
        "securityContext": {"runAsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": containers,
        "volumes": [{"name": "config", "configMap": {"name": VIEW}}],
    }
    template = {"metadata": {"labels": pod_labels}, "spec": pod}
    return {"replicas": 2, "selector": {"matchLabels": pod_labels}, "template": template}


def _probe(check: dict[str, Any], *, failures: int) -> dict[str, Any]:
    """A pod that is not ready gets no queries after three failures, and is started anew after six."""
    return {**check, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": failures}


GUARDS = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
STACK = "kube-prometheus-stack"


def stack_values(metrics: Metrics) -> dict[str, Any]:
    """Values with which kube-prometheus-stack exports what our rules and bills read, in any installation."""
    node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "node"}
    resources = [*_COLLECTED_RESOURCES, *GUARDS]
    return {
        "kube-state-metrics": {
            "metricLabelsAllowlist": [f"{kind}=[{','.join(labels)}]" for kind, labels in LABELS.items()],
            # Our installation reads no Secrets. Another one keeps all its collectors: arguments only add to them.
            **(
                {"collectors": resources}
                if metrics.installed
                else {"extraArgs": [f"--resources={','.join(resources)}"]}
            ),
            "rbac": {
                "extraRules": [
                    {
                        "apiGroups": ["admissionregistration.k8s.io"],
                        "resources": list(GUARDS),
                        "verbs": ["list", "watch"],
                    }
                ]
            },
        },
        "prometheus-node-exporter": {"prometheus": {"monitor": {"relabelings": [node]}}},
        "alertmanager": {"alertmanagerSpec": {"alertmanagerConfigMatcherStrategy": {"type": "None"}}},
    }


def exporter_values(environment: Environment) -> dict[str, dict[str, Any]]:
    """Values of charts that are installed outside this environment, by the chart's name."""
    if not environment.metrics.collected:
        return {}
    values = {} if environment.metrics.installed else {STACK: stack_values(environment.metrics)}
    if environment.metrics.cost_tool is CostTool.OPENCOST:
        external = {"enabled": True, "url": environment.metrics.address}
        values[COST_CHARTS["opencost"].chart] = {
            "opencost": {"prometheus": {"external": external, "internal": {"enabled": False}}}
        }
    if environment.metrics.cost_tool is CostTool.KUBECOST:
        values[COST_CHARTS["kubecost"].chart] = kubecost_values(environment)
    return values


def kubecost_values(environment: Environment) -> dict[str, Any]:
    """Kubecost 3 collects by its own agent: its chart refuses values that name a Prometheus."""
    values: dict[str, Any] = {
        "global": {"clusterId": environment.environment},
        "kubecostProductConfigs": {"labelMappingConfigs": _KUBECOST},
        # A privileged daemonset on the network of every node.
        "networkCosts": {"enabled": False},
        # It may rewrite requests and quotas of tenants and delete namespaces.
        "clusterController": {"enabled": False},
        "telemetry": {"enabled": False},
    }
    prices = {str(price) for price in environment.prices.values()}
    if len(prices) == 1:  # it knows one price for all boards; more need a table that only its Enterprise edition reads
        custom = {"enabled": True, "GPU": prices.pop()}
        values["finopsagent"] = {"agent": {"kubecost": {"customPrices": custom}}}
    return values


_COLLECTED_RESOURCES = (
    *("nodes", "pods", "namespaces", "resourcequotas", "persistentvolumeclaims"),
    *("jobs", "deployments", "statefulsets", "daemonsets"),
)
_KUBECOST = {
    "owner_label": "owner",
    "team_label": "team",
    "department_label": "department",
    "product_label": "product",
    "environment_label": "env",
}
"""Kubecost's names for the labels of a namespace, where they are not its own."""
