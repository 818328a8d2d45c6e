"""Files of an environment with two tenants on AWS."""

from __future__ import annotations

ENVIRONMENT = """\
environment: two
stacks: per-tenant
organisation: {{name: two, departments: {{risk: {{}}}}}}
platform: {{group: gpu-platform-team, chart-mirror: "{charts}"}}
cluster: {{name: two, context: two}}
queues: {{scheduler: none}}
images: {{registries: [registry.bank.example/], sample: "registry.bank.example/sample:1"}}
tiers: {{batch: {{priority: 1000}}}}
buckets: {{two-data: {{}}, two-locked: {{kms-key-scope: tenant}}, two-spare: {{}}}}
aws:
  enabled: true
  account: "111122223333"
  region: eu-central-1
  zones: [eu-central-1a, eu-central-1b]
  platform-role: arn:aws:iam::111122223333:role/gpu-platform
  group-roles: {{fraud-engineers: "arn:aws:iam::111122223333:role/fraud-engineers"}}
  break-glass: {{trusted-principals: ["arn:aws:iam::111122223333:user/emergency"], mail: security@bank.example}}
"""
TENANT = """\
tenant: {name}
team: {name}-team
owner: {{name: {name}-leads, mail: {name}@bank.example}}
department: risk
cost-center: CC-1
tier: batch
people: [{{group: {name}-engineers, role: developer}}]
"""
FRAUD = """\
namespaces: [train, serve]
storage:
  - {bucket: two-data, prefix: teams/fraud/, access: read-write, namespaces: [train]}
  - {bucket: two-locked, prefix: fraud/, access: read-write, namespaces: [train]}
aws-resources: {repositories: [scoring], secrets: [card-network], log-groups: [jobs], sqs-queues: [jobs]}
ci: {github: bank/fraud, branch: main}
budget: {monthly-usd: 1000}
"""
AML = """\
storage:
  - {bucket: two-data, prefix: teams/aml/, access: read-write}
"""
