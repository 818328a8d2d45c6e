"""Identity: service accounts, their tokens and their roles on AWS."""

from __future__ import annotations

from collections.abc import Iterator

from tenancy.catalog import vocabulary
from tenancy.kube.requests import APPLY, MERGE, core
from tenancy.rules import aws
from tenancy.rules.attacks import ABSENT, Attack, Request, attack, escaped, put, skipped
from tenancy.rules.expressions import by_platform, cel, in_tenants_namespaces
from tenancy.rules.model import GuardFacts, GuardSubject, Rule, Severity
from tenancy.rules.scene import AttackPlace, AttackScene
from tenancy.rules.workloads import ALL_KINDS, TOKEN, Case, at_home, create, kinds_of, minimal, through_all_kinds

AUDIENCES = ("", "pods.eks.amazonaws.com", "sts.amazonaws.com")
"""Audiences of tokens: the API server, and those that EKS' own webhook mounts (aws/amazon-eks-pod-identity-webhook)."""
TOKEN_SECONDS = 86400
"""Lifetime in seconds that the same webhook asks for."""
ENGINE = "pulumi-kubernetes"
"""Prefix of the field managers of the platform's engine (pulumi-kubernetes, provider/pkg/ssa)."""
_ACCOUNT = """(has(variables.spec.serviceAccountName) && variables.spec.serviceAccountName != ''
        ? variables.spec.serviceAccountName : 'default')"""
# An entry says when its manager last wrote: one of the engine's that was not there, or is of another time, is a write
# under its name. A tenant may run the same engine for its own objects, so the platform's alone are judged.
_IS_MANAGED = f"{{0}}.metadata.?labels[?{cel(vocabulary.ENVIRONMENT)}].hasValue()"
_ENTRIES = "dyn({0}).metadata.?managedFields.orValue([])"
_UNDER_OWN_NAME = f"""!({_IS_MANAGED.format("object")} || (oldObject != null && {_IS_MANAGED.format("oldObject")}))
    || ({_ENTRIES.format("object")}).all(m, !m.manager.startsWith({cel(ENGINE)})
        || (oldObject != null && ({_ENTRIES.format("oldObject")}).exists(o, o.manager == m.manager
            && o.operation == m.operation && o.time == m.time)))"""


def _no_role(facts: GuardFacts) -> str:
    return f"""{by_platform(facts.platform_group)} || !has(object.metadata.annotations)
        || !object.metadata.annotations.exists(k, k.startsWith('eks.amazonaws.com/'))"""


# Attacks

_AWS_TOKEN = {"path": "token", "audience": "sts.amazonaws.com", "expirationSeconds": TOKEN_SECONDS}
_MOUNTED = {"/spec/volumes": [{"name": "token", "projected": {"sources": [{"serviceAccountToken": _AWS_TOKEN}]}}]}
_AUDIENCE = f"{TOKEN}/audience"
_ROLE = f"/metadata/annotations/{escaped('eks.amazonaws.com/role-arn')}"
_ARN = "arn:aws:iam::111122223333:role/another-tenant"


def _roles(scene: AttackScene) -> Iterator[Attack]:
    sentence = "take another tenant's AWS role by annotation"
    if scene.home is None:
        return
    place = next((place for place in scene.places if place.owner), None)
    if place is None:
        yield skipped("id-01-serviceaccount-role", "id-01", sentence, "no tenant has an owner")
        return
    plain = minimal("ServiceAccount")
    plain["metadata"]["annotations"] = {"note": "hello"}
    yield create(scene, place, "id-01", "role", sentence, plain, _ROLE, _ARN, place.owner)
    patch = {"metadata": {"annotations": {"note": "hello"}}}
    path = core(place.name, "serviceaccounts", "default")
    request = Request("PATCH", path, put(patch, _ROLE, _ARN), place.owner, MERGE)
    guard, of_default = scene.guard("id-01", "serviceaccounts"), f"{sentence} of its default account"
    yield attack("id-01-serviceaccount-update", "id-01", of_default, guard, request, twin_body=patch)


