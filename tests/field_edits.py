"""One edit of every field of `aws`, `cluster`, `pools` and `tiers`: what the table of `test_field_edits.py` is made of.

`EDITS` has a file, a field, its old and its new value; `BASE` and `TENANTS` are the files that are edited. The list can
be run against any engine: `write` makes the folder of an environment with an edit in it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

from tenancy.spec.fields.aws import Aws
from tenancy.spec.fields.base import Spec
from tenancy.spec.fields.cluster import Cluster
from tenancy.spec.fields.pools import Pool
from tenancy.spec.fields.tiers import Tier
from tests.conftest import documents, in_days

ENVIRONMENT_FILE, RANGES_FILE = "environment.yaml", "ip-ranges.json"
RANGES = {"prefixes": [{"ip_prefix": "52.219.72.0/22", "region": "eu-central-1", "service": "S3"}]}
ROLE = "arn:aws:iam::111122223333:role/"
KEY = "arn:aws:kms:eu-central-1:111122223333:key/0a1b2c3d-0000-4000-8000-00000000000"
BASE = f"""\
environment: edits
stacks: per-tenant
organisation: {{name: bank, departments: {{risk: {{}}}}}}
platform: {{group: gpu-platform-team, namespaces: [monitoring]}}
cluster: {{name: edits, context: edits, kubernetes: "1.35", cni: cilium}}
images: {{registries: [registry.bank.example/], sample: "registry.bank.example/sample:1"}}
metrics: {{collector: install}}
queues: {{clock: true}}
aws:
  enabled: true
  account: "111122223333"
  region: eu-central-1
  zones: [eu-central-1a, eu-central-1b]
  platform-role: {ROLE}gpu-platform
  organization-id: o-b4nkexampl3
  network: {{aws-service-cidrs: [3.5.134.0/23]}}
  group-roles: {{fraud-engineers: "{ROLE}fraud-engineers", aml-engineers: "{ROLE}aml-engineers"}}
  ci-hosts: [github.com]
  break-glass: {{trusted-principals: ["arn:aws:iam::111122223333:user/emergency"], mail: security@bank.example}}
buckets: {{bank-data: {{}}, bank-locked: {{kms-key-scope: tenant}}}}
tiers:
  batch: {{priority: 1000, interruptible: true}}
  production: {{priority: 2000}}
flavors:
  a100: {{gpu: a100-40gb}}
  a100-1g.5gb: {{gpu: a100-40gb, mig: 1g.5gb}}
  l4: {{gpu: l4}}
  l4-shared: {{gpu: l4, gpu-sharing: time-slicing}}
prices: {{a100-40gb: 2, l4: 1}}
pools:
  general: {{instance-type: m7i.8xlarge, nodes: {{min: 1, max: 4}}}}
  serve: {{instance-type: p4d.24xlarge, nodes: {{min: 1, max: 3}}, mig: {{layout: {{1g.5gb: 7}}}}}}
  fabric: {{instance-type: p4d.24xlarge, nodes: 2, zones: [eu-central-1a], efa: true, tenants: [fraud]}}
  reserved: {{instance-type: p4d.24xlarge, nodes: 2, zones: [eu-central-1a], purchase: {{reservation: cr-0123abcd}}}}
  block:
    instance-type: p4d.24xlarge
    nodes: 1
    zones: [eu-central-1b]
    purchase: {{capacity-block: cr-0456cdef, starts: {in_days(20)}, ends: {in_days(30)}}}
  sliced: {{instance-type: g6.12xlarge, nodes: 1, gpu-sharing: {{time-slicing: 4}}, tenants: [aml]}}
  whole: {{instance-type: g6.12xlarge, nodes: 2}}
"""
TENANTS = {
    "aml": """\
tenant: aml
team: aml
owner: {name: aml-leads, mail: aml@bank.example}
department: risk
cost-center: CC-1
tier: batch
people: [{group: aml-engineers, role: developer}]
storage: [{bucket: bank-locked, prefix: aml/, access: read-write}]
""",
    "fraud": """\
