"""Generates an environment with any number of tenants, always the same for the same number."""

from __future__ import annotations

from pathlib import Path

_ENVIRONMENT = """\
environment: {name}
organisation:
  name: bank
  departments:
    risk: {{title: Risk and Compliance}}
    markets: {{title: Markets}}
    research: {{title: Research}}
platform:
  group: gpu-platform-team
  namespaces: [gpu-operator, kueue-system, monitoring]
cluster:
  name: {name}
  context: {context}
  object-overcommit: 1000
images:
  registries: [registry.bank.example/shared/, "registry.bank.example/teams/{{tenant}}/"]
  sample: registry.bank.example/shared/cuda-sample:13.1
buckets: [bank-datasets, bank-models]
tiers:
  production: {{priority: 100000, gpu-tier: reserved, quota: {{cpu: 200, memory: 800Gi, pods: 200}}}}
  batch: {{priority: 1000}}
  research: {{priority: 100, container: {{max: {{cpu: 32, memory: 128Gi}}}}}}
flavors:
  a100: {{gpu: a100-40gb}}
  h100: {{gpu: h100-80gb}}
  a100-1g.5gb: {{gpu: a100-40gb, mig: 1g.5gb}}
  a100-3g.20gb: {{gpu: a100-40gb, mig: 3g.20gb}}
pools:
  train-a100: {{instance-type: p4d.24xlarge, nodes: {nodes}}}
  train-h100: {{instance-type: p5.48xlarge, nodes: {{min: {nodes}, max: {most}}}}}
  serve-mig:
    instance-type: p4d.24xlarge
    nodes: {{min: {nodes}, max: {most}}}
    mig: {{layout: {{1g.5gb: 4, 3g.20gb: 1}}}}
    tiers: [production]
"""

_TENANT = """\
tenant: {name}
title: Team {number}
team: {name}-engineering
owner: {{name: {name}-leads, mail: {name}-leads@bank.example}}
department: {department}
cost-center: CC-{number:04d}
tier: {tier}
namespaces:
  - {{name: train, purpose: nightly retraining}}
  - {{name: serve, purpose: scoring, tier: production, gpus: {{a100-1g.5gb: 4, a100-3g.20gb: 1}}}}
  - notebooks
people:
  - {{group: {name}-engineers, role: developer}}
  - {{group: {name}-oncall, role: operator, namespaces: [serve]}}
  - {{group: {name}-leads, role: owner}}
  - {{group: auditors, role: viewer}}
gpus:
  a100: {{guaranteed: 8, sharing: lend-and-borrow, lending-limit: 4, borrowing-limit: 16}}
  h100: {{guaranteed: 4, sharing: lend, lending-limit: 4}}
  a100-1g.5gb: {{guaranteed: 4}}
  a100-3g.20gb: {{guaranteed: 1}}
storage:
  - {{bucket: bank-datasets, prefix: teams/{name}/, access: read-write}}
  - {{bucket: bank-datasets, prefix: shared/, access: read-only}}
  - {{bucket: bank-models, prefix: teams/{name}/, access: append-only}}
egress:
  - {{cidr: 198.51.100.{octet}/32, port: 8443}}
budget: {{monthly-usd: {budget}}}
"""

_TIERS = ("production", "batch", "research")
_DEPARTMENTS = ("risk", "markets", "research")


def generate(folder: Path, tenants: int, context: str = "gpu-tenancy-lab") -> Path:
    """Write the spec files of an environment that is named as its folder; every guarantee is covered."""
    (folder / "tenants").mkdir(parents=True, exist_ok=True)
    text = _ENVIRONMENT.format(name=folder.name, context=context, nodes=tenants + 1, most=2 * tenants + 2)
    (folder / "environment.yaml").write_text(text, "utf-8")
    for number in range(tenants):
        (folder / "tenants" / f"team-{number:04d}.yaml").write_text(tenant_text(number), "utf-8")
    return folder


def tenant_text(number: int) -> str:
    tier = _TIERS[number % 3]
    return _TENANT.format(
        name=f"team-{number:04d}",
        number=number,
        department=_DEPARTMENTS[number // 3 % 3],
        tier=tier,
        octet=number % 254 + 1,
        budget=10_000 + 500 * (number % 40),
    )