def _managers(scene: AttackScene) -> Iterator[Attack]:
    place = next((place for place in scene.places if place.owner), None) if scene.home else None
    if place is None:
        return
    patch = {"metadata": {"annotations": {"note": "hello"}}}
    account_path, sentence = core(place.name, "serviceaccounts", "default"), "present its own change as the platform's"
    for name, kind in (("merge", MERGE), ("apply", APPLY)):
        body = {"apiVersion": "v1", "kind": "ServiceAccount", **patch} if kind == APPLY else patch
        path = f"{account_path}?fieldManager={{}}{'&force=true' if kind == APPLY else ''}"
        request = Request("PATCH", path.format(f"{ENGINE}-4f3c2b1a"), body, place.owner, kind)
        guard, twin_path = scene.guard("id-10", "serviceaccounts"), path.format("verify")
        yield attack(f"id-10-serviceaccount-{name}", "id-10", sentence, guard, request, twin_path=twin_path)


def _token_secrets(scene: AttackScene, place: AttackPlace) -> Iterator[Attack]:
    account = {"kubernetes.io/service-account.name": "default"}
    token = put(minimal("Secret", type="Opaque"), "/metadata/annotations", account)
    sentence, kind = "create a token that never expires", "kubernetes.io/service-account-token"
    yield create(scene, place, "id-02", "token", sentence, token, "/type", kind)


