"""Rules on the AWS side of a cluster, in the engine's resources: control plane, node groups, launch templates.

An unknown value counts neither as safe nor as without GPUs: the finding names it, and only advises.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.catalog.instances import INSTANCES
from tenancy.catalog.versions import AMI_DEFAULT, ami_release_misfit
from tenancy.kube.objects import UNKNOWN, as_list, get_path
from tenancy.rules import iam
from tenancy.rules.findings import Given, Object
from tenancy.rules.values import MOST_PUBLIC, never_public, wide_range

CLUSTER = "aws:eks/cluster:Cluster"
GROUP = "aws:eks/nodeGroup:NodeGroup"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
ENTRY = "aws:eks/accessEntry:AccessEntry"
ASSOCIATION = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
POD_IDENTITY = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
ROLE = "aws:iam/role:Role"
ROLE_POLICY = "aws:iam/rolePolicy:RolePolicy"
POLICY = "aws:iam/policy:Policy"
ATTACHMENT = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
ATTACHMENT_TO_ALL = "aws:iam/policyAttachment:PolicyAttachment"
ALL_ATTACHMENTS = "aws:iam/rolePolicyAttachmentsExclusive:RolePolicyAttachmentsExclusive"
BUCKET = "aws:s3/bucket:Bucket"
VERSIONING = "aws:s3/bucketVersioning:BucketVersioning"
ENCRYPTION = "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration"
LOGS = "aws:cloudwatch/logGroup:LogGroup"
VOLUME = "aws:ebs/volume:Volume"
PUBLIC_ACCESS = "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock"
KEY = "aws:kms/key:Key"
REPOSITORY = "aws:ecr/repository:Repository"
SECURITY_GROUP = "aws:ec2/securityGroup:SecurityGroup"
INGRESS = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"

TEMPLATES = "templates"
"""Key of a node group among all resources: the launch templates that its inputs come from."""
ROLES = "ofRoles"
"""Key of a role's policy or attachment among all resources: the roles that its inputs come from."""
POLICIES = "ofPolicies"
"""Key of a role or attachment among all resources: the policies that its inputs come from."""
BUCKETS = "buckets"
"""Key of an encryption configuration among all resources: the buckets that its inputs come from."""
ATTACHED: Mapping[str, tuple[str, str]] = {
    ATTACHMENT: ("role", "policyArn"),
    ATTACHMENT_TO_ALL: ("roles", "policyArn"),
    ALL_ATTACHMENTS: ("roleName", "policyArns"),
}
"""Types that attach policies to roles -> the properties that name both."""
SOURCES: Mapping[str, Sequence[tuple[str, str, str]]] = {
    GROUP: [("launchTemplate", TEMPLATE, TEMPLATES)],
    ROLE: [("managedPolicyArns", POLICY, POLICIES)],
    ROLE_POLICY: [("role", ROLE, ROLES)],
    ENCRYPTION: [("bucket", BUCKET, BUCKETS)],
    **{kind: [(role, ROLE, ROLES), (arn, POLICY, POLICIES)] for kind, (role, arn) in ATTACHED.items()},
}
"""Type -> the properties whose sources are recorded, the type of the sources, and the key for them."""
ACCOUNTS = "ofAccounts"
"""Key of a role: the accounts that its provider is limited to, if the program sets `allowedAccountIds`."""
PROTECTED = "protected"
"""Key of a cluster or a namespace: whether the engine refuses to delete it."""

FAMILIES = frozenset(name.partition(".")[0] for name in INSTANCES)
_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute", "PREFER_NO_SCHEDULE": "PreferNoSchedule"}
_BARS = frozenset({"NoSchedule", "NoExecute"})
_RELEASE = re.compile(r"\d+\.\d+\.\d+-(20\d{6})")
_OTHER_SYSTEMS = ("BOTTLEROCKET", "WINDOWS")
_EVERYWHERE = frozenset({"0.0.0.0/0", "::/0", UNKNOWN})
_EFA = frozenset({"efa", "efa-only"})


