"""User data and settings that a node gets before its kubelet starts."""

from __future__ import annotations

import email
import re
from collections import Counter
from collections.abc import Mapping
from email.message import Message
from functools import cache
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tenancy.catalog.boards import BOARDS, feasible_layouts
from tenancy.catalog.instances import INSTANCES
from tenancy.planning.aws.node_config import (
    LAYOUT_LABEL,
    USER_DATA_BYTES,
    device_plugin_configs,
    mig_parted,
    registration_labels,
    user_data,
)
from tenancy.planning.common.pools import MIG_CONFIG, PLUGIN_CONFIG, node_labels
from tenancy.spec.fields.environment import Environment
from tests import judges
from tests.conftest import ENVIRONMENT, documents, nonempty

FLAVORS = """\
  a100: {gpu: a100-40gb}
  a100-1g: {gpu: a100-40gb, mig: 1g.5gb}
  a100-1g-me: {gpu: a100-40gb, mig: 1g.5gb+me}
  a100-2g: {gpu: a100-40gb, mig: 2g.10gb}
  a100-3g: {gpu: a100-40gb, mig: 3g.20gb}
  a100-1g-shared: {gpu: a100-40gb, mig: 1g.5gb, gpu-sharing: time-slicing}
  a100-1g-me-shared: {gpu: a100-40gb, mig: 1g.5gb+me, gpu-sharing: time-slicing}
  h100-1g: {gpu: h100-80gb, mig: 1g.10gb}
  l4-shared: {gpu: l4, gpu-sharing: time-slicing}
  a10g-shared: {gpu: a10g, gpu-sharing: mps}
  t4g: {gpu: t4g}
"""
FIXED = """\
  fixed:
    instance-type: p4d.24xlarge
    nodes: 2
    mig: {layout-name: mixed-bag}
"""
ELASTIC = """\
  elastic:
    instance-type: p4d.24xlarge
    nodes: {min: 1, max: 3}
    mig:
      per-gpu:
        - {gpus: 2, slices: {1g.5gb: 7}}
        - {gpus: 1, slices: {1g.5gb+me: 1, 2g.10gb: 1, 3g.20gb: 1}}
"""
OTHERS = """\
  whole: {instance-type: p4d.24xlarge, nodes: 4}
  diskless: {instance-type: g5g.16xlarge, nodes: 1}
  sliced:
    instance-type: p4d.24xlarge
    nodes: 1
    mig: {layout: {1g.5gb: 6, 1g.5gb+me: 1}}
    gpu-sharing: {time-slicing: 2}
    tenants: [research]
  notebooks:
    instance-type: g6.12xlarge
    nodes: {min: 0, max: 2}
    gpu-sharing: {time-slicing: 4}
    tenants: [research]
  side-by-side:
    instance-type: g5.12xlarge
    nodes: 1
    gpu-sharing: {mps: 4}
    tenants: [research]
"""
SINGLE = """\
  single:
    instance-type: p5.48xlarge
    nodes: 1
    mig: {layout: {1g.10gb: 7}, strategy: single}
"""
MIXED_BAG = "{3g.20gb: 1, 2g.10gb: 2}"
EVERY_POOL = ("diskless", "elastic", "fixed", "notebooks", "side-by-side", "sliced", "whole")


def environment_with(
    pools: str = FIXED + ELASTIC + OTHERS, flavors: str = FLAVORS, mixed_bag: str = MIXED_BAG
) -> Environment:
    head = ENVIRONMENT[: ENVIRONMENT.index("flavors:\n")]
    text = f"{head}flavors:\n{flavors}mig-layouts:\n  mixed-bag: {mixed_bag}\npools:\n{pools}"
    return Environment.model_validate(yaml.safe_load(text))


@pytest.fixture(scope="module")
def environment() -> Environment:
    return environment_with()


def parts(text: str) -> list[Message]:
    message = email.message_from_string(text)
    assert message.is_multipart()
    return message.get_payload()  # ty: ignore[invalid-return-type]


def node_config(text: str) -> dict[str, Any]:
    (config_part,) = (part for part in parts(text) if part.get_content_type() == "application/node.eks.aws")
    return yaml.safe_load(str(config_part.get_payload()))


def labels_of(text: str) -> dict[str, str]:
    """Labels that the kubelet gives its node."""
    flags = node_config(text)["spec"]["kubelet"].get("flags", [])
    return dict(pair.split("=") for flag in flags for pair in flag.removeprefix("--node-labels=").split(","))


