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
from tenancy.planning.aws import documents, grants, iam_roles
from tenancy.planning.aws.tenant_models import Association, TenantRolePlan
from tenancy.planning.common import names
from tenancy.planning.model import Plan
from tenancy.schema.data import Access, KeyPer
from tenancy.schema.environment import Environment
from tenancy.schema.tenant import Tenant

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

    thing: AwsTarget
    asked: AwsRequest


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
                told = ", ".join(self._named(step, statement) for statement in decision.by)
                word = "allowed by" if decision.allowed else "denied by"
                yield f"{step.asked.action} on {step.thing.title} {word} {told}"
            else:
                yield f"{step.asked.action} on {step.thing.title}: {self._silent(step, decision)}"

    def allowing(self) -> Iterator[tuple[str, str]]:
        """Document and Sid of every statement that allows a step."""
        for step, decision in self.steps:
            if decision.allowed:
                yield from ((self._document(step, statement), statement.label) for statement in decision.by)

    def _named(self, step: Step, statement: Statement) -> str:
        ours = statement.layer is Layer.IDENTITY
        whose = f"role {self.identity.role.name}, " if ours else ""
        return f"{whose}{self._document(step, statement)}, {statement.label}"

    def _document(self, step: Step, statement: Statement) -> str:
        if statement.layer is Layer.RESOURCE:
            return f"the policy of {step.thing.title}"
        if statement.layer is Layer.BOUNDARY:
            return f"boundary {self.identity.role.boundary.rpartition('/')[2]}"
        return f"policy {self._policy_of(statement)}"

    def _policy_of(self, statement: Statement) -> str:
        found = [
            name
            for name, document in self.identity.role.policies.items()
            if any(each.get("Sid") == statement.label for each in document["Statement"])
        ]
        return found[0]

    def _silent(self, step: Step, decision: Decision) -> str:
        if decision.layer is Layer.RESOURCE:
            return f"the policy of {step.thing.title} does not allow it"
        if decision.layer is Layer.BOUNDARY:
            return f"boundary {self.identity.role.boundary.rpartition('/')[2]} does not allow it"
        return f"role {self.identity.role.name} has no statement for it"


