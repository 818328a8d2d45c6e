"""Each rule that the files are judged by: an input that breaks it, its twin that does not, and a mutant."""

# ruff: noqa: E501 - a case is a row

from __future__ import annotations

from typing import Any

import pytest

from tenancy.catalog.boards import BOARDS
from tenancy.rules.catalogue import RULES
from tenancy.spec import loader
from tenancy.spec.fields import base
from tenancy.verify.claims import SPEC_RULES
from tests.conftest import ENVIRONMENT, in_days
from tests.spec_cases import ENV, FRAUD, RESEARCH, Case, silence

WAIVER = "exceptions:\n  - {rule: %s, namespace: %s, reason: needs a vendor image, owner: a@bank.example, until: %s}\n"
TRAIN = "{name: train, purpose: nightly retraining"
SUITE = (
    "namespaces: [monitoring]\n  temporary-namespaces: [{name: '%s', until: %s, reason: conformance after an upgrade}]"
)


METAL = "sandbox: {handler: kata-qemu, pool: %s}\npools:\n  metal: {instance-type: m7i.metal-24xl, nodes: 1}\n"
MORE = "  more: {instance-type: p4d.24xlarge, %s}\n  serve:\n"
ALIKE, BLOCK = "{reservation: cr-0123abcd}", "{capacity-block: cr-%s, ends: %s}"
RESERVED = (
    f"  one: {{instance-type: p4d.24xlarge, nodes: 1, zones: [eu-central-1a], purchase: {ALIKE}}}\n"
    "  two: {instance-type: %s, nodes: 1, zones: [eu-central-%s], purchase: %s}\n  serve:\n"
)
SHARED_SLICES = (
    "  x: {gpu: a100-40gb, mig: 1g.5gb, gpu-sharing: time-slicing}\npools:\n  more: {instance-type: p4d.24xlarge, nodes: 1, "
    "mig: {layout: {1g.5gb: 1}}, gpu-sharing: {%s: 2}, tenants: [research]}\n"
)
SLICED = """\
  a100-1g.5gb: {gpu: a100-40gb, mig: 1g.5gb}
  l4-shared: {gpu: l4, gpu-sharing: time-slicing}
pools:
  train: {instance-type: p4d.24xlarge, nodes: 4}
  serve:
    instance-type: p4d.24xlarge
    nodes: {min: 1, max: 3}
    mig:
      layout: {1g.5gb: 7}
"""
TWO_BOARDS = (
    SLICED.replace("mig: 1g.5gb}", "mig: 1g.10gb}\n  other: {gpu: a100-80gb, mig: 1g.10gb}")
    .replace("{1g.5gb: 7}", "{1g.10gb: 4}")
    .replace(
        "  serve:\n", "  more: {instance-type: p4de.24xlarge, nodes: 1, mig: {layout: {1g.10gb: 7}}, %s}\n  serve:\n"
    )
)


_FROM, _THEN = ENVIRONMENT.index("  kubernetes:"), "tiers:\n"
TO_TIERS = ENVIRONMENT[_FROM : ENVIRONMENT.index(_THEN) + len(_THEN)]
APART = TO_TIERS.replace('"1.36"', '"%s"') + "  apart: {priority: 1, topology-spread: required}\n"
ON_AWS = """\
  kubernetes: "1.36"
  cni: vpc-cni
images:"""
ON_AWS_TOO = """\
  kubernetes: "%s"
  cni: vpc-cni
aws:
  enabled: true
  account: "111122223333"
  region: eu-central-1
  zones: [eu-central-1a, eu-central-1b]
  platform-role: arn:aws:iam::111122223333:role/platform
images:"""


NEAR = "  cni: vpc-cni\n  node-and-pod-cidrs: [10.64.0.0/16]\naws: {network: {aws-service-cidrs: [%s]}}\n"
SERVICE_RANGES = ON_AWS_TOO.replace("%s", "1.36").replace("aws:\n", "aws:\n  network: {aws-service-cidrs: [%s]}\n")


TIERS = """\
  production:
    priority: 1000
    quota: {cpu: 128, memory: 512Gi, pods: 100, hard: {count/ingresses.networking.k8s.io: 5}}
  batch:
    priority: 100
"""
FIRM_TIERS = TIERS.replace("    quota", "    allow-borrowing: false\n    quota") + "    allow-borrowing: %s\n"

SHARE = "a100: {temporary-shares: [{gpus: 1, starts: 2026-01-01, until: %s, reason: a share of years}], "
WINDOW = (
    "gpu-windows:\n  - {name: close, flavor: a100, gpus: %s, starts: '17:00', ends: '20:00', reclaim-lead-time: %s}\n"
)
FIRST_TIER, METERED = "tiers:\n  production:\n", "metrics: {collector: existing}\n"
TWO_WINDOWS = WINDOW % ("1", "15m") + "  - {name: %s, flavor: a100, gpus: 1, starts: '21:00', ends: '22:00'}\n"


def more_pools(count: int) -> str:
    """So many pools of one node."""
    return "".join(f"  more-{i}: {{instance-type: p4d.24xlarge, nodes: 1}}\n" for i in range(count)) + "  serve:\n"


