"""Values of an environment that are outputs of other resources, unknown until these are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi

from tenancy.spec.fields.environment import Environment


@dataclass(frozen=True, slots=True)
class ClusterInputs:
    """Outputs of other resources that take the place of values in the environment.

    The environment has a well-formed stand-in for each, by which it is validated; wherever the plan has the stand-in,
    the resource gets the output instead, also in the first preview, when it is unknown.
    """

    oidc_issuer: pulumi.Input[str] | None = None
    """The cluster's OIDC issuer, with or without `https://`. Stand-in: `aws.oidc_issuer`."""
    vpc_id: pulumi.Input[str] | None = None
    """Id of an existing VPC. Stand-in: `aws.network.vpc`."""
    subnet_ids: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """Ids of private subnets of that VPC, by zone. Stand-ins: `aws.network.subnets`."""
    role_arns: Mapping[str, pulumi.Input[str]] = field(default_factory=dict)
    """ARNs of IAM roles (of the platform, of people), by the stand-in that the environment has for each."""
    cluster_name: pulumi.Input[str] | None = None
    """Name of the EKS cluster; equal to `cluster.name`, from which names and ARNs follow. Given as an output, AWS
    resources of the cluster are made after it. RunError if it turns out to be another name."""

    def pairs(self, environment: Environment) -> Iterator[tuple[str, pulumi.Output[str]]]:
        """Stand-ins and what takes their places; ValueError for an output whose stand-in is missing."""
        network, aws = environment.aws.network, environment.aws
        candidates: list[tuple[str, str | None, pulumi.Input[str] | None]] = [
            ("aws.oidc_issuer", aws.oidc_issuer, self.oidc_issuer),
            ("aws.network.vpc", network.vpc, self.vpc_id),
            *((f"aws.network.subnets of {z}", network.subnets.get(z), output) for z, output in self.subnet_ids.items()),
        ]
        environment_roles = {aws.platform_role, *aws.group_roles.values()}
        candidates += [
            (f"{stand_in}: a role of the environment", stand_in if stand_in in environment_roles else None, output)
            for stand_in, output in self.role_arns.items()
        ]
        for field_name, stand_in, output in candidates:
            if output is None:
                continue
            if not stand_in:
                raise ValueError(
                    f"given an output for {field_name}, which the environment does not have; rule: an output takes the "
                    "place of a stand-in, by which the environment is validated; change: write a well-formed value"
                )
            yield stand_in, pulumi.Output.from_input(output).apply(lambda value: value.removeprefix("https://"))


Transformation = Callable[[pulumi.ResourceTransformationArgs], pulumi.ResourceTransformationResult | None]


def with_inputs(inputs: ClusterInputs | None, environment: Environment) -> list[Transformation]:
    """Transformations that put outputs in the places of their stand-ins, in all resources below a component."""
    if inputs is None:
        return []
    pairs = dict(inputs.pairs(environment))
    cluster = (
        _require_same_name(inputs.cluster_name, environment.cluster.name) if inputs.cluster_name is not None else None
    )
    if not pairs and cluster is None:
        return []

    def replace_outputs(value: Any, key: str = "") -> Any:
        if isinstance(value, str):
            if cluster is not None and key == "clusterName" and value == environment.cluster.name:
                return cluster
            if stand_ins := [stand_in for stand_in in pairs if stand_in in value]:
                return pulumi.Output.all(*(pairs[stand_in] for stand_in in stand_ins)).apply(
                    lambda output_values: _replace_stand_ins(value, stand_ins, output_values)
                )
            return value
        if isinstance(value, Mapping):
            return {name: replace_outputs(item, str(name)) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [replace_outputs(item) for item in value]
        if isinstance(value, pulumi.Output):
            return value.apply(replace_outputs)
        return value

    def transformation(args: pulumi.ResourceTransformationArgs) -> pulumi.ResourceTransformationResult:
        return pulumi.ResourceTransformationResult(replace_outputs(args.props), args.opts)

    return [transformation]


def _replace_stand_ins(text: str, stand_ins: Sequence[str], values: Sequence[str]) -> str:
    for stand_in, value in zip(stand_ins, values, strict=True):
        text = text.replace(stand_in, value)
    return text


def _require_same_name(cluster_name: pulumi.Input[str], name: str) -> pulumi.Output[str]:
    def checked(actual_name: str) -> str:
        if actual_name != name:
            raise pulumi.RunError(
                f"given a cluster named {actual_name}, and cluster.name: {name}; rule: names of roles and ARNs follow "
                f'from cluster.name; change: name the cluster {name} (name="{name}"), or write {actual_name} as '
                "cluster.name"
            )
        return actual_name

    return pulumi.Output.from_input(cluster_name).apply(checked)
