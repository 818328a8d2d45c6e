"""Scope of an IAM policy's statement: the actions and resources that its patterns match, and its condition.

As in IAM: `*` matches any text, `/` and `:` included, `?` one character, and `${…}` one value of the caller.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

from tenancy.kube.objects import UNKNOWN, as_list, get_path

_VARIABLE = re.compile(r"\$\{[^}]*\}")
_ALL_OF_S3 = ("s3:deletebucket", "s3:getobject", "s3:listallmybuckets", "s3:putbucketpolicy")
"""Actions so different that a pattern that matches them matches all of S3."""
_ALL_OF_IAM = ("iam:attachrolepolicy", "iam:createuser", "iam:passrole", "iam:updateassumerolepolicy")
"""The same for IAM: these actions together give every right."""
_GIVING = frozenset(
    f"{service}:{name}"
    for service, names in {
        "eks": "AssociateAccessPolicy AssociateIdentityProviderConfig CreateAccessEntry UpdateAccessEntry",
        "eks-auth": "AssumeRoleForPodIdentity",
        "iam": "AddClientIDToOpenIDConnectProvider AddUserToGroup AttachGroupPolicy AttachRolePolicy AttachUserPolicy "
        "CreateAccessKey CreateLoginProfile CreateOpenIDConnectProvider CreatePolicyVersion CreateSAMLProvider "
        "CreateServiceSpecificCredential DeactivateMFADevice DeleteRolePermissionsBoundary DeleteRolePolicy "
        "DeleteUserPermissionsBoundary DeleteUserPolicy DetachRolePolicy DetachUserPolicy PutGroupPolicy "
        "PutRolePermissionsBoundary PutRolePolicy PutUserPermissionsBoundary PutUserPolicy "
        "ResetServiceSpecificCredential ResyncMFADevice SetDefaultPolicyVersion UpdateAccessKey "
        "UpdateAssumeRolePolicy UpdateLoginProfile UpdateOpenIDConnectProviderThumbprint UpdateSAMLProvider "
        "UploadSSHPublicKey UploadSigningCertificate",
        "kms": "PutKeyPolicy",
        "s3": "CreateAccessPoint DeleteAccessPointPolicy DeleteBucketPolicy PutAccessPointPolicy "
        "PutAccountPublicAccessBlock PutBucketAcl PutBucketPolicy PutBucketPublicAccessBlock",
        "sso": "AttachCustomerManagedPolicyReferenceToPermissionSet AttachManagedPolicyToPermissionSet "
        "CreateAccountAssignment PutInlinePolicyToPermissionSet",
    }.items()
    for name in names.lower().split()
)
"""Actions that grant rights on any resource, also to the caller's own role. Of the access level "Permissions
management" in AWS' Service Authorization Reference those that escalate privileges. The ways are those of Rhino
Security Labs' list (AWS IAM Privilege Escalation - Methods and Mitigation) and of Datadog's pathfinding.cloud."""
_TAKING = frozenset(
    f"{service}:{name}"
    for service, names in {
        "cloudformation": "CreateChangeSet ExecuteChangeSet UpdateStack",
        "codebuild": "StartBuild StartBuildBatch UpdateProject",
        "datapipeline": "PutPipelineDefinition",
        "ec2": "ModifyInstanceAttribute",
        "ec2-instance-connect": "SendSSHPublicKey SendSerialConsoleSSHPublicKey",
        "ecr": "SetRepositoryPolicy",
        "ecs": "ExecuteCommand",
        "elasticfilesystem": "DeleteFileSystemPolicy PutFileSystemPolicy",
        "glue": "UpdateDevEndpoint UpdateJob",
        "iam": "PassRole",
        "kms": "CreateGrant",
        "lambda": "AddPermission UpdateFunctionCode UpdateFunctionConfiguration",
        "sagemaker": "CreatePresignedDomainUrl CreatePresignedNotebookInstanceUrl "
        "UpdateNotebookInstanceLifecycleConfig",
        "secretsmanager": "PutResourcePolicy",
        "ssm": "CreateAssociation SendCommand StartSession UpdateAssociation",
        "states": "UpdateStateMachine",
        "sts": "AssumeRole",
    }.items()
    for name in names.lower().split()
)
"""Actions that get the rights of their resource, from the same lists. Those that create an instance, function or stack
with a role, such as ec2:RunInstances, need iam:PassRole on that role, which is included."""
_RESOURCES_OF = {"ec2-instance-connect": "ec2", "eks-auth": "eks", "ssm": "ec2", "sts": "iam"}
"""Services whose actions are on resources of another service."""
_BORDERS = frozenset({"iam:permissionsboundary", "iam:policyarn"})
"""Condition keys that limit granted rights to a permissions boundary (IAM User Guide, Permissions boundaries)."""
_VERSIONS = re.compile(r"(?<=:)([^:*?]+):\*$")
_OF_OBJECTS = tuple(
    f"s3:{name}"
    for name in (
        "abortmultipartupload bypassgovernanceretention deleteobject deleteobjecttagging deleteobjectversion getobject "
        "getobjectacl getobjectattributes getobjecttagging getobjectversion listmultipartuploadparts putobject "
        "putobjectacl putobjectlegalhold putobjectretention putobjecttagging putobjectversionacl restoreobject"
    ).split()
)
_LISTS = ("s3:listbucket", "s3:listbucketversions", "s3:listbucketmultipartuploads")
_KEYS = ("a/b", "Zeta/9-x.y")
"""Keys so different that a pattern that matches both matches a whole bucket."""
_ACCESS_POINT = "accesspoint/"


@functools.lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in text), re.DOTALL)


def takes(pattern: str, text: str) -> bool:
    """Whether a pattern of IAM, with * and ?, matches the text."""
    return _pattern(pattern).fullmatch(text) is not None


def as_strings(value: Any) -> list[str]:
    """The texts of an IAM element, which may be one text or a list."""
    return [] if value is None else [value] if isinstance(value, str) else [str(item) for item in as_list(value)]


def actions(statement: Any) -> list[str]:
    """Actions of a statement in lower case."""
    return [action if action == UNKNOWN else action.lower() for action in as_strings(get_path(statement, "Action"))]


def all_of_s3(action: str) -> bool:
    """Whether an action pattern allows every action on S3."""
    return action == UNKNOWN or all(takes(action, name) for name in _ALL_OF_S3)


def all_of_iam(action: str) -> bool:
    """Whether an action pattern allows every action on IAM."""
    return action == UNKNOWN or all(takes(action, name) for name in _ALL_OF_IAM)


def any_role(resource: str) -> bool:
    """Whether a pattern matches roles of any name."""
    fields = resource.split(":", 5)
    if len(fields) < 6:
        return resource == UNKNOWN or resource.endswith("*")
    return takes(fields[2], "iam") and all(takes(fields[5], f"role/{name}") for name in _KEYS)


def _allowed(statement: Any, names: frozenset[str]) -> dict[str, list[str]]:
    """Those of some actions that a statement's patterns match, with the patterns as written."""
    patterns_by_name: dict[str, list[str]] = {}
    for pattern in actions(statement):
        for name in names:
            if pattern == UNKNOWN or takes(pattern, name):
                patterns_by_name.setdefault(name, []).append(pattern)
    if but := as_strings(get_path(statement, "NotAction")):
        for name in names:
            if not any(exclusion == UNKNOWN or takes(exclusion.lower(), name) for exclusion in but):
                patterns_by_name.setdefault(name, []).append(f"all but {', '.join(but)}")
    return patterns_by_name