CASES = (
    Case("double dash", "name-01", FRAUD, "tenant", "tenant: fraud", "tenant: fraud--x", "tenant: fraud-x"),
    Case("dash at the end", "name-01", FRAUD, "tenant", "tenant: fraud", "tenant: fraud-", "tenant: fraud-1"),
    Case("capital letter", "name-01", FRAUD, "tenant", "tenant: fraud", "tenant: Fraud", "tenant: f"),
    Case("digit first", "name-01", FRAUD, "tenant", "tenant: fraud", "tenant: 1fraud", "tenant: f1raud"),
    Case("line break", "name-01", FRAUD, "tenant", "tenant: fraud", r'tenant: "fraud\n"', 'tenant: "fraud"'),
    Case("31 letters", "name-01", FRAUD, "tenant", "tenant: fraud", f"tenant: {'a' * 31}", f"tenant: {'a' * 30}"),
    Case("reserved", "name-01", FRAUD, "tenant", "tenant: fraud", "tenant: default", "tenant: defaults"),
    Case("reserved start", "name-01", FRAUD, "tenant", "tenant: fraud", "tenant: kube-fraud", "tenant: cube-fraud"),
    Case("part", "name-01", FRAUD, "namespaces[0].name", "name: train", "name: Train", "name: train"),
    Case("short part", "name-01", RESEARCH, "namespaces[0]", "people:", "namespaces: [Main]\npeople:", "namespaces: [main]\npeople:"),
    Case("pool", "name-01", ENV, "pools.Train", "  train: {inst", "  Train: {inst", "  train: {inst"),
    Case("a tenant's namespace as the platform's", "name-01", ENV, "platform.namespaces[0]", "namespaces: [monitoring]", "namespaces: [fraud--train]", "namespaces: [fraud-train]"),
    Case("a tenant's namespace as unmanaged", "name-01", ENV, "platform.unmanaged-namespaces[0]", "namespaces: [monitoring]", "namespaces: [monitoring]\n  unmanaged-namespaces: [fraud--train]", "namespaces: [monitoring]\n  unmanaged-namespaces: [fraud-train]"),
    Case("a tenant's namespace as temporary", "name-01", ENV, "platform.temporary-namespaces[0].name", "namespaces: [monitoring]", SUITE % ("fraud--*", in_days(9)), SUITE % ("fraud-*", in_days(9))),
    Case("the platform's namespace as unmanaged", "name-02", ENV, "platform.unmanaged-namespaces[0]", "namespaces: [monitoring]", "namespaces: [monitoring]\n  unmanaged-namespaces: [monitoring]", "namespaces: [monitoring]\n  unmanaged-namespaces: [monitored]"),
    Case("a suite that has ended", "ns-08", ENV, "platform.temporary-namespaces[0].until", "namespaces: [monitoring]", SUITE % ("e2e-*", in_days(-9)), SUITE % ("e2e-*", in_days(9))),
    Case("a suite of years", "ns-08", ENV, "platform.temporary-namespaces[0].until", "namespaces: [monitoring]", SUITE % ("e2e-*", in_days(400)), SUITE % ("e2e-*", in_days(360))),
    Case("metrics in a tenant's namespace", "name-01", ENV, "metrics.namespace", "buckets:", "metrics: {collector: existing, namespace: fraud--train}\nbuckets:", "metrics: {collector: existing, namespace: fraud-train}\nbuckets:"),
    Case("two tenants, one name", "name-02", RESEARCH, "tenant", "tenant: research", "tenant: fraud", "tenant: research"),
    Case("two parts, one name", "name-02", FRAUD, "namespaces[1].name", "name: serve", "name: train", "name: served"),
    Case("twin flavors", "name-02", ENV, "flavors.again", "pools:", "  again: {gpu: l4, gpu-sharing: time-slicing}\npools:", "  again: {gpu: l4}\npools:"),
    Case("other folder", "name-02", ENV, "environment", "environment: small", "environment: smal", "environment: small"),
    Case("other file", "name-02", FRAUD, "tenant", "tenant: fraud", "tenant: research-2", "tenant: fraud"),
    Case("the platform's namespace", "name-03", FRAUD, "namespaces[0].namespace-name", TRAIN, TRAIN + ", namespace-name: monitoring", TRAIN + ", namespace-name: ml-fraud"),
    Case("tier", "ref-01", FRAUD, "tier", "tier: batch", "tier: bach", "tier: batch"),
    Case("tier of a namespace", "ref-01", FRAUD, "namespaces[0].tier", TRAIN, TRAIN + ", tier: prod", TRAIN + ", tier: batch"),
    Case("department", "ref-01", FRAUD, "department", "department: risk", "department: rsik", "department: research"),
    Case("bucket", "ref-01", FRAUD, "storage[0].bucket", "datasets, prefix: teams", "dataset, prefix: teams", "models, prefix: teams"),
    Case("flavor", "ref-01", RESEARCH, "gpus.a10", "  a100:", "  a10:", "  a100:"),
    Case("tier of a pool", "ref-01", ENV, "pools.serve.tiers[0]", "tiers: [production]", "tiers: [prod]", "tiers: [production]"),
    Case("tenant of a pool", "name-01", ENV, "pools.train.tenants[1]", "nodes: 4}", "nodes: 4, tenants: [fraud, To_come], tiers: [batch]}", "nodes: 4, tenants: [fraud, to-come], tiers: [batch]}"),
    Case("pool without flavor", "ref-01", ENV, "pools.more", "  serve:\n", "  more: {instance-type: g5.12xlarge, nodes: 1}\n  serve:\n", "  more: {instance-type: p4d.24xlarge, nodes: 1}\n  serve:\n"),
    Case("instance", "ref-01", ENV, "pools.train.instance-type", "train: {instance-type: p4d.24xlarge", "train: {instance-type: p4d.24xlrge", "train: {instance-type: p4d.24xlarge"),
    Case("part of a person", "ref-01", FRAUD, "people[1].namespaces[0]", "namespaces: [train]", "namespaces: [trian]", "namespaces: [serve]"),
    Case("quota above the tier's", "ref-01", FRAUD, "namespaces[1].quota.pods", "pods: 20", "pods: 101", "pods: 100"),
    Case("limit above the tier's", "ref-01", FRAUD, "namespaces[1].quota.cpu-limit", "cpu: 16", "cpu-limit: 257", "cpu-limit: 256"),
    Case("key above the tier's", "ref-01", FRAUD, "namespaces[1].quota.hard.count/ingresses.networking.k8s.io", "cpu: 16", "hard: {count/ingresses.networking.k8s.io: 6}", "hard: {count/ingresses.networking.k8s.io: 5}"),
    Case("all users", "rbac-05", FRAUD, "people[0].group", "group: fraud-engineers", "group: system:authenticated", "group: engineers"),
    Case("system user", "rbac-05", FRAUD, "people[2].user", "user: jane@bank.example", "user: system:admin", "user: admin@bank.example"),
    Case("the platform's group", "rbac-05", FRAUD, "people[0].group", "group: fraud-engineers", "group: gpu-platform-team", "group: gpu-platform"),
    Case("system group as platform", "rbac-05", ENV, "platform.group", "group: gpu-platform-team", "group: system:masters", "group: masters"),
    Case("another tenant's group", "rbac-05", RESEARCH, "people[0].group", "group: researchers, role: developer", "group: fraud-engineers, role: developer", "group: fraud-engineers, role: viewer"),
    Case("everywhere", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "0.0.0.0/0", "198.0.0.0/8"),
    Case("instance metadata", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "169.254.169.254/32", "169.253.169.254/32"),
    Case("around instance metadata", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "168.0.0.0/6", "168.0.0.0/8"),
    Case("metadata in IPv6", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "'::ffff:169.254.169.254/128'", "'2001:db8::/64'"),
    Case("much in pieces", "net-05", FRAUD, "egress[2].cidr", "  - {cidr: 198.51.100.0/24, port: 8443}\n", "  - {cidr: 198.0.0.0/9, port: 443}\n  - {cidr: 198.128.0.0/9, port: 80}\n  - {cidr: 200.0.0.0/8, port: 443}\n", "  - {cidr: 198.0.0.0/9, port: 443}\n  - {cidr: 198.128.0.0/9, port: 80}\n  - {cidr: 198.0.0.0/8, port: 443}\n"),
    Case("a private range in halves", "net-05", FRAUD, "egress", "  - {cidr: 198.51.100.0/24, port: 8443}\n", "  - {cidr: 192.168.0.0/17, port: 443}\n  - {cidr: 192.168.128.0/17, port: 443}\n", "  - {cidr: 192.168.0.0/17, port: 443}\n  - {cidr: 192.168.128.0/18, port: 443}\n"),
    Case("services of the cluster", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "172.20.0.0/16", "172.21.0.0/16"),
    Case("the cluster's other choice for services", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "10.0.0.0/8", "11.0.0.0/8"),
    Case("one service of the cluster", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "172.20.0.1/32", "172.19.0.1/32"),
    Case("endpoints where all nodes and pods are", "net-05", ENV, "aws.network.aws-service-cidrs[0]", "  cni: vpc-cni\n", NEAR % "10.64.0.0/16", NEAR % "10.64.250.0/24"),
    Case("endpoints around all nodes and pods", "net-05", ENV, "aws.network.aws-service-cidrs[0]", "  cni: vpc-cni\n", NEAR % "10.64.0.0/12", NEAR % "10.80.0.0/12"),
    Case("endpoints where services are", "net-05", ENV, "aws.network.aws-service-cidrs[0]", "  cni: vpc-cni\n", NEAR % "172.20.0.1/32", NEAR % "172.21.0.1/32"),
    Case("endpoints among pods, by a range", "net-05", ENV, "aws.network.aws-service-cidrs[0]", ON_AWS, SERVICE_RANGES % "10.64.0.16/28", SERVICE_RANGES % "10.64.0.16/32"),
    Case("host bits", "net-05", FRAUD, "egress[0].cidr", "198.51.100.0/24", "198.51.100.7/24", "198.51.100.7/32"),
    Case("host name", "net-06", FRAUD, "egress[0].dns", "cidr: 198.51.100.0/24", "dns: api.vendor.example", "cidr: 198.51.100.0/24"),
    Case("prefix without slash", "stor-01", FRAUD, "storage[0].prefix", "teams/fraud/", "teams/fraud", "teams/fraud/"),
    Case("absolute prefix", "stor-01", FRAUD, "storage[0].prefix", "teams/fraud/", "/teams/fraud/", "teams/fraud/"),
    Case("prefix upwards", "stor-01", FRAUD, "storage[0].prefix", "teams/fraud/", "teams/../fraud/", "teams/..fraud/"),
    Case("wildcard", "stor-01", FRAUD, "storage[0].prefix", "teams/fraud/", "teams/*/", "teams/x/"),
    Case("policy variable", "stor-01", FRAUD, "storage[0].prefix", "teams/fraud/", "'teams/${aws:username}/'", "teams/username/"),
    Case("prefix of six characters for one in a policy", "stor-01", FRAUD, "storage[0].prefix", "teams/fraud/", "teams/fräud/", "teams/fraeud/"),
    Case("prefix of two characters for one in a policy", "stor-01", FRAUD, "storage[0].prefix", "teams/fraud/", """'teams/"fraud/'""", """"teams/'fraud/\""""),
    Case("one reads what the other writes", "stor-02", RESEARCH, "storage[0].prefix", "prefix: shared/", "prefix: teams/", "prefix: team/"),
    Case("one prefix, one writer", "stor-02", RESEARCH, "storage[0].prefix", "prefix: shared/", "prefix: shared/, access: write-once", "prefix: shared/, access: read-only"),
    Case("strict that lends", "share-01", RESEARCH, "gpus.a100.lending-limit", "{guaranteed: 8}", "{guaranteed: 8, lending-limit: 1}", "{guaranteed: 8, sharing: lend, lending-limit: 1}"),
    Case("lends too much", "share-01", FRAUD, "gpus.a100.lending-limit", "lending-limit: 8", "lending-limit: 17", "lending-limit: 16"),
    Case("borrows without preset", "share-01", RESEARCH, "gpus.a100.borrowing-limit", "{guaranteed: 8}", "{guaranteed: 8, sharing: lend, borrowing-limit: 1}", "{guaranteed: 8, sharing: lend-and-borrow, borrowing-limit: 1}"),
    Case("parts claim too much", "share-01", FRAUD, "namespaces[1].gpus.a100-1g.5gb", "a100-1g.5gb: 14}, quota: {cpu: 16, pods: 20}", "a100-1g.5gb: 15}, quota: {pods: 30}", "a100-1g.5gb: 14, a100: 16}, quota: {pods: 30}"),
    Case("part claims without a share", "share-01", FRAUD, "namespaces[1].gpus.l4-shared", "{a100-1g.5gb: 14}, quota", "{a100-1g.5gb: 14, l4-shared: 1}, quota", "{a100-1g.5gb: 14, a100: 1}, quota"),
    Case("no pool admits the tenant", "pool-01", FRAUD, "gpus.l4-shared", "storage:", "  l4-shared: {guaranteed: 0}\nstorage:", "storage:"),
    Case("no pool admits the part", "pool-01", FRAUD, "gpus.a100-1g.5gb", ", gpus: {a100-1g.5gb: 14}", "", ", gpus: {a100-1g.5gb: 14}"),
    Case("replicas for two", "pool-02", ENV, "pools.notebooks.gpu-sharing", "tenants: [research]", "tenants: [research, fraud]", "tenants: [research]"),
    Case("replicas for a tier", "pool-02", ENV, "pools.notebooks.gpu-sharing", "tenants: [research]", "tenants: [research]\n    tiers: [batch]", "tenants: [research]"),
    Case("replicas for all tenants", "pool-02", ENV, "pools.more.gpu-sharing", "  serve:\n", "  more: {instance-type: g6.12xlarge, nodes: 1, gpu-sharing: {time-slicing: 2}}\n  serve:\n", "  more: {instance-type: g6.12xlarge, nodes: 1, gpu-sharing: {time-slicing: 2}, tenants: [research]}\n  serve:\n"),
    Case("more than the nodes have", "pool-03", FRAUD, "gpus.a100.guaranteed", "a100: {guaranteed: 16", "a100: {guaranteed: 25", "a100: {guaranteed: 24"),
    Case("autoscaled beyond its minimum", "pool-03", ENV, "", "{min: 1, max: 3}", "{min: 0, max: 3}", "{min: 1, max: 1}"),
    Case("enough, but in another's pool", "pool-03", ENV, "", "train: {instance-type: p4d.24xlarge, nodes: 4}", "train: {instance-type: p4d.24xlarge, nodes: 1}\n  more: {instance-type: p4d.24xlarge, nodes: 9, tenants: [research]}", "train: {instance-type: p4d.24xlarge, nodes: 2}\n  more: {instance-type: p4d.24xlarge, nodes: 1, tenants: [research]}"),
    Case("memory", "mig-01", ENV, "pools.serve.mig.layout", "{1g.5gb: 7}", "{3g.20gb: 2, 1g.5gb: 1}", "{3g.20gb: 1, 1g.5gb: 4}"),
    Case("too many slices", "mig-01", ENV, "pools.serve.mig.layout", "{1g.5gb: 7}", "{1g.5gb: 8}", "{1g.5gb: 7}"),
    Case("profile of another board", "mig-01", ENV, "flavors.a100-1g.5gb.mig", "mig: 1g.5gb}", "mig: 1g.18gb}", "mig: 1g.5gb}"),
    Case("board without MIG", "mig-01", ENV, "flavors.x.mig", "pools:", "  x: {gpu: l4, mig: 1g.5gb}\npools:", "  x: {gpu: l4}\npools:"),
    Case("not waivable", "exc-01", FRAUD, "exceptions[0].rule", "budget:", WAIVER % ("ns-01", "train", in_days(360)) + "budget:", WAIVER % ("ns-03", "train", in_days(360)) + "budget:"),
    Case("unknown part", "exc-01", FRAUD, "exceptions[0].namespace", "budget:", WAIVER % ("ns-03", "trian", in_days(360)) + "budget:", WAIVER % ("ns-03", "train", in_days(360)) + "budget:"),
    Case("past", "exc-01", FRAUD, "exceptions[0].until", "budget:", WAIVER % ("ns-03", "train", in_days(-9)) + "budget:", WAIVER % ("ns-03", "train", in_days(9)) + "budget:"),
    Case("further ahead than a year", "exc-01", FRAUD, "exceptions[0].until", "budget:", WAIVER % ("ns-03", "train", in_days(400)) + "budget:", WAIVER % ("ns-03", "train", in_days(360)) + "budget:"),
    Case("for one thing twice", "exc-01", FRAUD, "exceptions[1]", "budget:", WAIVER % ("ns-03", "train", in_days(8)) + WAIVER.partition("\n")[2] % ("ns-03", "train", in_days(9)) + "budget:", WAIVER % ("ns-03", "train", in_days(8)) + WAIVER.partition("\n")[2] % ("ns-03", "serve", in_days(9)) + "budget:"),
    Case("baseline", "ns-03", FRAUD, "namespaces[0].pod-security", TRAIN, TRAIN + ", pod-security: baseline", TRAIN + ", pod-security: restricted"),
    Case("virtual clusters of nothing", "iso-03", FRAUD, "isolation", "tier: batch", "tier: batch\nisolation: virtual-cluster", "tier: batch\nisolation: namespace"),
    Case("MPS of slices", "pool-08", ENV, "flavors.x.gpu-sharing", "pools:", "  x: {gpu: a100-40gb, mig: 2g.10gb, gpu-sharing: mps}\npools:", "  x: {gpu: a100-40gb, mig: 2g.10gb, gpu-sharing: time-slicing}\npools:"),
    Case("sliced pool under MPS", "pool-08", ENV, "pools.more.gpu-sharing.mps", "pools:\n", SHARED_SLICES % "mps", SHARED_SLICES % "time-slicing"),
    Case("single beside whole GPUs", "mig-02", ENV, "pools.serve.mig.strategy", "      layout: {1g.5gb: 7}", "      layout: {1g.5gb: 7}\n      strategy: single", "      layout: {1g.5gb: 7}\n      strategy: mixed"),
    Case("one name, two slices", "mig-03", ENV, "pools.serve", SLICED, TWO_BOARDS % "tiers: [production]", TWO_BOARDS % "tenants: [research]"),
    Case("more replicas than pods", "pool-04", ENV, "pools.notebooks.gpu-sharing", "g6.12xlarge\n    nodes: 1\n    gpu-sharing: {time-slicing: 4}", "g6.48xlarge\n    nodes: 1\n    gpu-sharing: {time-slicing: 30}", "g6.48xlarge\n    nodes: 1\n    gpu-sharing: {time-slicing: 29}"),
    Case("production on spot", "pool-05", ENV, "pools.more.tiers[0]", "  serve:\n", MORE % "nodes: {max: 3}, purchase: spot, tiers: [production]", MORE % "nodes: {max: 3}, purchase: spot, tiers: [batch]"),
    Case("EFA for two", "pool-06", ENV, "pools.more.efa", "  serve:\n", MORE % "nodes: 1, efa: on, zones: [eu-central-1a], tenants: [research, fraud]", MORE % "nodes: 1, efa: on, zones: [eu-central-1a], tenants: [research]"),
    Case("EFA over zones", "pool-06", ENV, "pools.more.zones", "  serve:\n", MORE % "nodes: 1, efa: on, zones: [eu-central-1a, eu-central-1b], tenants: [research]", MORE % "nodes: 1, efa: on, zones: [eu-central-1a], tenants: [research]"),
    Case("managed range", "pool-07", ENV, "pools.more.provisioner", "  serve:\n", MORE % "nodes: {min: 1, max: 2}, provisioner: managed", MORE % "nodes: {min: 1, max: 2}, provisioner: karpenter"),
    Case("nodes of Auto Mode cut", "pool-10", ENV, "pools.serve.mig", "    tiers: [production]", "    tiers: [production]\n    provisioner: auto-mode", "    tiers: [production]\n    provisioner: karpenter"),
    Case("promised spot", "pool-07", ENV, "pools.more.nodes.min", "  serve:\n", MORE % "nodes: {min: 1, max: 2}, purchase: spot, tiers: [batch]", MORE % "nodes: {min: 0, max: 2}, purchase: spot, tiers: [batch]"),
    Case("reservation without a zone", "pool-07", ENV, "pools.more.zones", "  serve:\n", MORE % "nodes: 1, purchase: {reservation: cr-0123abcd}", MORE % "nodes: 1, zones: [eu-central-1a], purchase: {reservation: cr-0123abcd}"),
    Case("one reservation of two types", "pool-07", ENV, "pools.two.purchase.reservation", "  serve:\n", RESERVED % ("m7i.xlarge", "1a", ALIKE), RESERVED % ("p4d.24xlarge", "1a", ALIKE)),
    Case("one reservation in two zones", "pool-07", ENV, "pools.two.purchase.reservation", "  serve:\n", RESERVED % ("p4d.24xlarge", "1b", ALIKE), RESERVED % ("p4d.24xlarge", "1a", ALIKE)),
    Case("one reservation of two kinds", "pool-07", ENV, "pools.two.purchase.capacity-block", "  serve:\n", RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("0123abcd", in_days(9))), RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("1123abcd", in_days(9)))),
    Case("a block that ends before it begins", "pool-07", ENV, "pools.two.purchase.starts", "  serve:\n", RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("1123abcd", f"{in_days(9)}, starts: {in_days(9)}")), RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("1123abcd", f"{in_days(9)}, starts: {in_days(8)}"))),
    Case("a block further ahead than any", "pool-07", ENV, "pools.two.purchase.starts", "  serve:\n", RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("1123abcd", f"{in_days(99)}, starts: {in_days(58)}")), RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("1123abcd", f"{in_days(99)}, starts: {in_days(55)}"))),
    Case("one block that begins twice", "pool-07", ENV, "pools.two.purchase.capacity-block", "  serve:\n", RESERVED.replace(ALIKE, BLOCK % ("0123abcd", in_days(9))) % ("p4d.24xlarge", "1a", BLOCK % ("0123abcd", f"{in_days(9)}, starts: {in_days(8)}")), RESERVED.replace(ALIKE, BLOCK % ("0123abcd", in_days(9))) % ("p4d.24xlarge", "1a", BLOCK % ("0123abcd", in_days(9)))),
    Case("a block longer than any", "pool-07", ENV, "pools.two.purchase.ends", "  serve:\n", RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("1123abcd", in_days(300))), RESERVED % ("p4d.24xlarge", "1a", BLOCK % ("1123abcd", in_days(200)))),
    Case("part of a GPU", "pool-09", ENV, "pools.more.instance-type", "  serve:\n", "  more: {instance-type: g6f.xlarge, nodes: 1, gpu-sharing: {time-slicing: 2}, tenants: [research]}\n  serve:\n", "  more: {instance-type: g6.xlarge, nodes: 1, gpu-sharing: {time-slicing: 2}, tenants: [research]}\n  serve:\n"),
    Case("no NVIDIA GPU", "pool-09", ENV, "pools.more.instance-type", "  serve:\n", "  more: {instance-type: trn2.48xlarge, nodes: 1}\n  serve:\n", "  more: {instance-type: p4d.24xlarge, nodes: 1}\n  serve:\n"),
    Case("old image of a pool", "ami-01", ENV, "pools.more.ami-release", "  serve:\n", MORE % "nodes: 1, ami-release: v20260423", MORE % "nodes: 1, ami-release: v20260903"),
    Case("old image", "ami-01", ENV, "aws.ami-release", "buckets:", "aws: {ami-release: v20250101}\nbuckets:", "aws: {ami-release: v20260903}\nbuckets:"),
    Case("an image to come", "ami-01", ENV, "aws.ami-release", "buckets:", f"aws: {{ami-release: v{in_days(9).replace('-', '')}}}\nbuckets:", f"aws: {{ami-release: v{in_days(-9).replace('-', '')}}}\nbuckets:"),
    Case("API server for all addresses", "eks-01", ENV, "aws.public-access-cidrs[0]", "buckets:", "aws: {public-access-cidrs: [0.0.0.0/0]}\nbuckets:", "aws: {public-access-cidrs: [198.51.100.0/24]}\nbuckets:"),
    Case("Karpenter on a Kubernetes to come", "ver-01", ENV, "cluster.kubernetes", ON_AWS, ON_AWS_TOO % "1.37", ON_AWS_TOO % "1.36"),
    Case("a region that AWS has not", "ref-01", ENV, "aws.region", ON_AWS, (ON_AWS_TOO % "1.36").replace("central-1", "central-9"), (ON_AWS_TOO % "1.36").replace("central-1", "central-2")),
    Case("a label that the scheduler reads", "cost-04", ENV, "organisation.label-keys[0]", "  departments:", "  label-keys: [topology.kubernetes.io/zone]\n  departments:", "  label-keys: [topology.bank.example/zone]\n  departments:"),
    Case("a cost label of the product's own", "cost-04", ENV, "organisation.label-keys[0]", "  departments:", "  label-keys: [team]\n  departments:", "  label-keys: [teams]\n  departments:"),
    Case("replicas kept apart on an old cluster", "ver-01", ENV, "tiers.apart.topology-spread", TO_TIERS, APART % "1.35", APART % "1.36"),
    Case("claims on an old cluster", "dra-01", ENV, "cluster.devices", 'kubernetes: "1.36"', 'kubernetes: "1.33"\n  devices: dra', 'kubernetes: "1.33"\n  devices: plugin'),
    Case("sample from elsewhere", "img-01", ENV, "images.sample", "sample: registry.bank.example/shared/", "sample: docker.io/", "sample: registry.bank.example/shared/cuda/"),
    Case("sample by a way around", "img-01", ENV, "images.sample", "shared/cuda-sample:13.1", "shared/../cuda-sample:13.1", "shared/x/cuda-sample:13.1"),
    Case("sample by an empty part", "img-01", ENV, "images.sample", "shared/cuda-sample:13.1", "shared//cuda-sample:13.1", "shared/c/uda-sample:13.0"),
    Case("sample by an escaped way", "img-01", ENV, "images.sample", "shared/cuda-sample:13.1", "shared/x%2f..%2fcuda-sample:13.1", "shared/x-2f..-2fcuda-sample:13.1"),
    Case("sample by half a digest", "img-02", ENV, "images.sample", "cuda-sample:13.1", "cuda-sample:13.1@sha256:abc", f"cuda-sample:13.1@sha256:{'a' * 64}"),
    Case("sample of the day", "img-02", ENV, "images.sample", "cuda-sample:13.1", "cuda-sample:latest", "cuda-sample:12.9"),
    Case("sample by tag for a tier of digests", "img-02", ENV, "images.sample", "  batch:\n    priority: 100\n", "  batch:\n    priority: 100\n    allow-image-tags: false\n", "  batch:\n    priority: 100\n    allow-image-tags: true\n"),
    Case("own nodes and GPUs of all", "iso-01", RESEARCH, "gpus.a100", "tier: batch", "tier: batch\nisolation: dedicated-nodes", "tier: batch\nisolation: namespace"),
    Case("sandboxes in virtual machines", "iso-02", ENV, "sandbox.pool", "pools:\n", METAL % "train", METAL % "metal"),
    Case("a runtime for sandboxes on no pool", "ref-01", ENV, "sandbox.pool", "pools:\n", METAL % "metl", METAL % "metal"),
    Case("an account that no namespace has", "ref-01", FRAUD, "gpu-users[0].service-account", "budget:", "gpu-users: [{service-account: train/night}]\nbudget:", "gpu-users: [{group: fraud-engineers}]\nbudget:"),
    Case("GPUs for a group without a role", "ref-01", FRAUD, "gpu-users[0].group", "budget:", "gpu-users: [{group: fraud-night}]\nbudget:", "gpu-users: [{group: fraud-leads}]\nbudget:"),
    Case("GPUs for who only looks", "ref-01", FRAUD, "gpu-users[0].user", "budget:", "gpu-users: [{user: jane@bank.example}]\nbudget:", "gpu-users: [{user: joan@bank.example}]\nbudget:"),
    Case("GPUs where a group has no role", "ref-01", FRAUD, "gpu-users[0].group", "budget:", "gpu-users: [{group: fraud-leads, namespaces: [serve]}]\nbudget:", "gpu-users: [{group: fraud-leads, namespaces: [train]}]\nbudget:"),
    Case("an account twice", "name-02", FRAUD, "namespaces[0].service-accounts[0]", TRAIN, TRAIN + ", service-accounts: [workload]", TRAIN + ", service-accounts: [night]"),
    Case("encryption by who cannot", "net-09", ENV, "cluster.encryption", "  cni: vpc-cni\n", "  cni: vpc-cni\n  encryption: wireguard\n", "  cni: cilium\n  encryption: wireguard\n"),
    Case("limits of a GPU", "quota-01", ENV, "tiers.production.quota.hard.limits.nvidia.com/gpu", "hard: {", "hard: {limits.nvidia.com/gpu: 1, ", "hard: {requests.example.com/fuse: 1, "),
    Case("a key that the API server refuses", "quota-01", ENV, "tiers.production.quota.hard.count/a/b", "hard: {", "hard: {count/a/b: 1, ", "hard: {count/a.b: 1, "),
    Case("GPU in the limit range", "quota-02", ENV, "tiers.batch.container.max.nvidia.com/gpu", "memory: 128Gi}", "nvidia.com/gpu: 1}", "memory: 64Gi}"),
    Case("borrows with no tier that may", "share-03", ENV, "", TIERS, FIRM_TIERS % "false", FIRM_TIERS % "true"),
    Case("lends and borrows without a queue", "share-04", ENV, "", "buckets:", "queues: {scheduler: none}\nbuckets:", "queues: {scheduler: kueue}\nbuckets:"),
    Case("a window without a clock", "time-01", FRAUD, "gpu-windows", "budget:", WINDOW % ("8", "15m") + "budget:", "budget:"),
    Case("more than there is in a window", "time-02", FRAUD, "gpu-windows[0].gpus", "budget:", WINDOW % ("9", "15m") + "budget:", WINDOW % ("8", "15m") + "budget:", clock=True),
    Case("a share until a day that is not judged", "time-02", FRAUD, "gpus.a100.temporary-shares[0].until", "a100: {", SHARE % in_days(1099), SHARE % in_days(1090), clock=True),
    Case("a lead no longer than a grace period", "time-03", FRAUD, "gpu-windows[0].reclaim-lead-time", "budget:", WINDOW % ("8", "10m") + "budget:", WINDOW % ("8", "11m") + "budget:", clock=True),
    Case("a lead after which Kueue gives up", "time-03", FRAUD, "gpu-windows[0].reclaim-lead-time", "budget:", WINDOW % ("8", "21m") + "budget:", WINDOW % ("8", "20m") + "budget:", clock=True),
    Case("a budget in dollars without prices", "time-04", FRAUD, "budget.when-spent", "180000}", "180000, when-spent: hold}", "180000, when-spent: hold, monthly-gpu-hours: 9}", clock=True),
    Case("an idle rule without a clock", "time-05", ENV, "tiers.production.idle", FIRST_TIER, METERED + FIRST_TIER + "    idle: {}\n", FIRST_TIER),
    Case("an idle rule without metrics", "time-05", ENV, "tiers.production.idle", FIRST_TIER, FIRST_TIER + "    idle: {}\n", METERED + FIRST_TIER + "    idle: {}\n", clock=True),
    Case("work that is suspended and does not tolerate it", "time-06", ENV, "tiers.production.idle.action", FIRST_TIER, METERED + FIRST_TIER + "    idle: {action: suspend}\n", METERED + FIRST_TIER + "    idle: {action: alert}\n", clock=True),
    Case("a window of a flavor without a share", "share-01", FRAUD, "gpu-windows[0].flavor", "budget:", WINDOW.replace("a100", "l4-shared") % ("8", "15m") + "budget:", WINDOW % ("8", "15m") + "budget:", clock=True),
    Case("two windows of one name", "name-02", FRAUD, "gpu-windows[1].name", "budget:", TWO_WINDOWS % "close" + "budget:", TWO_WINDOWS % "open" + "budget:", clock=True),
    Case("price of a board that does not exist", "ref-01", ENV, "prices.l5", "buckets:", "prices: {l4: 0.8, a100-40gb: 2.50, l5: 1}\nbuckets:", "prices: {l4: 0.8, a100-40gb: 2.50, l40s: 1}\nbuckets:"),
    Case("a board without a price", "price-01", ENV, "prices", "buckets:", "prices: {l4: 0.8}\nbuckets:", "prices: {l4: 0.8, a100-40gb: 2.50}\nbuckets:"),
    Case("kind of work", "ref-01", ENV, "queues.kinds[0]", "buckets:", "queues: {kinds: [rayclusters]}\nbuckets:", "queues: {kinds: [raycluster]}\nbuckets:"),
    Case("kind without what it is made of", "ref-01", ENV, "queues.kinds[0]", "buckets:", "queues: {kinds: [rayjob]}\nbuckets:", "queues: {kinds: [rayjob, raycluster]}\nbuckets:"),
    Case("queue called default", "name-02", FRAUD, "namespaces[0].queues.default", TRAIN, TRAIN + ", queues: {default: 2}", TRAIN + ", queues: {urgent: 2}, weight: 2"),
    Case("65 pools with GPUs", "queue-01", ENV, "pools", "  serve:\n", more_pools(62), more_pools(61)),
    Case("a namespace's quota without room for the default", "queue-02", RESEARCH, "namespaces[0].quota", "people:", "namespaces: [{name: main, quota: {cpu: 11, cpu-limit: 48}}]\npeople:", "namespaces: [{name: main, quota: {cpu: 12, cpu-limit: 48}}]\npeople:"),
    *(
        Case(f"a namespace's {field} without room for the default", "queue-02", RESEARCH, "namespaces[0].quota", "people:", f"namespaces: [{{name: main, quota: {{{field}: {bad}}}}}]\npeople:", f"namespaces: [{{name: main, quota: {{{field}: {good}}}}}]\npeople:")
        for field, bad, good in (("memory", "47Gi, memory-limit: 192Gi", "48Gi, memory-limit: 192Gi"), ("cpu-limit", "47, cpu: 12", "48, cpu: 12"), ("memory-limit", "191Gi, memory: 48Gi", "192Gi, memory: 48Gi"), ("ephemeral-storage", "239Gi", "240Gi"), ("pods", "23", "24"))
    ),
    Case("work of one tenant that Kueue has no memory for", "queue-03", ENV, "", "pods: 100,", "pods: 100, jobs: 4700, ended-pods: 0,", "pods: 100, jobs: 2000, ended-pods: 0,"),
    Case("more than one tenant may store", "quota-06", ENV, "", "pods: 100,", "pods: 100, cron-jobs: 40000,", "pods: 100, cron-jobs: 4000,"),
    Case("a tier's quota without room for the default", "queue-02", ENV, "", "max: {cpu: 32, memory: 128Gi}", "default: {cpu: 4, memory: 8Gi}\n      default-request: {cpu: 3}", "default: {cpu: 4, memory: 8Gi}\n      default-request: {cpu: 2}"),
)  # fmt: skip

