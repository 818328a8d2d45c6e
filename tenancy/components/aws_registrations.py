"""The AWS half of a plan as its programs register it, without an engine and without AWS."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
from google.protobuf import json_format
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks, set_mocks
from pulumi.runtime.stack import run_pulumi_func

from tenancy.components.aws.cluster import PlannedCluster
from tenancy.components.aws.data import SharedAws
from tenancy.components.aws.tenant_aws import TenantAws
from tenancy.components.services import service_add_ons
from tenancy.planning import Plan
from tenancy.planning.aws.cluster import AccountPlan
from tenancy.planning.aws.documents import partition

AWS_TYPES = "aws:"
CLUSTER, PLATFORM, TENANTS = "cluster", "platform", "tenants/"
"""Parts of a plan; a tenant's is `tenants/<name>`."""
_PART_TYPE = "gpu-tenancy:index:Part"

_ARNS: Mapping[str, str] = {
    "iam/role:Role": "iam::{account}:role{path}{name}",
    "iam/policy:Policy": "iam::{account}:policy{path}{name}",
    "s3/bucket:Bucket": "s3:::{bucket}",
    "sqs/queue:Queue": "sqs:{region}:{account}:{name}",
    "sns/topic:Topic": "sns:{region}:{account}:{name}",
    "cloudwatch/logGroup:LogGroup": "logs:{region}:{account}:log-group:{name}",
    "eks/cluster:Cluster": "eks:{region}:{account}:cluster/{name}",
    "ecr/repository:Repository": "ecr:{region}:{account}:repository/{name}",
}
"""ARNs that follow from the name, after `arn:<partition>:`."""
_NAME_PROPERTIES = {
    **dict.fromkeys(("iam/role:Role", "eks/cluster:Cluster", "ecr/repository:Repository"), "name"),
    **dict.fromkeys(("cloudwatch/logGroup:LogGroup", "cloudwatch/eventRule:EventRule"), "name"),
    "s3/bucket:Bucket": "bucket",
}
"""Types whose id is the name that is given."""


@dataclass(frozen=True, slots=True)
class AwsRegistration:
    """A resource of AWS as the engine would be told of it."""

    part: str
    kind: str
    """Type token, such as `aws:iam/role:Role`."""
    name: str
    """Logical name."""
    properties: Mapping[str, Any]
    """Under the provider's names. What AWS assigns is `<… of TYPE NAME>`, and what AWS is asked `<…>`."""
    protected: bool
    retained: bool
    """Whether it stays on AWS when its stack is destroyed."""
    unresolved: tuple[str, ...]
    """Properties that depend on other resources and have no value here."""


def aws_registrations(plan: Plan) -> tuple[AwsRegistration, ...]:
    """Every resource on AWS of an environment, by part, type and name; none where AWS is switched off.

    Sets the runtime of the Pulumi SDK: for a process that runs no program of its own.
    """
    if plan.account is None:
        return ()
    monitor = _Monitor(plan.account)
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)

    async def program() -> None:
        _program(plan)

    try:
        set_mocks(_Answers(plan.account), "gpu-tenancy", plan.environment, preview=False, monitor=monitor)
        loop.run_until_complete(run_pulumi_func(program))
    finally:
        loop.close()
        asyncio.set_event_loop(None)
    return tuple(
        sorted(
            monitor.registrations(), key=lambda registration: (registration.part, registration.kind, registration.name)
        )
    )


def _program(plan: Plan) -> None:
    """The components of AWS alone, with the names that they have in the stacks' programs."""
    if plan.cluster:
        PlannedCluster(plan.cluster.name, plan.cluster, _part_opts(CLUSTER))
    platform = _part_opts(PLATFORM)
    data = SharedAws("platform-data", plan.platform.data, (), platform) if plan.platform.data else None
    if plan.platform.services:
        service_add_ons("platform-services", plan.platform.services, platform)
    for tenant in plan.tenants:
        if tenant.aws:
            tenant_opts = _part_opts(f"{TENANTS}{tenant.name}")
            namespaces = {space.name: _Namespace(space.name) for space in tenant.namespaces}
            TenantAws(f"{tenant.name}-aws", tenant.aws, namespaces, data, tenant_opts)


