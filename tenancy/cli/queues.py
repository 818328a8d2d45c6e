from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tenancy.catalog.text import pluralize
from tenancy.cli.common import environment_argument, example, fail, lab_option, load_or_exit, print_json

CLOCK_LATE = 5
"""Minutes after which a record of usage is old: ten rounds."""

if TYPE_CHECKING:
    from tenancy.clock.usage import Usage
    from tenancy.cluster.api import Api
    from tenancy.explain.usage import QueueUse
    from tenancy.spec.loader import Loaded


@click.command("queues", epilog=example("tenancy queues local"))
@environment_argument
@lab_option
@click.option("--brief", is_flag=True, help="Show only queues with GPUs in use or waiting work, and the totals.")
@click.option(
    "--wait-history",
    "waits",
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
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.explain.usage import queue_use
    from tenancy.explain.wait_history import past_waits
    from tenancy.lab.layout import enter_lab
    from tenancy.output.tables import Table
    from tenancy.planning.queueing.queue_names import queue_name

    loaded = load_or_exit(environment, "json" if form == "json" else "text", lab)
    enter_lab(loaded.environment.cluster.context)
    if not loaded.environment.has_queues:
        fail(f"given {environment}, with scheduler: none; rule: GPUs are lent and borrowed through a queue")
    try:
        api = Api(loaded.environment.cluster.context)
        queue_uses = queue_use(api, loaded.environment)
        bound, differing = _bound_gpus(api, loaded, queue_uses)
        usage = _usage(api, loaded)
        budgets_and_windows = _budgets_and_windows(loaded, usage)
        wait_histories = past_waits(api, dt.datetime.now(dt.UTC)) if waits else {}
    except ApiUnreachable as error:
        fail(str(error))
    if form == "json":
        print_json(
            [
                {
                    **asdict(use),
                    "dollars": None if use.dollars is None else float(use.dollars),
                    "bound": bound[use] if bound else None,
                    **budgets_and_windows.get(use.tenant, {}),
                    **(
                        {
                            "waits": asdict(wait_history)
                            if (wait_history := wait_histories.get(queue_name(use.tenant, use.tier)))
                            else None
                        }
                        if waits
                        else {}
                    ),
                }
                for use in queue_uses
            ]
        )
        return
    waiting = {(use.tenant, use.tier): use.waiting for use in queue_uses}
    shown_uses = [use for use in queue_uses if use.held or use.waiting] if brief else queue_uses
    gpus_in_use, borrowed = sum(use.held for use in queue_uses), sum(use.borrowed for use in queue_uses)
    remarks = [
        f"{pluralize(len(waiting), 'queue')}: {gpus_in_use} GPUs, slices and replicas in use, {borrowed} of them "
        "borrowed; "
        f"{pluralize(sum(waiting.values()), 'workload')} waiting"
    ]
    if any(use.dollars is not None for use in queue_uses):
        remarks.append(f"GPUs in use cost ${sum(use.dollars or 0 for use in queue_uses)} an hour")
    exhausted_budgets = _exhausted_budgets(loaded, usage)
    remarks += sorted(
        {
            f"{use.tenant}, {use.tier}: {exhausted_budgets.get(use.tenant, use.state)}"
            for use in queue_uses
            if use.state != "open"
        }
    )
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
        (
            use.tenant,
            use.tier,
            use.flavor,
            use.pool,
            use.guaranteed,
            use.may_borrow,
            use.held,
            use.borrowed,
            use.waiting,
        )
        for use in shown_uses
    ]
    if budgets_and_windows:
        remarks += _clock_remarks(usage)
        header = (*header, "budget", "window")
        rows = [
            (*row, budgets_and_windows[str(row[0])]["budget"], budgets_and_windows[str(row[0])]["window"])
            for row in rows
        ]
    if waits:
        header = (*header, "past waits")
        rows = [(*row, str(wait_histories.get(queue_name(str(row[0]), str(row[1])), "–"))) for row in rows]
    title = f"Queues of {loaded.environment.environment}"
    lines = "\n".join(f"- {remark}" for remark in remarks)
    idle = "no GPU is in use and no work waits" if queue_uses else "there are no queues, because no tenant has GPUs"
    show(form, [Table(title, header, rows, remarks)], {}, f"{title}: {idle}\n{lines}")


def _bound_gpus(api: Api, loaded: Loaded, uses: Sequence[QueueUse]) -> tuple[Mapping[QueueUse, int], list[str]]:
    """GPUs that pods have by queue, pool and flavor, and sentences on work for which Kueue counts another number; empty
    where pods get devices by claims, or may not be read."""
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.explain.gpu_counts import bound_devices, remarks
    from tenancy.planning.queueing.queue_names import queue_name

    if loaded.environment.uses_device_claims:
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


def _budgets_and_windows(loaded: Loaded, usage: Usage | None) -> Mapping[str, Mapping[str, str]]:
    """Budget and window of each tenant, as the clock sees them; empty in an environment without one."""
    if not loaded.environment.queues.clock:
        return {}
    from tenancy.clock.status import budget_status, window_status

    now = dt.datetime.now(dt.UTC)
    return {
        tenant.tenant: {
            "budget": budget_status(loaded.environment, tenant, now, usage),
            "window": window_status(tenant, now, usage),
        }
        for tenant in loaded.tenants
    }


def _exhausted_budgets(loaded: Loaded, usage: Usage | None) -> Mapping[str, str]:
    """Tenants whose budget is spent, and what `tenancy why` says of it."""
    if usage is None or not loaded.environment.queues.clock:
        return {}
    from tenancy.clock.decision import desired

    now = dt.datetime.now(dt.UTC)
    return {
        exhausted_budget.tenant: str(exhausted_budget)
        for exhausted_budget in desired(loaded.environment, loaded.tenants, now, usage).exhausted_budgets
    }


def _clock_remarks(usage: Usage | None) -> list[str]:
    """A remark if the clock has not run for some time."""
    if usage is None:
        return ["the clock has not run: windows do not start and budgets do not bind (`tenancy clock run`)"]
    minutes = (dt.datetime.now(dt.UTC) - usage.until).total_seconds() / 60
    return [f"the clock's last round was {minutes:.0f} minutes ago"] if minutes > CLOCK_LATE else []
