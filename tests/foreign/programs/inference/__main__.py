"""One team's own program: nothing of the platform is in it, and its ingress has rules of another kind."""

from pulumi_kubernetes.apiextensions import CustomResource
from pulumi_kubernetes.apps.v1 import Deployment
from pulumi_kubernetes.core.v1 import Service, ServiceAccount
from pulumi_kubernetes.helm.v4 import Chart
from pulumi_kubernetes.yaml import ConfigFile

NAMESPACE = "scoring"
LABELS = {"app": "scorer"}
account = ServiceAccount(
    "scorer",
    metadata={
        "name": "scorer",
        "namespace": NAMESPACE,
        "annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/scoring-scorer"},
    },
)
Deployment(
    "scorer",
    metadata={"name": "scorer", "namespace": NAMESPACE},
    spec={
        "selector": {"match_labels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "service_account_name": "scorer",
                "security_context": {"run_as_non_root": True, "seccomp_profile": {"type": "RuntimeDefault"}},
                "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
                "containers": [
                    {
                        "name": "scorer",
                        "image": "registry.example/scoring/scorer:7",
                        "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "void"}],
                        "resources": {"limits": {"nvidia.com/mig-1g.10gb": "1"}},
                        "security_context": {"allow_privilege_escalation": False, "capabilities": {"drop": ["ALL"]}},
                    }
                ],
            },
        },
    },
)
Service(
    "scorer",
    metadata={"name": "scorer", "namespace": NAMESPACE},
    spec={"selector": LABELS, "ports": [{"port": 8080}]},
)
# Calico's kind of the same name: its rules are no business of a rule on Kubernetes' own.
CustomResource(
    "egress",
    api_version="crd.projectcalico.org/v1",
    kind="NetworkPolicy",
    metadata={"name": "egress", "namespace": NAMESPACE},
    spec={"selector": "all()", "types": ["Egress"], "egress": [{"action": "Deny"}]},
)
ConfigFile("retrain", file="retrain.yaml")
Chart("cache", chart="./cache", namespace=NAMESPACE)
