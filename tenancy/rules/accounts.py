"""AWS accounts and EKS clusters."""

from __future__ import annotations

from tenancy.rules import aws
from tenancy.rules.model import Rule, Severity

RULES: tuple[Rule, ...] = (
    Rule(
        id="aws-01",
        title="an ARN is of the environment's own account, partition and region",
        why="a resource of another account can be changed by that account at any time",
        fix="use the ARN of a resource in this account",
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE_POLICY: "policy"},
    ),
    Rule(
        id="aws-02",
        title="a policy document is no longer than AWS accepts",
        why="AWS refuses a longer one in the middle of a run, and the tenant keeps its previous rights",
        fix="give the tenant fewer grants, or one wider prefix",
        severity=Severity.MEDIUM,
        aws_settings={aws.POLICY: "policy"},
    ),
    Rule(
        id="aws-03",
        title="the account's AWS quotas cover the resources of all tenants together",
        why="the resources above a quota fail in the middle of a run",
        fix="have the quota raised by AWS and write the new value under aws.service-quotas, or use another account",
        severity=Severity.MEDIUM,
        aws_settings={aws.ROLE: "name"},
    ),
    Rule(
        id="aws-04",
        title=(
            "a shared role grants only what its session tags separate: prefixes named after the namespace, and "
            "shared data"
        ),
        why=(
            "the tags name the namespace and the service account, not the tenant: other grants would apply to all "
            "tenants"
        ),
        fix=(
            "name the prefix <tenant>--<namespace>/ and limit the grant to that namespace, or set aws.identity to "
            "pod-identity"
        ),
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE_POLICY: "policy"},
    ),
    Rule(
        id="aws-05",
        title="a pipeline is one repository and one branch or environment, without a wildcard",
        why="a wildcard lets every branch, or every repository of the forge, act as the tenant",
        fix="name the repository, and one branch or environment",
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE: "assumeRolePolicy"},
    ),
    Rule(
        id="aws-06",
        title="an IAM role is mapped to one group of people",
        why="an identity that takes the role would be in two groups at once, and no file would show it",
        fix="give each group a role of its own",
        aws_settings={aws.ENTRY: "kubernetesGroups"},
    ),
    Rule(
        id="aws-07",
        title="AWS grants belong to a service account other than default",
        why="pods that name no service account run as default: all of them would have the grants",
        fix="name a service account, such as workload",
        aws_settings={aws.POD_IDENTITY: "serviceAccount"},
    ),
    Rule(
        id="eks-01",
        title="the API server is private, or open to named ranges",
        why="with an endpoint open to the internet, one leaked credential gives access to every tenant",
        fix="list the ranges of your offices and runners, or leave it private",
        severity=Severity.CRITICAL,
        aws_settings={aws.CLUSTER: "vpcConfig"},
    ),
    Rule(
        id="eks-02",
        title="access to the cluster is granted only by access entries, none of them automatic",
        why=(
            "an identity that edits the config map aws-auth, or created the cluster, administers it without an access "
            "entry"
        ),
        fix=(
            "set authenticationMode to API and bootstrapClusterCreatorAdminPermissions to false when the cluster is "
            "made"
        ),
        aws_settings={aws.CLUSTER: "accessConfig"},
    ),
    Rule(
        id="eks-03",
        title="a cluster with tenants on it is not deleted in one step",
        why="destroying the wrong stack would delete the work of every tenant",
        fix="set deletionProtection to true, or protect the resource",
        severity=Severity.MEDIUM,
        aws_settings={aws.CLUSTER: "deletionProtection"},
    ),
    Rule(
        id="eks-04",
        title="a security group admits no connections from the whole internet",
        why="nodes and endpoints behind the group are reached, and attacked, from anywhere",
        fix="name the address ranges or security groups that connect",
        advises=True,
    ),
)
