"""Requests that a run of many stacks sends before it has read their files: they need the environment's name alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenancy.engine import fleet_check_record, records
from tenancy.engine.digests import StackDigest
from tenancy.engine.fleet_check_record import FleetCheckRecord
from tenancy.lab.layout import LabError, enter_lab, find_root
from tenancy.live.api import Api, ApiUnreachable
from tenancy.live.background import in_background
from tenancy.live.list_changes import Changes, changes
from tenancy.live.selectors import all_tenants_selector, no_object_selector


@dataclass(frozen=True, slots=True)
class Prefetch:
    """Answers that have been requested."""

    command: Future[Any]
    """Pulumi's command, as the Automation API has it."""
    records: Future[Mapping[str, StackDigest]]
    check_record: Future[FleetCheckRecord]
    """The record of the last check, of any program."""
    changes: Future[Mapping[str, Changes | None]] | None
    """Since the versions of `check_record`; None for a run of named stacks, which are compared by their own objects."""


def start_prefetch(folder: Path, environment: str, context: str, *, is_whole_run: bool) -> Prefetch | None:
    """Ask the engine and the API server of the context; None if there is no project or no such context, which the run
    tells by itself. Nothing is written.

    `folder` is the environment's, and `whole` says that no stack was named.
    """
    from pulumi import automation

    try:
        enter_lab(context, find_root(folder.resolve()))
        api = Api(context)
    except (LabError, ApiUnreachable):
        return None
    check_record = in_background(fleet_check_record.read, api)

    def changes_since_check() -> Mapping[str, Changes | None]:
        return changes(api, check_record.result().versions, all_tenants_selector(environment), no_object_selector())

    return Prefetch(
        in_background(automation.PulumiCommand),
        in_background(records.read, api),
        check_record,
        in_background(changes_since_check) if is_whole_run else None,
    )
