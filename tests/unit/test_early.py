"""What a run of many stacks asks engine and API server before it knows their files."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pulumi import automation

from tenancy.engine import fleet_check_record, prefetch, records
from tenancy.engine.fleet_check_record import FleetCheckRecord
from tenancy.live.api import ApiUnreachable
from tenancy.live.background import in_background

QUOTAS = "/api/v1/resourcequotas"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of an environment in a project that has no lab."""
    (tmp_path / "Pulumi.yaml").touch()
    found = tmp_path / "stacks" / "bank"
    found.mkdir(parents=True)
    monkeypatch.delenv("GPU_TENANCY_LAB", raising=False)
    monkeypatch.setattr(prefetch, "Api", lambda context: f"server of {context}")
    monkeypatch.setattr(automation, "PulumiCommand", lambda: "command")
    monkeypatch.setattr(records, "read", lambda api: {"records": api})
    monkeypatch.setattr(fleet_check_record, "read", lambda _: FleetCheckRecord({QUOTAS: 7}))
    return found


def test_engine_records_and_what_changed_since_the_last_check_are_asked_for(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefetch, "changes", lambda *given: given)
    asked = prefetch.start_prefetch(folder, "bank", "production", is_whole_run=True)
    assert asked
    assert asked.command.result() == "command"
    assert asked.records.result() == {"records": "server of production"}
    assert asked.check_record.result() == FleetCheckRecord({QUOTAS: 7})
    assert asked.changes
    api, since, selector, none = asked.changes.result()
    assert (api, since) == ("server of production", {QUOTAS: 7})
    assert selector.endswith("environment%3Dbank%2Ctenancy.gpu%2Ftenant")
    assert none.endswith("environment%3D")


def test_what_is_refused_is_told_where_the_answer_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(_: Any) -> Any:
        raise ApiUnreachable("it does not answer")

    monkeypatch.setattr(records, "read", silent)
    monkeypatch.setattr(fleet_check_record, "read", silent)
    asked = prefetch.start_prefetch(folder, "bank", "production", is_whole_run=True)
    assert asked
    for answer in (asked.records, asked.check_record, asked.changes):
        assert answer
        with pytest.raises(ApiUnreachable):
            answer.result()


def test_for_named_stacks_changes_of_all_are_not_asked_for(folder: Path) -> None:
    asked = prefetch.start_prefetch(folder, "bank", "production", is_whole_run=False)
    assert asked
    assert asked.changes is None
    assert asked.records.result()


def test_without_a_project_or_a_context_nothing_is_asked_and_the_run_tells_it(
    folder: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        prefetch.start_prefetch(tmp_path_factory.mktemp("no-project"), "bank", "production", is_whole_run=True) is None
    )

    def unknown(_: str) -> Any:
        raise ApiUnreachable("no such context")

    monkeypatch.setattr(prefetch, "Api", unknown)
    assert prefetch.start_prefetch(folder, "bank", "production", is_whole_run=True) is None


@pytest.fixture
def gate() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_question_that_is_not_answered_keeps_no_command_from_ending(gate: threading.Event) -> None:
    before = {*threading.enumerate()}
    answer = in_background(gate.wait)
    (thread,) = {*threading.enumerate()} - before
    assert thread.daemon
    assert not answer.done()
    gate.set()
    assert answer.result() is True
