"""One cluster holds one environment: another one is refused with one sentence, before anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tenancy.catalog import vocabulary
from tenancy.cli import lab as lab_cli
from tenancy.cluster.api import Api, Response
from tenancy.cluster.preflight import PreconditionFailed, check, environment_of, require_same_environment
from tenancy.lab import control_plane, ports
from tenancy.lab import layout as lab_layout
from tenancy.planning import make_plan
from tests.conftest import SpecFolder

HOME = f"/api/v1/namespaces/{vocabulary.PLATFORM_NAMESPACE}"


class Holding(Api):
    """A cluster that holds an environment, or none, and on which nothing else may be asked for."""

    def __init__(self, environment: str | None) -> None:
        self.environment = environment
        self.asked: list[tuple[Any, ...]] = []

    def request(self, *request: Any, **_: Any) -> Response:
        self.asked.append(request)
        assert request == ("GET", HOME)
        if self.environment is None:
            return Response(404, {"message": "not found"})
        labels = {vocabulary.ENVIRONMENT: self.environment} if self.environment else {}
        return Response(200, {"metadata": {"name": vocabulary.PLATFORM_NAMESPACE, "labels": labels}})


@pytest.mark.parametrize(("recorded_environment", "expected"), [(None, ""), ("", ""), ("acme", "acme")])
def test_the_platforms_namespace_says_whose_the_cluster_is(recorded_environment: str | None, expected: str) -> None:
    assert environment_of(Holding(recorded_environment)) == expected


def test_another_environments_cluster_is_refused_in_one_line_and_asked_nothing_more(spec: SpecFolder) -> None:
    loaded = spec.load()
    plan = make_plan(loaded, loaded.day)
    api = Holding("acme")
    with pytest.raises(PreconditionFailed) as refused:
        check(api, plan, plan.platform, plan.tenants)
    message = str(refused.value)
    assert message == (
        "given environment small, and this cluster, which belongs to environment acme; rule: one cluster has one "
        "environment; change: run `tenancy down acme` first, or name another cluster in cluster.context; nothing was "
        "changed"
    )
    assert len(api.asked) == 1
    for twin in (None, "", "small"):
        require_same_environment(Holding(twin), plan)


def test_of_the_lab_it_says_how_to_end_it(spec: SpecFolder) -> None:
    spec.edit("environment.yaml", "context: small-context", f"context: {vocabulary.LAB_CONTEXT}")
    loaded = spec.load()
    with pytest.raises(
        PreconditionFailed, match="run `tenancy down acme --lab` or `tenancy lab down` first; nothing was changed"
    ):
        require_same_environment(Holding("acme"), make_plan(loaded, loaded.day))


@pytest.mark.parametrize(("holder", "code"), [("acme", 1), ("small", 0), (None, 0)])
def test_the_lab_keeps_its_nodes_and_identity_while_it_holds_another(
    spec: SpecFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, holder: str | None, code: int
) -> None:
    lab = lab_layout.Lab(tmp_path, tmp_path / ".lab")
    lab.pki.mkdir(parents=True)
    started: list[dict[str, Any]] = []

    class Live:
        def __init__(self, *_: Any, **__: Any) -> None: ...

        def __enter__(self) -> Live:
            return self

        def __exit__(self, *_: object) -> None: ...

        def get(self, path: str) -> dict[str, Any]:
            from tenancy.lab.api import ApiError

            assert path == HOME
            if holder is None:
                raise ApiError(404, "not found")
            return {"metadata": {"labels": {vocabulary.ENVIRONMENT: holder}}}

    def up(**options: Any) -> lab_layout.Lab:
        started.append(options)
        return lab

    monkeypatch.setattr(control_plane.Lab, "locate", classmethod(lambda _cls, _root=None: lab))
    monkeypatch.setattr(ports, "remembered", lambda _lab: {"kube-apiserver": 1})
    monkeypatch.setattr("tenancy.lab.api.LabApi", Live)
    monkeypatch.setattr(control_plane, "up", up)
    result = CliRunner().invoke(lab_cli.command, ["up", str(spec.path)])
    assert result.exit_code == code, result.output
    assert len(started) == (code == 0)
    if code:
        assert "this lab, which belongs to environment acme" in result.output
        assert "run `tenancy down acme --lab` or `tenancy lab down` first" in result.output