def _cluster(item: Object) -> Given:
    vpc = item.get("vpcConfig")
    public = get_path(vpc, "endpointPublicAccess")
    if public not in {False, "false"}:  # AWS' default is an endpoint that is open to the internet
        ranges = as_list(get_path(vpc, "publicAccessCidrs"))
        wrong = [text for cidr in ranges if (text := wide_range(str(cidr)) or never_public(str(cidr)))]
        if wrong or not ranges:
            to = ", ".join(wrong) or "the whole internet"
            yield "eks-01", f"endpointPublicAccess {_or(public, 'true, the default')} to {to}"
        if len(ranges) > MOST_PUBLIC:
            yield "eks-01", f"publicAccessCidrs: {len(ranges)} ranges of {MOST_PUBLIC}"
    access = item.get("accessConfig")
    if (mode := get_path(access, "authenticationMode")) != "API":
        yield "eks-02", f"authenticationMode {_or(mode, 'CONFIG_MAP, the default')}"
    if (creator := get_path(access, "bootstrapClusterCreatorAdminPermissions")) not in {False, "false"}:
        yield "eks-02", f"bootstrapClusterCreatorAdminPermissions {_or(creator, 'true, the default')}"


def _group(item: Object) -> Given:
    yield from _release(item)
    if not item.get("launchTemplate"):
        yield "node-02", "no launchTemplate, and the one that EKS makes encrypts only if the account's default does"
    if machines := group_gpus(item):
        yield from unbarred(item.get("taints"), machines)


def _release(item: Object) -> Given:
    release, system = item.get("releaseVersion"), str(item.get("amiType") or "")
    if release is None:
        # An image of the group's own template has no release, and cannot be identified here.
        if (system and system != "CUSTOM") or not item.get("launchTemplate"):
            yield "ami-02", f"no releaseVersion{f' of {system}' if system else ''}"
    elif version_match := _RELEASE.fullmatch(release):
        if misfit := ami_release_misfit(f"v{version_match[1]}", today()):
            yield "ami-01", f"releaseVersion {release}: {misfit}"
    elif not system.startswith(_OTHER_SYSTEMS):
        yield "ami-01", f"releaseVersion {release!r}, which is not like 1.36.3-{AMI_DEFAULT[1:]}"


def group_gpus(item: Object) -> list[str]:
    """Properties by which a node group's nodes have GPUs, or may have them (unknown values)."""
    types = gpu_types(item.get("instanceTypes"))
    image = str(item.get("amiType") or "")
    return [*types, image] if "NVIDIA" in image or image.endswith("_GPU") or image == UNKNOWN else types


def gpu_types(types: Any) -> list[str]:
    """The instance types with GPUs, and those that are unknown."""
    return [name for name in map(str, as_list(types)) if name.partition(".")[0] in FAMILIES or name == UNKNOWN]


def taints_of(value: Any) -> list[Mapping[str, Any]]:
    """Taints as in Kubernetes; EKS has other names for the effects."""
    return [
        {"key": t.get("key"), "value": t.get("value"), "effect": _EFFECTS.get(t.get("effect"), t.get("effect"))}
        for t in as_list(value)
    ]


def bars(taint: Mapping[str, Any]) -> bool:
    """Whether a taint keeps pods without a toleration away."""
    return taint["effect"] in _BARS


def unbarred(value: Any, machines: list[str]) -> Given:
    """node-03."""
    taints = taints_of(value)
    if not any(map(bars, taints)):
        yield "node-03", f"{taints_text(taints)} on {', '.join(machines)}"


def taints_text(taints: list[Mapping[str, Any]]) -> str:
    """Taints as text: key=value:effect."""
    texts = [f"{t['key']}{'=' + str(t['value']) if t['value'] else ''}:{t['effect']}" for t in taints]
    return f"taints {', '.join(texts)}" if texts else "no taint"


