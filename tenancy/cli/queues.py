from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tenancy.catalog.text import counted
from tenancy.cli.common import environment_argument, example, fail, lab_option, load_or_exit, print_json

LATE = 5
"""Minutes after which a record of usage is old: ten rounds."""

if TYPE_CHECKING:
    from tenancy.clock.usage import Usage
    from tenancy.live.api import Api
    from tenancy.live.usage import QueueUse
    from tenancy.validation import Loaded


@click.command("queues", epilog=example("tenancy queues local"))
@environment_argument
@lab_option
@click.option("--brief", is_flag=True, help="Show only queues with GPUs in use or waiting work, and the totals.")
@click.option(
    "--waits",
    is_flag=True,
    help="Show how long work that started in the last 7 days had waited: the estimate for work that waits now.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="Format of the output. Default: text.",
)
def command(environment: str, lab: bool, brief: bool, waits: bool, form: str) -> None:
    """Show how many GPUs each queue of ENV is guaranteed, uses and borrows, and how much of its work waits.

    Borrowed GPUs are those in use above the queue's guarantee: idle guarantees of other tenants or of the tenant's
    other tiers, and unallocated GPUs. Waiting is a number of workloads; all others are GPUs, slices or replicas. In
    use is what Kueue counts: work whose pods have had another number of GPUs for a minute is named below the table.
    In JSON, `bound` is the number of GPUs that pods have.
    """
    from tenancy.cli.tables import show
    from tenancy.lab.layout import enter_lab
    from tenancy.live.api import Api, ApiUnreachable
    from tenancy.live.usage import queue_use
    from tenancy.live.waits import past_waits
    from tenancy.output.tables import Table
    from tenancy.planning.queueing.queue_names import queue_name

    loaded = load_or_exit(environment, "json" if form == "json" else "text", lab)
    enter_lab(loaded.environment.cluster.context)
    if not loaded.environment.queued:
        fail(f"given {environment}, with scheduler: none; rule: GPUs are lent and borrowed through a queue")
    try:
        api = Api(loaded.environment.cluster.context)
        found = queue_use(api, loaded.environment)
        bound, differing = _bound(api, loaded, found)
        usage = _usage(api, loaded)
        times = _times(loaded, usage)
        past = past_waits(api, dt.datetime.now(dt.UTC)) if waits else {}
    except ApiUnreachable as error:
        fail(str(error))
    if form == "json":
        print_json(
            [
                {
                    **asdict(h),
                    "dollars": None if h.dollars is None else float(h.dollars),
                    "bound": bound[h] if bound else None,
                    **times.get(h.tenant, {}),
                    **(
                        {"waits": asdict(of) if (of := past.get(queue_name(h.tenant, h.tier))) else None}
                        if waits
                        else {}
                    ),
                }
                for h in found
            ]
        )
        return
    waiting = {(h.tenant, h.tier): h.waiting for h in found}
    shown = [h for h in found if h.held or h.waiting] if brief else found
    held, borrowed = sum(h.held for h in found), sum(h.borrowed for h in found)
    remarks = [
        f"{counted(len(waiting), 'queue')}: {held} GPUs, slices and replicas in use, {borrowed} of them borrowed; "
        f"{counted(sum(waiting.values()), 'workload')} waiting"
    ]
    if any(h.dollars is not None for h in found):
        remarks.append(f"GPUs in use cost ${sum(h.dollars or 0 for h in found)} an hour")
    spent = _spent(loaded, usage)
    remarks += sorted({f"{h.tenant}, {h.tier}: {spent.get(h.tenant, h.state)}" for h in found if h.state != "open"})
    remarks += differing
    header: tuple[str, ...] = (
        "tenant",
        "tier",
        "flavor",
        "pool",
        "guaranteed",
        "may borrow",
        "in use",
        "borrowed",
        "waiting",
    )
    rows: list[tuple[str | int, ...]] = [
        (h.tenant, h.tier, h.flavor, h.pool, h.guaranteed, h.may_borrow, h.held, h.borrowed, h.waiting) for h in shown
    ]
    if times:
        remarks += _late(usage)
        header = (*header, "budget", "window")
        rows = [(*row, times[str(row[0])]["budget"], times[str(row[0])]["window"]) for row in rows]
    if waits:
        header = (*header, "past waits")
        rows = [(*row, str(past.get(queue_name(str(row[0]), str(row[1])), "–"))) for row in rows]
    title = f"Queues of {loaded.environment.environment}"
    lines = "\n".join(f"- {remark}" for remark in remarks)
    idle = "no GPU is in use and no work waits" if found else "there are no queues, because no tenant has GPUs"
    show(form, [Table(title, header, rows, remarks)], {}, f"{title}: {idle}\n{lines}")


def _bound(api: Api, loaded: Loaded, uses: Sequence[QueueUse]) -> tuple[Mapping[QueueUse, int], list[str]]:
    """GPUs that pods have by queue, pool and flavor, and sentences on work for which Kueue counts another number; empty
    where pods get devices by claims, or may not be read."""
    from tenancy.live.api import ApiUnreachable
    from tenancy.live.gpu_counts import bound_devices, remarks
    from tenancy.planning.queueing.queue_names import queue_name

    if loaded.environment.devices_by_claim:
        return {}, []
    try:
        devices = bound_devices(api, loaded.environment)
        resource_of = loaded.environment.resource_of
        bound = {use: devices[queue_name(use.tenant, use.tier), use.pool, resource_of(use.flavor)] for use in uses}
        differing = {use.tenant for use, count in bound.items() if count != use.held}
        spaces = [
            tenant.namespace_name(part)
            for tenant in loaded.tenants
            if tenant.tenant in differing
            for part in tenant.namespaces
        ]
        return bound, remarks(api, loaded.environment, spaces)
    except ApiUnreachable as error:
        if error.status is None:
            raise
        return {}, [f"whether all GPUs that run are counted is not known: {error}"]


def _usage(api: Api, loaded: Loaded) -> Usage | None:
    if not loaded.environment.queues.clock:
        return None
    from tenancy.clock.controller import stored_usage

    return stored_usage(api)


def _times(loaded: Loaded, usage: Usage | None) -> Mapping[str, Mapping[str, str]]:
    """Budget and window of each tenant, as the clock sees them; empty in an environment without one."""
    if not loaded.environment.queues.clock:
        return {}
    from tenancy.clock.status import budget_said, window_said

    now = dt.datetime.now(dt.UTC)
    return {
        tenant.tenant: {
            "budget": budget_said(loaded.environment, tenant, now, usage),
            "window": window_said(tenant, now, usage),
        }
        for tenant in loaded.tenants
    }


def _spent(loaded: Loaded, usage: Usage | None) -> Mapping[str, str]:
    """Tenants whose budget is spent, and what `tenancy why` says of it."""
    if usage is None or not loaded.environment.queues.clock:
        return {}
    from tenancy.clock.decision import desired

    now = dt.datetime.now(dt.UTC)
    return {one.tenant: str(one) for one in desired(loaded.environment, loaded.tenants, now, usage).spent}


def _late(usage: Usage | None) -> list[str]:
    """A remark if the clock has not run for some time."""
    if usage is None:
        return ["the clock has not run: windows do not start and budgets do not bind (`tenancy clock run`)"]
    minutes = (dt.datetime.now(dt.UTC) - usage.until).total_seconds() / 60
    return [f"the clock's last round was {minutes:.0f} minutes ago"] if minutes > LATE else []
