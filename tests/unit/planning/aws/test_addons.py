"""Configuration of EKS add-ons; each key with where its schema was read (2026-11-20)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tenancy.catalog.versions import ADD_ONS
from tenancy.planning.aws.addons import AddOn, add_ons
from tenancy.planning.common.charts import SYSTEM_NODES
from tenancy.verify.bypasses import bypasses

GPU = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}
POOL = {"key": "tenancy.gpu/pool", "operator": "Exists", "effect": "NoSchedule"}

SCHEMAS = {
    # aws/eks-node-monitoring-agent@v1.7.0 `charts/configuration.schema.json`, the add-on's own schema
    # (additionalProperties: false), and `charts/eks-node-monitoring-agent/values.yaml`, where dcgmAgent.tolerations is
    # empty; read 2026-11-23. The agent itself was `monitoringAgent` before v1.6.0 and is `nodeAgent` since.
    "eks-node-monitoring-agent": "dcgmAgent.tolerations",
    # `describe-addon-configuration --addon-name coredns --addon-version v1.11.1-eksbuild.8` as terraform-aws-eks' docs
    # print it (additionalProperties: false).
    "coredns": "nodeSelector tolerations",
    # No schema found. `create-addon --addon-name metrics-server --configuration-values` with both keys, in use.
    "metrics-server": "nodeSelector tolerations",
    # kubernetes-sigs/aws-ebs-csi-driver `charts/aws-ebs-csi-driver/values.schema.json`; the add-on with the
    # controller's first two keys in mitodl/ol-infrastructure, the third in Pulumi and eksctl programs in use.
    "aws-ebs-csi-driver": (
        "controller.nodeSelector controller.tolerations controller.extraVolumeTags node.tolerateAllTaints"
    ),
    # aws/amazon-vpc-cni-k8s `charts/aws-vpc-cni/values.yaml`; the add-on with the first two keys, as text, in use. The
    # third in the add-on's own schema (`describe-addon-configuration`, amazon-vpc-cni-k8s#3059), as text.
    "vpc-cni": "enableNetworkPolicy env.NETWORK_POLICY_ENFORCING_MODE env.ADDITIONAL_ENI_TAGS",
    "kube-proxy": "",
    "eks-pod-identity-agent": "",
}
"""Keys that the add-on takes. EKS refuses an add-on for one that it does not know."""


def _add_ons(**arguments: Any) -> dict[str, AddOn]:
    return {
        add_on.name: add_on
        for add_on in add_ons(
            [GPU, POOL],
            **{
                "cni": "vpc-cni",
                "volume_tags": {"tenancy:environment": "small"},
                "interface_tags": {"tenancy:cluster": "small"},
                "kubernetes": "1.36",
                **arguments,
            },
        )
    }


def _emitted(values: Mapping[str, Any], recorded_keys: set[str], before: str = "") -> Iterator[str]:
    for key, value in values.items():
        path = f"{before}{key}"
        if isinstance(value, dict) and path not in recorded_keys:
            yield from _emitted(value, recorded_keys, f"{path}.")
        else:
            yield path


@pytest.mark.parametrize("cni", ["vpc-cni", "cilium"])
def test_the_add_ons_are_those_of_the_catalogue(cni: str) -> None:
    assert tuple(_add_ons(cni=cni)) == ADD_ONS


@pytest.mark.parametrize("name", SCHEMAS)
def test_each_key_of_an_add_on_is_on_record(name: str) -> None:
    recorded_keys = set(SCHEMAS[name].split())
    assert set(_emitted(_add_ons()[name].configuration, recorded_keys)) == recorded_keys


def test_the_vpc_cni_enforces_policies_where_it_is_the_enforcer() -> None:
    assert _add_ons()["vpc-cni"].configuration["enableNetworkPolicy"] == "true"


def test_under_cilium_the_vpc_cni_gives_addresses_alone() -> None:
    configuration = _add_ons(cni="cilium")["vpc-cni"].configuration
    assert configuration["enableNetworkPolicy"] == "false"
    assert set(configuration["env"]) == {"ADDITIONAL_ENI_TAGS"}


@pytest.mark.parametrize("cni", ["vpc-cni", "cilium"])
def test_interfaces_carry_the_tag_by_which_the_cnis_role_may_change_them(cni: str) -> None:
    configuration = _add_ons(cni=cni)["vpc-cni"].configuration
    assert json.loads(configuration["env"]["ADDITIONAL_ENI_TAGS"]) == {"tenancy:cluster": "small"}


def test_the_mode_in_which_a_new_pod_is_open_is_said_to_be_a_way_that_nothing_holds() -> None:
    mode = _add_ons()["vpc-cni"].configuration["env"]["NETWORK_POLICY_ENFORCING_MODE"]
    assert (mode == "standard") is bool(bypasses()["N14"].names("open"))


@pytest.mark.parametrize("name", ["coredns", "metrics-server"])
def test_what_runs_once_runs_on_the_systems_nodes(name: str) -> None:
    configuration = _add_ons()[name].configuration
    assert configuration["nodeSelector"] == dict(SYSTEM_NODES)
    assert configuration["tolerations"] == [{"key": "CriticalAddonsOnly", "operator": "Exists"}]


@pytest.mark.parametrize("name", ["coredns", "metrics-server"])
def test_what_runs_once_takes_no_room_on_a_gpu_node(name: str) -> None:
    assert GPU not in _add_ons()[name].configuration["tolerations"]


def test_the_ebs_controller_runs_on_the_systems_nodes_and_its_daemonset_everywhere() -> None:
    configuration = _add_ons()["aws-ebs-csi-driver"].configuration
    assert configuration["controller"]["nodeSelector"] == dict(SYSTEM_NODES)
    assert GPU not in configuration["controller"]["tolerations"]
    assert configuration["node"] == {"tolerateAllTaints": True}


def test_the_systems_nodes_can_be_others() -> None:
    add_ons = _add_ons(system={"role": "platform"})
    assert add_ons["coredns"].configuration["nodeSelector"] == {"role": "platform"}
    assert add_ons["aws-ebs-csi-driver"].configuration["controller"]["nodeSelector"] == {"role": "platform"}


def test_gpus_are_watched_on_nodes_of_every_pool() -> None:
    assert _add_ons()["eks-node-monitoring-agent"].configuration["dcgmAgent"]["tolerations"] == [GPU, POOL]


def test_nothing_is_said_of_the_agent_itself_whose_key_changed_its_name() -> None:
    assert set(_add_ons()["eks-node-monitoring-agent"].configuration) == {"dcgmAgent"}


def test_before_the_first_node_there_is_what_makes_it_ready_and_nothing_that_waits_for_one() -> None:
    before_nodes = {name for name, add_on in _add_ons().items() if add_on.before_nodes}
    assert before_nodes == {"vpc-cni", "kube-proxy", "eks-pod-identity-agent"}


def test_an_add_on_that_calls_aws_has_a_role_and_the_others_have_none() -> None:
    assert {name: add_on.role for name, add_on in _add_ons().items() if add_on.role} == {
        "vpc-cni": "vpc-cni",
        "aws-ebs-csi-driver": "ebs-csi",
    }


def test_no_two_add_ons_share_a_list() -> None:
    add_ons = _add_ons()
    add_ons["coredns"].configuration["tolerations"].clear()
    assert add_ons["metrics-server"].configuration["tolerations"], "one dict for two add-ons would change both"