def _is_on(resource: str, service: str) -> bool:
    """Whether a pattern may match resources of a service."""
    if service == "s3":
        return whole_bucket(resource)
    if resource == UNKNOWN:
        return True
    fields = resource.split(":", 5)
    return takes(fields[2], service) if len(fields) > 2 else "*" in resource


def _one_of_a_kind(resource: str) -> bool:
    """Whether a pattern names a single resource of one account."""
    fields = _VARIABLE.sub("v", resource).split(":", 5)
    return len(fields) == 6 and not re.search(r"[*?]", fields[4] + _VERSIONS.sub(r"\1", fields[5]))


def _conditioned(condition: Any, of_use: Callable[[str], bool]) -> bool:
    if condition == UNKNOWN or (isinstance(condition, Mapping) and UNKNOWN in condition.values()):
        return True
    return any(
        of_use(key) and bool(values) and all(value.strip("*") for value in values)
        for _, key, values in positive_tests(condition)
    )


def more_rights(statement: Any) -> tuple[list[str], list[str]]:
    """Actions and resources of a statement that allow privilege escalation; both empty if there are none."""
    resources, condition = as_strings(get_path(statement, "Resource")), get_path(statement, "Condition")
    others = [f"all but {resource}" for resource in as_strings(get_path(statement, "NotResource"))]
    patterns_by_text: dict[str, None] = {}
    reached: dict[str, None] = {}
    for names, harmless, of_use in (
        (_GIVING, lambda _: False, _BORDERS.__contains__),
        (_TAKING, _one_of_a_kind, lambda key: ":resourcetag/" in key),
    ):
        if _conditioned(condition, of_use):
            continue
        for name, patterns in sorted(_allowed(statement, names).items()):
            service = name.partition(":")[0]
            service = _RESOURCES_OF.get(service, service)
            on = [resource for resource in resources if _is_on(resource, service) and not harmless(resource)]
            if on or others:
                patterns_by_text |= dict.fromkeys(patterns)
                reached |= dict.fromkeys([*on, *others])
    return [*patterns_by_text], [*reached]


