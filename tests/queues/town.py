"""A small environment that the stories change: eight nodes of eight A100, and tenants of five or six lines."""

from __future__ import annotations

ENVIRONMENT = """\
environment: town
organisation:
  name: bank
  departments:
    risk: {sharing: lend-and-borrow, weight: 2}
    markets: {sharing: lend-and-borrow, weight: 1}
    research: {sharing: lend-and-borrow}
platform: {group: gpu-platform-team, namespaces: [monitoring]}
cluster: {name: town, context: town, kubernetes: "1.36", cni: vpc-cni}
images:
  registries: [registry.bank.example/shared/]
  sample: registry.bank.example/shared/cuda-sample:13.1
tiers:
  production: {priority: 1000, allow-borrowing: false}
  batch: {priority: 100, interruptible: true, quota: {cpu: 600, memory: 4Ti}}
flavors:
  a100: {gpu: a100-40gb}
  a100-1g.5gb: {gpu: a100-40gb, mig: 1g.5gb}
  a100-3g.20gb: {gpu: a100-40gb, mig: 3g.20gb}
pools:
  train: {instance-type: p4d.24xlarge, nodes: 8}
"""


def tenant(name: str, department: str, gpus: str, tier: str = "batch", more: str = "") -> str:
    """The file of a tenant; `gpus` is its share of A100."""
    return f"""\
tenant: {name}
team: {name}
owner: {{name: {name}-leads, mail: {name}@bank.example}}
department: {department}
cost-center: CC-1
tier: {tier}
people: [{{group: {name}-engineers, role: developer}}]
gpus: {{a100: {{{gpus}}}}}
{more}"""
