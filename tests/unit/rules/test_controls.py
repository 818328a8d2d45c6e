"""The control map: rules and controls resolve in both directions, and the page and OSCAL are made from it."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path

import pytest
from click.testing import CliRunner

from tenancy.cli import main
from tenancy.rules import controls, oscal
from tenancy.rules.catalogue import RULES
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]
ALL = [control for framework in controls.frameworks() for control in framework.controls]


def test_every_rule_holds_a_control_or_is_named_as_one_that_holds_none() -> None:
    rules_with_control = {rule for control in ALL for rule in control.rules}
    assert rules_with_control | controls.without_control() == set(RULES)
    assert rules_with_control & controls.without_control() == set()


def test_an_id_names_one_control_of_its_framework() -> None:
    names = [(control.framework, control.id) for control in ALL]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("control", ALL, ids=lambda control: f"{control.framework}-{control.id}")
def test_a_control_has_a_proof_that_exists_or_a_reason(control: controls.FrameworkControl) -> None:
    assert control.proofs or control.hardware or control.missing or control.others
    for proof in control.proofs:
        word, _, proof_name = proof.partition(" ")
        if word == "tenancy":
            command = proof_name.split()[0].rstrip(":")
            assert command in main.list_commands(None), proof  # ty: ignore[invalid-argument-type]
        elif word == "make":
            assert f"\n{proof_name}:" in (ROOT / "Makefile").read_text("utf-8"), proof
        else:
            assert (ROOT / proof).is_file(), proof


@pytest.mark.parametrize("path", re.findall(r"scripts/[\w.-]+|docs/[\w.-]+\.md", controls.FILE.read_text("utf-8")))
def test_a_file_that_a_reason_names_exists(path: str) -> None:
    assert (ROOT / path.rstrip(".")).is_file()


def test_both_directions_agree() -> None:
    for rule in RULES:
        assert {id(framework_control) for framework_control in controls.controls_of(rule)} == {
            id(framework_control) for framework_control in ALL if rule in framework_control.rules
        }


@pytest.mark.parametrize(
    ("row", "message_part"),
    [
        ({"id": "1", "asks": "a", "rules": ["gpu-99"]}, "gpu-99: no such rule"),
        ({"id": "1", "asks": "a"}, "neither a rule nor a reason"),
        ({"id": "1", "asks": "a", "others": "b", "statsu": "c"}, "unknown fields"),
    ],
)
def test_a_control_that_resolves_to_nothing_is_refused(row: dict[str, object], message_part: str) -> None:
    with pytest.raises(ValueError, match=message_part):
        controls._control("cis-eks", row)


@pytest.mark.parametrize(
    ("texts", "status"),
    [
        ({"rules": ["gpu-01"]}, "proven"),
        ({"rules": ["gpu-01"], "hardware": "a"}, "partly proven"),
        ({"shown": "make judged", "missing": "a"}, "partly proven"),
        ({"hardware": "a"}, "needs hardware"),
        ({"missing": "a"}, "not there yet"),
        ({"others": "a"}, "not ours"),
    ],
)
def test_a_status_follows_from_what_a_control_has(texts: dict[str, object], status: str) -> None:
    assert controls._control("cis-eks", {"id": "1", "asks": "a", **texts}).status == status


def test_the_page_in_the_docs_is_up_to_date() -> None:
    assert (ROOT / "docs" / "controls.md").read_text("utf-8") == controls.page(), "make docs"


def test_the_items_of_ai_conformance_are_its_fourteen_and_one_needs_no_hardware() -> None:
    (conformance,) = [framework for framework in controls.frameworks() if framework.id == "ai-conformance"]
    levels = {level: [item.id for item in conformance.controls if item.level == level] for level in ("MUST", "SHOULD")}
    assert levels == {
        "MUST": [
            *("gang_scheduling", "cluster_autoscaling", "accelerator_metrics", "secure_accelerator_access"),
            *("pod_autoscaling", "robust_controller", "ai_inference", "ai_service_metrics"),
        ],
        "SHOULD": [
            *("driver_runtime_management", "gpu_sharing", "high_performance_networking"),
            *("virtualized_accelerator", "advanced_inference_ingress", "disaggregated_inference"),
        ],
    }
    assert [item.id for item in conformance.controls if item.status == "proven"] == ["gang_scheduling"]


# OSCAL


def document(time: str = "1790000000") -> dict[str, object]:
    completed = CliRunner().invoke(main, ["rules", "--oscal"], env={"SOURCE_DATE_EPOCH": time})
    assert completed.exit_code == 0
    return json.loads(completed.stdout)["component-definition"]


def test_the_component_definition_has_every_control_once() -> None:
    (component,) = document()["components"]  # ty: ignore[not-iterable]
    requirements = [
        requirement
        for implementation in component["control-implementations"]
        for requirement in implementation["implemented-requirements"]
    ]
    assert len(requirements) == len(ALL)
    ids = [requirement["uuid"] for requirement in requirements]
    assert len(set(ids)) == len(ids)
    # As OSCAL's schema has them: UUIDs of version 4 or 5, and tokens.
    assert {uuid.UUID(identifier).version for identifier in ids} <= {4, 5}
    for implementation in nonempty(component["control-implementations"]):
        tokens = [requirement["control-id"] for requirement in implementation["implemented-requirements"]]
        assert len(set(tokens)) == len(tokens)
        assert [token for token in tokens if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9._-]*", token)] == []
        texts = [requirement["description"] for requirement in implementation["implemented-requirements"]]
        assert [text for text in texts if not text or "\n" in text] == []


def test_equal_maps_give_equal_documents() -> None:
    assert document() == document()
    assert document("1790000001") != document()
    assert oscal.component_definition("1", "t") == oscal.component_definition("1", "t")


def test_two_pages_at_once_are_bad_input() -> None:
    completed = CliRunner().invoke(main, ["rules", "--oscal", "--controls"])
    assert completed.exit_code == 2
    assert "one of --markdown, --controls, --oscal" in completed.output


def test_a_time_that_is_no_number_is_bad_input() -> None:
    completed = CliRunner().invoke(main, ["rules", "--oscal"], env={"SOURCE_DATE_EPOCH": "noon"})
    assert (completed.exit_code, "whole seconds since 1970" in completed.output) == (2, True)
