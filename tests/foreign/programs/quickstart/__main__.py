"""A GPU cluster for two teams in one file, with the mistakes that templates on the web make."""

from pathlib import Path

import pulumi
import pulumi_aws as aws
from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import Namespace, PersistentVolume, ResourceQuota, ResourceQuotaPatch, Service
from pulumi_kubernetes.helm.v3 import Release
from pulumi_kubernetes.helm.v4 import Chart
from pulumi_kubernetes.yaml import ConfigFile
from pulumi_kubernetes.yaml.v2 import ConfigGroup

role = "arn:aws:iam::111122223333:role/eks"
subnets = ["subnet-0a", "subnet-0b"]
cluster = aws.eks.Cluster("ml", role_arn=role, vpc_config={"subnet_ids": subnets, "endpoint_public_access": True})
aws.eks.NodeGroup(
    "gpus",
    cluster_name=cluster.name,
    node_role_arn=role,
    subnet_ids=subnets,
    instance_types=["g5.12xlarge"],
    scaling_config={"min_size": 0, "max_size": 8, "desired_size": 2},
)
for team in ("vision", "speech"):
    aws.eks.PodIdentityAssociation(
        f"{team}-jobs",
        cluster_name=cluster.name,
        namespace=team,
        service_account="jobs",
        role_arn="arn:aws:iam::111122223333:role/jobs",
        disable_session_tags=team == "speech",
    )

teams = {name: Namespace(name, metadata={"name": name}) for name in ("vision", "speech")}
ResourceQuota("vision-gpus", metadata={"name": "gpus", "namespace": "vision"}, spec={"hard": {"nvidia.com/gpu": "4"}})
ResourceQuotaPatch(
    "speech-gpus", metadata={"name": "gpus", "namespace": "speech"}, spec={"hard": {"limits.nvidia.com/gpu": "4"}}
)

labels = {"app": "notebook"}
Deployment(
    "notebook",
    metadata={"name": "notebook", "namespace": teams["vision"].metadata.name},
    spec={
        "selector": {"match_labels": labels},
        "template": {
            "metadata": {"labels": labels},
            "spec": {
                "runtime_class_name": "nvidia",
                "host_ipc": True,
                "containers": [
                    {
                        "name": "notebook",
                        "image": "jupyter/tensorflow-notebook",
                        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}],
                        "security_context": {"privileged": True},
                    }
                ],
            },
        },
    },
)
Service(
    "notebook",
    metadata={"name": "notebook", "namespace": "vision"},
    spec={"type": "LoadBalancer", "selector": labels, "ports": [{"port": 80}]},
)

ConfigFile("people", file="people.yaml")
ConfigGroup("network", yaml=pulumi.Output.from_input(Path("network.yaml").read_text("utf-8")))
CustomResource(
    "queue",
    api_version="kueue.x-k8s.io/v1beta2",
    kind="ClusterQueue",
    metadata={"name": "cluster-queue"},
    spec={
        "cohortName": "all",
        "namespaceSelector": {},
        "preemption": {"reclaimWithinCohort": "Never"},
        "resourceGroups": [
            {
                "coveredResources": ["nvidia.com/gpu"],
                "flavors": [{"name": "default", "resources": [{"name": "nvidia.com/gpu", "nominalQuota": 32}]}],
            }
        ],
    },
)
CustomResource(
    "more",
    api_version="karpenter.sh/v1",
    kind="NodePool",
    metadata={"name": "more"},
    spec={
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "more"},
                "requirements": [{"key": "karpenter.k8s.aws/instance-family", "operator": "In", "values": ["g6"]}],
                "taints": [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}],
            }
        }
    },
)
PersistentVolume(
    "models",
    metadata={"name": "models"},
    spec={
        "capacity": {"storage": "1Ti"},
        "access_modes": ["ReadOnlyMany"],
        "csi": {"driver": "s3.csi.aws.com", "volume_handle": "m", "volume_attributes": {"bucketName": "models"}},
    },
)
Chart("agent", chart="./agent", namespace="speech")
Release(
    "tracking",
    name="tracking",
    chart="mlflow",
    namespace="vision",
    version="1.0.0",
    values={"endpoint": cluster.endpoint},
    skip_await=True,
)
Release("notes", name="notes", chart="./notes", namespace="vision", values={"debug": True}, skip_await=True)
Release(
    "gpu-operator",
    name="gpu-operator",
    chart="gpu-operator",
    namespace="gpu-operator",
    values={"cdi": {"nriPluginEnabled": True}},
)