def _template(item: Object) -> Given:
    options = item.get("metadataOptions")
    if get_path(options, "httpEndpoint") != "disabled":
        yield from weak_metadata(options, safe_default=False)
    if not item.get("blockDeviceMappings"):
        yield "node-02", "no blockDeviceMappings"
    yield from open_volumes(item.get("blockDeviceMappings"))
    group = get_path(item, "placement", "groupName") or get_path(item, "placement", "groupId")
    target = get_path(item, "capacityReservationSpecification", "capacityReservationTarget")
    reservation = get_path(target, "capacityReservationId") or get_path(target, "capacityReservationResourceGroupArn")
    block = get_path(item, "instanceMarketOptions", "marketType") == "capacity-block"
    if group and (reservation or block):
        yield "node-04", f"placement group {group} beside {reservation or 'a capacity block'}"


def weak_metadata(options: Any, *, safe_default: bool) -> Given:
    """node-01. EC2 takes an unset option from the image or the account; Karpenter sets the safe value."""
    unset = (None,) if safe_default else ()
    safe = {"httpTokens": ("required", *unset), "httpPutResponseHopLimit": (1, "1", *unset)}
    weak = [
        f"{key} {_or(get_path(options, key), 'not set')}"
        for key, values in safe.items()
        if get_path(options, key) not in values
    ]
    if weak:
        yield "node-01", f"metadataOptions: {', '.join(weak)}"


def open_volumes(mappings: Any) -> Given:
    """node-02."""
    for mapping in as_list(mappings):
        volume = mapping.get("ebs")
        if volume is not None and (encrypted := volume.get("encrypted")) not in {True, "true"}:
            yield "node-02", f"{mapping.get('deviceName')}: encrypted {_or(encrypted, 'not set')}"


def efa_groups(item: Object) -> set[str]:
    """Security groups of a template's EFA interfaces; empty: it has no such interface."""
    names: set[str] = set()
    for interface in as_list(item.get("networkInterfaces")):
        kind = interface.get("interfaceType")
        if kind in _EFA or kind == UNKNOWN:
            groups = as_list(interface.get("securityGroups")) or as_list(item.get("vpcSecurityGroupIds"))
            names |= set(map(str, groups)) or {"that is the default where none is named"}
    return names


def tenant_of(item: Object) -> str | None:
    """The tenant of a template's nodes, by its tag."""
    tenant = get_path(item, "tags", vocabulary.TENANT_TAG)
    return None if tenant == UNKNOWN else tenant


def cluster_wide(items: list[Object], owner_of: Mapping[tuple[str, str], str]) -> Iterator[tuple[Object, str]]:
    """rbac-04: policies on the whole cluster for a principal that is in a tenant's group."""
    groups: dict[str, list[str]] = {}
    for entry in (item for item in items if item.get("kind") == ENTRY):
        groups.setdefault(str(entry.get("principalArn")), []).extend(map(str, as_list(entry.get("kubernetesGroups"))))
    for item in items:
        scope, principal = get_path(item, "accessScope", "type"), str(item.get("principalArn"))
        if item.get("kind") != ASSOCIATION or scope not in {"cluster", UNKNOWN}:
            continue
        for group in groups.get(principal, ()):
            if tenant := owner_of.get(("Group", group)):
                policy = str(item.get("policyArn")).rpartition("/")[2]
                yield item, f"{policy} with scope {scope} for {principal} in Group {group!r} of tenant {tenant}"


def _pod_identity(item: Object) -> Given:
    yield from untagged(item.get("disableSessionTags"))


def untagged(value: Any) -> Given:
    """id-09."""
    if value not in {None, False, "false"}:
        yield "id-09", f"disableSessionTags {_or(value, 'false')}"


def undeletable(cluster: Object) -> str | None:
    """eks-03: why a cluster is not protected from deletion; None if it is."""
    value = cluster.get("deletionProtection")
    safe = value in {True, "true"} or cluster.get(PROTECTED)
    return None if safe else f"deletionProtection {_or(value, 'false, the default')}"


