"""Karpenter's objects, judged by a real API server with Karpenter's own CRDs: their schemas and their CEL."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import judges
import pytest
import yaml

from tenancy.kube.objects import Object
from tenancy.lab import control_plane, ports
from tenancy.lab.api import ApiError, LabApi
from tenancy.planning.aws.karpenter import karpenter_objects
from tenancy.spec.fields.environment import Environment
from tests.kinds import define

CREATE = "application/json"
ACCOUNT = "111122223333"
AWS = {
    "enabled": True,
    "account": ACCOUNT,
    "region": "eu-central-1",
    "zones": ["eu-central-1a", "eu-central-1b"],
    "platform-role": f"arn:aws:iam::{ACCOUNT}:role/platform",
}
GIVEN_NETWORK = {
    "kms-key-arn": f"arn:aws:kms:eu-central-1:{ACCOUNT}:key/0123-abcd",
    "root-volume-size": 16_000,
    "network": {
        "vpc": "vpc-0123abcd",
        "subnets": {"eu-central-1a": "subnet-0123aaaa", "eu-central-1b": "subnet-0123bbbb"},
    },
}
FLAVORS = {
    "a100": {"gpu": "a100-40gb"},
    "a100-1g.5gb": {"gpu": "a100-40gb", "mig": "1g.5gb"},
    "a100-1g.5gb.me": {"gpu": "a100-40gb", "mig": "1g.5gb+me"},
    "a100-3g.20gb": {"gpu": "a100-40gb", "mig": "3g.20gb"},
    "h100": {"gpu": "h100-80gb"},
    "h200": {"gpu": "h200-141gb"},
    "l4-shared": {"gpu": "l4", "gpu-sharing": "time-slicing"},
    "t4g": {"gpu": "t4g"},
}
RANGE = {"min": 0, "max": 3}
RESERVED = {"zones": ["eu-central-1b"], "purchase": {"reservation": "cr-0123456789abcdef0"}}
ONE_TENANT = {"tenants": ["fraud"]}
POOLS: dict[str, dict[str, Any]] = {
    "whole": {"instance-type": "p4d.24xlarge", "nodes": RANGE, "ami-release": "v20260917"},
    "mig": {"instance-type": "p4d.24xlarge", "nodes": {"min": 1, "max": 3}, "mig": {"layout": {"1g.5gb": 7}}},
    "mig-mixed": {
        "instance-type": "p4d.24xlarge",
        "nodes": RANGE,
        "mig": {"per-gpu": [{"gpus": 4, "slices": {"3g.20gb": 1, "1g.5gb+me": 1}}]},
    },
    "efa-reserved": {"instance-type": "p5.48xlarge", "nodes": RANGE, "efa": True, **ONE_TENANT, **RESERVED},
    "block": {
        "instance-type": "p5e.48xlarge",
        "nodes": RANGE,
        "zones": ["eu-central-1a"],
        "purchase": {"capacity-block": "cr-0123abcd", "ends": "2027-01-31"},
        "upgrade": {"max-unavailable": 2},
    },
    "spot-shared": {
        "instance-type": "g6.12xlarge",
        "nodes": RANGE,
        "purchase": "spot",
        "gpu-sharing": {"time-slicing": 4},
        **ONE_TENANT,
    },
    "arm": {"instance-type": "g5g.xlarge", "nodes": RANGE},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabApi]:
    """A lab of the tests' own that knows Karpenter's kinds."""
    crds = [
        yaml.safe_load(path.read_text("utf-8"))
        for path in sorted(judges.folder("schemas-karpenter").glob("karpenter*.yaml"))
    ]
    root = tmp_path_factory.mktemp("karpenter")
    (root / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        lab = control_plane.up(root=root)
        try:
            with LabApi(lab, ports.remembered(lab)["kube-apiserver"]) as api:
                define(api, crds)
                yield api
        finally:
            control_plane.down(root=root)


def build(environment: Environment, pools: dict[str, Any], **aws: Any) -> dict[tuple[str, str], Object]:
    """Objects of an environment with these pools, by kind and name."""
    fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    fields_with_pools = {**fields, "aws": {**AWS, **aws}, "flavors": FLAVORS, "pools": pools}
    planned = karpenter_objects(Environment.model_validate(fields_with_pools))
    return {(item["kind"], item["metadata"]["name"]): item for item in planned}


PLURALS = {"EC2NodeClass": "ec2nodeclasses", "NodePool": "nodepools", "NodeOverlay": "nodeoverlays"}


def create(api: LabApi, item: Object, *, stored: bool) -> Object:
    """Create an object; a field that the schema does not know is refused instead of dropped."""
    path = f"/apis/{item['apiVersion']}/{PLURALS[item['kind']]}?fieldValidation=Strict"
    return api.request("POST", path if stored else f"{path}&dryRun=All", item, CREATE)


def within(part: Any, container: Any) -> bool:
    """Whether everything that was said is still there; defaults may have come beside it."""
    if isinstance(part, dict) and isinstance(container, dict):
        return all(key in container and within(value, container[key]) for key, value in part.items())
    if isinstance(part, list) and isinstance(container, list):
        return len(part) == len(container) and all(map(within, part, container))
    return part == container


@pytest.mark.parametrize("pool", POOLS)
def test_the_server_takes_all_that_a_pool_needs_as_it_is(server: LabApi, environment: Environment, pool: str) -> None:
    for (kind, name), item in build(environment, {pool: POOLS[pool]}).items():
        create(server, item, stored=True)
        stored = server.get(f"/apis/{item['apiVersion']}/{PLURALS[kind]}/{name}")
        assert within(item["spec"], stored["spec"]), f"{kind} is stored otherwise than it was written"


@pytest.mark.parametrize("pool", POOLS)
def test_the_server_takes_a_pool_in_a_given_network(server: LabApi, environment: Environment, pool: str) -> None:
    for item in build(environment, {f"{pool}-given": POOLS[pool]}, **GIVEN_NETWORK).values():
        create(server, item, stored=False)


def test_a_pool_that_scales_further_is_the_same_pool(server: LabApi, environment: Environment) -> None:
    """Some fields of Karpenter's can never be changed again; a range is none of them."""
    pools = {"grows": POOLS["whole"]}
    pool_object = build(environment, pools)["NodePool", "grows"]
    create(server, pool_object, stored=True)
    larger = {"grows": {**POOLS["whole"], "nodes": {"min": 1, "max": 9}}}
    path = f"/apis/{pool_object['apiVersion']}/nodepools"
    assert server.apply(path, build(environment, larger)["NodePool", "grows"])["spec"]["limits"]["nodes"] == "8"