tenant: fraud
team: fraud
owner: {name: fraud-leads, mail: fraud@bank.example}
department: risk
cost-center: CC-2
tier: production
people: [{group: fraud-engineers, role: developer}]
gpus: {a100-1g.5gb: {guaranteed: 7}}
storage: [{bucket: bank-data, prefix: fraud/, access: read-write}]
aws-resources: {repositories: [scoring], secrets: [card-network], log-groups: [jobs], sqs-queues: [jobs]}
ci: {github: bank/fraud, branch: main}
budget: {monthly-usd: 1000}
""",
}


@dataclass(frozen=True, slots=True)
class FieldEdit:
    """An edit of one field; `also` are edits without which the file would be refused."""

    file: str
    field: str
    old: Any
    new: Any
    also: tuple[tuple[str, Any], ...] = ()
    before: tuple[tuple[str, Any], ...] = ()
    """Edits of both sides."""
    note: str = ""
    """Text that distinguishes several edits of a field."""

    @property
    def of(self) -> str:
        """The field as the schema has it, without the names of pools and tiers."""
        parts = self.field.split("/")
        return ".".join([parts[0], *parts[2:]] if parts[0] in {"pools", "tiers"} else parts)

    @property
    def title(self) -> str:
        """Title of the edit in the table."""
        return f"{self.field.replace('/', '.')}{f' ({self.note})' if self.note else ''}"


def at(files: Mapping[str, Any], path: str) -> Any:
    """The value at a path such as `pools/general/nodes/min`; None where there is none."""
    node: Any = files
    for name in path.split("/"):
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def base(edit: FieldEdit | None = None) -> dict[str, Any]:
    """environment.yaml before an edit."""
    return _with(copy.deepcopy(_base()), edit.before if edit else ())


@cache
def _base() -> dict[str, Any]:
    return documents(BASE)[0]


def edited(edit: FieldEdit) -> dict[str, Any]:
    """environment.yaml after an edit."""
    return _with(base(edit), ((edit.field, edit.new), *edit.also))


def _with(fields: dict[str, Any], edits: tuple[tuple[str, Any], ...]) -> dict[str, Any]:
    for path, value in edits:
        *parents, name = path.split("/")
        part = fields
        for parent in parents:
            part = part.setdefault(parent, {})
        if value is None:
            part.pop(name, None)
        else:
            part[name] = copy.deepcopy(value)
    return fields


def write(folder: Path, environment: Mapping[str, Any]) -> Path:
    """The files of an environment."""
    (folder / "tenants").mkdir(parents=True, exist_ok=True)
    # Every JSON document is YAML.
    (folder / ENVIRONMENT_FILE).write_text(json.dumps(environment, default=str), "utf-8")
    (folder / RANGES_FILE).write_text(json.dumps(RANGES), "utf-8")
    for name, text in TENANTS.items():
        (folder / "tenants" / f"{name}.yaml").write_text(text, "utf-8")
    return folder


def _edit(
    field: str, new: Any, *also: tuple[str, Any], before: tuple[tuple[str, Any], ...] = (), note: str = ""
) -> FieldEdit:
    edit = FieldEdit(ENVIRONMENT_FILE, field, None, new, also, before, note)
    return replace(edit, old=at(base(edit), field))


A, B, C = (f"eu-central-1{letter}" for letter in "abc")
SUBNETS = {A: "subnet-0123abca", B: "subnet-0123abcb"}
IN_WEST = [
    ("aws/zones", ["eu-west-1a", "eu-west-1b"]),
    *((f"pools/{n}/zones", ["eu-west-1a"]) for n in ("fabric", "reserved", "block")),
]
GIVEN_SUBNETS = [("aws/zones", None), ("aws/network/subnets", SUBNETS)]
OTHER_ACCOUNT = [
    ("aws/platform-role", "arn:aws:iam::222233334444:role/gpu-platform"),
    ("aws/group-roles", {f"{n}-engineers": f"arn:aws:iam::222233334444:role/{n}-engineers" for n in ("aml", "fraud")}),
]
WITHOUT_METRICS = (("metrics", None), ("queues", None))
ISSUER = "oidc.eks.eu-central-1.amazonaws.com/id/0123456789ABCDEF0123456789ABCDEF"
ISSUED = (("aws/irsa", True), ("aws/oidc-issuer", ISSUER))
FIXED_SIZES = (
    *((f"pools/{name}/nodes", 2) for name in ("general", "serve")),
    *((path, None) for path in ("flavors/l4-shared", "pools/sliced")),
)
SLICES_ALONE = tuple(
    (path, None)
    for path in (
        *("flavors/a100", "flavors/l4", "flavors/l4-shared", "prices"),
        *(f"pools/{name}" for name in ("fabric", "reserved", "block", "whole", "sliced")),
    )
)
IDLE = {"utilization-threshold": "5%", "duration": "30m", "warnings": 2, "action": "alert"}

AWS = (
    _edit("aws/account", "222233334444", *OTHER_ACCOUNT),
    _edit("aws/add-ons/release", "latest"),
    _edit("aws/add-ons/versions", {"vpc-cni": "v1.21.1-eksbuild.1"}),
    _edit("aws/break-glass/mail", "soc@bank.example"),
    _edit("aws/break-glass/trusted-principals", ["arn:aws:iam::111122223333:user/emergency-2"]),
    _edit("aws/deletion-protection", False),
    _edit("aws/enabled", False, before=WITHOUT_METRICS),
    _edit("aws/kms-key-arn", f"{KEY}1"),
    _edit("aws/existing-oidc-providers", ["github.com"]),
    _edit("aws/extended-support", False),
    _edit("aws/ci-hosts", ["github.com", "gitlab.bank.example"]),
    _edit("aws/identity", "irsa", before=ISSUED),
    _edit("aws/irsa", True),
    _edit("aws/log-retention-days", 731),
    _edit("aws/tenant-log-kms-key-arn", f"{KEY}2"),
    _edit("aws/network/cidr", "10.80.0.0/16"),
    _edit("aws/network/endpoints", "made"),
    _edit("aws/network/zone-quarters", {B: 3}),
    _edit("aws/network/aws-service-cidrs", ["3.5.136.0/22"]),
    _edit("aws/network/aws-ip-ranges-file", "ip-ranges.json"),
    _edit("aws/network/subnets", SUBNETS, ("aws/zones", None), ("aws/network/vpc", "vpc-0123abcd")),
    _edit("aws/network/vpc", "vpc-0123abcd", *GIVEN_SUBNETS),
    _edit("aws/oidc-issuer", ISSUER),
    _edit("aws/organization-id", "o-0therexampl3"),
    _edit("aws/management-account", True),
    _edit("aws/group-roles", {"fraud-engineers": f"{ROLE}others", "aml-engineers": f"{ROLE}aml-engineers"}),
    _edit("aws/permissions-boundary", "arn:aws:iam::111122223333:policy/boundary"),
    _edit("aws/platform-role", f"{ROLE}platform-2"),
    _edit("aws/public-access-cidrs", ["52.219.44.0/22"]),
    _edit("aws/service-quotas", {"roles": 5000}),
    _edit("aws/region", "eu-west-1", *IN_WEST),
    _edit("aws/root-volume-size", 300),
    _edit("aws/ami-release", "v20260912"),
    _edit("aws/system/instance-type", "m7i.2xlarge"),
    _edit("aws/system/nodes", 4),
    _edit("aws/system/zones", [A]),
    _edit("aws/upgrade-pause", 60),
    _edit("aws/zones", [A, B, C], note="one more"),
    _edit("aws/zones", [B, A], note="another order"),
    _edit("aws/zones", [A, C], ("pools/block/zones", [A]), note="another one"),
)
CLUSTER = (
    _edit("cluster/cni", "vpc-cni"),
    _edit("cluster/context", "other"),
    _edit("cluster/devices", "dra", before=FIXED_SIZES),
    _edit("cluster/node-local-dns", True, before=(("cluster/cni", "vpc-cni"),)),
    _edit("cluster/encryption", "wireguard"),
    _edit("cluster/kubernetes", "1.36"),
    _edit("cluster/kubernetes", "1.36", before=(("cluster/kubernetes", "1.34"),), note="two minors"),
    _edit("cluster/kubernetes", "1.34", note="back"),
    _edit("cluster/mode", "existing", before=WITHOUT_METRICS),
    _edit("cluster/name", "edits-2"),
    _edit("cluster/object-overcommit", 20),
    _edit("cluster/node-and-pod-cidrs", ["10.64.0.0/15"]),
    _edit("cluster/service-cidr", "172.21.0.0/16"),
)
POOLS = (
    _edit("pools/general", None, note="removed"),
    _edit("pools/more", {"instance-type": "m7i.8xlarge", "nodes": 1}, note="added"),
    _edit("pools/block/purchase/capacity-block", "cr-0789abcd"),
    _edit("pools/block/purchase/ends", in_days(31)),
    _edit("pools/block/purchase/starts", in_days(21)),
    _edit("pools/fabric/efa", False),
    _edit("pools/fabric/upgrade/max-unavailable", 2),
    _edit("pools/fabric/upgrade/strategy", "terminate-first"),
    _edit("pools/fabric/upgrade/wave", 2),
    _edit("pools/general/ami-release", "v20260912"),
    _edit("pools/general/instance-type", "m7i.16xlarge"),
    _edit("pools/general/instance-type", "m7g.8xlarge", note="another architecture"),
    _edit("pools/general/nodes/max", 5),
    _edit("pools/general/nodes/min", 2),
    _edit("pools/general/nodes/min", 0, note="none"),
    _edit(
        "pools/general/purchase",
        {"market": "spot"},
        ("pools/general/nodes/min", 0),
        ("pools/general/tiers", ["batch"]),
        note="spot",
    ),
    _edit("pools/general/zones", [A]),
    _edit("pools/reserved/purchase/reservation", "cr-0789abcd"),
    _edit("pools/reserved/zones", [B]),
    _edit("pools/reserved/purchase", {"market": "on-demand"}, note="on demand"),
    _edit("pools/reserved/tenants", ["fraud"]),
    _edit("pools/reserved/tiers", ["production"]),
    _edit(
        "pools/serve/mig/layout",
        {"1g.5gb": 5, "2g.10gb": 1},
        ("flavors/a100-2g.10gb", {"gpu": "a100-40gb", "mig": "2g.10gb"}),
    ),
    _edit("pools/serve/mig/layout-name", "all-balanced", ("pools/serve/mig/layout", None)),
    _edit("pools/serve/mig/per-gpu", [{"gpus": 4, "slices": {"1g.5gb": 7}}], ("pools/serve/mig/layout", None)),
    _edit("pools/serve/mig/strategy", "single", before=SLICES_ALONE),
    _edit("pools/sliced/gpu-sharing/time-slicing", 8),
    _edit(
        "pools/sliced/gpu-sharing", {"mps": 4}, ("flavors/l4-shared", {"gpu": "l4", "gpu-sharing": "mps"}), note="mps"
    ),
    _edit("pools/whole/provisioner", "karpenter", ("pools/whole/nodes", {"min": 2, "max": 3})),
)


def _of_tiers() -> Iterator[FieldEdit]:
    values: dict[str, Any] = {
        "priority": 1500,
        "gpu-tier": "reserved",
        "interruptible": True,
        "allow-borrowing": False,
        "queueing-strategy": "strict-fifo",
        "max-run-time": "12h",
        "topology-spread": "none",
        "topology-spread-scope": ["jobs"],
        "allow-large-config": True,
        "allow-writable-root-filesystem": False,
        "max-storage-access": "read-write",
        "container/default": {"cpu": "1", "memory": "4Gi", "ephemeral-storage": "5Gi"},
        "container/default-request": {"cpu": "250m", "memory": "1Gi", "ephemeral-storage": "1Gi"},
        "container/min": {"cpu": "20m", "memory": "32Mi"},
        "container/max": {"cpu": "48", "memory": "384Gi"},
        "volume-claim/min": "2Gi",
        "volume-claim/max": "400Gi",
        "quota/cpu": "100",
        "quota/cpu-limit": "200",
        "quota/memory": "512Gi",
        "quota/memory-limit": "1Ti",
        "quota/ephemeral-storage": "600Gi",
        "quota/storage": "3Ti",
        "quota/hard": {"count/leases.coordination.k8s.io": "5"},
    }
    counts = (
        "pods",
        "services",
        "ended-pods",
        "secrets",
        "config-maps",
        "jobs",
        "cron-jobs",
        "deployments",
        "volume-claims",
    )
    values |= {f"quota/{name}": 40 for name in counts}
    sample = ("images/sample", f"registry.bank.example/sample@sha256:{'0' * 64}")
    yield _edit("tiers/production/allow-image-tags", False, before=(sample,))
    yield from (_edit(f"tiers/production/{field}", value) for field, value in values.items())
    for field, value in {"utilization-threshold": "6%", "duration": "20m", "warnings": 3, "action": "suspend"}.items():
        yield _edit("tiers/batch/idle", {**IDLE, field: value}, note=field)


TIERS = tuple(_of_tiers())
EDITS = (*AWS, *CLUSTER, *POOLS, *TIERS)


def fields() -> set[str]:
    """Every field of the four parts of an environment, as the models have them."""
    models = {"aws": Aws, "cluster": Cluster, "pools": Pool, "tiers": Tier}
    return {field for name, model in models.items() for field in _fields(model, name)}


def _fields(model: type[Spec], path: str) -> Iterator[str]:
    for name, info in model.model_fields.items():
        field = f"{path}.{info.alias or name.replace('_', '-')}"
        models = list(dict.fromkeys(_models(info.annotation)))
        yield from (path for model in models for path in _fields(model, field))
        if not models:
            yield field


def _models(annotation: Any) -> Iterator[type[Spec]]:
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        yield annotation
    for argument in get_args(annotation):
        yield from _models(argument)


def covered() -> set[str]:
    """Fields that an edit changes, also as a part of a larger value."""
    covered_paths = set()
    for edit in EDITS:
        covered_paths |= set(_inside(edit.of, edit.old, edit.new))
    return covered_paths


def _inside(path: str, old: Any, new: Any) -> Iterator[str]:
    yield path
    values = [value for value in (old, new) if value is not None]
    for value in values:
        for entry in value if isinstance(value, list) else [value]:
            if isinstance(entry, Mapping):
                old_mapping = old if isinstance(old, Mapping) and value is new else {}
                yield from (f"{path}.{key}" for key in entry if entry[key] != (old_mapping or {}).get(key))