# Layouts


def yielded(environment: Environment, name: str) -> Counter[str | None]:
    """Slices and whole GPUs of a node, counted from mig-parted's configuration alone."""
    count: Counter[str | None] = Counter()
    used_gpus: list[int] = []
    for entry in mig_parted(environment)["mig-configs"][name]:
        assert set(entry) in ({"devices", "mig-enabled", "mig-devices"}, {"devices", "mig-enabled"})
        gpus = list(range(environment.pools[name].machine.gpus)) if entry["devices"] == "all" else entry["devices"]
        used_gpus += gpus
        assert ("mig-devices" in entry) is entry["mig-enabled"]
        for profile, slices in (entry.get("mig-devices") or {None: 1}).items():
            count[profile] += slices * len(gpus)
    assert used_gpus == list(range(environment.pools[name].machine.gpus)), "every GPU is cut once, lowest indices first"
    return count


def declared(environment: Environment, name: str) -> Counter[str | None]:
    pool = environment.pools[name]
    replicas = pool.gpu_sharing.replicas if pool.gpu_sharing else 1
    flavor_counts = environment.flavors_of(name)
    return Counter({environment.flavors[flavor].mig: count // replicas for flavor, count in flavor_counts.items()})


def test_mig_parted_is_told_of_every_pool_that_is_cut(environment: Environment) -> None:
    config = mig_parted(environment)
    assert set(config) == {"version", "mig-configs"}, "mig-parted refuses a key that it does not know"
    assert config["version"] == "v1"
    assert set(config["mig-configs"]) == {"elastic", "fixed", "sliced"}


def test_gpus_that_no_part_takes_stay_whole(environment: Environment) -> None:
    assert mig_parted(environment)["mig-configs"]["elastic"] == [
        {"devices": [0, 1], "mig-enabled": True, "mig-devices": {"1g.5gb": 7}},
        {"devices": [2], "mig-enabled": True, "mig-devices": {"1g.5gb+me": 1, "2g.10gb": 1, "3g.20gb": 1}},
        {"devices": [3, 4, 5, 6, 7], "mig-enabled": False},
    ]


@pytest.mark.parametrize("name", ["elastic", "fixed", "sliced"])
def test_a_layout_yields_what_the_flavors_count(environment: Environment, name: str) -> None:
    assert yielded(environment, name) == declared(environment, name)


def flavors_of_board(board: str) -> str:
    slice_flavors = (f"  f{i}: {{gpu: {board}, mig: {profile}}}\n" for i, profile in enumerate(BOARDS[board].profiles))
    return f"  whole: {{gpu: {board}}}\n" + "".join(slice_flavors)


@st.composite
def cut_pools(draw: st.DrawFn) -> tuple[str, str]:
    """Flavors and one pool, its GPUs cut at random."""
    instance = draw(st.sampled_from(["p4d.24xlarge", "p5en.48xlarge", "g7e.48xlarge"]))
    machine = INSTANCES[instance]
    profiles = BOARDS[machine.gpu].profiles
    layouts = []
    for _ in range(draw(st.integers(1, 3))):
        counts = draw(st.sampled_from(feasible_layouts(machine.gpu)))
        slices = {profile: n for profile, n in zip(profiles, counts, strict=True) if n}
        layouts.append({"gpus": draw(st.integers(1, machine.gpus // 3)), "slices": slices})
    pool = {"pool": {"instance-type": instance, "nodes": {"min": 0, "max": 2}, "mig": {"per-gpu": layouts}}}
    return flavors_of_board(machine.gpu), "".join(f"  {line}\n" for line in yaml.safe_dump(pool).splitlines())


@given(cut_pools())
@settings(max_examples=40)
def test_any_cut_yields_what_the_flavors_count(pool: tuple[str, str]) -> None:
    environment = environment_with(pool[1], pool[0], "{}")
    assert yielded(environment, "pool") == declared(environment, "pool")


# Sharing


def test_only_pools_that_are_cut_or_shared_have_a_device_plugin_of_their_own_kind(environment: Environment) -> None:
    assert set(device_plugin_configs(environment)) == {"elastic", "fixed", "notebooks", "side-by-side", "sliced"}


def test_the_device_plugin_offers_what_the_flavors_are(environment: Environment) -> None:
    for name, config in nonempty(device_plugin_configs(environment).items()):
        sharing = config.get("sharing", {})
        shared_resources = {f"{r['name']}.shared" for mode in sharing.values() for r in mode["resources"]}
        flavors = environment.flavors_of(name)
        assert shared_resources == {environment.resource_of(f) for f in flavors if environment.flavors[f].gpu_sharing}


def test_replicas_of_slices_have_the_plugins_names(environment: Environment) -> None:
    config = device_plugin_configs(environment)["sliced"]
    assert config["flags"] == {"migStrategy": "mixed"}
    assert config["sharing"]["timeSlicing"]["resources"] == [
        {"name": "nvidia.com/mig-1g.5gb", "replicas": 2},
        {"name": "nvidia.com/mig-1g.5gb.me", "replicas": 2},
    ]


def test_a_replica_is_never_called_a_whole_gpu_nor_asked_for_twice(environment: Environment) -> None:
    modes = [mode for c in device_plugin_configs(environment).values() for mode in c.get("sharing", {}).values()]
    assert len(modes) == 3
    assert all(mode["renameByDefault"] and mode["failRequestsGreaterThanOne"] for mode in modes)


def test_a_pool_with_mps_has_no_mig_strategy(environment: Environment) -> None:
    config = device_plugin_configs(environment)["side-by-side"]
    assert set(config["sharing"]) == {"mps"}
    assert config["flags"] == {"migStrategy": "none"}, "with mixed and MPS the plugin does not start"


def test_slices_that_pose_as_gpus_have_the_single_strategy() -> None:
    environment = environment_with(SINGLE)
    assert device_plugin_configs(environment)["single"] == {"version": "v1", "flags": {"migStrategy": "single"}}


def test_every_label_that_chooses_names_a_configuration(environment: Environment) -> None:
    for name, pool in nonempty(environment.pools.items()):
        labels = registration_labels(name, pool)
        assert (MIG_CONFIG in labels) is (name in mig_parted(environment)["mig-configs"])
        assert (PLUGIN_CONFIG in labels) is (name in device_plugin_configs(environment))
        assert labels.get(PLUGIN_CONFIG, name) == name


# User data


def judged(schema: Mapping[str, Any], value: Any, where: str = "NodeConfig") -> None:
    """A structural schema as an API server takes it, but an unknown field is an error."""
    if schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int}
    assert isinstance(value, kinds[schema["type"]]), where
    assert value in schema.get("enum", [value]), where
    if isinstance(value, dict) and schema.get("properties", {}).keys() | {"additionalProperties"} & schema.keys():
        for key, item in value.items():
            child_schema = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            assert child_schema is not None, f"{where}.{key} is unknown"
            judged(child_schema, item, f"{where}.{key}")
    for item in value if isinstance(value, list) else ():
        judged(schema["items"], item, f"{where}[]")


@cache
def schema() -> dict[str, Any]:
    (path,) = judges.folder("schemas-nodeadm").glob("*nodeconfigs.yaml")
    (definition,) = documents(path.read_text("utf-8"))
    (version,) = definition["spec"]["versions"]
    assert version["name"] == "v1alpha1"
    return version["schema"]["openAPIV3Schema"]


@pytest.mark.parametrize("base", [True, False])
@pytest.mark.parametrize("name", [None, *EVERY_POOL])
def test_nodeadm_knows_every_field(environment: Environment, name: str | None, base: bool) -> None:
    config = node_config(user_data(environment, name, base=base))
    assert (config["apiVersion"], config["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    judged(schema(), config)


def test_the_schema_refuses_what_nodeadm_does_not_know() -> None:
    with pytest.raises(AssertionError, match=r"NodeConfig\.spec\.kublet is unknown"):
        judged(schema(), {"spec": {"kublet": {}}})
    with pytest.raises(AssertionError, match="strategy"):
        judged(schema(), {"spec": {"instance": {"localStorage": {"strategy": "RAID7"}}}})


@pytest.mark.parametrize("name", [None, *EVERY_POOL])
def test_the_cluster_is_left_to_eks_and_karpenter(environment: Environment, name: str | None) -> None:
    assert "cluster" not in node_config(user_data(environment, name, base=True))["spec"]


@pytest.mark.parametrize("name", [None, *EVERY_POOL])
def test_one_pod_cannot_take_all_processes_of_a_node(environment: Environment, name: str | None) -> None:
    for base in (True, False):
        config = node_config(user_data(environment, name, base=base))["spec"]["kubelet"]["config"]
        assert config["podPidsLimit"] == 16_384


def test_local_disks_become_one(environment: Environment) -> None:
    def disks(name: str | None, *, base: bool = True) -> Any:
        return node_config(user_data(environment, name, base=base))["spec"].get("instance")

    assert disks("whole") == {"localStorage": {"strategy": "RAID0"}}
    assert disks("diskless") is None
    assert disks(None) is None
    assert disks("elastic", base=False) is None, "instanceStorePolicy says so: Karpenter must know it"


def test_managed_nodes_take_the_pods_that_the_plan_counts_with(environment: Environment) -> None:
    def max_pods(name: str | None, *, base: bool = True) -> Any:
        return node_config(user_data(environment, name, base=base))["spec"]["kubelet"]["config"].get("maxPods")

    assert max_pods("whole") == environment.pools["whole"].max_pods == 250
    assert max_pods(None) is None, "EKS counts them by itself"
    assert max_pods("elastic", base=False) is None, "Karpenter's own part comes last and says it"


def test_a_managed_node_is_born_with_the_labels_that_choose(environment: Environment) -> None:
    for name, pool in environment.pools.items():
        labels = labels_of(user_data(environment, name, base=True))
        assert labels.keys() - {LAYOUT_LABEL} == registration_labels(name, pool).keys()
        assert registration_labels(name, pool).items() <= node_labels(name, pool).items()
    assert labels_of(user_data(environment, "fixed", base=True)).keys() == {MIG_CONFIG, PLUGIN_CONFIG, LAYOUT_LABEL}
    assert labels_of(user_data(environment, "whole", base=True)) == {}


def test_a_node_of_karpenter_has_its_labels_from_the_node_pool(environment: Environment) -> None:
    assert labels_of(user_data(environment, "elastic", base=False)).keys() == {LAYOUT_LABEL}


def test_only_pools_with_layouts_carry_the_program(environment: Environment) -> None:
    kinds = {n: [p.get_content_type() for p in parts(user_data(environment, n, base=True))] for n in EVERY_POOL}
    pools_with_layouts = {name for name, pool in environment.pools.items() if pool.mig}
    assert {
        name for name, content_types in kinds.items() if "text/x-shellscript" in content_types
    } == pools_with_layouts
    assert kinds["elastic"] == ["application/node.eks.aws", "text/x-shellscript"]


@pytest.mark.parametrize("name", [None, *EVERY_POOL])
def test_user_data_is_plain_small_and_always_the_same(environment: Environment, name: str | None) -> None:
    for base in (True, False):
        text = user_data(environment, name, base=base)
        assert text == user_data(environment_with(), name, base=base)
        assert text.isascii()
        assert text.startswith("MIME-Version: 1.0\n"), "by which Karpenter knows it from a shell script"
        assert len(text) < USER_DATA_BYTES / 2, "EKS and Karpenter add to it"
        assert len(re.findall("^--gpu-tenancy(--)?$", text, re.MULTILINE)) == len(parts(text)) + 1


CHANGES = {
    "a named layout": (FIXED, {"mixed_bag": "{3g.20gb: 1, 2g.10gb: 1}"}, "fixed"),
    "a part of the GPUs": (ELASTIC, {"pools": ("gpus: 2", "gpus: 3")}, "elastic"),
    "a slice less": (ELASTIC, {"pools": ("1g.5gb: 7", "1g.5gb: 6")}, "elastic"),
    "replicas": (OTHERS, {"pools": ("{time-slicing: 4}", "{time-slicing: 5}")}, "notebooks"),
    "replicas of slices": (OTHERS, {"pools": ("{time-slicing: 2}", "{time-slicing: 3}")}, "sliced"),
}


@pytest.mark.parametrize("about", CHANGES)
def test_another_layout_is_other_user_data_for_that_pool_and_no_other(environment: Environment, about: str) -> None:
    where, change, changed_pool = CHANGES[about]
    if isinstance(edit := change.get("pools"), tuple):
        assert where.count(edit[0]) == 1
        after = environment_with((FIXED + ELASTIC + OTHERS).replace(*edit))
    else:
        after = environment_with(mixed_bag=str(change["mixed_bag"]))
    for base in (True, False):
        differ = {
            name for name in EVERY_POOL if user_data(environment, name, base=base) != user_data(after, name, base=base)
        }
        assert differ == {changed_pool}
