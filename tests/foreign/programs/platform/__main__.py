"""The platform of a cluster: nodes with and without Karpenter, NVIDIA's operator and Kueue."""

import json

import pulumi_aws as aws
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.core.v1 import Namespace
from pulumi_kubernetes.helm.v3 import Release

ROLE = "arn:aws:iam::111122223333:role/eks"
SUBNETS = ["subnet-0a", "subnet-0b"]
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}

cluster = aws.eks.Cluster(
    "ml",
    role_arn=ROLE,
    vpc_config={"subnet_ids": SUBNETS, "endpoint_public_access": False, "endpoint_private_access": True},
    access_config={"authentication_mode": "API", "bootstrap_cluster_creator_admin_permissions": False},
)
template = aws.ec2.LaunchTemplate(
    "gpus",
    metadata_options={"http_tokens": "required", "http_put_response_hop_limit": 1},
    block_device_mappings=[{"device_name": "/dev/xvda", "ebs": {"volume_size": 200, "encrypted": "true"}}],
)
aws.eks.NodeGroup(
    "gpus",
    cluster_name=cluster.name,
    node_role_arn=ROLE,
    subnet_ids=SUBNETS,
    ami_type="AL2023_x86_64_NVIDIA",
    release_version="1.36.3-20260903",
    instance_types=["g6.12xlarge"],
    launch_template={"id": template.id, "version": template.latest_version.apply(str)},
    scaling_config={"min_size": 0, "max_size": 8, "desired_size": 2},
    taints=[{**TAINT, "effect": "NO_SCHEDULE"}],
)
CustomResource(
    "class",
    api_version="karpenter.k8s.aws/v1",
    kind="EC2NodeClass",
    metadata={"name": "gpu"},
    spec={
        "role": "node",
        "amiSelectorTerms": [{"alias": "al2023@v20260903"}],
        "metadataOptions": {"httpTokens": "required", "httpPutResponseHopLimit": 1},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "200Gi", "encrypted": True}}],
    },
)
CustomResource(
    "pool",
    api_version="karpenter.sh/v1",
    kind="NodePool",
    metadata={"name": "gpu"},
    spec={
        "limits": {"nvidia.com/gpu": "16"},
        "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m"},
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"},
                "requirements": [
                    {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["g6.12xlarge"]}
                ],
                "taints": [TAINT],
                "expireAfter": "Never",
            }
        },
    },
)
for name in ("gpu-operator", "kueue-system", "monitoring"):
    Namespace(name, metadata={"name": name})
everywhere = {"tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]}
Release(
    "gpu-operator",
    name="gpu-operator",
    chart="./gpu-operator",
    namespace="gpu-operator",
    values={"daemonsets": everywhere, "node-feature-discovery": {"worker": everywhere}},
)
Release(
    "kueue",
    name="kueue",
    chart="./kueue",
    namespace="kueue-system",
    values={
        "managerConfig": {
            "controllerManagerConfigYaml": json.dumps(
                {"manageJobsWithoutQueueName": True, "featureGates": {"ReclaimablePods": False}}
            )
        }
    },
)
Release("prometheus", name="prometheus", chart="./prometheus", namespace="monitoring")