def roles_taken(statement: Any, action: str) -> list[str]:
    """Names of the single roles that a statement allows to pass or to assume."""
    role_arns = [
        resource
        for resource in as_strings(get_path(statement, "Resource"))
        if _is_on(resource, "iam") and _one_of_a_kind(resource)
    ]
    return [arn.rpartition("/")[2] for arn in role_arns] if _allowed(statement, frozenset({action})) else []


def of_objects(action: str) -> bool:
    """Whether an action pattern allows an action on S3 objects."""
    return any(takes(action, name) for name in _OF_OBJECTS)


def listing(action: str) -> str | None:
    """The action that lists keys, if a pattern matches one."""
    return next((name for name in _LISTS if takes(action, name)), None)


def _place(resource: str) -> tuple[str, str] | None:
    """Region and account, and the rest, of a pattern that may match S3; None if it is of another service."""
    if resource in {"*", UNKNOWN}:
        return "", "*"
    fields = _VARIABLE.sub("v", resource).split(":", 5)
    if len(fields) < 6:  # the star of a short pattern stands for all missing fields
        of_s3 = "*" in "".join(fields[:3]) or takes("".join(fields[2:3]), "s3")
        return ("", "*") if of_s3 and "*" in resource else None
    return ("".join(fields[3:5]), fields[5]) if takes(fields[2], "s3") else None


def _access_points(where: str, resource_part: str) -> bool | None:
    """Whether a pattern matches more than one access point; None if it is about buckets."""
    if not where.strip("*") and not resource_part.startswith(_ACCESS_POINT):
        return None
    access_point = (
        resource_part.removeprefix(_ACCESS_POINT).partition("/")[0]
        if resource_part.startswith(_ACCESS_POINT)
        else resource_part
    )
    return "*" in access_point or "?" in access_point


def whole_bucket(resource: str) -> bool:
    """Whether a pattern is a bucket itself, or matches all of its objects."""
    if (place := _place(resource)) is None:
        return False
    if (points := _access_points(*place)) is not None:
        return points
    bucket, object_key, _ = place[1].partition("/")
    example_bucket = re.sub(r"[*?]", "x", bucket)
    return not object_key or all(takes(place[1], f"{example_bucket}/{key}") for key in _KEYS)


def beyond_a_prefix(resource: str) -> bool:
    """Whether a pattern matches objects that are not all below one prefix of one bucket."""
    if (place := _place(resource)) is None:
        return False
    if (points := _access_points(*place)) is not None:
        return points
    literal = re.split(r"[*?]", place[1], maxsplit=1)[0]
    if literal == place[1]:
        return False  # one object, or the bucket without them
    _, _, key = literal.partition("/")
    return "/" not in key.lstrip("/")


_POSITIVE = re.compile(r"(ForAnyValue:)?(Arn|String)(Equals|Like|EqualsIgnoreCase)")
"""Operators that fail if the key is missing or has another value: none with IfExists, Not or ForAllValues."""
_SET_BY_CALLER = frozenset(
    "aws:currenttime aws:epochtime aws:referer aws:requestedregion aws:securetransport aws:useragent".split()
)
"""Keys that restrict neither the caller nor the resource."""


def positive_tests(condition: Any) -> Iterator[tuple[str, str, list[str]]]:
    """(operator, key, values) of the tests that only one of these values meets."""
    for operator, tests in condition.items() if isinstance(condition, Mapping) else ():
        if _POSITIVE.fullmatch(str(operator)):
            for key, values in tests.items() if isinstance(tests, Mapping) else ():
                yield str(operator), str(key).lower(), as_strings(values)


def limits(condition: Any) -> bool:
    """Whether a condition restricts anything: others are true for every caller."""
    if condition == UNKNOWN or (isinstance(condition, Mapping) and UNKNOWN in condition.values()):
        return True
    if not isinstance(condition, Mapping):
        return False
    empty = [
        not values or any(not value.strip("*") for value in values) or key in _SET_BY_CALLER
        for _, key, values in positive_tests(condition)
    ]
    others = any(
        not _POSITIVE.fullmatch(str(operator))
        and "IfExists" not in str(operator)
        and not str(operator).startswith(("ForAllValues", "StringNot", "ArnNot", "Null"))
        and isinstance(tests, Mapping)
        and any(str(key).lower() not in _SET_BY_CALLER for key in tests)
        for operator, tests in condition.items()
    )
    return others or not all(empty)


