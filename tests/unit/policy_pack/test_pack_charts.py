"""The objects of a tenant's Helm release are judged where it can be rendered; elsewhere a message says why not."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from check_cases import home
from pack_cases import release
from pack_worlds import judged

from tenancy.lab import tools

POD = """\
apiVersion: v1
kind: Pod
metadata: {name: "{{ .Release.Name }}"}
spec:
  hostNetwork: {{ .Values.host }}
  securityContext: {runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}
  containers:
    - {name: main, image: "x:1", securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}}
"""
UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
Messages = dict[str, list[str]]


@pytest.fixture
def charts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a chart, and helm on the path."""
    (tmp_path / "tool" / "templates").mkdir(parents=True)
    (tmp_path / "tool" / "Chart.yaml").write_text("apiVersion: v2\nname: tool\nversion: 1.0.0\n")
    (tmp_path / "tool" / "values.yaml").write_text("host: false\n")
    (tmp_path / "tool" / "templates" / "pod.yaml").write_text(POD)
    monkeypatch.setenv("PATH", str(Path(tools.ensure(only=["helm"])["helm"]).parent))
    return tmp_path


def said_of(pack: ModuleType, charts: Path, config: dict[str, Any] | None = None, **release_fields: Any) -> Messages:
    release_object = {
        **release("tool", {}),
        "metadata": {"name": "tool", "namespace": "acme"},
        "chart": "./tool",
        **release_fields,
    }
    return judged(pack, [*home("acme"), release_object], {"charts": str(charts), **(config or {})})


def test_what_a_release_comes_to_is_judged_with_its_name(pack: ModuleType, charts: Path) -> None:
    messages = said_of(pack, charts, values={"host": True})
    (message,) = messages["isolation-stack"]
    assert message.startswith("pod-02: Pod acme/tool: given spec.hostNetwork: true, of Release acme/tool;")
    assert not any(said_of(pack, charts, values={"host": False}).values())


def test_a_path_of_a_chart_starts_where_the_engine_was_started(
    pack: ModuleType, charts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PWD", str(charts))
    release_object = {**release("tool", {}), "metadata": {"name": "tool", "namespace": "acme"}, "chart": "./tool"}
    assert not any(judged(pack, [*home("acme"), release_object]).values())
    monkeypatch.setenv("PWD", str(charts / "tool"))
    assert "there is none in" in judged(pack, [*home("acme"), release_object])["isolation-stack-advisory"][0]


@pytest.mark.parametrize(
    ("release_fields", "reason"),
    [
        ({"values": {"host": UNKNOWN}}, "(values.host: not known until apply)"),
        ({"valueYamlFiles": ["more.yaml"]}, "(valueYamlFiles cannot be read here)"),
        ({"chart": "./other"}, "set `charts` to the folder of the paths of charts)"),
        ({"repositoryOpts": {"repo": "https://charts.example", "password": "x"}}, "with password is not contacted)"),
    ],
)
def test_what_cannot_be_rendered_is_said_with_the_reason(
    pack: ModuleType, charts: Path, release_fields: dict[str, Any], reason: str
) -> None:
    (message,) = said_of(pack, charts, **release_fields)["isolation-stack-advisory"]
    assert message.startswith("seen-01: Release acme/tool: given chart")
    assert reason in message
    assert "| tenancy check -" in message


@pytest.mark.parametrize(
    ("template", "reason"),
    [("{{ .Values.host | nothing }}", 'function "nothing" not defined'), ("kind: Pod\nmetadata: [x]\n", "metadata")],
)
def test_a_chart_that_makes_no_objects_is_said(pack: ModuleType, charts: Path, template: str, reason: str) -> None:
    (charts / "tool" / "templates" / "pod.yaml").write_text(template)
    (message,) = said_of(pack, charts)["isolation-stack-advisory"]
    assert reason in message


def test_without_helm_it_is_said(pack: ModuleType, charts: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(charts))
    (message,) = said_of(pack, charts, values={"host": True})["isolation-stack-advisory"]
    assert "(no helm is on the path)" in message


def test_who_does_not_ask_gets_no_chart_rendered(pack: ModuleType, charts: Path) -> None:
    assert not any(said_of(pack, charts, {"seen-01": "disabled"}, values={"host": True}).values())
