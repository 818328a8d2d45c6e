from __future__ import annotations

import json
from collections.abc import Mapping

import pulumi

from tenancy.catalog.days import today
from tenancy.components.aws import cluster as planned
from tenancy.components.aws.network import GivenNetwork
from tenancy.components.customize import Change, Customization
from tenancy.components.inputs import ClusterInputs, with_inputs
from tenancy.planning import make_plan
from tenancy.planning.aws.cluster import CLUSTER_IS_BUILT_RULE
from tenancy.spec.fields.environment import Environment
from tenancy.spec.inputs import EnvironmentInput, TenantsInput, load_spec


class GpuCluster(planned.PlannedCluster):
    """An EKS cluster for GPUs: network or an existing one, control plane, node pools and add-ons, from an environment
    with `aws.enabled`."""

    environment: Environment
    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    oidc_issuer: pulumi.Output[str]
    """Without `https://`, as `aws.oidc_issuer` has it."""
    kubeconfig: pulumi.Output[str]
    """A kubeconfig for a Kubernetes provider; its user is the AWS identity that runs the program, by `aws eks
    get-token`."""

    def __init__(
        self,
        name: str,
        environment: EnvironmentInput,
        tenants: TenantsInput | None = None,
        *,
        inputs: ClusterInputs | None = None,
        customize: Mapping[str, Change] | None = None,
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """Make the cluster.

        Args:
            name: Logical name, unique in the stack.
            environment: A model, a mapping in Python's names, or the path of `environment.yaml` or of its folder.
            tenants: All tenants, by which pools and guarantees are checked together; see `validate`.
            inputs: Outputs that take the places of values in the environment: `vpc_id` with `subnet_ids`, `role_arns`.
                Whether the VPC has its endpoints is checked once its id is known.
            customize: Changes of single resources, see docs/library.md. Default: none.
            opts: `providers` has an AWS provider of the environment's account and region.

        Raises:
            SpecError: with every problem of the environment and its tenants.
            ValueError: if `aws.enabled` is false, or for an unknown target of `customize`.
            pulumi.RunError: if an existing VPC lacks an endpoint.
        """
        day = today()
        spec = load_spec(environment, tenants, day)
        self.environment = spec.environment
        plan = make_plan(spec, day).cluster
        if plan is None:
            raise ValueError(
                f"given GpuCluster {name} and an environment whose cluster exists; rule: {CLUSTER_IS_BUILT_RULE}; "
                "change: write both, or use GpuPlatform on the cluster that exists"
            )
        existing_network = (
            GivenNetwork(inputs.vpc_id, inputs.subnet_ids) if inputs and inputs.vpc_id is not None else None
        )
        changes = Customization(customize or {}, f"GpuCluster {name}")
        transformations = [*changes.transformations(), *with_inputs(inputs, self.environment)]
        transform_opts = pulumi.ResourceOptions(transformations=transformations)
        super().__init__(
            name, plan, pulumi.ResourceOptions.merge(opts, transform_opts), existing_network=existing_network
        )
        changes.check_used()
        cluster = self.eks.cluster
        self.name, self.endpoint = cluster.name, cluster.endpoint
        self.oidc_issuer = cluster.identities[0].oidcs[0].issuer.apply(lambda url: url.removeprefix("https://"))
        self.kubeconfig = pulumi.Output.all(
            cluster.name, cluster.endpoint, cluster.certificate_authority.data, self.eks.access.id
        ).apply(lambda cluster_facts: _kubeconfig(*cluster_facts[:3], plan.region, self.environment.cluster.context))


def _kubeconfig(name: str, endpoint: str, authority: str, region: str, context: str) -> str:
    token = {
        "apiVersion": "client.authentication.k8s.io/v1beta1",
        "command": "aws",
        "args": ["--region", region, "eks", "get-token", "--cluster-name", name, "--output", "json"],
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": context, "cluster": {"server": endpoint, "certificate-authority-data": authority}},
            ],
            "users": [{"name": context, "user": {"exec": token}}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "current-context": context,
        }
    )
