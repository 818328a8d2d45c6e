"""A program with resources of its own, and beside them one tenant on a cluster that exists."""

import pulumi
import pulumi_kubernetes as kubernetes

from tenancy import GpuPlatform, GpuTenant

cluster = kubernetes.Provider("cluster", context="gpu-tenancy-lab", enable_config_map_mutable=True)
on_cluster = pulumi.ResourceOptions(providers=[cluster])

platform = GpuPlatform("gpu", "environment.yaml", opts=on_cluster)
fraud = GpuTenant(
    "fraud",
    platform=platform,
    # A label that is not the platform's, on one of the tenant's objects.
    customize={"Namespace/fraud--train": {"metadata": {"labels": {"bank.example/wave": "two"}}}},
    opts=on_cluster,
)

# The tenant's own settings; made after its namespace and the isolation in it.
kubernetes.core.v1.ConfigMap(
    "settings",
    metadata={"name": "settings", "namespace": fraud.namespaces["train"]},
    data={"queue": fraud.queues.apply(lambda queues: ", ".join(queues["train"]) or "none")},
    opts=pulumi.ResourceOptions(provider=cluster),
)

for name in ("namespaces", "service_accounts", "role_arns", "queues", "buckets", "sample_job"):
    pulumi.export(name, getattr(fraud, name))