KEYS_OF = {
    "s3:getobject": grants.DECRYPT,
    "s3:getobjectversion": grants.DECRYPT,
    "s3:putobject": grants.ENCRYPT,
}
"""What S3 asks of an object's key in the caller's name (S3 user guide, "Using server-side encryption with KMS")."""


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
        shared = {role.arn: role for role in (data.shared_roles if data else ())}
        # A namespace may be called `ci` as well, so the purpose is ambiguous.
        pipelines = {iam_roles.ci_role_arn(self.environment, tenant) for tenant in self.tenants if tenant.ci}
        names = {tenant.namespace_name(each): each.name for tenant in self.tenants for each in tenant.namespaces}
        found = []
        for tenant in self.plan.tenants:
            aws = tenant.aws
            if aws is None:
                continue
            roles = {**shared, **{role.arn: role for role in aws.roles}}
            found += [
                AccountIdentity(
                    tenant.name, names[each.namespace], roles[each.role], self.session(roles[each.role], each)
                )
                for each in aws.associations
            ]
            by_pods = {each.role for each in aws.associations}
            found += [
                AccountIdentity(
                    tenant.name, PIPELINE if role.arn in pipelines else role.purpose, role, self.session(role)
                )
                for role in aws.roles
                if role.arn not in by_pods
            ]
        if data and data.break_glass:
            role = data.break_glass.role
            found.append(AccountIdentity(PLATFORM, role.purpose, role, self.session(role)))
        return tuple(found)

    def session(self, role: TenantRolePlan, association: Association | None = None) -> Principal:
        """A session of the role, by Pod Identity with the tags that come along."""
        tags = pod_tags(self.environment, association) if association else None
        organisation = self.environment.aws.organization
        return role_session(role.arn, SESSION, tags=role.tags, session_tags=tags, organisation=organisation)

    def of_tenant(self, name: str) -> tuple[AccountIdentity, ...]:
        """The identities of one tenant."""
        return tuple(each for each in self.identities if each.tenant == name)

    # Resources and their policies

    @cached_property
    def _things(self) -> Mapping[str, AwsTarget]:
        """The plan's resources by ARN, keys by their alias."""
        environment = self.environment
        found: dict[str, AwsTarget] = {}
        data = self.plan.platform.data
        for bucket in data.buckets if data else ():
            found[grants.bucket_arn(environment, bucket.name)] = AwsTarget(f"bucket {bucket.name}", bucket.policy)
        for key in data.keys if data else ():
            found[key.alias] = AwsTarget(f"key {key.alias}", key.policy, ResourceClass.KEY)
        for tenant in self.plan.tenants:
            aws = tenant.aws
            if aws is None:
                continue
            for key in aws.keys:
                found[key.alias] = AwsTarget(f"key {key.alias}", key.policy, ResourceClass.KEY)
            for point in aws.access_points:
                found[point.arn] = AwsTarget(f"access point {point.name}", point.policy)
            for repository in aws.repositories:
                arn = grants.repository_arn(environment, repository.name)
                # A repository's policy is about the repository, and names none.
                whole = [{**each, "Resource": "*"} for each in repository.policy["Statement"]]
                policy = {**repository.policy, "Statement": whole}
                found[arn] = AwsTarget(f"repository {repository.name}", policy)
            for secret in aws.secrets:
                arn = documents.arn(environment, "secretsmanager", f"secret:{secret.name}")
                found[arn] = AwsTarget(f"secret {secret.name}", secret.policy)
            for queue in aws.queues:
                found[queue.arn] = AwsTarget(f"queue {queue.name}", queue.policy)
        return found

    def things(self) -> tuple[AwsTarget, ...]:
        """Everything that the plan makes and that has a policy of its own."""
        return tuple(self._things.values())

    def thing(self, resource: str) -> AwsTarget:
        """The resource of an ARN; for one outside the plan, its text alone."""
        service, rest = _service(resource), resource
        if service == "s3":
            head, _, below = resource.partition("/")
            kind = below.partition("/")[0]
            rest = f"{head}/{kind}" if head.endswith(":accesspoint") else head
        elif service == "secretsmanager":
            rest = resource[:-7] if resource[-7:-6] == "-" else resource
        found = self._things.get(rest)
        return found or AwsTarget(f"bucket {rest.rpartition(':')[2]}" if service == "s3" else rest)

    def owned(self, service: str) -> tuple[str, ...]:
        """ARNs of what tenants have alone, of one service; a log group's stands for all of its streams."""
        logs = (
            f"{documents.arn(self.environment, 'logs', f'log-group:{group.name}')}:log-stream:any"
            for tenant in self.plan.tenants
            for group in (tenant.aws.log_groups if tenant.aws else ())
        )
        return tuple(arn for arn in (*self._things, *logs) if _service(arn) == service)

    # Permissions of a call

    @cached_property
    def ambient(self) -> Mapping[str, Any]:
        """Condition keys of every request of a pod: over TLS, through the VPC's own endpoint."""
        aws = self.environment.aws
        inside = {"aws:SourceVpc": aws.network.vpc} if aws.network.vpc else {}
        return {"aws:SecureTransport": "true", "aws:VpceAccount": aws.account, **inside}

    def steps(
        self, who: AccountIdentity, action: str, resource: str, context: Mapping[str, Any] | None = None
    ) -> Iterator[Step]:
        """The permissions that S3 and other services check for one call; without a `context` a pod's usual one.

        For an object also the permission on its key, which S3 uses in the caller's name; through an access point also
        that on its bucket ("Configuring IAM policies for using access points").
        """
        given = self.ambient if context is None else context
        name = self.bucket_of(resource)
        if name is None:
            yield self._step(who, action, resource, given)
            return
        behind = given
        if point := self._point(who.tenant, name):
            inside = resource.partition("/")[2]
            yield self._step(who, action, f"{point}/object/{inside}" if inside else point, given)
            behind = {
                **given,
                "s3:DataAccessPointAccount": self.environment.aws.account,
                "s3:DataAccessPointArn": point,
            }
        yield self._step(who, action, resource, behind)
        if (use := KEYS_OF.get(action.lower())) and (key := self.key_of(who, use, name, resource.partition("/")[2])):
            yield self._key_step(who, use, key, name, given)

    def ask(self, who: AccountIdentity, action: str, resource: str, context: Mapping[str, Any] | None = None) -> Answer:
        """Whether an identity may call an action on a resource, with every step up to the first refusal."""
        found = []
        for step in self.steps(who, action, resource, context):
            found.append((step, self.decide(who, step)))
            if not found[-1][1].allowed:
                return Answer(who, (found[-1],))
        return Answer(who, tuple(found))

    def decide(self, who: AccountIdentity, step: Step) -> Decision:
        """AWS' decision on one step, by the policies of the plan."""
        policies = self.policies(who, step.thing)

        def read(document: Document, layer: Layer) -> tuple[Statement, ...]:
            # Each document is read once for all identities, and kept, so that no other document gets its id.
            known = (id(document), layer)
            if known not in self._read:
                self._read[known] = document, statements(document, layer, policies.guard)
            return self._read[known][1]

        made = Compiled(
            scps=(),
            rcps=(),
            resource=read(policies.resource, Layer.RESOURCE) if policies.resource else (),
            identity=tuple(each for document in policies.identity for each in read(document, Layer.IDENTITY)),
            boundary=read(policies.boundary, Layer.BOUNDARY) if policies.boundary else None,
            session=None,
            guard=policies.guard,
        )
        return decide(made, step.asked)

    def policies(self, who: AccountIdentity, thing: AwsTarget) -> Policies:
        """All documents that decide on requests of this identity on this resource."""
        data = self.plan.platform.data
        bound = data.boundary if data and data.boundary and data.boundary.arn == who.role.boundary else None
        identity = list(who.role.policies.values())
        document = bound.document if bound else None
        return Policies(identity=identity, boundary=document, resource=thing.policy, guard=thing.guard)

    def _step(self, who: AccountIdentity, action: str, resource: str, context: Mapping[str, Any]) -> Step:
        account = self.environment.aws.account
        asked = request(who.principal, action, resource, context, resource_account=_account(resource) or account)
        return Step(self.thing(resource), asked)

    def bucket_of(self, resource: str) -> str | None:
        """Name of the environment's bucket that an ARN is of or in."""
        head, name = resource.partition("/")[0].rsplit(":", 1)
        return name if _service(resource) == "s3" and head.endswith("::") and name in self.environment.buckets else None

    def _point(self, tenant: str, bucket: str) -> str | None:
        aws = next((found.aws for found in self.plan.tenants if found.name == tenant), None)
        return next((point.arn for point in aws.access_points if point.bucket == bucket), None) if aws else None

    def key_of(self, who: AccountIdentity, use: str, bucket: str, key: str) -> str | None:
        """Alias or ARN of the key: where each tenant has its own it is the writer's; None: S3's own, of no policy."""
        spec = self.environment.buckets[bucket]
        if spec.existing:
            return spec.key_arn
        if spec.key is KeyPer.TENANT:
            writers = self.tenants if use == grants.DECRYPT else [t for t in self.tenants if t.tenant == who.tenant]
            for tenant in writers:
                for grant in tenant.storage:
                    writes = grant.bucket == bucket and grant.access is not Access.READ_ONLY
                    if writes and key.startswith(grant.prefix):
                        return names.tenant_key_alias(self.environment, tenant)
        return names.bucket_key_alias(self.environment, bucket)

    def _key_step(self, who: AccountIdentity, use: str, key: str, bucket: str, context: Mapping[str, Any]) -> Step:
        account = self.environment.aws.account
        # With bucket keys, which are on, the context that S3 names is the bucket.
        told = {
            "kms:ViaService": grants.via_s3(self.environment),
            "kms:CallerAccount": account,
            "kms:EncryptionContext:aws:s3:arn": grants.bucket_arn(self.environment, bucket),
        }
        if key.startswith("arn:"):
            return Step(AwsTarget(f"key {key}"), request(who.principal, use, key, {**context, **told}))
        arn, aliased = key_arn(self.environment, key), {"kms:ResourceAliases": [key]}
        asked = request(who.principal, use, arn, {**context, **told, **aliased})
        return Step(self._things.get(key) or AwsTarget(f"key {key}"), asked)

    # Prefixes that an identity has rights on

    def places(self, who: AccountIdentity, bucket: str) -> tuple[str, ...]:
        """Prefixes of a bucket that a role's own policies name, whatever other policies make of it."""
        whole = grants.bucket_arn(self.environment, bucket) + "/"
        found = set()
        for document in who.role.policies.values():
            for statement in document["Statement"]:
                for resource in texts(statement["Resource"]):
                    if resource.startswith(whole):
                        inside = resource.removeprefix(whole).replace(iam_roles.NAMESPACE_TAG, _namespace(who))
                        found.add(inside.removesuffix("*"))
        return tuple(sorted(found))


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
    kept = hashlib.sha256(alias.encode()).hexdigest()
    return documents.arn(environment, "kms", f"key/{kept[:8]}-{kept[8:12]}-{kept[12:16]}-{kept[16:20]}-{kept[20:32]}")


def _namespace(who: AccountIdentity) -> str:
    return who.principal.keys.get("aws:PrincipalTag/kubernetes-namespace", "")


def _service(resource: str) -> str:
    parts = resource.split(":", 5)
    return parts[2] if len(parts) == 6 else ""


def _account(resource: str) -> str:
    parts = resource.split(":", 5)
    return parts[4] if len(parts) == 6 else ""
