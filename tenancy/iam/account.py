"""A plan as IAM sees it: who its tenants are, what guards each thing, and which permissions a call asks for.

What is not in the plan is not known here: other accounts and roles, and policies of the organisation and of VPC
endpoints. For file systems and buckets that are managed elsewhere, only the roles' own policies are judged.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from tenancy.iam.conditions import texts
from tenancy.iam.evaluator import Compiled, Decision, Document, Layer, Policies, Statement, decide, statements
from tenancy.iam.requests import AwsRequest, Principal, ResourceClass, request, role_session
from tenancy.planning.aws import documents, grants, iam_roles, kinds
from tenancy.planning.aws.tenant_models import Association, TenantRolePlan
from tenancy.planning.common import names
from tenancy.planning.plan_model import Plan
from tenancy.spec.fields.data import Access, KeyPer
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.tenant import Tenant

PLATFORM = "platform"
PIPELINE = "its pipeline"
"""No namespace is called so: names of namespaces have no spaces."""
SESSION = "session"


@dataclass(frozen=True, slots=True)
class AccountIdentity:
    """A principal with a role of the plan's."""

    tenant: str
    namespace: str
    """The namespace whose pods it is; or PIPELINE, or `break-glass` of the platform's."""
    role: TenantRolePlan
    principal: Principal

    def __str__(self) -> str:
        return f"{self.tenant}/{self.namespace}"


@dataclass(frozen=True, slots=True)
class AwsTarget:
    """The resource of a request, and its resource policy."""

    title: str
    policy: Document | None = None
    guard: ResourceClass = ResourceClass.ORDINARY


class Step(NamedTuple):
    """One permission that a call asks for."""

    target: AwsTarget
    request: AwsRequest


@dataclass(frozen=True, slots=True)
class Answer:
    """AWS' answer to a call: to all of its steps, or to the first that it refuses."""

    identity: AccountIdentity
    steps: tuple[tuple[Step, Decision], ...]

    @property
    def allowed(self) -> bool:
        """Whether every step of the call is allowed."""
        return all(decision.allowed for _, decision in self.steps)

    def reasons(self) -> Iterator[str]:
        """For each step what decided it: action, and document and Sid of the statements, or the policy without one."""
        for step, decision in self.steps:
            if decision.by:
                statement_texts = ", ".join(self._statement_text(step, statement) for statement in decision.by)
                word = "allowed by" if decision.allowed else "denied by"
                yield f"{step.request.action} on {step.target.title} {word} {statement_texts}"
            else:
                yield f"{step.request.action} on {step.target.title}: {self._refusal_without_statement(step, decision)}"

    def allowing(self) -> Iterator[tuple[str, str]]:
        """Document and Sid of every statement that allows a step."""
        for step, decision in self.steps:
            if decision.allowed:
                yield from ((self._document(step, statement), statement.label) for statement in decision.by)

    def _statement_text(self, step: Step, statement: Statement) -> str:
        is_identity_policy = statement.layer is Layer.IDENTITY
        role_text = f"role {self.identity.role.name}, " if is_identity_policy else ""
        return f"{role_text}{self._document(step, statement)}, {statement.label}"

    def _document(self, step: Step, statement: Statement) -> str:
        if statement.layer is Layer.RESOURCE:
            return f"the policy of {step.target.title}"
        if statement.layer is Layer.BOUNDARY:
            return f"boundary {self.identity.role.boundary.rpartition('/')[2]}"
        return f"policy {self._policy_of(statement)}"

    def _policy_of(self, statement: Statement) -> str:
        policy_names = [
            name
            for name, document in self.identity.role.policies.items()
            if any(statement_document.get("Sid") == statement.label for statement_document in document["Statement"])
        ]
        return policy_names[0]

    def _refusal_without_statement(self, step: Step, decision: Decision) -> str:
        if decision.layer is Layer.RESOURCE:
            return f"the policy of {step.target.title} does not allow it"
        if decision.layer is Layer.BOUNDARY:
            return f"boundary {self.identity.role.boundary.rpartition('/')[2]} does not allow it"
        return f"role {self.identity.role.name} has no statement for it"


KEYS_OF = {
    "s3:getobject": grants.DECRYPT,
    "s3:getobjectversion": grants.DECRYPT,
    "s3:putobject": grants.ENCRYPT,
}
"""Permissions on an object's key that S3 needs in the caller's name (S3 user guide, "Using server-side encryption with
KMS")."""