def _audiences(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    log_in, aws = "log in to a service that trusts the cluster", _AWS_TOKEN["audience"]
    yield Case("id-03", "audience", log_in, _AUDIENCE, "vault.bank.example", aws, _MOUNTED, ALL_KINDS)
    yield Case("id-03", "look-alike", log_in, _AUDIENCE, f"{aws}.evil.example", aws, _MOUNTED)
    long, life = "get a token that is valid for too long", f"{TOKEN}/expirationSeconds"
    yield Case("id-03", "life", long, life, TOKEN_SECONDS + 1, TOKEN_SECONDS, _MOUNTED)


def _accounts(_scene: AttackScene, place: AttackPlace) -> Iterator[Case]:
    sentence, at = "run as a service account that the tenant's file does not name", "/spec/serviceAccountName"
    kinds = tuple(kind for kind in kinds_of(place) if kind != "Pod")
    yield Case("id-07", "account", sentence, at, "left-behind", "default", kinds=kinds)


def _tokens(_scene: AttackScene, _place: AttackPlace) -> Iterator[Case]:
    ask, aws = "mount a token for the API server", _AWS_TOKEN["audience"]
    yield Case("id-08", "mount", ask, "/spec/automountServiceAccountToken", True, False, kinds=ALL_KINDS)
    yield Case("id-08", "projected", f"{ask} in a volume of its own", _AUDIENCE, ABSENT, aws, _MOUNTED)


RULES: tuple[Rule, ...] = (
    Rule(
        id="id-01",
        title="a service account names no AWS role",
        why="the annotation asks for another tenant's identity",
        fix="the platform binds roles by Pod Identity; drop the annotation",
        guards={GuardSubject.SERVICE_ACCOUNTS: _no_role},
        attacks=(_roles,),
    ),
    Rule(
        id="id-02",
        title="no secret holds a service account's token",
        why="such a token never expires and works from anywhere",
        fix="mount a projected token, which the kubelet renews",
        guards={GuardSubject.SECRETS: "!has(object.type) || object.type != 'kubernetes.io/service-account-token'"},
        attacks=(at_home(_token_secrets),),
    ),
    Rule(
        id="id-03",
        title="a projected token is for the API server or for AWS, and valid for one day at most",
        why=(
            "with a token for another audience a pod can log in to any service that trusts the cluster, under "
            "a name that "
            "the service takes for the platform's"
        ),
        fix="drop audience, or use sts.amazonaws.com or pods.eks.amazonaws.com; set expirationSeconds to 86400 or less",
        guards={
            GuardSubject.PODS: f"""!has(variables.spec.volumes) || variables.spec.volumes.all(v,
        !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
            !has(s.serviceAccountToken) || (
                (!has(s.serviceAccountToken.audience) || s.serviceAccountToken.audience in {cel(list(AUDIENCES))})
                && (!has(s.serviceAccountToken.expirationSeconds)
                    || s.serviceAccountToken.expirationSeconds <= {TOKEN_SECONDS}))))"""
        },
        attacks=(through_all_kinds(_audiences),),
    ),
    Rule(
        id="id-04",
        title="an IAM role belongs to one tenant",
        why="two tenants with one role read and write each other's data",
        fix="make a role for each tenant's service account",
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE: "assumeRolePolicy"},
    ),
    Rule(
        id="id-05",
        title=(
            "a role's trust policy names who may take the role: one service account, or one branch of one "
            "repository; a "
            "tenant's role trusts no other account"
        ),
        why=(
            "a wildcard, or a token's issuer alone, lets every namespace of the cluster or every repository act as the "
            "tenant; of another account, its administrators choose who does"
        ),
        fix=(
            "test the token's :sub with StringEquals for system:serviceaccount:<namespace>:<name>, without a wildcard; "
            "list your own account under the provider's allowedAccountIds"
        ),
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE: "assumeRolePolicy"},
    ),
    Rule(
        id="id-06",
        title=(
            "an IAM policy grants named actions; a tenant's is limited to its prefixes and grants nothing that yields "
            "more rights"
        ),
        why=(
            "s3:* on a bucket covers every tenant's data, and the bucket's policy and encryption too; an identity that "
            "changes policies, or takes others' roles, machines and functions, gets all of their rights"
        ),
        fix=(
            "name the actions and bucket/prefix/*, put ListBucket under a condition on s3:prefix, and name the "
            "one role "
            "of its own that a tenant passes or takes"
        ),
        severity=Severity.CRITICAL,
        aws_settings={aws.ROLE_POLICY: "policy"},
    ),
    Rule(
        id="id-07",
        title="a pod runs as a service account that the tenant's file names",
        why="a user who may make pods would act with the rights of every service account in the namespace",
        fix="drop serviceAccountName, or declare the account under service-accounts of the namespace",
        guards={
            GuardSubject.PODS: f"""!variables.placing || ({_ACCOUNT} in variables.allowedAccounts
        && (!has(variables.spec.serviceAccount) || variables.spec.serviceAccount == ''
            || variables.spec.serviceAccount == {_ACCOUNT}))"""
        },
        attacks=(through_all_kinds(_accounts),),
    ),
    Rule(
        id="id-08",
        title=(
            "a pod has an API token only if its service account was given one, and no client certificate of the API "
            "server"
        ),
        why="an intruder in a container finds it there and can call the API server with it",
        fix=(
            "set automountServiceAccountToken to false, or automount-token on the account in the tenant's file; drop "
            "podCertificate with a signer of kubernetes.io"
        ),
        severity=Severity.MEDIUM,
        guards={
            # A pod that does not opt out has the token among its volumes by now. A certificate of one of Kubernetes'
            # own signers is a token that lives for weeks; no account is given one.
            GuardSubject.PODS: f"""(!variables.placing || {_ACCOUNT} in variables.tokenAccounts || (
        (!has(variables.spec.automountServiceAccountToken) || !variables.spec.automountServiceAccountToken)
        && (!has(variables.spec.volumes) || variables.spec.volumes.all(v,
            !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
                !has(s.serviceAccountToken)
                || (has(s.serviceAccountToken.audience) && s.serviceAccountToken.audience != ''))))))
        && (!variables.placing || !has(variables.spec.volumes) || variables.spec.volumes.all(v,
            !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
                !has(s.podCertificate) || (has(s.podCertificate.signerName)
                    && !s.podCertificate.signerName.startsWith('kubernetes.io/')))))"""
        },
        attacks=(through_all_kinds(_tokens),),
    ),
    Rule(
        id="id-10",
        title="a change of the platform's objects does not use the field manager of the platform's engine",
        why="under that name it passes for a change by the platform, and no report of drift shows it",
        fix="name another field manager, one that does not begin with pulumi-kubernetes, or none",
        severity=Severity.MEDIUM,
        guards={GuardSubject.SIZES_OF_OBJECTS: in_tenants_namespaces(_UNDER_OWN_NAME)},
        attacks=(_managers,),
    ),
    Rule(
        id="id-09",
        title="a role that pods take has session tags",
        why=(
            "without tags, a policy that compares the namespace's tag matches no session, and one with "
            "IfExists matches "
            "all"
        ),
        fix="drop disableSessionTags",
        aws_settings={aws.POD_IDENTITY: "disableSessionTags"},
    ),
)
