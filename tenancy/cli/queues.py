from __future__ import annotations

from dataclasses import asdict

import click

from tenancy.cli.common import environment_argument, example, fail, lab_option, load_or_exit, print_json


@click.command("queues", epilog=example("tenancy queues local"))
@environment_argument
@lab_option
@click.option("--brief", is_flag=True, help="Show only queues with GPUs in use or waiting work, and the totals.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="Format of the output. Default: text.",
)
def command(environment: str, lab: bool, brief: bool, form: str) -> None:
    """Show how many GPUs each queue of ENV is guaranteed, uses and borrows, and how much of its work waits.

    Borrowed GPUs are those in use above the queue's guarantee: idle guarantees of other tenants or of the tenant's
    other tiers, and unallocated GPUs. Waiting is a number of workloads; all others are GPUs, slices or replicas.
    """
    from tenancy.cli.tables import show
    from tenancy.lab.layout import enter_lab
    from tenancy.live.api import Api, ApiUnreachable
    from tenancy.live.usage import queue_use
    from tenancy.output.tables import Table

    loaded = load_or_exit(environment, "json" if form == "json" else "text", lab)
    enter_lab(loaded.environment.cluster.context)
    if not loaded.environment.queued:
        fail(f"given {environment}, with scheduler: none; rule: GPUs are lent and borrowed through a queue")
    try:
        found = queue_use(Api(loaded.environment.cluster.context), loaded.environment)
    except ApiUnreachable as error:
        fail(str(error))
    if form == "json":
        print_json([{**asdict(h), "dollars": None if h.dollars is None else float(h.dollars)} for h in found])
        return
    waiting = {(h.tenant, h.tier): h.waiting for h in found}
    shown = [h for h in found if h.held or h.waiting] if brief else found
    held, borrowed = sum(h.held for h in found), sum(h.borrowed for h in found)
    remarks = [
        f"{len(waiting)} queues: {held} GPUs, slices and replicas in use, {borrowed} of them borrowed; "
        f"{sum(waiting.values())} workloads waiting"
    ]
    if any(h.dollars is not None for h in found):
        remarks.append(f"GPUs in use cost ${sum(h.dollars or 0 for h in found)} an hour")
    remarks += sorted({f"{h.tenant}, {h.tier}: {h.state}" for h in found if h.state != "open"})
    header = ("tenant", "tier", "flavor", "pool", "guaranteed", "may borrow", "in use", "borrowed", "waiting")
    rows = [
        (h.tenant, h.tier, h.flavor, h.pool, h.guaranteed, h.may_borrow, h.held, h.borrowed, h.waiting) for h in shown
    ]
    title = f"Queues of {loaded.environment.environment}"
    lines = "\n".join(f"- {remark}" for remark in remarks)
    idle = "no GPU is in use and no work waits" if found else "there are no queues, because no tenant has GPUs"
    show(form, [Table(title, header, rows, remarks)], {}, f"{title}: {idle}\n{lines}")
