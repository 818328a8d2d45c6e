"""Check that guards admit the deploying identity's changes of tenants' namespaces (rbac-07)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tenancy.catalog import vocabulary
from tenancy.cluster import denial
from tenancy.cluster.api import Api
from tenancy.cluster.guards import marker
from tenancy.kube import deniers
from tenancy.planning.plan_model import Plan, PlatformPlan
from tenancy.rules.catalogue import RULES

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
ALL_RIGHTS = "system:masters"
PROBE = vocabulary.derived_name("tenancy", "preflight")
"""Name of a namespace that is requested as a dry run only; no tenant may be called `tenancy`."""


def deployer_problems(api: Api, plan: Plan, platform: PlatformPlan | None) -> Iterator[str]:
    """Why the guards would refuse changes of tenants' namespaces by the deploying identity (rbac-07)."""
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    answer = api.request("POST", WHOAMI, review)
    if not answer.ok:
        return  # an authenticator in front of the API server may hide it: the guards answer later
    user_info = (answer.body.get("status") or {}).get("userInfo") or {}
    user, groups = str(user_info.get("username", "")), [str(group) for group in user_info.get("groups") or ()]
    expected = plan.admission.group
    if expected not in groups:
        masters_note = f" ({ALL_RIGHTS} is not enough: guards ask for the group by its name)" * (ALL_RIGHTS in groups)
        yield _refusal(f"{user}, whose groups are {_group_names(groups)}{masters_note}", expected, plan)
    elif _keeps_guards(api, platform) and (denying_guard := _denying_guard(api, plan)):
        identity = f"{user}, to whom the guards that are active refuse a tenant's namespace ({denying_guard})"
        yield _refusal(identity, "the group that they name", plan)


def _refusal(identity: str, expected: str, plan: Plan) -> str:
    cluster = plan.account.cluster if plan.account else "CLUSTER"
    group = plan.admission.group
    return (
        f"given identity {identity}; rule rbac-07: {RULES['rbac-07'].title}, {expected}; change: deploy as an identity "
        f"in {group}; on EKS an access entry adds it: `aws eks create-access-entry --cluster-name {cluster} "
        f"--principal-arn ARN --kubernetes-groups {group}`; on the lab `. .lab/env` has one"
    )


def _group_names(groups: Sequence[str]) -> str:
    return ", ".join(sorted(groups)) or "none"


def _keeps_guards(api: Api, platform: PlatformPlan | None) -> bool:
    """Whether this run leaves the active guards as they are: new ones may name another group."""
    stored_marker = marker(api)
    return bool(stored_marker) and (
        platform is None or stored_marker.get("digest") == platform.marker["data"]["digest"]
    )


def _denying_guard(api: Api, plan: Plan) -> str:
    """The guard that refuses a tenant's namespace in a dry run; empty if none does."""
    labels = {vocabulary.TENANT: "tenancy", vocabulary.ENVIRONMENT: plan.environment}
    probe = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": PROBE, "labels": labels}}
    answer = api.request("POST", "/api/v1/namespaces?dryRun=All", probe)
    denier = denial.denier(answer.status, answer.message)
    return denier if denier.startswith(deniers.ADMISSION_POLICY) else ""
