"""Environment and tenants as models in Python."""

import pulumi
import pulumi_kubernetes as kubernetes

from tenancy import (
    Cluster,
    Cni,
    Department,
    Environment,
    Flavor,
    GpuPlatform,
    GpuShare,
    GpuTenant,
    Images,
    Namespace,
    Nodes,
    Organisation,
    Owner,
    Person,
    Platform,
    Pool,
    Queues,
    Role,
    Scheduler,
    Tenant,
    Tier,
)

environment = Environment(
    environment="example",
    organisation=Organisation(name="bank", departments={"risk": Department(title="Risk and Compliance")}),
    platform=Platform(group="gpu-platform-team"),
    cluster=Cluster(name="example", context="gpu-tenancy-lab", kubernetes="1.36", cni=Cni.VPC_CNI),
    queues=Queues(scheduler=Scheduler.NONE),
    images=Images(
        registries=("registry.bank.example/shared/",), sample="registry.bank.example/shared/cuda-sample:13.1"
    ),
    tiers={"batch": Tier(priority=1000)},
    flavors={"a100": Flavor(gpu="a100-40gb")},
    pools={
        "train": Pool(instance_type="p4d.24xlarge", nodes=Nodes.fixed(2)),
        "general": Pool(instance_type="m7i.2xlarge", nodes=Nodes.fixed(2)),
    },
)
tenants = [
    Tenant(
        tenant=team,
        team=team,
        owner=Owner(name=f"{team}-leads", mail=f"{team}-leads@bank.example"),
        department="risk",
        cost_center="CC-4411",
        tier="batch",
        namespaces=(Namespace(name="train"),),
        people=(Person(group=f"{team}-engineers", role=Role.DEVELOPER),),
        gpus={"a100": GpuShare(guaranteed=8)},
    )
    for team in ("fraud", "vision")
]

cluster = kubernetes.Provider("cluster", context=environment.cluster.context, enable_config_map_mutable=True)
on_cluster = pulumi.ResourceOptions(providers=[cluster])
platform = GpuPlatform("gpu", environment, tenants, opts=on_cluster)
for tenant in tenants:
    made = GpuTenant(tenant.tenant, platform=platform, opts=on_cluster)
    pulumi.export(tenant.tenant, made.namespaces)