def _bucket(item: Object) -> Given:
    yield from _billed(item)
    if (value := item.get("forceDestroy")) not in {None, False, "false"}:
        yield "stor-08", f"forceDestroy {_or(value, 'false')}"


def _public_access(item: Object) -> Given:
    fields = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
    open_ = [name for name in fields if item.get(name) not in {True, "true"}]
    if open_:
        yield "stor-10", ", ".join(f"{name} {_or(item.get(name), 'false, the default')}" for name in open_)


def _key(item: Object) -> Given:
    # AWS rotates symmetric keys alone.
    symmetric = item.get("customerMasterKeySpec") in {None, "SYMMETRIC_DEFAULT"}
    if symmetric and (value := item.get("enableKeyRotation")) not in {True, "true"}:
        yield "stor-11", f"enableKeyRotation {_or(value, 'false, the default')}"


def _repository(item: Object) -> Given:
    if not str(value := item.get("imageTagMutability")).startswith("IMMUTABLE"):
        yield "img-04", f"imageTagMutability {_or(value, 'MUTABLE, the default')}"


def _security_group(item: Object) -> Given:
    for rule in as_list(item.get("ingress")):
        yield from _from_everywhere(
            [*as_list(get_path(rule, "cidrBlocks")), *as_list(get_path(rule, "ipv6CidrBlocks"))]
        )


def _ingress(item: Object) -> Given:
    yield from _from_everywhere([item.get("cidrIpv4"), item.get("cidrIpv6")])


def _from_everywhere(ranges: Iterable[Any]) -> Given:
    """eks-04."""
    if open_ranges := [str(cidr) for cidr in ranges if cidr in _EVERYWHERE]:
        yield "eks-04", f"ingress from {', '.join(open_ranges)}"


def _billed(item: Object) -> Given:
    """cost-03."""
    tags = item.get("tags")
    missing = [key for key in vocabulary.COST_LABELS if not get_path(tags, key)]
    if tags == UNKNOWN or (get_path(tags, vocabulary.TENANT_TAG) and missing):
        yield "cost-03", f"tags {UNKNOWN}" if tags == UNKNOWN else f"no tag {', '.join(missing)}"


def _statements(document: Any) -> list[Any] | None:
    """The Allow statements of a policy; None if the policy is unknown."""
    try:
        policy = json.loads(document) if isinstance(document, str) and document != UNKNOWN else document
    except ValueError:
        return []  # AWS refuses it
    statements = get_path(policy, "Statement")
    if UNKNOWN in (policy, statements):
        return None
    statement_list = statements if isinstance(statements, list) else [statements]
    return [statement for statement in statement_list if get_path(statement, "Effect") in {"Allow", UNKNOWN}]


def _role(item: Object) -> Given:
    """id-05, and id-06 on the role's own policies."""
    yield from _trusted(item)
    yield from _billed(item)
    tenant = tenant_of(item)
    for policy in as_list(item.get("inlinePolicies")):
        yield from _granted(get_path(policy, "policy"), tenant)
    for arn in as_list(item.get("managedPolicyArns")):
        yield from _managed(str(arn), tenant)
        if arn == UNKNOWN:
            yield "id-06", f"managedPolicyArns {UNKNOWN}"


def _policy(item: Object) -> Given:
    yield from _billed(item)
    yield from _granted(item.get("policy"), tenant_of(item))


def _role_policy(item: Object) -> Given:
    yield from _granted(item.get("policy"), None)


def _attachment(item: Object) -> Given:
    # An unknown ARN is that of a policy of this program, which is checked itself.
    for arn in iam.as_strings(item.get(ATTACHED[str(item.get("kind"))][1])):
        yield from _managed(arn, None)


