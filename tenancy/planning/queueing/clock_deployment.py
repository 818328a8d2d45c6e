"""The clock as a Deployment: two copies of which one works, with the spec files in ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import yaml

from tenancy.catalog import vocabulary as words
from tenancy.kube.objects import Object
from tenancy.planning.common import replicas
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.schema.base import Spec
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

PORT = 9464
FILES = "tenancy-clock-files"
MAX_BYTES = 900 * 1024
"""Of one ConfigMap: the API server takes up to 1 MiB."""
FOLDER = "/etc/tenancy"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
CHOSEN = {"app.kubernetes.io/name": words.CLOCK}


def clock_deployment(environment: Environment, tenants: Sequence[Tenant]) -> tuple[Object, ...]:
    """The Deployment and what belongs to it; empty without queues.clock-image."""
    image, home = environment.queues.clock_image, words.PLATFORM_NAMESPACE
    if not image:
        return ()
    labels = {**platform_labels(environment), **CHOSEN}

    def own(api: str, kind: str, body: dict[str, Any], name: str = words.CLOCK) -> Object:
        return manifest(api, kind, name, labels, body, namespace=home)

    files = {
        # The list of addresses is no file here: `service-ranges` has its ranges.
        "environment.yaml": _text(environment, {"aws": {"network": {"service_ranges_file"}}}),
        "kubeconfig": _kubeconfig(environment.cluster.context),
        **{f"{t.tenant}.tenant.yaml": _text(t) for t in sorted(tenants, key=lambda t: t.tenant)},
    }
    maps = {f"{FILES}-{number}" if number else FILES: part for number, part in enumerate(_parts(files))}
    return (
        *(own("v1", "ConfigMap", {"data": part}, name) for name, part in maps.items()),
        own("apps/v1", "Deployment", {"spec": _deployment(environment, image, maps)}),
        own("policy/v1", "PodDisruptionBudget", {"spec": replicas.disruption_budget(CHOSEN)}),
        own("v1", "Service", {"spec": {"selector": CHOSEN, "ports": [{"name": "metrics", "port": PORT}]}}),
        own("networking.k8s.io/v1", "NetworkPolicy", {"spec": replicas.ingress_on(CHOSEN, PORT)}),
    )


def _parts(files: Mapping[str, str]) -> list[dict[str, str]]:
    """The files, in their order, in as few parts as one ConfigMap each can hold."""
    parts: list[dict[str, str]] = [{}]
    size = 0
    for name, text in files.items():
        more = len(name.encode()) + len(text.encode())
        if parts[-1] and size + more > MAX_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = text
        size += more
    return parts


def _text(spec: Spec, without: dict[str, Any] | None = None) -> str:
    given = spec.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude=without)
    return yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=1000)


def _kubeconfig(context: str) -> str:
    """For the context that the spec files name: the API server as every pod reaches it, and the pod's own account."""
    server = {"server": "https://kubernetes.default.svc", "certificate-authority": f"{ACCOUNT}/ca.crt"}
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": server}],
            "users": [{"name": words.CLOCK, "user": {"tokenFile": f"{ACCOUNT}/token"}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": words.CLOCK}}],
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
        "serviceAccountName": words.CLOCK,
        "automountServiceAccountToken": True,
        **replicas.placement(environment),
        "affinity": replicas.spread_over_nodes(CHOSEN),
        "securityContext": {"seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "files", "projected": {"sources": sources}}],
    }
    template = {"metadata": {"labels": CHOSEN}, "spec": pod}
    return {"replicas": 2, "selector": {"matchLabels": CHOSEN}, "template": template}


def _path(file: str) -> str:
    """Of a file in the folder: a key of a ConfigMap has no slash."""
    return f"tenants/{file.removesuffix('.tenant.yaml')}.yaml" if ".tenant." in file else file
