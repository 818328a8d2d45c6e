"""Kinds of work whose operators a cluster lacks: they are told, and nothing is sent to them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tenancy import planning
from tenancy.catalog.frameworks import FRAMEWORKS
from tenancy.cluster.api import Response
from tenancy.cluster.api_kinds import frameworks_note, unserved_frameworks
from tenancy.spec.loader import load
from tenancy.verify import verification as verify
from tenancy.verify.attacks import Scene, all_attacks
from tests.attack_worlds import world_of
from tests.conftest import every

LOCAL = Path(__file__).parents[3] / "stacks" / "local"


class Cluster:
    """An API server that serves some of the kinds."""

    host = "https://cluster.example"

    def __init__(self, *kinds: str) -> None:
        self.kinds = kinds
        self.asked: list[str] = []

    def request(self, method: str, path: str, *_: Any, **__: Any) -> Response:
        assert method == "GET"
        self.asked.append(path)
        version = path.removeprefix("/apis/")
        served = [
            {"name": framework.resource, "kind": framework.kind}
            for name, framework in FRAMEWORKS.items()
            if name in self.kinds and f"{framework.group}/{framework.version}" == version
        ]
        if not served:
            return Response(404, {"message": "404 page not found"})
        return Response(200, {"resources": served})


@pytest.mark.parametrize(
    ("served", "missing"),
    [
        ((), set(FRAMEWORKS)),
        (tuple(FRAMEWORKS), set()),
        (("raycluster", "jobset"), set(FRAMEWORKS) - {"raycluster", "jobset"}),
        (("rayjob",), set(FRAMEWORKS) - {"rayjob"}),
    ],
)
def test_each_kind_that_the_cluster_does_not_serve_is_told_once(served: tuple[str, ...], missing: set[str]) -> None:
    environment, _ = world_of("every-kind")
    api: Any = Cluster(*served)
    unserved = unserved_frameworks(api, environment)
    assert {name for name, framework in FRAMEWORKS.items() if framework in unserved} == missing
    assert len(api.asked) == len(set(api.asked)), "each version is asked for once"
    note = frameworks_note(unserved)
    assert not missing or every(FRAMEWORKS[kind].kind in note for kind in missing)
    assert bool(note) is bool(missing)


def test_an_environment_without_further_kinds_asks_nothing() -> None:
    environment, _ = world_of("local")
    api: Any = Cluster()
    assert (unserved_frameworks(api, environment), api.asked) == ((), [])


def _is_path_of_kind(path: str, kind: str) -> bool:
    framework = FRAMEWORKS[kind]
    return path.startswith(f"/apis/{framework.group}/{framework.version}/") and framework.resource in path.split("?")[
        0
    ].split("/")


@pytest.mark.parametrize("missing", [tuple(FRAMEWORKS), ("jobset", "trainjob"), ("raycluster",)])
def test_attacks_through_missing_kinds_are_skipped_with_the_reason_and_all_others_are_sent(
    missing: tuple[str, ...],
) -> None:
    environment, tenants = world_of("every-kind")
    runtimes = [] if "trainjob" in missing else ["plain"]
    served = {attack.id: attack for attack in all_attacks(Scene(environment, tenants, ["nvidia"], runtimes))}
    unserved = [FRAMEWORKS[kind] for kind in missing]
    scene = Scene(environment, tenants, ["nvidia"], runtimes, unserved=unserved)
    attacks_by_id = {attack.id: attack for attack in all_attacks(scene)}
    assert attacks_by_id.keys() == served.keys()
    through = {
        id
        for id, attack in served.items()
        if any(_is_path_of_kind(path, kind) for kind in missing for path in (attack.request.path, attack.twin.path))
    }
    assert len(through) > 10
    assert {id for id, attack in attacks_by_id.items() if attack.skipped and not served[id].skipped} == through
    for id in through:
        assert "its operator is missing" in attacks_by_id[id].skipped, id
    others = [id for id in attacks_by_id.keys() - through if "operator is missing" not in attacks_by_id[id].skipped]
    assert every(attacks_by_id[id] == served[id] for id in others)


def test_verify_answers_a_cluster_without_the_operators(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it asked for the runtimes of a kind that is not there, and ended."""
    environment, tenants = world_of("every-kind")
    loaded = load(LOCAL)
    api: Any = Cluster()
    spaces = [{"metadata": {"name": tenant.namespace_name(space)}} for tenant in tenants for space in tenant.namespaces]
    lists = {"/api/v1/namespaces": spaces, "/apis/node.k8s.io/v1/runtimeclasses": [], verify.NODE_OF_POOL: []}
    api.items = lists.__getitem__
    monkeypatch.setattr(verify, "_free_address", lambda _: None)
    cluster_files = replace(loaded, environment=environment, tenants=tenants)
    scene = verify.find_scene(api, cluster_files, planning.plan(environment, tenants))
    assert {framework.kind for framework in scene.unserved} == {framework.kind for framework in FRAMEWORKS.values()}
    assert not scene.training_runtimes