def _part_opts(part: str) -> pulumi.ResourceOptions:
    return pulumi.ResourceOptions(parent=pulumi.ComponentResource(_PART_TYPE, part))


class _Namespace:
    """Stands for the objects of a namespace, which are none of AWS'."""

    def __init__(self, name: str) -> None:
        self.namespace: pulumi.Resource = pulumi.ComponentResource("gpu-tenancy:index:Namespace", name)
        self.isolation_resources: list[pulumi.Resource] = []


class _Answers(Mocks):
    """AWS' answers: names of what is not known before AWS is asked."""

    def __init__(self, account: AccountPlan) -> None:
        self.account = account

    def call(self, args: MockCallArgs) -> Any:
        function = args.token.rpartition(":")[2]
        answer = f"<what AWS answers to {function} of {', '.join(str(text) for text in _argument_texts(args.args))}>"
        if function == "getAddonVersion":
            return {"version": answer}
        return {
            "value": answer,
            "id": answer,
            "ids": [answer],
            "vpcEndpointType": next((v for v in _argument_texts(args.args) if v in ("Gateway", "Interface")), answer),
            "mainRouteTableId": answer,
            "enableDnsSupport": True,
            "enableDnsHostnames": True,
            "cidrBlock": answer,
            "cidrBlockAssociations": [{"associationId": answer, "cidrBlock": answer, "state": "associated"}],
        }

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, dict[str, Any]]:
        kind = args.typ.removeprefix(AWS_TYPES)
        short = kind.rpartition(":")[2]

        def assigned(property_name: str) -> str:
            return f"<{property_name} of {short} {args.name}>"

        form, account = _ARNS.get(kind), self.account
        values = {"path": "/", **args.inputs, "account": account.account, "region": account.region}
        physical_name = args.inputs.get(_NAME_PROPERTIES.get(kind, ""))
        assigned_outputs = {
            "arn": f"arn:{partition(account.region)}:{form.format_map(values)}" if form else assigned("ARN"),
            "keyId": assigned("id"),
            "allocationId": assigned("allocation id"),
            "latestVersion": 1,
            "certificateAuthority": {"data": assigned("certificate authority")},
            "endpoint": assigned("endpoint"),
            "identities": [{"oidcs": [{"issuer": assigned("OIDC issuer")}]}],
        }
        outputs = {**assigned_outputs, **args.inputs}
        if kind == "eks/cluster:Cluster":
            group = {"clusterSecurityGroupId": assigned("cluster security group")}
            outputs["vpcConfig"] = {**outputs["vpcConfig"], **group}
        return physical_name or assigned("id"), outputs


def _argument_texts(value: Any) -> Iterator[str]:
    """Every text in the arguments of a question."""
    if isinstance(value, Mapping):
        for item in value.values():
            yield from _argument_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _argument_texts(item)
    elif isinstance(value, str):
        yield value


class _Monitor(MockMonitor):
    def __init__(self, account: AccountPlan) -> None:
        super().__init__(_Answers(account))
        self.requests: dict[str, Any] = {}

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 (the engine's name)
        response = super().RegisterResource(request)
        self.requests[response.urn] = request
        return response

    def registrations(self) -> Iterator[AwsRegistration]:
        """The AWS resources that were registered."""
        for urn, request in self.requests.items():
            if request.custom and request.type.startswith(AWS_TYPES):
                properties = _plain_values(json_format.MessageToDict(request.object))
                yield AwsRegistration(
                    self._part(urn),
                    request.type,
                    request.name,
                    properties,
                    request.protect,
                    request.retainOnDelete,
                    tuple(sorted(set(request.propertyDependencies) - set(properties) - {"arn"})),
                )

    def _part(self, urn: str) -> str:
        while self.requests[urn].type != _PART_TYPE:
            urn = self.requests[urn].parent
        return self.requests[urn].name


def _plain_values(value: Any) -> Any:
    """Without the SDK's wrapping of secrets, and with whole numbers as such."""
    if isinstance(value, dict):
        if "4dabf18193072939515e22adb298388d" in value:
            return _plain_values(value.get("value"))
        return {key: _plain_values(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [_plain_values(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
