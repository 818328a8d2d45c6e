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

ROOT = Path(__file__).parents[2]
ALL = [control for framework in controls.frameworks() for control in framework.controls]


def test_every_rule_holds_a_control_or_is_named_as_one_that_holds_none() -> None:
    held = {rule for control in ALL for rule in control.rules}
    assert held | controls.without_control() == set(RULES)
    assert held & controls.without_control() == set()


def test_an_id_names_one_control_of_its_framework() -> None:
    names = [(control.framework, control.id) for control in ALL]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("control", ALL, ids=lambda one: f"{one.framework}-{one.id}")
def test_a_control_has_a_proof_that_exists_or_a_reason(control: controls.FrameworkControl) -> None:
    assert control.proofs or control.hardware or control.missing or control.others
    for proof in control.proofs:
        word, _, rest = proof.partition(" ")
        if word == "tenancy":
            command = rest.split()[0].rstrip(":")
            assert command in main.list_commands(None), proof  # ty: ignore[invalid-argument-type]
        elif word == "make":
            assert f"\n{rest}:" in (ROOT / "Makefile").read_text("utf-8"), proof
        else:
            assert (ROOT / proof).is_file(), proof


@pytest.mark.parametrize("path", re.findall(r"scripts/[\w.-]+|docs/[\w.-]+\.md", controls.FILE.read_text("utf-8")))
def test_a_file_that_a_reason_names_exists(path: str) -> None:
    assert (ROOT / path.rstrip(".")).is_file()


def test_both_directions_agree() -> None:
    for rule in RULES:
        assert {id(one) for one in controls.controls_of(rule)} == {id(one) for one in ALL if rule in one.rules}


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"id": "1", "asks": "a", "rules": ["gpu-99"]}, "gpu-99: no such rule"),
        ({"id": "1", "asks": "a"}, "neither a rule nor a reason"),
        ({"id": "1", "asks": "a", "others": "b", "statsu": "c"}, "unknown fields"),
    ],
)
def test_a_control_that_resolves_to_nothing_is_refused(row: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
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
    (found,) = [one for one in controls.frameworks() if one.id == "ai-conformance"]
    levels = {level: [one.id for one in found.controls if one.level == level] for level in ("MUST", "SHOULD")}
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
    assert [one.id for one in found.controls if one.status == "proven"] == ["gang_scheduling"]


# OSCAL


def document(time: str = "1790000000") -> dict[str, object]:
    done = CliRunner().invoke(main, ["rules", "--oscal"], env={"SOURCE_DATE_EPOCH": time})
    assert done.exit_code == 0
    return json.loads(done.stdout)["component-definition"]


def test_the_component_definition_has_every_control_once() -> None:
    (component,) = document()["components"]  # ty: ignore[not-iterable]
    told = [one for each in component["control-implementations"] for one in each["implemented-requirements"]]
    assert len(told) == len(ALL)
    ids = [one["uuid"] for one in told]
    assert len(set(ids)) == len(ids)
    # As OSCAL's schema has them: UUIDs of version 4 or 5, and tokens.
    assert {uuid.UUID(one).version for one in ids} <= {4, 5}
    for each in component["control-implementations"]:
        tokens = [one["control-id"] for one in each["implemented-requirements"]]
        assert len(set(tokens)) == len(tokens)
        assert [one for one in tokens if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9._-]*", one)] == []
        texts = [one["description"] for one in each["implemented-requirements"]]
        assert [text for text in texts if not text or "\n" in text] == []


def test_equal_maps_give_equal_documents() -> None:
    assert document() == document()
    assert document("1790000001") != document()
    assert oscal.component_definition("1", "t") == oscal.component_definition("1", "t")


def test_two_pages_at_once_are_bad_input() -> None:
    done = CliRunner().invoke(main, ["rules", "--oscal", "--controls"])
    assert done.exit_code == 2
    assert "one of --markdown, --controls, --oscal" in done.output


def test_a_time_that_is_no_number_is_bad_input() -> None:
    done = CliRunner().invoke(main, ["rules", "--oscal"], env={"SOURCE_DATE_EPOCH": "noon"})
    assert (done.exit_code, "whole seconds since 1970" in done.output) == (2, True)
