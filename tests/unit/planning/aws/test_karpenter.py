"""Objects of Karpenter for the pools that scale."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.planning.aws.identity import key_alias
from tenancy.planning.aws.karpenter import karpenter_objects
from tenancy.planning.aws.node_config import user_data
from tenancy.planning.common.pools import extended_resources
from tenancy.spec.fields.environment import Environment
from tests.conftest import nonempty

AWS = {
    "enabled": True,
    "account": "111122223333",
    "region": "eu-central-1",
    "zones": ["eu-central-1a", "eu-central-1b"],
    "platform-role": "arn:aws:iam::111122223333:role/platform",
}
FLAVORS = {
    "a100": {"gpu": "a100-40gb"},
    "a100-1g.5gb": {"gpu": "a100-40gb", "mig": "1g.5gb"},
    "a100-3g.20gb": {"gpu": "a100-40gb", "mig": "3g.20gb"},
    "h100": {"gpu": "h100-80gb"},
    "b300": {"gpu": "b300-269gb"},
    "l4-shared": {"gpu": "l4", "gpu-sharing": "time-slicing"},
    "t4g": {"gpu": "t4g"},
}
TRAIN = {"instance-type": "p4d.24xlarge", "nodes": {"min": 1, "max": 3}}
SERVE = {**TRAIN, "mig": {"layout": {"1g.5gb": 7}}}
SPOT = {
    "instance-type": "g6.12xlarge",
    "nodes": {"min": 0, "max": 4},
    "purchase": "spot",
    "gpu-sharing": {"time-slicing": 4},
    "tenants": ["research"],
}
EFA = {
    "instance-type": "p5.48xlarge",
    "nodes": {"min": 0, "max": 2},
    "efa": True,
    "tenants": ["fraud"],
    "zones": ["eu-central-1b"],
    "purchase": {"reservation": "cr-0123abcd"},
}
ARM = {"instance-type": "g5g.xlarge", "nodes": {"min": 0, "max": 2}}


@pytest.fixture
def small(environment: Environment) -> dict[str, Any]:
    """The small environment as it is written, on AWS and without its pools."""
    environment_fields = environment.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return {**environment_fields, "aws": AWS, "flavors": FLAVORS, "pools": {}}


class Cluster:
    """One pool and what is made of it."""

    def __init__(self, small: dict[str, Any], pool: dict[str, Any], **aws: Any) -> None:
        environment_fields = {**small, "pools": {"pool": pool}, "aws": {**AWS, **aws}}
        self.environment = Environment.model_validate(environment_fields)
        self.objects = karpenter_objects(self.environment)

    def spec(self, kind: str) -> dict[str, Any]:
        specs = [item["spec"] for item in self.objects if item["kind"] == kind]
        assert len(specs) == 1, f"{len(specs)} of {kind}"
        return specs[0]

    @property
    def kinds(self) -> list[str]:
        return [item["kind"] for item in self.objects]

    @property
    def node_class(self) -> dict[str, Any]:
        return self.spec("EC2NodeClass")

    @property
    def node_pool(self) -> dict[str, Any]:
        return self.spec("NodePool")

    @property
    def capacity(self) -> dict[str, str]:
        return self.spec("NodeOverlay")["capacity"]

    def required(self, key: str) -> list[str]:
        requirements = [r for r in self.node_pool["template"]["spec"]["requirements"] if r["key"] == key]
        assert [r["operator"] for r in requirements] == ["In"]
        return requirements[0]["values"]


# Which pools


def test_a_fixed_pool_is_none_of_karpenters(small: dict[str, Any]) -> None:
    assert Cluster(small, {**TRAIN, "nodes": 3}).objects == ()


def test_a_range_is_karpenters_from_the_class_to_the_pool_that_names_it(small: dict[str, Any]) -> None:
    cluster = Cluster(small, TRAIN)
    assert cluster.kinds == ["EC2NodeClass", "NodePool"]
    assert cluster.node_pool["template"]["spec"]["nodeClassRef"] == {
        "group": "karpenter.k8s.aws",
        "kind": "EC2NodeClass",
        "name": "pool",
    }


def test_without_the_aws_layer_there_is_no_karpenter_to_tell(small: dict[str, Any]) -> None:
    assert Cluster(small, TRAIN, enabled=False).objects == ()


def test_every_object_carries_the_platforms_labels_and_its_pools_name(small: dict[str, Any]) -> None:
    for item in nonempty(Cluster(small, SERVE).objects):
        assert item["metadata"]["name"] == "pool"
        assert item["metadata"]["labels"] == {
            vocabulary.MANAGED_BY: vocabulary.PRODUCT,
            vocabulary.ENVIRONMENT: "small",
            vocabulary.POOL: "pool",
        }


# The machine


def test_a_pool_is_one_instance_type_in_its_zones(small: dict[str, Any]) -> None:
    cluster = Cluster(small, ARM)
    assert cluster.required("node.kubernetes.io/instance-type") == ["g5g.xlarge"]
    assert cluster.required("kubernetes.io/arch") == ["arm64"]
    assert cluster.required("topology.kubernetes.io/zone") == AWS["zones"], "no zones written: all of the environment's"
    assert Cluster(small, EFA).required("topology.kubernetes.io/zone") == ["eu-central-1b"]


@pytest.mark.parametrize(("pool", "bought"), [(TRAIN, "on-demand"), (SPOT, "spot"), (EFA, "reserved")])
def test_nodes_are_bought_in_one_way(small: dict[str, Any], pool: dict[str, Any], bought: str) -> None:
    assert Cluster(small, pool).required("karpenter.sh/capacity-type") == [bought]


def test_a_reservation_is_named_and_filled_first_and_stands_beside_no_placement_group(small: dict[str, Any]) -> None:
    cluster = Cluster(small, EFA)
    assert cluster.node_class["capacityReservationSelectorTerms"] == [{"id": "cr-0123abcd"}]
    assert "placementGroupSelector" not in cluster.node_class
    unreserved = Cluster(small, TRAIN)
    assert "capacityReservationSelectorTerms" not in unreserved.node_class
    assert cluster.node_pool["weight"] > unreserved.node_pool.get("weight", 0)


def test_a_capacity_block_is_a_reservation(small: dict[str, Any]) -> None:
    block = {**EFA, "purchase": {"capacity-block": "cr-0123abcd", "ends": "2027-01-31"}}
    cluster = Cluster(small, block)
    assert cluster.required("karpenter.sh/capacity-type") == ["reserved"]
    assert cluster.node_class["capacityReservationSelectorTerms"] == [{"id": "cr-0123abcd"}]


def test_the_image_is_the_pools_release_or_the_environments(small: dict[str, Any]) -> None:
    def alias(pool: dict[str, Any]) -> list[dict[str, str]]:
        return Cluster(small, pool).node_class["amiSelectorTerms"]

    assert alias({**TRAIN, "ami-release": "v20260917"}) == [{"alias": "al2023@v20260917"}]
    cluster = Cluster(small, TRAIN)
    assert cluster.node_class["amiSelectorTerms"] == [{"alias": f"al2023@{cluster.environment.aws.ami_release}"}]


def test_local_disks_are_one_array_where_there_are_any(small: dict[str, Any]) -> None:
    assert Cluster(small, TRAIN).node_class["instanceStorePolicy"] == "RAID0"
    assert "instanceStorePolicy" not in Cluster(small, ARM).node_class


def test_the_kubelet_takes_what_a_managed_node_of_the_pool_takes(small: dict[str, Any]) -> None:
    cluster = Cluster(small, TRAIN)
    assert cluster.node_class["kubelet"] == {"maxPods": cluster.environment.pools["pool"].max_pods}
    assert cluster.node_class["userData"] == user_data(cluster.environment, "pool", base=False)


# What is asked of the account


def test_no_pod_reaches_the_metadata_service(small: dict[str, Any]) -> None:
    assert Cluster(small, TRAIN).node_class["metadataOptions"] == {
        "httpEndpoint": "enabled",
        "httpTokens": "required",
        "httpPutResponseHopLimit": 1,
        "httpProtocolIPv6": "disabled",
    }


def test_the_root_volume_is_encrypted_with_the_given_key_or_the_clusters(small: dict[str, Any]) -> None:
    key = "arn:aws:kms:eu-central-1:111122223333:key/0123-abcd"
    with_key = Cluster(small, TRAIN, **{"kms-key-arn": key, "root-volume-size": 300})
    (root,) = with_key.node_class["blockDeviceMappings"]
    assert root["ebs"]["encrypted"] is True
    assert (root["ebs"]["kmsKeyID"], root["ebs"]["volumeSize"]) == (key, "300Gi")
    with_own_key = Cluster(small, TRAIN)
    assert with_own_key.node_class["blockDeviceMappings"][0]["ebs"]["kmsKeyID"] == key_alias(with_own_key.environment)


def test_subnets_that_are_made_are_found_by_their_tags(small: dict[str, Any]) -> None:
    assert Cluster(small, TRAIN).node_class["subnetSelectorTerms"] == [
        {"tags": {"tenancy:cluster": "small", "tenancy:subnet": "private"}}
    ]


def test_of_given_subnets_only_those_of_the_pools_zones_are_used(small: dict[str, Any]) -> None:
    subnets = {"eu-central-1a": "subnet-0123aaaa", "eu-central-1b": "subnet-0123bbbb"}
    network = {"vpc": "vpc-0123abcd", "subnets": subnets}
    assert Cluster(small, EFA, network=network).node_class["subnetSelectorTerms"] == [{"id": "subnet-0123bbbb"}]
    both = Cluster(small, TRAIN, network=network).node_class["subnetSelectorTerms"]
    assert both == [{"id": "subnet-0123aaaa"}, {"id": "subnet-0123bbbb"}]


def test_instances_and_volumes_carry_the_tags_of_their_pool_and_of_its_one_tenant(small: dict[str, Any]) -> None:
    assert Cluster(small, EFA).node_class["tags"]["tenancy:tenant"] == "fraud"
    assert Cluster(small, EFA).node_class["tags"]["tenancy:pool"] == "pool"
    assert "tenancy:tenant" not in Cluster(small, TRAIN).node_class["tags"], "a pool for all tenants is billed to none"


# EFA


def test_nodes_without_efa_are_in_the_clusters_security_group(small: dict[str, Any]) -> None:
    cluster = Cluster(small, TRAIN)
    assert cluster.node_class["securityGroupSelectorTerms"] == [{"tags": {"aws:eks:cluster-name": "small"}}]
    assert "networkInterfaces" not in cluster.node_class


def test_nodes_with_efa_are_in_no_group_that_another_pools_nodes_are_in(small: dict[str, Any]) -> None:
    terms = Cluster(small, EFA).node_class["securityGroupSelectorTerms"]
    assert terms == [{"tags": {"tenancy:cluster": "small", "tenancy:pool": "pool"}}], (
        "the cluster's own group lets EFA through between all that carry it, and no network policy sees that"
    )


def test_every_card_with_efa_has_an_interface_for_it_and_the_first_one_for_addresses_too(
    small: dict[str, Any],
) -> None:
    interfaces = Cluster(small, EFA).node_class["networkInterfaces"]
    first, *efa = interfaces
    assert first == {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}
    assert {interface["interfaceType"] for interface in efa} == {"efa-only"}
    assert [interface["networkCardIndex"] for interface in efa] == list(range(32))
    assert [interface["deviceIndex"] for interface in efa] == [1] + [0] * 31, (
        "device 0 of card 0 is taken by the addresses"
    )


def test_a_first_card_without_efa_gets_none(small: dict[str, Any]) -> None:
    interfaces = Cluster(small, {**EFA, "instance-type": "p6-b300.48xlarge"}).node_class["networkInterfaces"]
    assert [
        interface["networkCardIndex"] for interface in interfaces if interface["interfaceType"] == "efa-only"
    ] == list(range(1, 17))


# What a node is born with, and when it goes


def test_nodes_are_born_with_the_labels_and_taints_of_their_pool(small: dict[str, Any]) -> None:
    template = Cluster(small, SPOT).node_pool["template"]
    labels = template["metadata"]["labels"]
    assert labels[vocabulary.POOL] == "pool"
    assert labels["nvidia.com/device-plugin.config"] == "pool", "the operator would not know how to share the GPUs"
    assert "node.kubernetes.io/instance-type" not in labels, "Karpenter sets it from the requirements"
    assert {taint["key"] for taint in template["spec"]["taints"]} == {"nvidia.com/gpu", vocabulary.POOL}


def test_no_training_run_is_ended_by_age_or_to_pack_nodes_more_tightly(small: dict[str, Any]) -> None:
    spec = Cluster(small, TRAIN).node_pool
    assert spec["template"]["spec"]["expireAfter"] == "Never"
    assert spec["disruption"]["consolidationPolicy"] == "WhenEmpty"


def test_a_node_that_must_go_waits_longer_than_any_pod_may_ask_for(small: dict[str, Any]) -> None:
    assert Cluster(small, TRAIN).node_pool["template"]["spec"]["terminationGracePeriod"] == "1h"


def test_replacements_keep_the_pools_pace_and_idle_nodes_need_not(small: dict[str, Any]) -> None:
    spec = Cluster(small, {**TRAIN, "upgrade": {"max-unavailable": 2}}).node_pool
    assert spec["disruption"]["budgets"] == [{"nodes": "2", "reasons": ["Drifted"]}]


# How many


def test_karpenter_may_make_what_is_above_the_minimum_and_no_more(small: dict[str, Any]) -> None:
    assert Cluster(small, TRAIN).node_pool["limits"] == {"nodes": "2", "cpu": "192", "nvidia.com/gpu": "16"}


def test_limits_of_a_partitioned_pool_are_in_the_units_that_its_nodes_report(small: dict[str, Any]) -> None:
    single = {**SERVE, "mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}}
    assert Cluster(small, single).node_pool["limits"]["nvidia.com/gpu"] == "112", (
        "16 GPUs would be fewer than the slices of the first node: there would never be a second"
    )
    mixed = Cluster(small, SERVE).node_pool["limits"]
    assert mixed == {"nodes": "2", "cpu": "192", "nvidia.com/mig-1g.5gb": "112"}


# Slices and replicas, which EC2 knows nothing of


@pytest.mark.parametrize("pool", [TRAIN, EFA, ARM])
def test_whole_gpus_need_no_overlay(small: dict[str, Any], pool: dict[str, Any]) -> None:
    assert "NodeOverlay" not in Cluster(small, pool).kinds


@pytest.mark.parametrize(
    ("pool", "capacity"),
    [
        (SERVE, {"nvidia.com/gpu": "0", "nvidia.com/mig-1g.5gb": "56"}),
        ({**SERVE, "mig": {"layout": {"1g.5gb": 7}, "strategy": "single"}}, {"nvidia.com/gpu": "56"}),
        (SPOT, {"nvidia.com/gpu": "0", "nvidia.com/gpu.shared": "16"}),
        (
            {**SERVE, "mig": {"per-gpu": [{"gpus": 2, "slices": {"3g.20gb": 2}}]}},
            {"nvidia.com/gpu": "6", "nvidia.com/mig-3g.20gb": "4"},
        ),
    ],
    ids=["mixed", "single", "shared", "partly-whole"],
)
def test_an_overlay_says_what_a_node_will_report(
    small: dict[str, Any], pool: dict[str, Any], capacity: dict[str, str]
) -> None:
    cluster = Cluster(small, pool)
    assert cluster.capacity == capacity
    reported = {key: str(count) for key, count in extended_resources(cluster.environment, "pool").items()}
    assert {key: count for key, count in cluster.capacity.items() if count != "0"} == reported


def test_an_overlay_is_for_the_nodes_of_its_pool_alone(small: dict[str, Any]) -> None:
    assert Cluster(small, SERVE).spec("NodeOverlay")["requirements"] == [
        {"key": "karpenter.sh/nodepool", "operator": "In", "values": ["pool"]}
    ]