CONSEQUENCES = {
    "part",  # the person who names it has no such part
    "two tenants, one name",  # research is gone from its pool
    "tier of a pool",  # production is gone from its pool
    "instance",  # nothing is known of its GPUs
    "no NVIDIA GPU",  # and of these nothing either
    "parts claim too much",  # more than the pools have
    "memory",  # the slices that fraud holds are gone
    "profile of another board",  # no pool yields it
    "sliced pool under MPS",  # and no flavor is what it yields
    "replicas for two",  # one of them has a part in production
    "replicas for all tenants",  # production among them
}
"""Cases whose input breaks a second rule once the first is off."""

_IDS = [f"{case.rule} {case.about}" for case in CASES]
ALONE = [case for case in CASES if case.about not in CONSEQUENCES]
for_each_case = pytest.mark.parametrize("case", CASES, ids=_IDS)


@for_each_case
def test_the_broken_rule_is_named_where_it_is_broken(spec: Any, case: Case) -> None:
    case.write(spec, case.bad)
    problems = [(p.id, p.field) for p in spec.problems() if p.file.endswith(case.file) or not case.field]
    assert case.rule in {rule for rule, _ in problems}, f"{case.rule} should refuse {case.bad!r}"
    if case.field:
        assert (case.rule, case.field) in problems, "the field is the one to change"


