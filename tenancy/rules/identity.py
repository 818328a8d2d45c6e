"""Identity: service accounts, their tokens and their roles on AWS."""

from __future__ import annotations

from tenancy.catalog import vocabulary as words
from tenancy.rules.expressions import by_platform, cel, in_tenants_namespaces
from tenancy.rules.model import Face, GuardFacts, Rule, Severity, Subject

AUDIENCES = ("", "pods.eks.amazonaws.com", "sts.amazonaws.com")
"""Of tokens: the API server, and those that EKS' own webhook mounts (aws/amazon-eks-pod-identity-webhook)."""
TOKEN_SECONDS = 86400
"""What the same webhook asks for."""
ENGINE = "pulumi-kubernetes"
"""How the field managers of the platform's engine begin (pulumi-kubernetes, provider/pkg/ssa)."""
_ACCOUNT = """(has(variables.spec.serviceAccountName) && variables.spec.serviceAccountName != ''
        ? variables.spec.serviceAccountName : 'default')"""
# An entry says when its manager last wrote: one of the engine's that was not there, or is of another time, is a write
# under its name. A tenant may run the same engine for its own objects, so the platform's alone are judged.
_OURS = f"{{0}}.metadata.?labels[?{cel(words.ENVIRONMENT)}].hasValue()"
_ENTRIES = "dyn({0}).metadata.?managedFields.orValue([])"
_UNDER_OWN_NAME = f"""!({_OURS.format("object")} || (oldObject != null && {_OURS.format("oldObject")}))
    || ({_ENTRIES.format("object")}).all(m, !m.manager.startsWith({cel(ENGINE)})
        || (oldObject != null && ({_ENTRIES.format("oldObject")}).exists(o, o.manager == m.manager
            && o.operation == m.operation && o.time == m.time)))"""


def _no_role(facts: GuardFacts) -> str:
    return f"""{by_platform(facts.platform_group)} || !has(object.metadata.annotations)
        || !object.metadata.annotations.exists(k, k.startsWith('eks.amazonaws.com/'))"""


RULES: tuple[Rule, ...] = (
    Rule(
        id="id-01",
        title="a service account names no AWS role",
        why="the annotation asks for another tenant's identity",
        fix="the platform binds roles by Pod Identity; drop the annotation",
        enforced=Face.ATTACK,
        guards={Subject.SERVICE_ACCOUNTS: _no_role},
    ),
    Rule(
        id="id-02",
        title="no secret holds a service account's token",
        why="such a token never expires and works from anywhere",
        fix="mount a projected token, which the kubelet renews",
        enforced=Face.ATTACK,
        guards={Subject.SECRETS: "!has(object.type) || object.type != 'kubernetes.io/service-account-token'"},
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
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""!has(variables.spec.volumes) || variables.spec.volumes.all(v,
        !has(v.projected) || !has(v.projected.sources) || v.projected.sources.all(s,
            !has(s.serviceAccountToken) || (
                (!has(s.serviceAccountToken.audience) || s.serviceAccountToken.audience in {cel(list(AUDIENCES))})
                && (!has(s.serviceAccountToken.expirationSeconds)
                    || s.serviceAccountToken.expirationSeconds <= {TOKEN_SECONDS}))))"""
        },
    ),
    Rule(
        id="id-04",
        title="an IAM role belongs to one tenant",
        why="two tenants with one role read and write each other's data",
        fix="make a role for each tenant's service account",
        severity=Severity.CRITICAL,
        enforced=Face.PREVIEW | Face.AWS,
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
        enforced=Face.PREVIEW | Face.AWS,
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
        enforced=Face.PREVIEW | Face.AWS,
    ),
    Rule(
        id="id-07",
        title="a pod runs as a service account that the tenant's file names",
        why="a user who may make pods would act with the rights of every service account in the namespace",
        fix="drop serviceAccountName, or declare the account under service-accounts of the namespace",
        enforced=Face.ATTACK,
        guards={
            Subject.PODS: f"""!variables.placing || ({_ACCOUNT} in variables.allowedAccounts
        && (!has(variables.spec.serviceAccount) || variables.spec.serviceAccount == ''
            || variables.spec.serviceAccount == {_ACCOUNT}))"""
        },
    ),
    Rule(
        id="id-08",
        title=(
            "a pod has an API token only if its service account was given one, and no client certificate of the API "
            "server"
        ),
        why="an intruder in a container finds it there and can call the API server with it",
        fix=(
            "set automountServiceAccountToken to false, or api-token on the account in the tenant's file; drop "
            "podCertificate with a signer of kubernetes.io"
        ),
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={
            # A pod that does not opt out has the token among its volumes by now. A certificate of one of Kubernetes'
            # own signers is a token that lives for weeks; no account is given one.
            Subject.PODS: f"""(!variables.placing || {_ACCOUNT} in variables.tokenAccounts || (
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
    ),
    Rule(
        id="id-10",
        title="a change of the platform's objects does not use the field manager of the platform's engine",
        why="under that name it passes for a change by the platform, and no report of drift shows it",
        fix="name another field manager, one that does not begin with pulumi-kubernetes, or none",
        severity=Severity.MEDIUM,
        enforced=Face.ATTACK,
        guards={Subject.SIZES_OF_OBJECTS: in_tenants_namespaces(_UNDER_OWN_NAME)},
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
        enforced=Face.PREVIEW | Face.AWS,
    ),
)
