"""Two teams that share a cluster by Kueue. No label in here is the pack's; `team` says who is who."""

import pulumi
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import LimitRange, Namespace, ResourceQuota
from pulumi_kubernetes.networking.v1 import NetworkPolicy
from pulumi_kubernetes.rbac.v1 import Role, RoleBinding

GPU = "nvidia.com/gpu"
KUEUE = "kueue.x-k8s.io/v1beta2"
RBAC = "rbac.authorization.k8s.io"


class Team(pulumi.ComponentResource):
    def __init__(self, name: str, gpus: int) -> None:
        super().__init__("research:index:Team", name)
        inside = pulumi.ResourceOptions(parent=self)

        def meta(of: str) -> dict:
            return {"name": of, "namespace": name}

        labels = {"team": name, "owner": f"{name}-leads", "department": "research", "cost-center": "1201"}
        labels |= {"product": name, "env": "prod", "tier": "batch", "gpu-tier": "reserved"}
        level = "pod-security.kubernetes.io/enforce"
        labels |= {level: "restricted", f"{level}-version": "v1.36"}
        Namespace(name, metadata={"name": name, "labels": labels}, opts=inside)
        hard = {"requests.cpu": "100", "pods": "100", f"requests.{GPU}": str(gpus)}
        ResourceQuota(f"{name}-quota", metadata=meta("compute"), spec={"hard": hard}, opts=inside)
        limits = [{"type": "Container", "default": {"cpu": "1", "memory": "4Gi"}}]
        LimitRange(f"{name}-limits", metadata=meta("limits"), spec={"limits": limits}, opts=inside)
        both = ["Ingress", "Egress"]
        NetworkPolicy(f"{name}-deny", metadata=meta("deny"), spec={"podSelector": {}, "policyTypes": both}, opts=inside)
        dns = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
        home = {"namespaceSelector": {"matchLabels": {"team": name}}}
        NetworkPolicy(
            f"{name}-home",
            metadata=meta("home"),
            spec={
                "podSelector": {},
                "policyTypes": both,
                "ingress": [{"from": [home]}],
                "egress": [{"to": [home]}, {"to": [dns], "ports": [{"protocol": "UDP", "port": 53}]}],
            },
            opts=inside,
        )
        jobs = [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "list", "create", "delete"]}]
        Role(f"{name}-work", metadata=meta("work"), rules=jobs, opts=inside)
        RoleBinding(
            f"{name}-work",
            metadata=meta("work"),
            role_ref={"apiGroup": RBAC, "kind": "Role", "name": "work"},
            subjects=[{"apiGroup": RBAC, "kind": "Group", "name": f"{name}-engineers"}],
            opts=inside,
        )
        share = {"name": GPU, "nominalQuota": gpus, "lendingLimit": gpus // 2, "borrowingLimit": 8}
        CustomResource(
            f"{name}-share",
            api_version=KUEUE,
            kind="ClusterQueue",
            metadata={"name": name},
            spec={
                "cohortName": "research",
                "namespaceSelector": {"matchLabels": {"team": name}},
                "preemption": {"reclaimWithinCohort": "Any"},
                "resourceGroups": [{"coveredResources": [GPU], "flavors": [{"name": "h100", "resources": [share]}]}],
            },
            opts=inside,
        )
        CustomResource(
            f"{name}-queue",
            api_version=KUEUE,
            kind="LocalQueue",
            metadata=meta("default"),
            spec={"clusterQueue": name},
            opts=inside,
        )
        self.register_outputs({})


CustomResource(
    "h100",
    api_version=KUEUE,
    kind="ResourceFlavor",
    metadata={"name": "h100"},
    spec={"nodeLabels": {"node.example/board": "h100"}},
)
Team("vision", 8)
Team("speech", 16)
