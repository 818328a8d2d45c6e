"""An API server of its own for each namespace of a tenant: the values of its Helm release.

Everything that a person makes inside ends as pods, services, claims, secrets and config maps of the namespace,
made by one service account, the syncer's, and judged there like all others. So the chart makes no policy, quota, role
or account of its own: those of the namespace apply.
"""

from __future__ import annotations

from typing import Any

from tenancy.catalog import virtual_clusters as sizes
from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import QUEUE
from tenancy.catalog.versions import CHARTS
from tenancy.kube.objects import Object
from tenancy.planning.common.charts import HelmChart, from_mirror, toleration_dicts
from tenancy.planning.common.labels import tenant_labels
from tenancy.planning.common.pools import node_taints
from tenancy.planning.common.priorities import class_name
from tenancy.spec.fields.cluster import VirtualClusters
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Namespace, Tenant

USER = 12345
"""User and group that no account in the images has; the volume gets this group."""
_DISABLED = {"enabled": False}

_NOT_TO_HOST = (
    # A writer of endpoints can direct traffic to any address: people of a tenant may not write them either.
    *("endpoints", "endpointSlices"),
    # The platform's isolation resources, cluster-wide objects, and kinds that ask for rights on them.
    *("ingresses", "networkPolicies", "podDisruptionBudgets", "serviceAccounts", "volumeSnapshots"),
    *("namespaces", "persistentVolumes", "priorityClasses", "storageClasses", "volumeSnapshotContents"),
    *("resourceClaims", "resourceClaimTemplates"),
)
_NOT_FROM_HOST = (
    *("configMaps", "secrets"),
    # With real nodes it would see every tenant's.
    "nodes",
    *("csiDrivers", "csiNodes", "csiStorageCapacities", "deviceClasses", "ingressClasses", "priorityClasses"),
    *("runtimeClasses", "storageClasses", "volumeSnapshotClasses"),
)

_CONTAINER: Object = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "readOnlyRootFilesystem": True,
    "runAsGroup": USER,
    "runAsNonRoot": True,
    "runAsUser": USER,
}
_POD: Object = {
    "fsGroup": USER,
    "runAsGroup": USER,
    "runAsNonRoot": True,
    "runAsUser": USER,
    "seccompProfile": {"type": "RuntimeDefault"},
}

_COREFILE = """\
.:1053 {{
    errors
    health
    ready
    kubernetes cluster.local in-addr.arpa ip6.arpa {{
        pods insecure
        fallthrough in-addr.arpa ip6.arpa
    }}
    forward . {resolver}
    cache 30
    loop
    loadbalance
}}
"""
"""The node's resolver, which CoreDNS would ask, is closed to pods: the cluster's own DNS answers, by its rules."""


def virtual_cluster(environment: Environment, tenant: Tenant, namespace: Namespace) -> HelmChart | None:
    """The release in a namespace; None where the tenant has no virtual clusters."""
    settings = environment.virtual_clusters
    if settings is None or not tenant.in_virtual_clusters:
        return None
    pin = CHARTS["vcluster"]
    values = {
        "controlPlane": _control_plane(environment, settings, tenant, namespace),
        "sync": _sync(tenant, namespace),
        # The plan makes the account and its rights with the namespace's others.
        "rbac": {"role": _DISABLED, "clusterRole": _DISABLED, "enableVolumeSnapshotRules": _DISABLED},
        "policies": {
            "resourceQuota": _DISABLED,
            "limitRange": _DISABLED,
            "networkPolicy": _DISABLED,
            # Inside, it says at once what the host would refuse.
            "podSecurityStandard": "restricted",
        },
        # For each node a service, or a name that leads to the API server.
        "networking": {"advanced": {"proxyKubelets": {"byHostname": False, "byIP": False}}},
        # As owner it would be a controller that no pod may claim (kueue-02).
        "experimental": {"syncSettings": {"setOwner": False}},
        "telemetry": _DISABLED,
    }
    namespace_name = tenant.namespace_name(namespace)
    chart = HelmChart(vocabulary.VIRTUAL_CLUSTER, namespace_name, pin.repository, pin.chart, pin.version, values)
    return from_mirror(environment, chart)


