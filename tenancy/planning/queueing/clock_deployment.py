"""The clock as a Deployment: two copies of which one works, with the spec files in ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common import replicas
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.spec.fields.base import Spec
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

PORT = 9464
FILES = "tenancy-clock-files"
MAX_BYTES = 900 * 1024
"""Max size of one ConfigMap: the API server takes up to 1 MiB."""
FOLDER = "/etc/tenancy"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
POD_LABELS = {"app.kubernetes.io/name": vocabulary.CLOCK}


def clock_deployment(environment: Environment, tenants: Sequence[Tenant]) -> tuple[Object, ...]:
    """The Deployment and what belongs to it; empty without queues.clock-image."""
    image, home = environment.queues.clock_image, vocabulary.PLATFORM_NAMESPACE
    if not image:
        return ()
    labels = {**platform_labels(environment), **POD_LABELS}

    def clock_object(api: str, kind: str, body: dict[str, Any], name: str = vocabulary.CLOCK) -> Object:
        return manifest(api, kind, name, labels, body, namespace=home)

    files = {
        # The list of addresses is no file here: `service-ranges` has its ranges.
        "environment.yaml": _text(environment, {"aws": {"network": {"aws_ip_ranges_file"}}}),
        "kubeconfig": _kubeconfig(environment.cluster.context),
        **{f"{t.tenant}.tenant.yaml": _text(t) for t in sorted(tenants, key=lambda t: t.tenant)},
    }
    maps = {f"{FILES}-{number}" if number else FILES: part for number, part in enumerate(_partition(files))}
    return (
        *(clock_object("v1", "ConfigMap", {"data": part}, name) for name, part in maps.items()),
        clock_object("apps/v1", "Deployment", {"spec": _deployment(environment, image, maps)}),
        clock_object("policy/v1", "PodDisruptionBudget", {"spec": replicas.disruption_budget(POD_LABELS)}),
        clock_object("v1", "Service", {"spec": {"selector": POD_LABELS, "ports": [{"name": "metrics", "port": PORT}]}}),
        clock_object("networking.k8s.io/v1", "NetworkPolicy", {"spec": replicas.ingress_on(POD_LABELS, PORT)}),
    )


def _partition(files: Mapping[str, str]) -> list[dict[str, str]]:
    """The files, in their order, in as few parts as one ConfigMap each can hold."""
    parts: list[dict[str, str]] = [{}]
    size = 0
    for name, text in files.items():
        file_size = len(name.encode()) + len(text.encode())
        if parts[-1] and size + file_size > MAX_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = text
        size += file_size
    return parts


def _text(spec: Spec, excluded_fields: dict[str, Any] | None = None) -> str:
    content = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=excluded_fields)
    return yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=1000)


def _kubeconfig(context: str) -> str:
    """For the context that the spec files name: the API server as every pod reaches it, and the pod's own account."""
    server = {"server": "https://kubernetes.default.svc", "certificate-authority": f"{ACCOUNT}/ca.crt"}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": server}],
            "users": [{"name": vocabulary.CLOCK, "user": {"tokenFile": f"{ACCOUNT}/token"}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": vocabulary.CLOCK}}],
            "current-context": context,
        }
    )


def _deployment(environment: Environment, image: str, maps: Mapping[str, Iterable[str]]) -> dict[str, Any]:
    """`maps` are the ConfigMaps with the files in each."""
    folder = f"{FOLDER}/{environment.environment}"
    probe = {"httpGet": {"path": "/healthz", "port": "metrics"}, "periodSeconds": 30, "timeoutSeconds": 5}
    container = {
        "name": "clock",
        "image": image,
        "args": ["tenancy", "clock", "run", folder, "--metrics", f"0.0.0.0:{PORT}"],
        "env": [
            {"name": "KUBECONFIG", "value": f"{folder}/kubeconfig"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "metrics", "containerPort": PORT}],
        "readinessProbe": {**probe, "failureThreshold": 1},
        "livenessProbe": {**probe, "failureThreshold": 3},
        "volumeMounts": [{"name": "files", "mountPath": folder, "readOnly": True}],
        "securityContext": dict(replicas.RESTRICTED_SECURITY_CONTEXT),
        "resources": {
            "requests": {"cpu": "50m", "memory": "200Mi", "ephemeral-storage": "64Mi"},
            "limits": {"cpu": "1", "memory": "512Mi", "ephemeral-storage": "128Mi"},
        },
    }
    sources = [
        {"configMap": {"name": name, "items": [{"key": file, "path": _path(file)} for file in files]}}
        for name, files in maps.items()
    ]
    pod = {
        "serviceAccountName": vocabulary.CLOCK,
        "automountServiceAccountToken": True,
        **replicas.placement(environment),
        "affinity": replicas.spread_over_nodes(POD_LABELS),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "files", "projected": {"sources": sources}}],
    }
    template = {"metadata": {"labels": POD_LABELS}, "spec": pod}
    return {"replicas": 2, "selector": {"matchLabels": POD_LABELS}, "template": template}


def _path(file: str) -> str:
    """Path of a file in the folder: a key of a ConfigMap has no slash."""
    return f"tenants/{file.removesuffix('.tenant.yaml')}.yaml" if ".tenant." in file else file
