"""Manifests in the shapes that public charts have, made by combining small templates.

Each is a creation in one namespace by one identity. Pods come in two shapes: one that the guards of `stacks/local`
admit, and one as charts write it, which they refuse; every edit is made of both, through several kinds of work.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from typing import Any

from tenancy.catalog.controllers import RUN_TIME
from tenancy.kube.objects import Object
from tenancy.rules.attacks import put
from tenancy.rules.workloads import ENDING

NAME = "corpus"
DIGEST = "sha256:" + "1" * 64


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object to be created."""

    id: str
    item: Object
    role: str = "developer"
    """Role of its author; `platform` for the platform's group."""


_CONTAINER = "/spec/containers/0"
_SECURITY = f"{_CONTAINER}/securityContext"
_PROBE = {"httpGet": {"path": "/healthz", "port": 8080}, "periodSeconds": 10}
_FIELD = {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_TERM = {"labelSelector": {"matchLabels": {"app": NAME}}, "topologyKey": "kubernetes.io/hostname"}
_ZONE = {"matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]}
_SPREAD = {
    "maxSkew": 1,
    "topologyKey": "topology.kubernetes.io/zone",
    "whenUnsatisfiable": "ScheduleAnyway",
    "labelSelector": {"matchLabels": {"app": NAME}},
}


def _volume(**source: Any) -> dict[str, Any]:
    return {"/spec/volumes": [{"name": "data", **source}]}


def _mounted(**source: Any) -> dict[str, Any]:
    return {**_volume(**source), f"{_CONTAINER}/volumeMounts": [{"name": "data", "mountPath": "/data"}]}


def _resources(**amounts: str) -> dict[str, Any]:
    return {f"{_CONTAINER}/resources": {"requests": dict(amounts), "limits": dict(amounts)}}


def _limits(**amounts: Any) -> dict[str, Any]:
    return {f"{_CONTAINER}/resources/limits": dict(amounts)}


def _tolerations(*entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"/spec/tolerations": list(entries)}


def _more(where: str, **fields: Any) -> dict[str, Any]:
    """A second container, of a sidecar's shape."""
    container = {"name": "sidecar", "image": "registry.bank.example/shared/cuda-sample:13.1", **fields}
    return {where: [container]}


EDITS: Mapping[str, Mapping[str, Any]] = {
    "as-it-is": {},
    "latest": {f"{_CONTAINER}/image": "registry.bank.example/shared/cuda-sample:latest"},
    "no-tag": {f"{_CONTAINER}/image": "registry.bank.example/shared/cuda-sample"},
    "docker-hub": {f"{_CONTAINER}/image": "nginx:1.27"},
    "digest": {f"{_CONTAINER}/image": f"registry.bank.example/shared/cuda-sample@{DIGEST}"},
    "pull-always": {f"{_CONTAINER}/imagePullPolicy": "Always"},
    "pull-secret": {"/spec/imagePullSecrets": [{"name": "registry"}]},
    "args": {f"{_CONTAINER}/args": ["--port", "8080"], f"{_CONTAINER}/workingDir": "/srv"},
    "ports": {f"{_CONTAINER}/ports": [{"name": "http", "containerPort": 8080}]},
    "host-port": {f"{_CONTAINER}/ports": [{"containerPort": 8080, "hostPort": 8080}]},
    "env": {f"{_CONTAINER}/env": [{"name": "LOG_LEVEL", "value": "info"}, _FIELD]},
    "env-visible-devices": {f"{_CONTAINER}/env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]},
    "env-secret": {
        f"{_CONTAINER}/env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "keys", "key": "key"}}}]
    },
    "env-from": {f"{_CONTAINER}/envFrom": [{"configMapRef": {"name": "settings"}}]},
    "probes": {
        f"{_CONTAINER}/livenessProbe": _PROBE,
        f"{_CONTAINER}/readinessProbe": {**_PROBE, "httpGet": {"path": "/ready", "port": 8080}},
        f"{_CONTAINER}/startupProbe": {"tcpSocket": {"port": 8080}, "failureThreshold": 30},
    },
    "probe-command": {f"{_CONTAINER}/livenessProbe": {"exec": {"command": ["true"]}}},
    "probe-host": {f"{_CONTAINER}/livenessProbe": {"httpGet": {"path": "/", "port": 80, "host": "169.254.169.254"}}},
    "lifecycle": {f"{_CONTAINER}/lifecycle": {"preStop": {"exec": {"command": ["sleep", "5"]}}}},
    "small": _resources(cpu="50m", memory="64Mi"),
    "large": _resources(cpu="64", memory="1Ti"),
    "no-limits": {f"{_CONTAINER}/resources": {"requests": {"cpu": "100m"}}},
    "no-resources": {f"{_CONTAINER}/resources": {}},
    "gpu": _limits(**{"nvidia.com/gpu": 1, "cpu": "100m", "memory": "128Mi"}),
    "gpus": _limits(**{"nvidia.com/gpu": 8, "cpu": "100m", "memory": "128Mi"}),
    "mig": _limits(**{"nvidia.com/mig-1g.10gb": 1, "cpu": "100m", "memory": "128Mi"}),
    "other-device": _limits(**{"amd.com/gpu": 1, "cpu": "100m", "memory": "128Mi"}),
    "hugepages": _limits(**{"hugepages-2Mi": "4Mi", "cpu": "100m", "memory": "128Mi"}),
    "efa": _limits(**{"vpc.amazonaws.com/efa": 1, "cpu": "100m", "memory": "128Mi"}),
    "privileged": {f"{_SECURITY}/privileged": True, f"{_SECURITY}/allowPrivilegeEscalation": True},
    "escalation": {f"{_SECURITY}/allowPrivilegeEscalation": True},
    "root": {f"{_SECURITY}/runAsUser": 0},
    "user": {f"{_SECURITY}/runAsUser": 1000, f"{_SECURITY}/runAsNonRoot": True},
    "writable": {f"{_SECURITY}/readOnlyRootFilesystem": False},
    "net-admin": {f"{_SECURITY}/capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}},
    "net-bind": {f"{_SECURITY}/capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}},
    "unconfined": {f"{_SECURITY}/seccompProfile": {"type": "Unconfined"}},
    "app-armor": {f"{_SECURITY}/appArmorProfile": {"type": "RuntimeDefault"}},
    "selinux": {f"{_SECURITY}/seLinuxOptions": {"type": "container_t"}},
    "sysctl": {"/spec/securityContext/sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}]},
    "bad-sysctl": {"/spec/securityContext/sysctls": [{"name": "kernel.msgmax", "value": "65536"}]},
    "fs-group": {"/spec/securityContext/fsGroupChangePolicy": "OnRootMismatch"},
    "host-network": {"/spec/hostNetwork": True, "/spec/dnsPolicy": "ClusterFirstWithHostNet"},
    "host-pid": {"/spec/hostPID": True},
    "host-ipc": {"/spec/hostIPC": True},
    "host-users": {"/spec/hostUsers": False},
    "one-process-space": {"/spec/shareProcessNamespace": True},
    "host-path": _mounted(hostPath={"path": "/var/log"}),
    "empty-dir": _mounted(emptyDir={}),
    "memory-dir": _mounted(emptyDir={"medium": "Memory", "sizeLimit": "1Gi"}),
    "config-map": _mounted(configMap={"name": "settings"}),
    "secret": _mounted(secret={"secretName": "keys", "defaultMode": 256}),
    "claim": _mounted(persistentVolumeClaim={"claimName": "data"}),
    "ephemeral": _mounted(
        ephemeral={
            "volumeClaimTemplate": {
                "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
            }
        }
    ),
    "downward": _mounted(downwardAPI={"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}),
    "nfs": _mounted(nfs={"server": "10.0.0.1", "path": "/"}),
    "csi": _mounted(csi={"driver": "secrets-store.csi.k8s.io", "readOnly": True}),
    "image-volume": _mounted(image={"reference": "docker.io/library/models:1"}),
    "token": _mounted(projected={"sources": [{"serviceAccountToken": {"path": "token", "audience": "vault"}}]}),
    "service-account": {"/spec/serviceAccountName": "trainer"},
    "default-account": {"/spec/serviceAccountName": "default"},
    "automount": {"/spec/automountServiceAccountToken": True},
    "node-name": {"/spec/nodeName": "general-0"},
    "node-selector": {"/spec/nodeSelector": {"kubernetes.io/os": "linux"}},
    "pool-selector": {"/spec/nodeSelector": {"tenancy.gpu/pool": "general"}},
    "zone": {"/spec/affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": [_ZONE]}}}},
    "apart": {"/spec/affinity": {"podAntiAffinity": {_REQUIRED: [_TERM]}}},
    "together": {"/spec/affinity": {"podAffinity": {_REQUIRED: [_TERM]}}},
    "prefer-apart": {
        "/spec/affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _TERM}]
            }
        }
    },
    "spread": {"/spec/topologySpreadConstraints": [_SPREAD]},
    "tolerate-gpu": _tolerations({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}),
    "tolerate-all": _tolerations({"operator": "Exists"}),
    "tolerate-not-ready": _tolerations(
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
    ),
    "tolerate-spot": _tolerations({"key": "spot", "operator": "Equal", "value": "true", "effect": "NoSchedule"}),
    "system-critical": {"/spec/priorityClassName": "system-cluster-critical"},
    "unknown-priority": {"/spec/priorityClassName": "high"},
    "scheduler": {"/spec/schedulerName": "volcano"},
    "gates": {"/spec/schedulingGates": [{"name": "example.com/wait"}]},
    "runtime-nvidia": {"/spec/runtimeClassName": "nvidia"},
    "deadline": {"/spec/activeDeadlineSeconds": 3600},
    "grace": {"/spec/terminationGracePeriodSeconds": 120},
    "long-grace": {"/spec/terminationGracePeriodSeconds": 86400},
    "dns": {"/spec/dnsPolicy": "None", "/spec/dnsConfig": {"nameservers": ["1.1.1.1"]}},
    "host-aliases": {"/spec/hostAliases": [{"ip": "10.1.2.3", "hostnames": ["db.example"]}]},
    "hostname": {"/spec/hostname": "master", "/spec/subdomain": "ring"},
    "no-links": {"/spec/enableServiceLinks": False},
    "readiness-gate": {"/spec/readinessGates": [{"conditionType": "target-health.elbv2.k8s.aws/x"}]},
    "sidecar": _more("/spec/initContainers", restartPolicy="Always", command=["sleep", "1"]),
    "init": _more("/spec/initContainers", command=["true"]),
    "init-foreign": {"/spec/initContainers": [{"name": "init", "image": "busybox", "command": ["true"]}]},
    "init-privileged": _more("/spec/initContainers", securityContext={"privileged": True}),
    "debug": {"/spec/containers/0/tty": True, "/spec/containers/0/stdin": True},
    "device-claim": {
        "/spec/resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "gpu"}],
        f"{_CONTAINER}/resources/claims": [{"name": "gpu"}],
    },
    "queue": {"/metadata/labels/kueue.x-k8s.io~1queue-name": "default"},
    "other-queue": {"/metadata/labels/kueue.x-k8s.io~1queue-name": "team-queue"},
    "annotations": {"/metadata/annotations": {"prometheus.io/scrape": "true"}},
    "cluster-autoscaler": {"/metadata/annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}},
    "istio": {"/metadata/labels/sidecar.istio.io~1inject": "true"},
    "finalizer": {"/metadata/finalizers": ["example.com/keep"]},
    "no-restart": {"/spec/restartPolicy": "OnFailure"},
    "no-containers": {"/spec/containers": []},
    "twice-one-name": {"/spec/volumes": [{"name": "data", "emptyDir": {}}, {"name": "data", "emptyDir": {}}]},
    "bad-name": {f"{_CONTAINER}/name": "Main_Container"},
    "unknown-policy": {"/spec/restartPolicy": "Sometimes"},
    "mount-of-nothing": {f"{_CONTAINER}/volumeMounts": [{"name": "gone", "mountPath": "/x"}]},
    "less-than-requested": {
        f"{_CONTAINER}/resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}},
    },
}
"""Settings of public charts and common mistakes in a pod: JSON pointers into a pod, and the values there."""

PUBLIC: Object = {
    "metadata": {"labels": {"app": NAME, "app.kubernetes.io/name": NAME, "helm.sh/chart": f"{NAME}-1.2.3"}},
    "spec": {
        "containers": [
            {
                "name": "main",
                "image": "docker.io/example/server:latest",
                "imagePullPolicy": "IfNotPresent",
                "ports": [{"name": "http", "containerPort": 8080}],
                "resources": {},
                "securityContext": {},
            }
        ],
        "securityContext": {},
        "serviceAccountName": NAME,
    },
}
"""A pod as charts write it: an image of Docker Hub, no limits, no security context, an account of its own."""

_BATCH = ("Job", "CronJob", "JobSet", "MPIJob", "PyTorchJob")
WORK = ("Pod", "Deployment", "Job", "StatefulSet", "CronJob", "DaemonSet", "ReplicaSet")
OPERATORS = ("JobSet", "LeaderWorkerSet", "MPIJob", "PyTorchJob", "RayCluster", "RayJob", "TrainJob")
_APIS = {
    "Pod": "v1",
    "Job": "batch/v1",
    "CronJob": "batch/v1",
    "JobSet": "jobset.x-k8s.io/v1alpha2",
    "LeaderWorkerSet": "leaderworkerset.x-k8s.io/v1",
    "MPIJob": "kubeflow.org/v2beta1",
    "PyTorchJob": "kubeflow.org/v1",
    "RayCluster": "ray.io/v1",
    "RayJob": "ray.io/v1",
    "TrainJob": "trainer.kubeflow.org/v1alpha1",
}


def of_kind(kind: str, pod: Object) -> Object:
    """Work of a kind with the pod as its template."""
    pod = copy.deepcopy(pod)
    batch = kind in _BATCH
    # The queued object says how long it runs, and not its pods.
    longest = pod["metadata"].get("labels", {}).get(RUN_TIME)
    of_work = {RUN_TIME: longest} if longest and kind != "Pod" else {}
    if of_work:
        del pod["metadata"]["labels"][RUN_TIME]
    if kind not in ("Pod", *_BATCH) and pod["spec"].get("restartPolicy") == "Never":
        pod["spec"]["restartPolicy"] = "Always"
    if batch and "restartPolicy" not in pod["spec"]:
        pod["spec"]["restartPolicy"] = "Never"
    labels = {"app": NAME}
    metadata: Object = {"name": NAME, "labels": {**labels, **(of_work if kind in ENDING else {})}}
    if kind == "Pod":
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {**pod["metadata"], "name": NAME}, "spec": pod["spec"]}
    pod["metadata"] = {**pod["metadata"], "labels": {**pod["metadata"].get("labels", {}), **labels}}
    spec = _spec(kind, pod, of_work)
    return {"apiVersion": _APIS.get(kind, "apps/v1"), "kind": kind, "metadata": metadata, "spec": spec}


def _spec(kind: str, pod: Object, of_work: Mapping[str, str]) -> Object:
    workload = {"selector": {"matchLabels": {"app": NAME}}, "template": pod}
    replicas = {"replicas": 2}
    job = {"backoffLimit": 2, "completions": 2, "parallelism": 2, "template": pod}
    ray = {"rayVersion": "2.40.0", "headGroupSpec": {"rayStartParams": {}, "template": pod}}
    worker = {**replicas, "restartPolicy": "OnFailure", "template": pod}
    specs_by_kind: Mapping[str, Object] = {
        "Job": job,
        "CronJob": {"schedule": "*/5 * * * *", "jobTemplate": {"metadata": {"labels": of_work}, "spec": job}},
        "Deployment": {**workload, **replicas, "strategy": {"type": "RollingUpdate"}},
        "StatefulSet": {**workload, **replicas, "serviceName": NAME},
        "DaemonSet": workload,
        "ReplicaSet": {**workload, **replicas},
        "JobSet": {"replicatedJobs": [{"name": "w", "replicas": 1, "template": {"spec": job}}]},
        "LeaderWorkerSet": {**replicas, "leaderWorkerTemplate": {"size": 2, "workerTemplate": pod}},
        "MPIJob": {"mpiReplicaSpecs": {"Launcher": {"replicas": 1, "template": pod}, "Worker": worker}},
        "PyTorchJob": {"pytorchReplicaSpecs": {"Master": {**worker, "replicas": 1}, "Worker": worker}},
        "RayCluster": ray,
        "RayJob": {"entrypoint": "true", "rayClusterSpec": ray},
        "TrainJob": {"runtimeRef": {"name": "torch-distributed"}, "trainer": {"numNodes": 2}},
    }
    return specs_by_kind[kind]


def manifests(sample: Object) -> Iterator[Manifest]:
    """All of them; `sample` is a pod that the guards of the namespace admit."""
    sample_template = {"metadata": {"labels": dict(sample["metadata"].get("labels") or {})}, "spec": sample["spec"]}
    kinds = cycle(WORK[1:5])
    for name, edit in EDITS.items():
        for shape, pod in (("own", sample_template), ("public", PUBLIC)):
            edited_pod = copy.deepcopy(pod)
            for pointer, value in edit.items():
                edited_pod = put(edited_pod, pointer, value)
            # Each edit through a pod and, of the shape that is admitted, two other kinds of work.
            through = ("Pod", next(kinds), next(kinds)) if shape == "own" else ("Deployment",)
            for kind in through:
                yield Manifest(f"{shape}-{kind.lower()}-{name}", of_kind(kind, edited_pod))
    for kind in ("DaemonSet", "ReplicaSet", *OPERATORS):
        for shape, pod in (("own", sample_template), ("public", PUBLIC)):
            yield Manifest(f"{shape}-{kind.lower()}-by-developer", of_kind(kind, pod))
        yield Manifest(f"own-{kind.lower()}-by-the-platform", of_kind(kind, sample_template), "platform")
    for role in ("viewer", "operator", "owner", "platform"):
        for kind in WORK:
            yield Manifest(f"{kind.lower()}-by-{role}", of_kind(kind, sample_template), role)
    for kind in WORK:
        yield Manifest(
            f"{kind.lower()}-without-spec", {k: v for k, v in of_kind(kind, sample_template).items() if k != "spec"}
        )
    yield from _of_work(sample_template)
    yield from _further_manifests()


def _of_work(pod: Object) -> Iterator[Manifest]:
    """Fields of work beside its pods."""
    for kind, edits in _WORK_EDITS.items():
        for name, edit in edits.items():
            item = of_kind(kind, pod)
            for pointer, value in edit.items():
                item = put(item, pointer, value)
            yield Manifest(f"{kind.lower()}-{name}", item)


_QUEUE = "/metadata/labels/kueue.x-k8s.io~1queue-name"
_WORK_EDITS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "Job": {
        "indexed": {"/spec/completionMode": "Indexed"},
        "suspended": {"/spec/suspend": True},
        "kept-for": {"/spec/ttlSecondsAfterFinished": 600},
        "many": {"/spec/parallelism": 500, "/spec/completions": 500},
        "huge": {"/spec/parallelism": 100000, "/spec/completions": 100000},
        "negative": {"/spec/parallelism": -1},
        "own-selector": {"/spec/manualSelector": True, "/spec/selector": {"matchLabels": {"app": NAME}}},
        "deadline": {"/spec/activeDeadlineSeconds": 600},
        "managed-by": {"/spec/managedBy": "example.com/other"},
        "queue": {_QUEUE: "default"},
        "queue-of-another": {_QUEUE: "team-queue"},
        "min-parallelism": {"/metadata/annotations": {"kueue.x-k8s.io/job-min-parallelism": "1"}},
        "bad-min-parallelism": {"/metadata/annotations": {"kueue.x-k8s.io/job-min-parallelism": "x"}},
        "urgent": {"/metadata/labels/kueue.x-k8s.io~1priority-class": "urgent"},
        "failure-policy": {
            "/spec/podFailurePolicy": {
                "rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]
            }
        },
    },
    "CronJob": {
        "bad-schedule": {"/spec/schedule": "every day"},
        "zone": {"/spec/timeZone": "Europe/Berlin"},
        "no-zone": {"/spec/timeZone": "Mars/Base"},
        "suspended": {"/spec/suspend": True},
        "each-minute": {"/spec/schedule": "* * * * *"},
        "long-name": {"/metadata/name": "c" * 60},
        "history": {"/spec/successfulJobsHistoryLimit": 100},
    },
    "Deployment": {
        "none": {"/spec/replicas": 0},
        "many": {"/spec/replicas": 500},
        "recreate": {"/spec/strategy": {"type": "Recreate"}},
        "paused": {"/spec/paused": True},
        "other-selector": {"/spec/selector": {"matchLabels": {"app": "other"}}},
        "no-selector": {"/spec/selector": {}},
        "queue": {_QUEUE: "default"},
        "bad-label": {"/metadata/labels": {"a b": "c"}},
        "progress": {"/spec/progressDeadlineSeconds": 60},
    },
    "StatefulSet": {
        "claims": {
            "/spec/volumeClaimTemplates": [
                {
                    "metadata": {"name": "data"},
                    "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}},
                }
            ]
        },
        "parallel": {"/spec/podManagementPolicy": "Parallel"},
        "no-service": {"/spec/serviceName": ""},
        "queue": {_QUEUE: "default"},
        "other-selector": {"/spec/selector": {"matchLabels": {"app": "other"}}},
    },
    "Pod": {
        "generated-name": {"/metadata/name": "", "/metadata/generateName": "train-"},
        "no-name": {"/metadata/name": ""},
        "bad-name": {"/metadata/name": "Train_1"},
        "owner": {
            "/metadata/ownerReferences": [
                {"apiVersion": "argoproj.io/v1alpha1", "kind": "Workflow", "name": "x", "uid": "u", "controller": True}
            ]
        },
        "other-namespace": {"/metadata/namespace": "default"},
        "unknown-field": {"/spec/replicas": 3},
        "text-for-number": {"/spec/terminationGracePeriodSeconds": "30"},
        "other-version": {"/apiVersion": "v2"},
        "status": {"/status": {"phase": "Running"}},
    },
}

RBAC = "rbac.authorization.k8s.io/v1"
_PORTS = {"ports": [{"name": "http", "port": 80, "targetPort": 8080}], "selector": {"app": NAME}}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "10Gi"}}}
_PODS = {"podSelector": {"matchLabels": {"app": NAME}}}
_BACKEND = {"service": {"name": NAME, "port": {"number": 80}}}
_PATHS = {"paths": [{"path": "/", "pathType": "Prefix", "backend": _BACKEND}]}
_TARGET = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}}
_RULE = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_REFERENCE = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
_SUBJECT = {"kind": "ServiceAccount", "name": NAME}
_CONTAINER_LIMITS = {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}