def tenants_policies(items: Sequence[Object]) -> Iterator[tuple[Object, str]]:
    """id-06 on policies of roles with a tenant's tag: inline ones, and attached ones."""
    by_kind = {
        kind: {str(i["name"]): i for i in items if i.get("kind") == kind and i.get("name") not in {None, UNKNOWN}}
        for kind in (ROLE, POLICY)
    }
    for item in items:
        kind = str(item.get("kind"))
        if kind == ROLE_POLICY:
            for tenant in _tenants(_referenced(item, "role", ROLES, by_kind[ROLE])):
                yield from ((item, detail) for detail in _too_wide(item, f"tenant {tenant}"))
                yield from ((item, detail) for detail in _of_others(item.get("policy"), tenant, by_kind[ROLE]))
        elif kind == POLICY and (tenant := tenant_of(item)):
            yield from ((item, detail) for detail in _of_others(item.get("policy"), tenant, by_kind[ROLE]))
        elif kind == ROLE and (tenant := tenant_of(item)):
            policies = _referenced(item, "managedPolicyArns", POLICIES, by_kind[POLICY])
            yield from ((item, detail) for policy in policies for detail in _lent(policy, tenant, by_kind[ROLE]))
            for policy in as_list(item.get("inlinePolicies")):
                yield from ((item, detail) for detail in _of_others(get_path(policy, "policy"), tenant, by_kind[ROLE]))
        elif kind in ATTACHED:
            yield from ((item, detail) for detail in _attached(item, *ATTACHED[kind], by_kind))


def _of_others(document: Any, tenant: str, roles: Mapping[str, Object]) -> Iterator[str]:
    """Actions of a tenant's policy on roles of the program that are not the tenant's. To be assumed, a role must trust
    the tenant; to be passed, it need not."""
    for statement in _statements(document) or ():
        for action, allowed_owners in (
            ("iam:PassRole", {tenant, UNKNOWN}),
            ("sts:AssumeRole", {tenant, UNKNOWN, None}),
        ):
            for name in iam.roles_taken(statement, action.lower()):
                if (
                    name in roles
                    and (whose := get_path(roles[name], "tags", vocabulary.TENANT_TAG)) not in allowed_owners
                ):
                    owner_text = f"tenant {whose}" if whose else "no tenant"
                    yield f"{action} on role {name} of {owner_text} for tenant {tenant}"


def _attached(item: Object, to: str, what: str, by_kind: Mapping[str, Mapping[str, Object]]) -> Iterator[str]:
    roles, policies = _referenced(item, to, ROLES, by_kind[ROLE]), _referenced(item, what, POLICIES, by_kind[POLICY])
    tenants = _tenants(roles)
    # A value from outside of the program is reported where it may matter.
    elsewhere = iam.as_strings(item.get(to)).count(UNKNOWN) > len(roles)
    elsewhere |= any(get_path(role, "tags", vocabulary.TENANT_TAG) == UNKNOWN for role in roles)
    hidden = iam.as_strings(item.get(what)).count(UNKNOWN) > len(policies)
    for tenant in tenants:
        for arn in iam.as_strings(item.get(what)):
            if arn.rpartition("/")[2] not in _EVERYTHING:
                yield from (detail for _, detail in _managed(arn, tenant))
    for policy in policies:
        for tenant in tenants:
            yield from _lent(policy, tenant, by_kind[ROLE])
        if elsewhere:
            yield from (f"{to} {UNKNOWN}, {detail}" for detail in _lent(policy, None, {}))
    if hidden and (tenants or elsewhere):
        yield f"{what} {UNKNOWN} for {', '.join(f'tenant {t}' for t in tenants) or f'{to} {UNKNOWN}'}"


def _referenced(item: Object, field: str, managed_field: str, by_name: Mapping[str, Object]) -> list[Object]:
    """The program's resources that a property names, by the engine's dependencies, by name or by ARN."""
    names = [text.rpartition("/")[2] for text in iam.as_strings(item.get(field)) if "::aws:" not in text]
    documents = [*as_list(item.get(managed_field)), *(by_name[name] for name in names if name in by_name)]
    return list({str(get_path(document, "metadata", "name")): document for document in documents}.values())