Breakage = Callable[[dict[str, Any]], None]


def _set(*path: str | int, to: Any) -> Breakage:
    """Changes one field of a spec."""

    def change(spec: Any) -> None:
        for step in path[:-1]:
            spec = spec[step]
        spec[path[-1]] = to

    return change


BROKEN: list[tuple[str, str, Breakage, str]] = [
    ("NodePool", "whole", _set("template", "spec", "expiresAfter", to="Never"), "unknown field"),
    ("NodePool", "whole", _set("template", "spec", "expireAfter", to="never"), "should match"),
    ("NodePool", "whole", _set("template", "spec", "terminationGracePeriod", to="Never"), "should match"),
    ("NodePool", "whole", _set("template", "spec", "requirements", 4, "values", to=[]), "must have a value defined"),
    ("NodePool", "whole", _set("template", "spec", "taints", 0, "effect", to="NO_SCHEDULE"), "Unsupported value"),
    (
        "NodePool",
        "whole",
        _set("template", "metadata", "labels", "karpenter.sh/nodepool", to="whole"),
        'label "karpenter.sh/nodepool" is restricted',
    ),
    ("NodePool", "whole", _set("disruption", "consolidationPolicy", to="Never"), "Unsupported value"),
    ("NodePool", "whole", _set("disruption", "budgets", 0, "reasons", to=["Expired"]), "Unsupported value"),
    ("NodePool", "whole", _set("limits", "nodes", to="three"), "should match"),
    ("NodePool", "block", _set("weight", to=0), "should be greater than or equal to 1"),
    ("EC2NodeClass", "whole", _set("placementGroup", to="train"), "unknown field"),
    ("EC2NodeClass", "whole", _set("amiSelectorTerms", 0, "alias", to="al2023"), "improperly formatted"),
    ("EC2NodeClass", "whole", _set("instanceProfile", to="own"), "exactly one of ['role', 'instanceProfile']"),
    ("EC2NodeClass", "whole", _set("subnetSelectorTerms", 0, "id", to="subnet-0123aaaa"), "mutually exclusive"),
    ("EC2NodeClass", "whole", _set("securityGroupSelectorTerms", to=[]), "cannot be empty"),
    ("EC2NodeClass", "whole", _set("tags", "kubernetes.io/cluster/small", to="owned"), "restricted tag"),
    ("EC2NodeClass", "whole", _set("metadataOptions", "httpPutResponseHopLimit", to=65), "should be less than"),
    ("EC2NodeClass", "whole", _set("blockDeviceMappings", 0, "ebs", "volumeSize", to="200GiB"), "should match"),
    ("EC2NodeClass", "whole", _set("instanceStorePolicy", to="RAID5"), "Unsupported value"),
    (
        "EC2NodeClass",
        "efa-reserved",
        _set("networkInterfaces", 0, "interfaceType", to="efa-only"),
        "must include a primary interface",
    ),
    (
        "EC2NodeClass",
        "efa-reserved",
        _set("networkInterfaces", 2, "networkCardIndex", to=0),
        "must not have duplicate networkCardIndex and deviceIndex pairs",
    ),
    (
        "EC2NodeClass",
        "efa-reserved",
        _set("capacityReservationSelectorTerms", 0, "ownerID", to=ACCOUNT),
        "cannot be set along with other fields",
    ),
    ("NodeOverlay", "mig", _set("capacity", "cpu", to="96"), "invalid resource restricted"),
    ("NodeOverlay", "mig", _set("requirements", 0, "key", to="karpenter.sh/registered"), "is restricted"),
    ("NodeOverlay", "mig", _set("capacity", "nvidia.com/gpu", to="none"), "should match"),
]


@pytest.mark.parametrize(
    ("kind", "pool", "change", "why"), BROKEN, ids=[f"{kind}-{number}" for number, (kind, *_) in enumerate(BROKEN)]
)
def test_the_server_refuses_the_twin_with_one_field_broken(
    server: LabApi, environment: Environment, kind: str, pool: str, change: Breakage, why: str
) -> None:
    item = build(environment, {pool: POOLS[pool]})[kind, pool]
    item["metadata"]["name"] = f"twin-{pool}"
    create(server, item, stored=False)
    twin = copy.deepcopy(item)
    change(twin["spec"])
    with pytest.raises(ApiError) as refused:
        create(server, twin, stored=False)
    assert refused.value.status == (400 if why == "unknown field" else 422)
    assert why in str(refused.value)