def _policy(**spec: Any) -> Object:
    return {"spec": {**_PODS, **spec}}


_FURTHER_OBJECTS: Mapping[tuple[str, str], Mapping[str, Object]] = {
    ("v1", "Service"): {
        "cluster-ip": {"spec": _PORTS},
        "headless": {"spec": {**_PORTS, "clusterIP": "None"}},
        "node-port": {"spec": {**_PORTS, "type": "NodePort"}},
        "load-balancer": {"spec": {**_PORTS, "type": "LoadBalancer"}},
        "internal": {
            "metadata": {"annotations": {"service.beta.kubernetes.io/aws-load-balancer-internal": "true"}},
            "spec": {**_PORTS, "type": "LoadBalancer"},
        },
        "external-name": {"spec": {"type": "ExternalName", "externalName": "db.example.com"}},
        "external-ips": {"spec": {**_PORTS, "externalIPs": ["192.0.2.1"]}},
        "no-selector": {"spec": {"ports": [{"port": 80}]}},
        "no-ports": {"spec": {"selector": {"app": NAME}}},
        "sticky": {"spec": {**_PORTS, "sessionAffinity": "ClientIP"}},
        "two-ports": {"spec": {**_PORTS, "ports": [{"port": 80}, {"port": 81}]}},
        "bad-port": {"spec": {"ports": [{"port": 70000}]}},
        "dual": {"spec": {**_PORTS, "ipFamilyPolicy": "PreferDualStack"}},
        "local": {"spec": {**_PORTS, "internalTrafficPolicy": "Local"}},
        "not-ready-too": {"spec": {**_PORTS, "publishNotReadyAddresses": True}},
        "topology": {"spec": {**_PORTS, "trafficDistribution": "PreferClose"}},
    },
    ("networking.k8s.io/v1", "Ingress"): {
        "host": {"spec": {"rules": [{"host": "x.example", "http": _PATHS}]}},
        "tls": {"spec": {"tls": [{"hosts": ["x.example"], "secretName": "tls"}], "rules": [{"http": _PATHS}]}},
        "class": {"spec": {"ingressClassName": "nginx", "defaultBackend": _BACKEND}},
        "snippet": {
            "metadata": {"annotations": {"nginx.ingress.kubernetes.io/configuration-snippet": "x;"}},
            "spec": {"defaultBackend": _BACKEND},
        },
    },
    ("v1", "PersistentVolumeClaim"): {
        "plain": {"spec": _CLAIM},
        "class": {"spec": {**_CLAIM, "storageClassName": "gp3"}},
        "no-class": {"spec": {**_CLAIM, "storageClassName": ""}},
        "shared": {"spec": {**_CLAIM, "accessModes": ["ReadWriteMany"]}},
        "huge": {"spec": {**_CLAIM, "resources": {"requests": {"storage": "1Pi"}}}},
        "bound": {"spec": {**_CLAIM, "volumeName": "pv-1"}},
        "block": {"spec": {**_CLAIM, "volumeMode": "Block"}},
        "clone": {"spec": {**_CLAIM, "dataSource": {"kind": "PersistentVolumeClaim", "name": "old"}}},
        "snapshot": {
            "spec": {
                **_CLAIM,
                "dataSource": {"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": "s"},
            }
        },
        "no-size": {"spec": {"accessModes": ["ReadWriteOnce"]}},
        "bad-size": {"spec": {**_CLAIM, "resources": {"requests": {"storage": "10 GB"}}}},
        "selector": {"spec": {**_CLAIM, "selector": {"matchLabels": {"a": "b"}}}},
    },
    ("v1", "ConfigMap"): {
        "plain": {"data": {"a": "b"}},
        "empty": {},
        "binary": {"binaryData": {"a": "AAAA"}},
        "immutable": {"data": {"a": "b"}, "immutable": True},
        "bad-key": {"data": {"a/b": "c"}},
        "number": {"data": {"a": 1}},
        "root-ca": {"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "x"}},
        "dashboard": {"metadata": {"labels": {"grafana_dashboard": "1"}}, "data": {"x.json": "{}"}},
    },
    ("v1", "Secret"): {
        "plain": {"stringData": {"a": "b"}},
        "tls": {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "x", "tls.key": "y"}},
        "half-tls": {"type": "kubernetes.io/tls", "stringData": {"tls.crt": "x"}},
        "registry": {"type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": '{"auths": {}}'}},
        "token": {
            "metadata": {"annotations": {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token",
        },
        "bad-base64": {"data": {"a": "***"}},
        "helm": {"type": "helm.sh/release.v1", "stringData": {"release": "x"}},
        "basic": {"type": "kubernetes.io/basic-auth", "stringData": {"username": "x", "password": "y"}},
    },
    ("v1", "ServiceAccount"): {
        "plain": {},
        "automount": {"automountServiceAccountToken": True},
        "no-automount": {"automountServiceAccountToken": False},
        "irsa": {"metadata": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/x"}}},
        "pull-secret": {"imagePullSecrets": [{"name": "registry"}]},
    },
    (RBAC, "Role"): {"pods": {"rules": [_RULE]}, "all": {"rules": [{**_RULE, "resources": ["*"], "verbs": ["*"]}]}},
    (RBAC, "RoleBinding"): {
        "account": {"roleRef": _REFERENCE, "subjects": [{**_SUBJECT, "namespace": "fraud--train"}]},
        "everybody": {
            "roleRef": _REFERENCE,
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:authenticated"}],
        },
        "no-role": {"roleRef": {**_REFERENCE, "name": "gone"}, "subjects": []},
    },
    ("networking.k8s.io/v1", "NetworkPolicy"): {
        "deny": {"spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}},
        "allow-all": {"spec": {"podSelector": {}, "ingress": [{}], "egress": [{}]}},
        "same-namespace": _policy(ingress=[{"from": [{"podSelector": {}}]}]),
        "ingress-controller": _policy(ingress=[{"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]}]),
        "all-namespaces": _policy(ingress=[{"from": [{"namespaceSelector": {}}]}]),
        "dns": _policy(egress=[{"ports": [{"port": 53, "protocol": "UDP"}]}], policyTypes=["Egress"]),
        "internet": _policy(egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]}], policyTypes=["Egress"]),
        "except": _policy(
            egress=[{"to": [{"ipBlock": {"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}}]}],
            policyTypes=["Egress"],
        ),
        "metadata": _policy(egress=[{"to": [{"ipBlock": {"cidr": "169.254.169.254/32"}}]}], policyTypes=["Egress"]),
        "one-address": _policy(egress=[{"to": [{"ipBlock": {"cidr": "10.1.2.3/32"}}]}], policyTypes=["Egress"]),
        "bad-range": _policy(egress=[{"to": [{"ipBlock": {"cidr": "10.1.2.3"}}]}], policyTypes=["Egress"]),
        "port-range": _policy(ingress=[{"ports": [{"port": 8000, "endPort": 9000}], "from": [{"podSelector": {}}]}]),
        "named-default": {**_policy(), "metadata": {"name": "default-deny"}},
    },
    ("policy/v1", "PodDisruptionBudget"): {
        "one": {"spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": NAME}}}},
        "half": {"spec": {"maxUnavailable": "50%", "selector": {"matchLabels": {"app": NAME}}}},
        "never": {"spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": NAME}}}},
        "all": {"spec": {"minAvailable": "100%", "selector": {}}},
        "both": {"spec": {"minAvailable": 1, "maxUnavailable": 1, "selector": {}}},
    },
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {
        "cpu": {
            "spec": {
                **_TARGET,
                "maxReplicas": 5,
                "metrics": [
                    {
                        "type": "Resource",
                        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}},
                    }
                ],
            }
        },
        "many": {"spec": {**_TARGET, "minReplicas": 1, "maxReplicas": 1000}},
        "no-maximum": {"spec": _TARGET},
        "reversed": {"spec": {**_TARGET, "minReplicas": 5, "maxReplicas": 2}},
    },
    ("resource.k8s.io/v1", "ResourceClaim"): {
        "gpu": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}},
    },
    ("resource.k8s.io/v1", "ResourceClaimTemplate"): {
        "gpu": {
            "spec": {
                "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.nvidia.com"}}]}}
            }
        },
    },
    ("v1", "LimitRange"): {"defaults": {"spec": _CONTAINER_LIMITS}},
    ("v1", "ResourceQuota"): {"pods": {"spec": {"hard": {"pods": "10"}}}},
    ("v1", "Endpoints"): {"address": {"subsets": [{"addresses": [{"ip": "10.1.2.3"}], "ports": [{"port": 80}]}]}},
    ("discovery.k8s.io/v1", "EndpointSlice"): {"empty": {"addressType": "IPv4", "endpoints": []}},
    ("coordination.k8s.io/v1", "Lease"): {"leader": {"spec": {"holderIdentity": "x"}}},
    ("v1", "PodTemplate"): {"empty": {"template": {"spec": PUBLIC["spec"]}}},
    ("kueue.x-k8s.io/v1beta2", "LocalQueue"): {"own": {"spec": {"clusterQueue": "fraud--train"}}},
    ("monitoring.coreos.com/v1", "ServiceMonitor"): {"plain": {"spec": {"selector": {}, "endpoints": []}}},
    ("cert-manager.io/v1", "Certificate"): {"plain": {"spec": {"secretName": "tls"}}},
    ("serving.knative.dev/v1", "Service"): {"plain": {"spec": {"template": {"spec": PUBLIC["spec"]}}}},
    ("argoproj.io/v1alpha1", "Workflow"): {"plain": {"spec": {"entrypoint": "main"}}},
    ("serving.kserve.io/v1beta1", "InferenceService"): {"plain": {"spec": {"predictor": {}}}},
}
"""Objects beside work: API version and kind, names and what each has."""
_BY_THE_PLATFORM = frozenset(
    {"Service", "ServiceAccount", "Role", "RoleBinding", "NetworkPolicy", "ConfigMap", "Secret"}
)
"""Kinds that are also made by the platform team and by owners."""


def _further_manifests() -> Iterator[Manifest]:
    for (version, kind), entries in _FURTHER_OBJECTS.items():
        roles = (
            ("developer", "owner", "platform")
            if kind in _BY_THE_PLATFORM and "knative" not in version
            else ("developer",)
        )
        for name, body in entries.items():
            metadata = {"name": NAME, **body.get("metadata", {})}
            item = {"apiVersion": version, "kind": kind, **body, "metadata": metadata}
            for role in roles:
                suffix = "" if role == "developer" else f"-by-{role}"
                yield Manifest(f"{kind.lower()}-{name}{suffix}", item, role)