@for_each_case
def test_the_twin_is_admitted(spec: Any, case: Case) -> None:
    case.write(spec, case.good)
    if case.rule == "name-01" and case.file == FRAUD:
        assert "name-01" not in {p.id for p in spec.problems()}
    else:
        assert spec.problems() == ()


@pytest.mark.parametrize("case", ALONE, ids=[f"{case.rule} {case.about}" for case in ALONE])
def test_without_the_rule_nothing_else_says_that_it_was_broken(
    spec: Any, case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case.rule == "name-01":
        monkeypatch.setattr(base, "name_misfit", lambda *_: None)
    silence(case.rule, monkeypatch)
    if case.about == "other folder":
        monkeypatch.setattr(loader, "_misnamed", lambda *_: iter(()))
    if case.field == "tenant":
        monkeypatch.setattr(loader, "_misfiled", lambda *_: iter(()))
    case.write(spec, case.bad)
    assert spec.problems() == (), "the rule alone should stand against this input"


def test_every_rule_that_reading_enforces_has_a_case() -> None:
    """Those on AWS have theirs in a file of their own."""
    from tests.aws_cases import CASES as ON_ACCOUNT

    assert {case.rule for case in (*ALONE, *ON_ACCOUNT)} == set(SPEC_RULES)


def test_every_rule_of_a_case_is_in_the_catalogue() -> None:
    assert {case.rule for case in CASES} <= set(RULES)


def test_a_waiver_admits_what_it_names(spec: Any) -> None:
    spec.edit(FRAUD, TRAIN, TRAIN + ", pod-security: baseline")
    spec.add(FRAUD, WAIVER % ("ns-03", "train", in_days(366)))
    assert spec.problems() == ()


@pytest.mark.parametrize(("days", "wrong"), [(-1, 1), (0, 0), (366, 0), (367, 1)])
def test_a_waiver_ends_today_or_within_a_year(spec: Any, days: int, wrong: int) -> None:
    spec.edit(FRAUD, TRAIN, TRAIN + ", pod-security: baseline")
    spec.add(FRAUD, WAIVER % ("ns-03", "train", in_days(days)))
    assert [problem.id for problem in spec.problems()] == ["exc-01"] * wrong


@pytest.mark.parametrize(("days", "wrong"), [(-1, 1), (0, 0), (366, 0), (367, 1)])
def test_temporary_namespaces_end_today_or_within_a_year(spec: Any, days: int, wrong: int) -> None:
    spec.edit(ENV, "namespaces: [monitoring]", SUITE % ("e2e-*", in_days(days)))
    assert [problem.id for problem in spec.problems()] == ["ns-08"] * wrong


def test_a_waiver_for_one_namespace_admits_nothing_in_another(spec: Any) -> None:
    spec.edit(FRAUD, TRAIN, TRAIN + ", pod-security: baseline")
    spec.add(FRAUD, WAIVER % ("ns-03", "serve", in_days(366)))
    assert spec.problem().id == "ns-03"


def test_a_mig_layout_that_does_not_fit_shows_its_sum(spec: Any) -> None:
    spec.edit(ENV, "{1g.5gb: 7}", "{3g.20gb: 2, 1g.5gb: 1}")
    assert "4 + 4 + 1 = 9 of 8" in spec.problems()[0].given


def test_an_unknown_instance_is_answered_with_the_nearest(spec: Any) -> None:
    spec.edit(ENV, "train: {instance-type: p4d.24xlarge", "train: {instance-type: p4d.24xlrge")
    assert "p4d.24xlarge" in spec.problem().change


def test_an_oversold_flavor_shows_who_holds_what(spec: Any) -> None:
    spec.edit(FRAUD, "a100: {guaranteed: 16", "a100: {guaranteed: 49")
    assert spec.problem().given == "fraud 49 + research 8 = 57 guaranteed of 32 a100 in train"


@pytest.mark.parametrize(("cidr", "refused"), [("192.168.96.0/24", True), ("172.20.0.0/16", False)])
def test_a_cluster_that_says_where_its_services_are_closes_that_range_alone(
    spec: Any, cidr: str, refused: bool
) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", "  cni: vpc-cni\n  service-cidr: 192.168.0.0/16\n")
    spec.edit(FRAUD, "198.51.100.0/24", cidr)
    assert [problem.id for problem in spec.problems()] == ["net-05"] * refused


def test_a_source_outside_may_have_an_address_that_a_service_has(spec: Any) -> None:
    """Nothing that reaches a tenant comes from a service's address."""
    spec.edit(ENV, "  cni: vpc-cni\n", "  cni: vpc-cni\n  node-and-pod-cidrs: [10.64.0.0/16]\n")
    spec.add(FRAUD, "ingress:\n  - {cidr: 10.100.0.0/16, port: 8080}\n")
    assert spec.problems() == ()


@pytest.mark.parametrize(
    ("cidr", "given_text"),
    [
        ("172.20.0.0/16", None),
        ("10.64.128.0/20", "'10.64.128.0/20', which overlaps 10.64.0.0/16, where nodes and pods are"),
        ("100.64.0.0/16", "'100.64.0.0/16'"),
        ("172.20.0.0/25", "'172.20.0.0/25'"),
        ("172.20.1.0/16", "'172.20.1.0/16', no address range (172.20.1.0/16 has host bits set)"),
        ("0.0.0.0/0", "'0.0.0.0/0', wider than /8"),
    ],
)
def test_services_get_a_range_that_eks_takes(spec: Any, cidr: str, given_text: str | None) -> None:
    spec.edit(ENV, ON_AWS, (ON_AWS_TOO % "1.36").replace("aws:\n", f"  service-cidr: {cidr}\naws:\n"))
    assert [(p.field, p.given) for p in spec.problems()] == (
        [("cluster.service-cidr", given_text)] if given_text else []
    )


def test_a_group_of_viewers_may_see_two_tenants(spec: Any) -> None:
    for name in (FRAUD, RESEARCH):
        spec.edit(name, "people:\n", "people:\n  - {group: auditors, role: viewer}\n")
    assert spec.problems() == ()


@pytest.mark.parametrize("suffix", ["yml", "yaml"])
def test_a_second_file_of_one_tenant_collides_with_the_first_in_its_name_alone(spec: Any, suffix: str) -> None:
    name = "fraud" if suffix == "yml" else "other"
    spec.write(f"tenants/{name}.{suffix}", (spec.path / FRAUD).read_text("utf-8"))
    assert {(p.id, p.field) for p in spec.problems()} == {("name-02", "tenant")}


def test_a_pool_may_name_a_tenant_whose_file_is_broken(spec: Any) -> None:
    spec.edit(RESEARCH, "team: quant-research", "team: 5")
    assert [p.field for p in spec.problems()] == ["team"], "the environment is not to blame"


def test_what_the_quota_of_a_namespace_does_not_say_is_the_tiers(spec: Any) -> None:
    loaded = spec.load()
    serve = loaded.tenants[0].namespaces[1]
    assert serve.quota.or_default(loaded.environment.tiers["production"].quota).memory == "512Gi"


PROFILES = ("1g.5gb", "1g.5gb+me", "1g.10gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb")


@pytest.mark.parametrize(("pools", "refused"), [(50, True), (49, False)])
def test_a_queue_has_at_most_512_amounts(spec: Any, pools: int, refused: bool) -> None:
    """With two pools of the files' own: pools times eight resources and two shares of boards."""
    flavors = "".join(f"  cut-{i}: {{gpu: a100-40gb, mig: {name}}}\n" for i, name in enumerate(PROFILES[1:]))
    sliced = "mig: {layout: {1g.5gb: 1, 1g.5gb+me: 1, 1g.10gb: 1}}"
    more = "".join(f"  more-{i}: {{instance-type: p4d.24xlarge, nodes: 1, {sliced}}}\n" for i in range(pools - 3))
    layouts = "".join(
        f"  once-{i}: {{instance-type: p4d.24xlarge, nodes: 1, mig: {{layout: {{{name}: 1}}}}}}\n"
        for i, name in enumerate(PROFILES[3:])
    )
    spec.edit(ENV, "  l4-shared:", f"{flavors}  l4-shared:")
    spec.edit(ENV, "  serve:\n", f"{more}{layouts}  serve:\n")
    slice_shares = "".join(f"  cut-{i}: {{guaranteed: 0}}\n" for i in range(len(PROFILES) - 1))
    spec.edit(RESEARCH, "  l4-shared: {guaranteed: 16}\n", f"  a100-1g.5gb: {{guaranteed: 0}}\n{slice_shares}")
    problems = [(problem.id, problem.field) for problem in spec.problems()]
    assert problems == ([("queue-01", "gpus")] if refused else [])
    if refused:
        assert "52 pools x 10 resources = 520 amounts of 512" in spec.problem().given


@pytest.mark.parametrize(("flavors", "refused"), [(14, True), (13, False)])
def test_devices_have_at_most_16_classes(spec: Any, flavors: int, refused: bool) -> None:
    """Kueue does not start with more. By claim each flavor is one; these are three with the files' own."""
    profiles = [(board, profile) for board, machine in BOARDS.items() for profile in machine.profiles]
    more = [pair for pair in profiles if pair != ("a100-40gb", "1g.5gb")][:flavors]
    spec.edit(ENV, "  cni: vpc-cni", "  cni: vpc-cni\n  devices: dra")
    spec.edit(ENV, "nodes: {min: 1, max: 3}", "nodes: 3")
    spec.edit(ENV, "    gpu-sharing: {time-slicing: 4}\n", "")
    spec.edit(RESEARCH, "  l4-shared: {guaranteed: 16}\n", "  l4: {guaranteed: 4}\n")
    flavor_lines = "".join(f"  more-{i}: {{gpu: {board}, mig: {profile}}}\n" for i, (board, profile) in enumerate(more))
    spec.edit(ENV, "  l4-shared: {gpu: l4, gpu-sharing: time-slicing}\n", f"  l4: {{gpu: l4}}\n{flavor_lines}")
    problems = [(problem.id, problem.field) for problem in spec.problems()]
    assert len(more) == flavors
    assert problems == ([("queue-01", "flavors")] if refused else [])
    assert not refused or "17 classes of devices of 16" in spec.problem().given


def test_a_share_that_one_of_two_tiers_may_borrow_for_stands(spec: Any) -> None:
    spec.edit(ENV, "    interruptible: true\n", "    interruptible: true\n    allow-borrowing: false\n")
    assert spec.problems() == (), "fraud's part in production borrows"


def test_the_default_container_is_counted_for_promised_gpus_alone(spec: Any) -> None:
    spec.edit(FRAUD, "borrowing-limit: 16", "borrowing-limit: 10000")
    assert spec.problems() == (), "who borrows may get less"
