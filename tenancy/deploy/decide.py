"""Stacks that a run updates, with the causes: a pure decision over digests, drift and the command's options."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tenancy.catalog import vocabulary
from tenancy.deploy.digests import StackDigest
from tenancy.planning.scope import Stack, StackScope


class Cause(StrEnum):
    """Why a stack runs."""

    NEW = "no stack yet"
    NO_RECORD = "no record of a finished run"  # first run, a lost record, or a run that did not end
    FILES = "changed files"
    PROGRAM = "changed program or versions"
    SETTINGS = "changed config or backend"
    DRIFT = "drift on the cluster"
    AWS = "AWS has no record of drift"  # the stack of the cluster itself
    REQUESTED = "asked for"  # --stack, --refresh, --remove


@dataclass(frozen=True, slots=True)
class CliSelection:
    """Options of the command line that select stacks."""

    stacks: Collection[str] = ()
    """Arguments of --stack; empty for all."""
    refresh: bool = False
    removing: Collection[str] = ()
    """Arguments of --remove: tenants and namespaces."""


def causes(
    stacks: Iterable[Stack],
    digests: Mapping[str, StackDigest],
    records: Mapping[str, StackDigest],
    existing: Collection[str],
    drifted: Collection[str],
    selection: CliSelection,
) -> dict[str, tuple[Cause, ...]]:
    """Causes of each stack to run, by its name, in the given order; empty for a stack that need not run.

    `records` are the digests of the last successful runs, `existing` the stacks that the backend has, `drifted` those
    with an object that is not as planned.
    """
    return {
        name: tuple(_causes(name, scope, tenant, digests[name], records.get(name), existing, drifted, selection))
        for name, scope, tenant in stacks
    }


def _causes(
    name: str,
    scope: StackScope,
    tenant: str | None,
    digest: StackDigest,
    record: StackDigest | None,
    existing: Collection[str],
    drifted: Collection[str],
    selection: CliSelection,
) -> Iterable[Cause]:
    removing = {name_to_remove.partition(vocabulary.SEPARATOR)[0] for name_to_remove in selection.removing}
    if name in selection.stacks or selection.refresh or (removing and (scope is StackScope.ALL or tenant in removing)):
        yield Cause.REQUESTED
    if name not in existing:
        yield Cause.NEW
        return
    if scope is StackScope.CLUSTER:
        yield Cause.AWS
        return
    if record is None:
        yield Cause.NO_RECORD
        return
    # Another program makes another plan of the same files.
    if digest.program != record.program:
        yield Cause.PROGRAM
    elif digest.plan != record.plan:
        yield Cause.FILES
    if digest.settings != record.settings:
        yield Cause.SETTINGS
    # Objects differ from a changed plan anyway; the stack's run tells what else was changed.
    if name in drifted and digest.plan == record.plan:
        yield Cause.DRIFT


def summary_lines(environment: str, causes_by_stack: Mapping[str, Sequence[Cause]]) -> list[str]:
    """Lines about what a run will do, a few whatever the number of stacks."""
    runs = {name: why for name, why in causes_by_stack.items() if why}
    lines = [
        f"{environment}: {len(runs)} of {len(causes_by_stack)} stacks to run, {len(causes_by_stack) - len(runs)} "
        "unchanged"
    ]
    by_causes: dict[tuple[Cause, ...], list[str]] = {}
    for name, why in runs.items():
        by_causes.setdefault(tuple(why), []).append(name)
    for why, names in by_causes.items():
        more = f" and {len(names) - MAX_STACKS_SHOWN} more" if len(names) > MAX_STACKS_SHOWN else ""
        lines.append(f"  {', '.join(why)}: {', '.join(names[:MAX_STACKS_SHOWN])}{more}")
    return lines


MAX_STACKS_SHOWN = 8
"""Stacks that a line names."""


def is_as_planned(reverted: int, planned: Iterable[str], stored: Collection[str]) -> bool:
    """Whether objects that seemed to differ from the plan need no run of the engine: none had to be reverted, so they
    only have another form of the same values, and the state has all planned ones. All are paths on the API server."""
    return reverted == 0 and set(planned) <= set(stored)


def needs_preview(
    resources: Iterable[Mapping[str, Any]], tenants: Collection[str], namespaces: Collection[str]
) -> str | None:
    """Why an update of a stack has to be previewed first, by the resources in its state; None if the state and the plan
    tell all that the preview would refuse: objects of tenants that are not the stack's, and namespaces that the plan
    lacks. What AWS would replace, only a preview tells."""
    for resource in resources:
        metadata = (resource.get("inputs") or {}).get("metadata") or {}
        holder = (metadata.get("labels") or {}).get(vocabulary.TENANT)
        if holder is not None and holder not in tenants:
            return f"the state has an object of tenant {holder}"
        if resource["type"] == vocabulary.NAMESPACE_TYPE and resource.get("id") not in namespaces:
            return f"the state has namespace {resource.get('id')}, which the plan has not"
    return None