@dataclass(frozen=True)
class AccountModel:
    """All identities and resources of a plan."""

    environment: Environment
    tenants: Sequence[Tenant]
    plan: Plan
    _read: dict[tuple[int, Layer], tuple[Document, tuple[Statement, ...]]] = field(default_factory=dict)

    # Identities

    @cached_property
    def identities(self) -> tuple[AccountIdentity, ...]:
        """The roles that tenants' pods and pipelines take."""
        data = self.plan.platform.data
        shared_roles = {role.arn: role for role in (data.shared_roles if data else ())}
        # A namespace may be called `ci` as well, so the purpose is ambiguous.
        pipelines = {iam_roles.ci_role_arn(self.environment, tenant) for tenant in self.tenants if tenant.ci}
        names = {
            tenant.namespace_name(namespace): namespace.name
            for tenant in self.tenants
            for namespace in tenant.namespaces
        }
        identities = []
        for tenant in self.plan.tenants:
            aws = tenant.aws
            if aws is None:
                continue
            roles = {**shared_roles, **{role.arn: role for role in aws.roles}}
            identities += [
                AccountIdentity(
                    tenant.name,
                    names[association.namespace],
                    roles[association.role],
                    self.session(roles[association.role], association),
                )
                for association in aws.associations
            ]
            pod_roles = {association.role for association in aws.associations}
            identities += [
                AccountIdentity(
                    tenant.name, PIPELINE if role.arn in pipelines else role.purpose, role, self.session(role)
                )
                for role in aws.roles
                if role.arn not in pod_roles
            ]
        if data and data.break_glass:
            role = data.break_glass.role
            identities.append(AccountIdentity(PLATFORM, role.purpose, role, self.session(role)))
        return tuple(identities)

    def session(self, role: TenantRolePlan, association: Association | None = None) -> Principal:
        """A session of the role, by Pod Identity with the tags that come along."""
        tags = pod_tags(self.environment, association) if association else None
        organisation = self.environment.aws.organization_id
        return role_session(role.arn, SESSION, tags=role.tags, session_tags=tags, organisation=organisation)

    def of_tenant(self, name: str) -> tuple[AccountIdentity, ...]:
        """The identities of one tenant."""
        return tuple(identity for identity in self.identities if identity.tenant == name)

    # Resources and their policies

    @cached_property
    def _targets(self) -> Mapping[str, AwsTarget]:
        """The plan's resources by ARN, keys by their alias."""
        environment = self.environment
        targets: dict[str, AwsTarget] = {}
        data = self.plan.platform.data
        for bucket in data.buckets if data else ():
            targets[grants.bucket_arn(environment, bucket.name)] = AwsTarget(f"bucket {bucket.name}", bucket.policy)
        for key in data.keys if data else ():
            targets[key.alias] = AwsTarget(f"key {key.alias}", key.policy, ResourceClass.KEY)
        for tenant in self.plan.tenants:
            aws = tenant.aws
            if aws is None:
                continue
            for key in aws.keys:
                targets[key.alias] = AwsTarget(f"key {key.alias}", key.policy, ResourceClass.KEY)
            for point in aws.access_points:
                targets[point.arn] = AwsTarget(f"access point {point.name}", point.policy)
            for resource in aws.owned:
                if resource.policy:
                    # A repository's policy is about the repository, and names none.
                    statements = [{"Resource": "*", **s} for s in resource.policy.document["Statement"]]
                    policy = {**resource.policy.document, "Statement": statements}
                    targets[resource.arn] = AwsTarget(f"{resource.noun} {resource.name}", policy)
        return targets

    def things(self) -> tuple[AwsTarget, ...]:
        """Everything that the plan makes and that has a policy of its own."""
        return tuple(self._targets.values())

    def thing(self, resource: str) -> AwsTarget:
        """The resource of an ARN; for one outside the plan, its text alone."""
        service, target_key = _service(resource), resource
        if service == "s3":
            head, _, path = resource.partition("/")
            kind = path.partition("/")[0]
            target_key = f"{head}/{kind}" if head.endswith(":accesspoint") else head
        elif service == "secretsmanager" and resource not in self._targets:
            target_key = resource[:-7] if resource[-7:-6] == "-" else resource
        target = self._targets.get(target_key)
        return target or AwsTarget(f"bucket {target_key.rpartition(':')[2]}" if service == "s3" else target_key)

    def owned(self, service: str) -> tuple[str, ...]:
        """ARNs of what tenants have alone, of one service; a log group's stands for all of its streams."""
        suffixes = {kind.field: kind.pods.suffix.replace("*", "any") for kind in kinds.KINDS if kind.pods}
        without_policy = (
            resource.arn + suffixes.get(resource.kind, "")
            for tenant in self.plan.tenants
            for resource in (tenant.aws.owned if tenant.aws else ())
            if resource.policy is None
        )
        return tuple(arn for arn in (*self._targets, *without_policy) if _service(arn) == service)

    # Permissions of a call

    @cached_property
    def ambient(self) -> Mapping[str, Any]:
        """Condition keys of every request of a pod: over TLS, through the VPC's own endpoint."""
        aws = self.environment.aws
        inside = {"aws:SourceVpc": aws.network.vpc} if aws.network.vpc else {}
        return {"aws:SecureTransport": "true", "aws:VpceAccount": aws.account, **inside}

    def steps(
        self, identity: AccountIdentity, action: str, resource: str, context: Mapping[str, Any] | None = None
    ) -> Iterator[Step]:
        """The permissions that S3 and other services check for one call; without a `context` a pod's usual one.

        For an object also the permission on its key, which S3 uses in the caller's name; through an access point also
        that on its bucket ("Configuring IAM policies for using access points").
        """
        keys = self.ambient if context is None else context
        name = self.bucket_of(resource)
        if name is None:
            yield self._step(identity, action, resource, keys)
            return
        bucket_keys = keys
        if point := self._point(identity.tenant, name):
            inside = resource.partition("/")[2]
            yield self._step(identity, action, f"{point}/object/{inside}" if inside else point, keys)
            bucket_keys = {
                **keys,
                "s3:DataAccessPointAccount": self.environment.aws.account,
                "s3:DataAccessPointArn": point,
            }
        yield self._step(identity, action, resource, bucket_keys)
        if (use := KEYS_OF.get(action.lower())) and (
            key := self.key_of(identity, use, name, resource.partition("/")[2])
        ):
            yield self._key_step(identity, use, key, name, keys)

    def ask(
        self, identity: AccountIdentity, action: str, resource: str, context: Mapping[str, Any] | None = None
    ) -> Answer:
        """Whether an identity may call an action on a resource, with every step up to the first refusal."""
        decided_steps = []
        for step in self.steps(identity, action, resource, context):
            decided_steps.append((step, self.decide(identity, step)))
            if not decided_steps[-1][1].allowed:
                return Answer(identity, (decided_steps[-1],))
        return Answer(identity, tuple(decided_steps))

    def decide(self, identity: AccountIdentity, step: Step) -> Decision:
        """AWS' decision on one step, by the policies of the plan."""
        policies = self.policies(identity, step.target)

        def read(document: Document, layer: Layer) -> tuple[Statement, ...]:
            # Each document is read once for all identities, and kept, so that no other document gets its id.
            cache_key = (id(document), layer)
            if cache_key not in self._read:
                self._read[cache_key] = document, statements(document, layer, policies.guard)
            return self._read[cache_key][1]

        compiled_policies = Compiled(
            scps=(),
            rcps=(),
            resource=read(policies.resource, Layer.RESOURCE) if policies.resource else (),
            identity=tuple(statement for document in policies.identity for statement in read(document, Layer.IDENTITY)),
            boundary=read(policies.boundary, Layer.BOUNDARY) if policies.boundary else None,
            session=None,
            guard=policies.guard,
        )
        return decide(compiled_policies, step.request)

    def policies(self, who: AccountIdentity, thing: AwsTarget) -> Policies:
        """All documents that decide on requests of this identity on this resource."""
        data = self.plan.platform.data
        boundary = data.boundary if data and data.boundary and data.boundary.arn == who.role.boundary else None
        identity = list(who.role.policies.values())
        document = boundary.document if boundary else None
        return Policies(identity=identity, boundary=document, resource=thing.policy, guard=thing.guard)

    def _step(self, identity: AccountIdentity, action: str, resource: str, context: Mapping[str, Any]) -> Step:
        account = self.environment.aws.account
        aws_request = request(
            identity.principal, action, resource, context, resource_account=_account(resource) or account
        )
        return Step(self.thing(resource), aws_request)

    def bucket_of(self, resource: str) -> str | None:
        """Name of the environment's bucket that an ARN is of or in."""
        head, name = resource.partition("/")[0].rsplit(":", 1)
        return name if _service(resource) == "s3" and head.endswith("::") and name in self.environment.buckets else None

    def _point(self, tenant: str, bucket: str) -> str | None:
        aws = next((tenant_plan.aws for tenant_plan in self.plan.tenants if tenant_plan.name == tenant), None)
        return next((point.arn for point in aws.access_points if point.bucket == bucket), None) if aws else None

    def key_of(self, identity: AccountIdentity, use: str, bucket: str, key: str) -> str | None:
        """Alias or ARN of the key: where each tenant has its own it is the writer's; None: S3's own, of no policy."""
        spec = self.environment.buckets[bucket]
        if spec.existing:
            return spec.kms_key_arn
        if spec.kms_key_scope is KeyPer.TENANT:
            writers = (
                self.tenants
                if use == grants.DECRYPT
                else [tenant for tenant in self.tenants if tenant.tenant == identity.tenant]
            )
            for tenant in writers:
                for grant in tenant.storage:
                    writes = grant.bucket == bucket and grant.access is not Access.READ_ONLY
                    if writes and key.startswith(grant.prefix):
                        return names.tenant_key_alias(self.environment, tenant)
        return names.bucket_key_alias(self.environment, bucket)

    def _key_step(self, identity: AccountIdentity, use: str, key: str, bucket: str, context: Mapping[str, Any]) -> Step:
        account = self.environment.aws.account
        # With bucket keys, which are on, the context that S3 names is the bucket.
        key_context = {
            "kms:ViaService": grants.via_s3(self.environment),
            "kms:CallerAccount": account,
            "kms:EncryptionContext:aws:s3:arn": grants.bucket_arn(self.environment, bucket),
        }
        if key.startswith("arn:"):
            return Step(AwsTarget(f"key {key}"), request(identity.principal, use, key, {**context, **key_context}))
        arn, alias_keys = key_arn(self.environment, key), {"kms:ResourceAliases": [key]}
        aws_request = request(identity.principal, use, arn, {**context, **key_context, **alias_keys})
        return Step(self._targets.get(key) or AwsTarget(f"key {key}"), aws_request)

    # Prefixes that an identity has rights on

    def places(self, identity: AccountIdentity, bucket: str) -> tuple[str, ...]:
        """Prefixes of a bucket that a role's own policies name, whatever other policies make of it."""
        bucket_prefix = grants.bucket_arn(self.environment, bucket) + "/"
        prefixes = set()
        for document in identity.role.policies.values():
            for statement in document["Statement"]:
                for resource in texts(statement["Resource"]):
                    if resource.startswith(bucket_prefix):
                        prefix = resource.removeprefix(bucket_prefix).replace(
                            iam_roles.NAMESPACE_TAG, _namespace(identity)
                        )
                        prefixes.add(prefix.removesuffix("*"))
        return tuple(sorted(prefixes))


