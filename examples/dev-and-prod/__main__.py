"""A stack for each environment; both have the tenants of one folder."""

import pulumi
import pulumi_kubernetes as kubernetes

from tenancy import GpuPlatform, GpuTenant

TENANTS = "tenants"

# Each stack has its own cluster, limits and pools.
environment = f"environments/{pulumi.get_stack()}.yaml"
cluster = kubernetes.Provider("cluster", context=pulumi.Config().require("context"), enable_config_map_mutable=True)
on_cluster = pulumi.ResourceOptions(providers=[cluster])

platform = GpuPlatform("gpu", environment, TENANTS, opts=on_cluster)
for tenant in platform.tenants:
    GpuTenant(tenant.tenant, platform=platform, opts=on_cluster)
pulumi.export("tenants", [tenant.tenant for tenant in platform.tenants])
