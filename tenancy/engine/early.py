"""What a run of many stacks asks before it knows their files: the answers depend on the environment's name alone."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenancy.engine import checked, records
from tenancy.engine.checked import Checked
from tenancy.engine.digests import StackDigest
from tenancy.lab.layout import LabError, enter_lab, find_root
from tenancy.live.api import Api, ApiUnreachable
from tenancy.live.background import in_background
from tenancy.live.changed import Changes, changes
from tenancy.live.selectors import of_all_tenants, of_none


@dataclass(frozen=True, slots=True)
class Early:
    """Answers that are on their way."""

    command: Future[Any]
    """Pulumi's command, as the Automation API has it."""
    records: Future[Mapping[str, StackDigest]]
    checked: Future[Checked]
    """Of any program."""
    changes: Future[Mapping[str, Changes | None]] | None
    """Since the versions of `checked`; None for a run of named stacks, which are compared by their own objects."""


def ask_early(folder: Path, environment: str, context: str, *, whole: bool) -> Early | None:
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
    found = in_background(checked.read, api)

    def news() -> Mapping[str, Changes | None]:
        return changes(api, found.result().versions, of_all_tenants(environment), of_none())

    return Early(
        in_background(automation.PulumiCommand),
        in_background(records.read, api),
        found,
        in_background(news) if whole else None,
    )
