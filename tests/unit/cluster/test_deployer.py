"""Identity of the deployer (rbac-07): from the API server, and where the guards stay as they are, from a dry run."""

from __future__ import annotations

from typing import Any

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, Response
from tenancy.cluster.deployer import ALL_RIGHTS, PROBE, WHOAMI, deployer_problems
from tenancy.planning import Plan
from tenancy.planning.guards import MARKER

GROUP = "gpu-platform-team"
MARKED = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}/configmaps/{MARKER}"
DRY_RUN = "/api/v1/namespaces?dryRun=All"
GUARD = Response(
    403,
    {
        "message": "namespaces is forbidden: ValidatingAdmissionPolicy 'tenancy-namespaces' with binding "
        "'tenancy-namespaces' denied request: ns-05: only the platform changes a namespace"
    },
)
NO_RIGHT = Response(403, {"message": 'namespaces is forbidden: User "jane" cannot create resource "namespaces" in API'})
CREATED = Response(201, {})


class Server(Api):
    """Knows who asks, has guards of that digest, and answers the dry run so; writes down what it was asked."""

    def __init__(self, *groups: str, digest: str | None, dry_run: Response = CREATED) -> None:
        who = Response(201, {"status": {"userInfo": {"username": "jane", "groups": list(groups)}}})
        guards = Response(200, {"data": {"version": "5", "digest": digest}}) if digest else Response(404, {})
        self.answers = {("POST", WHOAMI): who, ("GET", MARKED): guards, ("POST", DRY_RUN): dry_run}
        self.asked: list[tuple[str, str]] = []
        self.bodies: dict[str, Any] = {}

    def request(self, method: str, path: str, body: Any = None, **_: Any) -> Response:
        self.asked.append((method, path))
        self.bodies[path] = body
        return self.answers[method, path]

    @property
    def probed(self) -> bool:
        return ("POST", DRY_RUN) in self.asked


def digest_of(plan: Plan) -> str:
    return plan.platform.marker["data"]["digest"]


def test_one_to_whom_the_guards_refuse_a_tenants_namespace_is_told_before_the_run(plan: Plan) -> None:
    server = Server(GROUP, digest=digest_of(plan), dry_run=GUARD)
    (problem,) = deployer_problems(server, plan, plan.platform)
    assert "given identity jane, to whom the guards that are active refuse a tenant's namespace" in problem
    assert "(ValidatingAdmissionPolicy/tenancy-namespaces:ns-05); rule rbac-07: " in problem
    assert (
        f"aws eks create-access-entry --cluster-name CLUSTER --principal-arn ARN --kubernetes-groups {GROUP}" in problem
    )


def test_what_is_asked_is_a_namespace_of_a_tenant_and_only_as_a_dry_run(plan: Plan) -> None:
    server = Server(GROUP, digest=digest_of(plan))
    assert list(deployer_problems(server, plan, plan.platform)) == []
    request_body = server.bodies[DRY_RUN]
    assert (request_body["kind"], request_body["metadata"]["name"]) == ("Namespace", PROBE)
    assert request_body["metadata"]["labels"] == {
        vocabulary.TENANT: "tenancy",
        vocabulary.ENVIRONMENT: plan.environment,
    }
    assert [path for method, path in server.asked if method != "GET"] == [WHOAMI, DRY_RUN]


@pytest.mark.parametrize(
    "answer", [NO_RIGHT, Response(409, {"message": f'namespaces "{PROBE}" already exists'}), Response(500, {})]
)
def test_a_refusal_that_is_no_guards_is_left_to_what_comes_later(plan: Plan, answer: Response) -> None:
    server = Server(GROUP, digest=digest_of(plan), dry_run=answer)
    assert list(deployer_problems(server, plan, plan.platform)) == []
    assert server.probed


@pytest.mark.parametrize("digest", [None, "another"], ids=["none", "of another version"])
def test_guards_that_this_run_makes_or_changes_are_not_asked(plan: Plan, digest: str | None) -> None:
    """Those that are there may name another group: the former one."""
    server = Server(GROUP, digest=digest, dry_run=GUARD)
    assert list(deployer_problems(server, plan, plan.platform)) == []
    assert not server.probed


@pytest.mark.parametrize(("digest", "problems"), [("another", 1), (None, 0)])
def test_a_tenants_own_stack_asks_whatever_guards_there_are(plan: Plan, digest: str | None, problems: int) -> None:
    """It changes none of them."""
    server = Server(GROUP, digest=digest, dry_run=GUARD)
    assert len(list(deployer_problems(server, plan, None))) == problems
    assert server.probed is bool(problems)


@pytest.mark.parametrize("groups", [("other", "system:authenticated"), (ALL_RIGHTS,), ()])
def test_who_is_outside_of_the_group_is_told_without_a_dry_run(plan: Plan, groups: tuple[str, ...]) -> None:
    server = Server(*groups, digest=digest_of(plan), dry_run=GUARD)
    (problem,) = deployer_problems(server, plan, plan.platform)
    assert f"given identity jane, whose groups are {', '.join(groups) or 'none'}" in problem
    assert (f"{ALL_RIGHTS} is not enough" in problem) is (ALL_RIGHTS in groups)
    assert not server.probed


@pytest.mark.parametrize("answer", [Response(404, {}), Response(401, {"kind": "Status", "status": "Failure"})])
def test_where_the_review_is_hidden_nothing_is_claimed(plan: Plan, answer: Response) -> None:
    server = Server(digest=digest_of(plan), dry_run=GUARD)
    server.answers["POST", WHOAMI] = answer
    assert list(deployer_problems(server, plan, plan.platform)) == []
    assert not server.probed