def pod_tags(environment: Environment, association: Association) -> dict[str, str]:
    """Session tags that EKS Pod Identity sets ("Grant Pods access to AWS resources based on tags")."""
    return {
        "eks-cluster-arn": iam_roles.cluster_arn(environment),
        "eks-cluster-name": association.cluster,
        "kubernetes-namespace": association.namespace,
        "kubernetes-service-account": association.service_account,
        "kubernetes-pod-name": "pod",
        "kubernetes-pod-uid": "00000000-0000-0000-0000-000000000000",
    }


def key_arn(environment: Environment, alias: str) -> str:
    """Placeholder for a key's ARN, whose id only AWS knows."""
    alias_digest = hashlib.sha256(alias.encode()).hexdigest()
    return documents.arn(
        environment,
        "kms",
        f"key/{alias_digest[:8]}-{alias_digest[8:12]}-{alias_digest[12:16]}-{alias_digest[16:20]}-{alias_digest[20:32]}",
    )


def _namespace(identity: AccountIdentity) -> str:
    return identity.principal.keys.get("aws:PrincipalTag/kubernetes-namespace", "")


def _service(resource: str) -> str:
    parts = resource.split(":", 5)
    return parts[2] if len(parts) == 6 else ""


def _account(resource: str) -> str:
    parts = resource.split(":", 5)
    return parts[4] if len(parts) == 6 else ""