def _tenants(roles: Iterable[Object]) -> list[str]:
    return sorted({tenant for role in roles if (tenant := tenant_of(role))})


def _lent(policy: Object, tenant: str | None, roles: Mapping[str, Object]) -> Iterator[str]:
    """id-06 on a policy of the program that a tenant's role has; `tenant` is None if the tenant is unknown. A policy
    with the tenant's tag is checked by itself."""
    whose = f"tenant {tenant}" if tenant else "an unknown tenant"
    if tenant is None or tenant_of(policy) != tenant:
        reached = [*_too_wide(policy, whose), *(_of_others(policy.get("policy"), tenant, roles) if tenant else ())]
        yield from (f"policy {get_path(policy, 'metadata', 'name')}: {detail}" for detail in reached)


def _too_wide(policy: Object, whose: str) -> Iterator[str]:
    for statement in _statements(policy.get("policy")) or ():
        yield from _beyond_a_tenant(statement, whose)


_EVERYTHING = {
    "AdministratorAccess": "which reaches every bucket",
    "AmazonS3FullAccess": "which reaches every bucket",
    "AmazonS3ReadOnlyAccess": "which reads every bucket",
    "IAMFullAccess": "which gives itself every right",
    "PowerUserAccess": "which reaches every bucket",
    "ReadOnlyAccess": "which reads every bucket",
}
"""AWS managed policies that no role of a program may have, and why."""
_TENANTS_MAY_HAVE = frozenset({"AWSDenyAll", "AWSXRayDaemonWriteAccess", "AmazonPrometheusRemoteWriteAccess"})
"""AWS managed policies that a tenant may have: one denies everything, two only write telemetry. All others are written
for whole accounts."""
_OF_AWS = "::aws:policy/"


def _managed(arn: str, tenant: str | None) -> Given:
    name = arn.rpartition("/")[2]
    if _OF_AWS in arn and name in _EVERYTHING:
        yield "id-06", f"{name}, {_EVERYTHING[name]}"
    elif tenant and _OF_AWS in arn and name not in _TENANTS_MAY_HAVE:
        yield "id-06", f"AWS' own {name} for tenant {tenant}, which does not distinguish tenants"


def _granted(document: Any, tenant: str | None) -> Given:
    """id-06. The scope of a statement with a condition depends on the condition, which is not evaluated here."""
    statements = _statements(document)
    if statements is None:
        yield "id-06", f"policy {UNKNOWN}"
    for statement in statements or ():
        actions = [a for a in iam.actions(statement) if iam.all_of_s3(a)]
        actions += [f"all but {a}" for a in iam.as_strings(get_path(statement, "NotAction"))]
        buckets = _matched(statement, iam.whole_bucket)
        if actions and buckets and not iam.limits(get_path(statement, "Condition")):
            yield "id-06", f"{', '.join(actions)} on {', '.join(buckets)}"
            continue
        mighty, roles = [a for a in iam.actions(statement) if iam.all_of_iam(a)], _matched(statement, iam.any_role)
        if mighty and roles and not iam.limits(get_path(statement, "Condition")):
            yield "id-06", f"{', '.join(mighty)} on {', '.join(roles)}, which gives itself every right"
        elif tenant:
            for detail in _beyond_a_tenant(statement, f"tenant {tenant}"):
                yield "id-06", detail


def _beyond_a_tenant(statement: Any, whose: str) -> Iterator[str]:
    wide = [*_beyond_a_prefix(statement, whose)]
    yield from wide
    actions, reached = iam.more_rights(statement)
    if actions := [action for action in actions if not (wide and action.startswith("s3:"))]:
        yield f"{', '.join(actions)} on {', '.join(reached)} for {whose}, which allows privilege escalation"