def by_prefix(condition: Any) -> bool:
    """Whether lists are limited to keys below a prefix."""
    if condition == UNKNOWN or (isinstance(condition, Mapping) and UNKNOWN in condition.values()):
        return True
    return any(
        key == "s3:prefix" and bool(values) and all(map(_is_tenant_prefix, values))
        for _, key, values in positive_tests(condition)
    )


def _is_tenant_prefix(prefix: str) -> bool:
    if prefix == UNKNOWN:
        return True
    literal = re.split(r"[*?]", _VARIABLE.sub("v", prefix), maxsplit=1)[0]
    return prefix.endswith(("/", "/*")) and "/" in literal.lstrip("/")


# Who may take a role

_WHO = frozenset(
    f"aws:{name.lower()}"
    for name in (
        "PrincipalAccount PrincipalArn PrincipalOrgID PrincipalOrgPaths SourceAccount SourceArn SourceOrgID "
        "SourceOrgPaths"
    ).split()
)
"""Condition keys that AWS itself sets to the caller, or to the resource for which a service calls. Not among them: tags
and session names, which the other account chooses; sts:ExternalId, which is no secret; networks and regions, which do
not identify a caller (IAM User Guide, Global condition context keys)."""


def any_caller(statement: Any) -> str | None:
    """Why a trust is open to every AWS principal; None if it names who is trusted."""
    if (but := get_path(statement, "NotPrincipal")) is not None:
        return f"a trust in every principal but {but}"
    principal = get_path(statement, "Principal")
    principals = principal.values() if isinstance(principal, Mapping) else [principal]
    if not any("*" in as_strings(entry) for entry in principals):
        return None
    condition = get_path(statement, "Condition")
    if not condition:
        return "a trust in every principal, without a condition"
    tests = positive_tests(condition)
    if any(key in _WHO and values and all(_one_account(key, value) for value in values) for _, key, values in tests):
        return None
    if UNKNOWN in str(condition):
        return f"a trust in every principal under a condition {UNKNOWN}"
    keys = sorted({str(key) for tests in condition.values() if isinstance(tests, Mapping) for key in tests})
    return f"a trust in every principal under a condition on {', '.join(keys) or 'nothing'} that names none"


def _one_account(key: str, value: str) -> bool:
    """Whether a value leaves no account or organization open."""
    if key.endswith("arn"):
        fields = value.split(":", 5)
        whose = fields[4] if len(fields) == 6 else "*"
        # A bucket's ARN has no account; with a wildcard, a bucket of any account could match.
        return not re.search(r"[*?]", whose or fields[5].partition("/")[0])
    if key.endswith("orgpaths"):
        return not re.search(r"[*?]", value.partition("/")[0])
    return not re.search(r"[*?]", value)


def outsiders(statement: Any, own_accounts: Collection[str]) -> list[str]:
    """Principals of a trust that are not in these accounts, or of unknown accounts. If no account is known, an issuer
    of tokens counts as one of the own account: it is checked by its subjects."""
    principal = get_path(statement, "Principal")
    of_aws = [principal] if isinstance(principal, str) else as_strings(get_path(principal, "AWS"))
    issuers = [
        issuer for issuer in as_strings(get_path(principal, "Federated")) if own_accounts and issuer.startswith("arn:")
    ]
    accounts = [account for account in [*of_aws, *issuers] if account != "*"]
    if "*" in of_aws:
        tests = positive_tests(get_path(statement, "Condition"))
        by_key = [values for _, key, values in tests if key in _WHO and values]
        # All tests must be true, so one that names own accounts is enough; an organization is never one account.
        if not any(all(_account(value) in own_accounts for value in values) for values in by_key):
            accounts += [value for values in by_key for value in values]
    return [account for account in accounts if _account(account) not in own_accounts]


def _account(principal: str) -> str:
    """The account of an ARN, or the principal itself, which may be an account number."""
    fields = principal.split(":", 5)
    return fields[4] if len(fields) == 6 else principal


def subjects(provider: str, condition: Any) -> list[str]:
    """Subjects of a provider's tokens that a condition accepts; empty if it accepts all."""
    key = f"{provider}:sub".lower()
    return [value for _, tested, values in positive_tests(condition) if tested == key for value in values]
