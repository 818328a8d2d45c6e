"""Stacks are opened to run, or to be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pulumi import automation

from tenancy.catalog import vocabulary
from tenancy.deploy import driver
from tenancy.deploy.driver import Driver, RunFailed
from tenancy.deploy.plain_engine import BY_COMMAND
from tenancy.spec.loader import ON_LAB

Opened = dict[str, tuple[str, dict[str, str]]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    """Which way of the engine's a stack was opened, where, and what its program is told."""
    calls: Opened = {}

    def opening(way: str) -> Callable[..., Any]:
        def open_it(name: str, work_dir: str, opts: Any) -> Any:
            assert opts.pulumi_command == "the engine", "else each asks for its version again"
            calls[way] = work_dir, opts.env_vars or {}
            return SimpleNamespace(name=name)

        return open_it

    for way in ("create_or_select_stack", "select_stack"):
        monkeypatch.setattr(automation, way, opening(way))
    monkeypatch.setattr(driver, "end_orphans", lambda _: None)
    monkeypatch.setattr(driver, "stale_locks", lambda *_: [])
    monkeypatch.setattr(driver, "is_settled", lambda *_: True)
    return calls


def a_driver(context: str = "elsewhere") -> Driver:
    return Driver(Path("/project"), context, print, "the engine")


@pytest.mark.parametrize(("context", "lab"), [("elsewhere", {}), (vocabulary.LAB_CONTEXT, {ON_LAB: "true"})])
def test_a_stack_that_is_to_run_is_made_and_told_where_it_runs(
    opened: Opened, context: str, lab: dict[str, str]
) -> None:
    a_driver(context).select("small")
    assert opened == {
        "create_or_select_stack": ("/project", lab | vocabulary.PATCH_FORCE_ENVIRONMENT | {BY_COMMAND: "true"})
    }


def test_a_stack_that_is_only_read_is_never_made(opened: Opened) -> None:
    a_driver(vocabulary.LAB_CONTEXT).open_read_only("small")
    assert opened == {"select_stack": ("/project", {})}


@pytest.mark.parametrize("way", ["select", "open_read_only"])
def test_what_the_engine_says_against_it_names_the_stack(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise automation.CommandError(automation.CommandResult("", "error: no such backend", 255))

    monkeypatch.setattr(automation, "create_or_select_stack", refuse)
    monkeypatch.setattr(automation, "select_stack", refuse)
    with pytest.raises(RunFailed, match="stack small: no such backend"):
        getattr(a_driver(), way)("small")
