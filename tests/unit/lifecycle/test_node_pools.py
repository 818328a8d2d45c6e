"""Pools and flavors of a cluster that exists, by what its nodes show."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tenancy.cli import main
from tenancy.cluster import api
from tenancy.cluster.api import Api, Response
from tenancy.kube.objects import Object
from tenancy.lifecycle.node_pools import detect_services, pools_of_nodes
from tenancy.planning.common.pools import fake_nodes
from tenancy.spec.fields.services import Services
from tests.conftest import SpecFolder


def node(instance: str, labels: dict[str, str] | None = None, **resources: int) -> Object:
    node_labels = {"node.kubernetes.io/instance-type": instance, **(labels or {})}
    allocatable = {f"nvidia.com/{name.replace('_', '-')}": str(count) for name, count in resources.items()}
    return {"metadata": {"name": "one", "labels": node_labels}, "spec": {}, "status": {"allocatable": allocatable}}


def test_the_nodes_of_an_environment_are_found_as_its_file_has_them(spec: SpecFolder) -> None:
    environment = spec.load().environment
    discovered = pools_of_nodes(fake_nodes(environment))
    assert {name: (p["instance-type"], p["nodes"]) for name, p in discovered.pools.items()} == {
        name: (pool.instance_type, pool.nodes.min) for name, pool in environment.pools.items()
    }
    assert discovered.pools["serve"]["mig"] == {"layout": {"1g.5gb": 7}}
    assert discovered.pools["notebooks"]["gpu-sharing"] == {"time-slicing": 4}
    kinds = {(f["gpu"], f.get("mig"), f.get("gpu-sharing")) for f in discovered.flavors.values()}
    assert kinds == {(f.gpu, f.mig, f.gpu_sharing) for f in environment.flavors.values()}


def test_what_is_found_is_a_file_that_an_environment_reads(spec: SpecFolder) -> None:
    discovered = pools_of_nodes(fake_nodes(spec.load().environment))
    pools = {name: dict(pool) for name, pool in discovered.pools.items()}
    pools["notebooks"]["tenants"] = ["research"]  # as its remark says
    pools["serve"]["tiers"] = ["production"]
    document = yaml.safe_load((spec.path / "environment.yaml").read_text("utf-8"))
    document["flavors"] |= {}
    document["pools"] = pools
    spec.write("environment.yaml", yaml.safe_dump(document))
    assert spec.problems() == ()
    assert any(remark.startswith("pool notebooks: replicas share") for remark in discovered.remarks)


@pytest.mark.parametrize(
    ("labels", "provisioner"),
    [
        ({}, "self-managed"),
        ({"eks.amazonaws.com/nodegroup": "gpu"}, "managed"),
        ({"karpenter.sh/nodepool": "gpu"}, "karpenter"),
        ({"karpenter.sh/nodepool": "gpu", "eks.amazonaws.com/compute-type": "auto"}, "auto-mode"),
    ],
)
def test_what_made_a_node_is_told_by_its_labels(labels: dict[str, str], provisioner: str) -> None:
    (pool,) = pools_of_nodes([node("g6.12xlarge", labels, gpu=4)]).pools.values()
    assert pool["provisioner"] == provisioner
    assert pool["nodes"] == ({"min": 0, "max": 1} if provisioner in {"karpenter", "auto-mode"} else 1)


def test_spot_nodes_are_no_guarantee() -> None:
    (pool,) = pools_of_nodes([node("g6.12xlarge", {"eks.amazonaws.com/capacityType": "SPOT"}, gpu=4)]).pools.values()
    assert pool["purchase"] == "spot"
    assert pool["nodes"] == {"min": 0, "max": 1}


def test_label_and_taint_that_a_node_lacks_are_named_with_the_command() -> None:
    lacking = node("p4d.24xlarge", {"eks.amazonaws.com/nodegroup": "Train_A100"}, gpu=8)
    discovered = pools_of_nodes([lacking])
    assert [*discovered.pools] == ["train-a100"]
    remarks = "\n".join(discovered.remarks)
    assert "kubectl label node one tenancy.gpu/pool=train-a100" in remarks
    assert "kubectl taint node one nvidia.com/gpu=present:NoSchedule" in remarks
    complete: Any = copy.deepcopy(lacking)
    complete["metadata"]["labels"]["tenancy.gpu/pool"] = "train-a100"
    complete["spec"]["taints"] = [{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]
    assert pools_of_nodes([complete]).remarks == ()


def test_replicas_under_the_name_of_whole_gpus_are_named() -> None:
    assert "rename replicas" in str(pools_of_nodes([node("g6.12xlarge", gpu=16)]).remarks)
    assert "rename replicas" not in str(pools_of_nodes([node("g6.12xlarge", gpu=4)]).remarks)


def test_nodes_of_an_unknown_type_are_one_remark_that_describes_them() -> None:
    labels = {"karpenter.sh/nodepool": "big", "karpenter.sh/capacity-type": "spot", "nvidia.com/gpu.product": "B900"}
    unknown = [node("x9.huge", labels, gpu=8) for _ in range(5)]
    for unknown_node in unknown:
        unknown_node["status"]["allocatable"] |= {"cpu": "190", "memory": "2Ti"}
    discovered = pools_of_nodes([*unknown, node("m7i.xlarge")])
    assert [pool["instance-type"] for pool in discovered.pools.values()] == ["m7i.xlarge"]
    remark = discovered.remarks[0]
    assert remark.startswith("no pool for one one one … (5) of big: instance type x9.huge is not in the catalogue")
    assert remark.endswith("a node has 8 nvidia.com/gpu, cpu 190, memory 2Ti (spot, karpenter, GPU B900)")
    assert not [other_remark for other_remark in discovered.remarks[1:] if "x9.huge" in other_remark]


class Cluster(Api):
    """A cluster of these nodes, with daemonsets and API groups by name."""

    def __init__(self, nodes: list[Object], daemons: tuple[str, ...] = (), groups: tuple[str, ...] = ()) -> None:
        self.nodes, self.groups, self.host = nodes, groups, "https://cluster"
        self.daemons = [{"metadata": {"name": name}} for name in daemons]

    def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        assert method == "GET"
        if path.startswith("/apis/apps/v1/daemonsets"):
            return Response(200, {"items": self.daemons})
        if path.startswith("/api/v1/nodes"):
            return Response(200, {"items": self.nodes})
        return Response(200 if path.rpartition("/")[2] in self.groups else 404, {})


def test_a_cluster_whose_types_the_catalogue_lacks_is_an_error_that_describes_its_nodes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "Api", lambda _: Cluster([node("x9.huge", gpu=8)]))
    result = CliRunner().invoke(main, ["discover", "--context", "ml"])
    assert result.exit_code == 2
    assert (
        "given a cluster of 1 nodes without a pool; rule: a pool's instance type is in the catalogue" in result.stderr
    )
    assert "instance type x9.huge is not in the catalogue" in result.stderr


@pytest.mark.parametrize(
    ("daemons", "groups", "present"),
    [
        ((), (), set()),
        (("nvidia-device-plugin-daemonset",), (), {"device-plugin"}),
        (("dcgm-exporter",), ("nvidia.com",), {"dcgm-exporter", "gpu-operator"}),
        ((), ("kueue.x-k8s.io",), {"kueue"}),
    ],
)
def test_each_service_is_found_on_its_own(daemons: tuple[str, ...], groups: tuple[str, ...], present: set[str]) -> None:
    sources_by_service = detect_services(Cluster([], daemons, groups))
    assert {name for name, source in sources_by_service.items() if source == "present"} == present
    assert Services.model_validate(sources_by_service)