def _beyond_a_prefix(statement: Any, whose: str) -> Iterator[str]:
    objects, buckets = _matched(statement, iam.beyond_a_prefix), _matched(statement, iam.whole_bucket)
    actions, condition = iam.actions(statement), get_path(statement, "Condition")
    reached = [action for action in actions if iam.of_objects(action)]
    lists = list(dict.fromkeys(name for action in actions if (name := iam.listing(action))))
    if objects and reached and not iam.limits(condition):
        yield f"{', '.join(reached)} on {', '.join(objects)} for {whose}"
    elif buckets and lists and not iam.by_prefix(condition):
        yield f"{', '.join(lists)} on {', '.join(buckets)} without a condition on s3:prefix for {whose}"


def _matched(statement: Any, wide: Callable[[str], bool]) -> list[str]:
    """Resources of a statement that are wide, or may be (unknown values)."""
    resources = [resource for resource in iam.as_strings(get_path(statement, "Resource")) if wide(resource)]
    return resources + [f"all but {resource}" for resource in iam.as_strings(get_path(statement, "NotResource"))]


def _trusted(item: Object) -> Given:
    tenant, own_accounts = tenant_of(item), _accounts(item)
    statements = _statements(item.get("assumeRolePolicy"))
    if statements is None:
        yield "id-05", f"assumeRolePolicy {UNKNOWN}"
    for statement in statements or ():
        if detail := iam.any_caller(statement):
            yield "id-05", detail
        elif tenant and (foreign_accounts := iam.outsiders(statement, own_accounts)):
            where = (
                f"outside of {', '.join(own_accounts)}"
                if own_accounts
                else "in accounts that no allowedAccountIds names"
            )
            yield "id-05", f"a trust of tenant {tenant} in {', '.join(foreign_accounts)}, {where}"
        for provider in iam.as_strings(get_path(statement, "Principal", "Federated")):
            # AWS' built-in issuers, such as accounts.google.com, issue tokens to the public.
            if "oidc" in provider or UNKNOWN in provider or (tenant and not provider.startswith("arn:")):
                yield from _federated(provider.rpartition("oidc-provider/")[2], get_path(statement, "Condition"))


def _accounts(item: Object) -> list[str]:
    """The accounts that a role may be in: its provider's, or that of its boundary, which is in the same account."""
    boundary = str(item.get("permissionsBoundary") or "")
    border = boundary if boundary == UNKNOWN else [*boundary.split(":", 5), *[""] * 5][4]
    accounts = iam.as_strings(item.get(ACCOUNTS))
    return accounts if accounts or border in {"", "aws"} else [border]


def _federated(provider: str, condition: Any) -> Given:
    subjects = iam.subjects(provider, condition)
    unknown = condition == UNKNOWN or UNKNOWN in provider or UNKNOWN in str(condition)
    if unknown and not subjects:
        yield "id-05", f"a trust in {provider} under a condition {UNKNOWN}"
    elif not subjects:
        yield "id-05", f"a trust in {provider} without a condition on its :sub, which allows all its users"
    for subject in subjects:
        if re.search(r"[*?]|\$\{", subject):
            yield "id-05", f"a trust in {provider} for {subject}"


def _or(value: Any, absent: str) -> str:
    return absent if value is None else value if isinstance(value, str) else json.dumps(value, default=str)


CHECKS: Mapping[str, Callable[[Object], Given]] = {
    **dict.fromkeys(ATTACHED, _attachment),
    BUCKET: _bucket,
    CLUSTER: _cluster,
    GROUP: _group,
    INGRESS: _ingress,
    KEY: _key,
    LOGS: _billed,
    POD_IDENTITY: _pod_identity,
    POLICY: _policy,
    PUBLIC_ACCESS: _public_access,
    REPOSITORY: _repository,
    ROLE: _role,
    ROLE_POLICY: _role_policy,
    SECURITY_GROUP: _security_group,
    TEMPLATE: _template,
    VOLUME: _billed,
}
KINDS = frozenset({*CHECKS, ENTRY, ASSOCIATION, ENCRYPTION})