def _control_plane(
    environment: Environment, settings: VirtualClusters, tenant: Tenant, namespace: Namespace
) -> dict[str, Any]:
    # Those alone: with the platform's marks it would be an object that no file of ours makes.
    all_labels = tenant_labels(environment, tenant, namespace)
    storage_class = settings.storage_class or vocabulary.STORAGE_CLASS
    labels = {key: all_labels[key] for key in vocabulary.CHARGED_LABELS}
    queue = {QUEUE: vocabulary.DEFAULT_QUEUE} if environment.has_queues else {}
    placement = _placement(environment, tenant, namespace)
    urgency = class_name(tenant.tier_of(namespace))
    return {
        "distro": {
            "k8s": {
                "enabled": True,
                "image": _image(settings.kubernetes),
                "apiServer": {"extraArgs": list(settings.oidc)},
                "scheduler": _DISABLED,
                "securityContext": _CONTAINER,
                "resources": sizes.KUBERNETES,
            }
        },
        "backingStore": {"database": {"embedded": {"enabled": True}}},
        "coredns": {
            "enabled": True,
            "embedded": False,  # of the build that is not open source
            "overwriteConfig": _COREFILE.format(resolver=settings.resolver),
            "priorityClassName": "",
            "deployment": {"image": settings.dns, "pods": {"labels": queue}, "resources": sizes.DNS, **placement},
        },
        "service": {"enabled": True, "spec": {"type": "ClusterIP"}},
        "ingress": _DISABLED,
        "tlsRoute": _DISABLED,
        "serviceMonitor": _DISABLED,
        "statefulSet": {
            "image": _image(settings.syncer),
            "labels": {**labels, **queue},
            "pods": {"labels": labels},
            "resources": sizes.SYNCER,
            "highAvailability": {"replicas": 1},
            "enableServiceLinks": False,
            "security": {"podSecurityContext": _POD, "containerSecurityContext": _CONTAINER},
            "persistence": {"volumeClaim": {"enabled": True, "size": sizes.VOLUME, "storageClass": storage_class}},
            # The chart's template has the field twice (v0.34.0 to v0.36.1), each time with this value. Without it the
            # control plane would be of the lowest class, which its own tenant's work evicts.
            "scheduling": {"priorityClassName": urgency, **placement},
        },
        "advanced": {
            "defaultImageRegistry": "",  # each image says its own
            "serviceAccount": {"enabled": False, "name": vocabulary.VIRTUAL_CLUSTER},
            "workloadServiceAccount": {"enabled": False, "name": _workload_account(tenant, namespace)},
            "virtualScheduler": _DISABLED,
        },
    }


def _sync(tenant: Tenant, namespace: Namespace) -> dict[str, Any]:
    to_host: dict[str, Any] = dict.fromkeys(_NOT_TO_HOST, _DISABLED)
    to_host |= {kind: {"enabled": True} for kind in ("services", "persistentVolumeClaims")}
    # Those that a pod or an ingress needs.
    to_host |= {kind: {"enabled": True, "all": False} for kind in ("configMaps", "secrets")}
    to_host["pods"] = {
        "enabled": True,
        # Otherwise tokens are in pods' annotations, which every role that reads pods can read.
        "useSecretsForSATokens": True,
        "priorityClassName": class_name(tenant.tier_of(namespace)),
        # Its init container would start as root, from an image that the platform does not manage.
        "rewriteHosts": _DISABLED,
        "hybridScheduling": _DISABLED,
    }
    from_host: dict[str, Any] = dict.fromkeys(_NOT_FROM_HOST, _DISABLED)
    return {"toHost": to_host, "fromHost": {**from_host, "events": {"enabled": True}}}


def _workload_account(tenant: Tenant, namespace: Namespace) -> str:
    """On the host all pods of the virtual cluster are one account; the namespace's grants on AWS are bound to it."""
    return namespace.service_account if tenant.has_identity(namespace) else vocabulary.DEFAULT_ACCOUNT


def _placement(environment: Environment, tenant: Tenant, namespace: Namespace) -> dict[str, Any]:
    """Its own pods ask for no GPU, and pools without any may be the tenant's alone."""
    tier = frozenset({tenant.tier_of(namespace)})
    taints = [
        taint
        for name, pool in sorted(environment.pools.items())
        if pool.is_restricted and not pool.machine.gpus and pool.admits(tenant.tenant, tier)
        for taint in node_taints(name, pool)
    ]
    return {"tolerations": toleration_dicts({"operator": "Equal", **taint} for taint in taints)}


def _image(image: str) -> dict[str, str]:
    """The parts that the chart joins again: registry/repository:tag, with the digest after the tag."""
    registry, _, path = image.partition("/")
    repository, _, tag = path.partition(":")
    return {"registry": registry, "repository": repository, "tag": tag}
