"""A tenant of any program asks the cluster of its provider for the guards, before its first namespace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pulumi
import pulumi_kubernetes as kubernetes
import pytest
from pulumi.runtime.mocks import set_mocks

from tenancy.cluster.api import Api, ApiUnreachable, Response
from tenancy.cluster.guards import PreconditionFailed, guard_problems, wait_for_guards
from tenancy.cluster.preflight import check_platform
from tenancy.components.kubernetes.cluster_objects import PlannedGuards
from tenancy.components.kubernetes.guarded import Preflight, cluster_ready, guards_judge
from tenancy.components.tenant import PlannedTenant
from tenancy.kube.objects import digest
from tenancy.planning import make_plan
from tenancy.planning.guards import GUARDED, VERSION, marker
from tenancy.planning.plan_model import PlatformPlan
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load
from tests.conftest import forget_programs
from tests.registered import Echo, Registered, run

LOCAL = Path(__file__).parents[3] / "stacks" / "local"
Ask = Callable[[str | None, str | None], None]


def foreign_program(require: Ask, *, preview: bool = False, **settings: Any) -> Registered:
    """A foreign program with one tenant."""
    loaded = load(LOCAL)
    plan = make_plan(loaded, loaded.day).tenant("research")
    registered = Registered()

    def program() -> None:
        providers: list[pulumi.ProviderResource] = [kubernetes.Provider("mine", **settings)]
        PlannedTenant("research", plan, opts=pulumi.ResourceOptions(providers=providers), require=require)

    run(program, registered, preview=preview)
    return registered


def refuse(_context: str | None, _kubeconfig: str | None) -> None:
    raise PreconditionFailed("given a cluster with no guards")


def unreachable(_context: str | None, _kubeconfig: str | None) -> None:
    raise ApiUnreachable("the API server does not answer")


def await_guards(require: Ask, *, preview: bool = False, **settings: str) -> None:
    """Wait for the guards of a provider with these settings, as a tenant does."""
    set_mocks(Echo(), project="other", stack="dev", preview=preview)
    provider = SimpleNamespace(**settings)

    async def waited() -> Any:
        return await guards_judge("research", provider, require).future()  # ty: ignore[invalid-argument-type]

    try:
        assert asyncio.run(waited()) is provider
    finally:
        forget_programs()


def _platform() -> PlatformPlan:
    loaded = load(LOCAL)
    return make_plan(loaded, loaded.day).platform


def platform_made(preflight: Preflight | None, registered: Registered, **settings: Any) -> set[str]:
    """A foreign program that makes the guards, and the objects that it made."""

    def program() -> None:
        options = pulumi.ResourceOptions(providers=[kubernetes.Provider("mine", context="theirs", **settings)])  # ty: ignore[invalid-argument-type]
        PlannedGuards("guards", _platform(), lambda: None, options, preflight=preflight)

    run(program, registered)
    return {request.name for request in registered.kubernetes().values()}


def test_guards_are_made_where_the_cluster_of_their_provider_is_ready() -> None:
    calls: list[tuple[str | None, str | None]] = []
    registered = Registered()

    def ask(plan: PlatformPlan, context: str | None, kubeconfig: str | None, _preview: bool) -> list[str]:
        assert plan.guards
        assert registered.kubernetes() == {}, "nothing is made before the answer"
        calls.append((context, kubeconfig))
        return []

    asked_platform = platform_made(ask, registered, kubeconfig="/path/to/config")
    assert calls == [("theirs", "/path/to/config")]
    assert asked_platform == platform_made(None, Registered()), "the same, once it is asked"
    assert any(name.startswith("guards-") for name in asked_platform)


def test_the_cluster_is_asked_after_what_the_platform_depends_on() -> None:
    """An operator of the same program defines kinds that the cluster lacks before."""
    registered, registered_names = Registered(), list[str]()

    def ask(*_: Any) -> list[str]:
        registered_names.extend(request.name for request in registered.kubernetes().values())
        return []

    def program() -> None:
        late = pulumi.Output.from_input(asyncio.sleep(0.2, "late"))
        provider = kubernetes.Provider("mine", context="theirs")
        operator = kubernetes.core.v1.ConfigMap(
            "operator", data={"made": late}, opts=pulumi.ResourceOptions(provider=provider)
        )
        options = pulumi.ResourceOptions(providers=[provider], depends_on=[operator])
        PlannedGuards("guards", _platform(), lambda: None, options, preflight=ask)

    run(program, registered)
    assert registered_names == ["operator"]


def test_the_program_ends_where_the_cluster_is_not_ready() -> None:
    def ask(*_: Any) -> list[str]:
        raise PreconditionFailed("given 1 namespace with work and no decision")

    provider = SimpleNamespace(context="theirs")
    set_mocks(Echo(), project="other", stack="dev", preview=False)

    async def waited() -> Any:
        return await cluster_ready("guards", _platform(), provider, ask).future()  # ty: ignore[invalid-argument-type]

    try:
        with pytest.raises(pulumi.RunError, match="guards: given 1 namespace with work and no decision"):
            asyncio.run(waited())
    finally:
        forget_programs()


def test_guards_of_any_program_are_asked_for_by_the_real_check() -> None:
    assert signature(PlannedGuards).parameters["preflight"].default is check_platform


def test_it_asks_the_cluster_of_its_own_provider() -> None:
    calls: list[tuple[str | None, str | None]] = []
    registered = foreign_program(
        lambda *arguments: calls.append(arguments), context="theirs", kubeconfig="/path/to/config"
    )
    assert calls == [("theirs", "/path/to/config")]
    assert registered.of("Namespace")


@pytest.mark.parametrize("preview", [False, True])
def test_without_guards_it_is_refused(preview: bool) -> None:
    with pytest.raises(pulumi.RunError, match="tenant research: given a cluster with no guards"):
        await_guards(refuse, preview=preview, context="theirs")


def test_without_a_provider_of_its_cluster_it_is_refused() -> None:
    loaded = load(LOCAL)
    plan = make_plan(loaded, loaded.day).tenant("research")
    registered = Registered()
    with pytest.raises(pulumi.RunError, match="given tenant research without a provider of its cluster"):
        run(lambda: PlannedTenant("research", plan, require=refuse) and None, registered)
    assert registered.kubernetes() == {}


def test_an_update_ends_where_the_cluster_does_not_answer() -> None:
    with pytest.raises(pulumi.RunError, match="does not answer"):
        await_guards(unreachable, context="theirs")


def test_a_preview_without_its_cluster_goes_on() -> None:
    await_guards(unreachable, preview=True, context="theirs")


def test_a_preview_whose_provider_names_no_cluster_leaves_it_to_the_update() -> None:
    calls: list[object] = []
    await_guards(lambda *arguments: calls.append(arguments), preview=True)
    assert calls == []
    await_guards(lambda *arguments: calls.append(arguments))
    assert calls == [(None, None)]


def test_unless_told_otherwise_it_asks_for_the_guards(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kubeconfig that leads nowhere ends it."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    (ask,) = [p.default for name, p in signature(PlannedTenant.__init__).parameters.items() if name == "require"]
    with pytest.raises(pulumi.RunError, match="given kubeconfig without a usable context 'theirs'"):
        await_guards(ask, context="theirs")


# Which guards


class Marked(Api):
    """A cluster whose platform wrote this about its guards, which judge what is asked."""

    def __init__(self, **data: str) -> None:
        self.data = data

    def request(self, method: str, *_: Any, **__: Any) -> Response:
        if method == "POST":
            return Response(403, {"message": f"denied: guards {self.data['digest']} are enforced"})
        return Response(200, {"data": self.data}) if self.data else Response(404, {})


@pytest.mark.parametrize("version", [str(VERSION), str(VERSION + 1)])
def test_a_tenant_is_made_behind_guards_of_this_version_and_of_newer_ones(version: str) -> None:
    assert list(guard_problems(Marked(version=version, digest="abc"))) == []


@pytest.mark.parametrize(
    ("data", "state_of_guards"),
    [
        ({"version": str(VERSION - 1), "digest": "abc"}, f"guards of version {VERSION - 1}"),
        ({"version": "4", "digest": "abc"}, "guards of version 4"),
        ({"version": "new", "digest": "abc"}, "guards of version new"),
        ({"digest": "abc"}, "no guards"),
        ({}, "no guards"),
    ],
)
def test_behind_older_guards_or_none_it_is_refused_with_what_to_update(
    data: dict[str, str], state_of_guards: str
) -> None:
    (problem,) = guard_problems(Marked(**data))
    assert (
        f"given a cluster with {state_of_guards}; rule: a tenant needs enforced guards of version {VERSION} or newer"
        in problem
    )
    assert problem.endswith("change: update the platform stack of the environment first")


def test_guards_of_the_version_that_do_not_judge_are_refused() -> None:
    class Idle(Marked):
        def request(self, method: str, *arguments: Any, **more: Any) -> Response:
            return Response(201, {}) if method == "POST" else super().request(method, *arguments, **more)

    with pytest.raises(PreconditionFailed, match="guards that are stored and not enforced"):
        wait_for_guards(Idle(version=str(VERSION), digest="abc"), "abc", patience=0)


def test_the_platform_writes_the_version_down(environment: Environment) -> None:
    assert marker(environment, ())["data"]["version"] == str(VERSION)


def test_the_version_is_raised_with_the_rules_that_guards_enforce() -> None:
    """Else a tenant of a new version is made behind guards that lack a rule. After a change of the list since the last
    release, raise the version, and write version and list here."""
    assert (VERSION, len(GUARDED), digest([{"rules": sorted(GUARDED)}])) == (9, 75, "a4ee392d696b3e1d")
