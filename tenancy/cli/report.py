"""`tenancy report`: supply, pools, access and failures of an environment, as tables, JSON or Markdown."""

from __future__ import annotations

import datetime as dt
import functools
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import click

from tenancy.cli import supply_tables
from tenancy.cli.common import (
    BAD_INPUT,
    FAILED,
    DefaultGroup,
    environment_argument,
    environment_or_default,
    example,
    fail,
    lab_option,
    load_or_exit,
    optional_environment,
    report_write_errors,
    tenant_or_exit,
)
from tenancy.cli.tables import as_json, show
from tenancy.output.tables import Table

report_format = click.option(
    "--format",
    "form",
    type=click.Choice(["text", "json", "markdown"]),
    default="text",
    help="Format of the output. Default: text.",
)


@click.group(cls=DefaultGroup, default="page", epilog=example("tenancy report bank --out bank.html"))
def command() -> None:
    """Report on an environment: supply, pools, access, drift, adoption and the cost of a failure.

    `tenancy report ENV --out PAGE` writes an HTML page, as `tenancy report page ENV --out PAGE` does. Only `adoption`,
    `drift` and `access --live` ask a cluster; the other reports are computed from the spec files alone.
    """


@command.command(
    short_help="Write an HTML page about an environment.",
    epilog=example("tenancy report bank --out bank.html\n  tenancy report page bank --tenant fraud --out fraud.html"),
)
@environment_argument
@click.option(
    "--tenant",
    metavar="NAME",
    help="Write the page of this tenant only; it has the tenant's own numbers and no other tenant's name.",
)
@click.option(
    "--simulation",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Add use over time from this file, the output of `tenancy simulate --format json`.",
)
@click.option(
    "--chargeback",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Add costs from this file, the output of `tenancy chargeback --format json`.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="File to write, if the name ends with .html; otherwise a folder, for the page of the environment and one page "
    "per tenant.",
)
def page(environment: str, tenant: str | None, simulation: Path | None, chargeback: Path | None, out: Path) -> None:
    """Write an HTML page about ENV: tenants, access, isolation between tenants, capacity and cost.

    A page is one file that loads nothing from the network, follows the light or dark mode of the reader's system, and
    can be printed. Use over time and actual costs are shown only with --simulation and --chargeback.
    """
    loaded = load_or_exit(environment)
    if tenant:
        tenant_or_exit(loaded, tenant, allow_removed=False)
    from tenancy.report import inputs
    from tenancy.report.page import Pages

    name = loaded.environment.environment
    try:
        usage_timeline = inputs.read_simulation(simulation, name) if simulation else None
        chargeback_summary = inputs.read_chargeback(chargeback, name) if chargeback else None
    except inputs.UnreadableInput as error:
        fail(str(error), BAD_INPUT)
    pages = Pages(loaded, usage_timeline, chargeback_summary)
    if out.suffix == ".html":
        _write({out: pages.tenant(tenant) if tenant else pages.environment()})
        return
    files = {} if tenant else {out / f"{name}.html": pages.environment()}
    # A tenant may have the same name as its environment.
    folder = out / "tenants"
    tenant_names = [
        loaded_tenant.tenant for loaded_tenant in pages.loaded.tenants if tenant in {None, loaded_tenant.tenant}
    ]
    _write(files | {folder / f"{tenant_name}.html": pages.tenant(tenant_name) for tenant_name in sorted(tenant_names)})


@command.command(
    short_help="Write a page of who has which GPUs when.",
    epilog=example(
        "tenancy report calendar bank --out calendar.html\n  tenancy report calendar bank --out c.html --days 31"
    ),
)
@environment_argument
@click.option("--days", type=click.IntRange(1, 366), default=7, help="Number of days. Default: 7.")
@click.option(
    "--from",
    "begin",
    type=click.DateTime(["%Y-%m-%d"]),
    metavar="DATE",
    help="First day, such as 2026-12-01, UTC. Default: today.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FILE", help="Write the page here.")
def calendar(environment: str, days: int, begin: dt.datetime | None, out: Path) -> None:
    """Write an HTML page with a chart of each flavor: what each tenant of ENV is guaranteed at each time, by its share,
    its windows and its further shares; and tables of these and of budgets that bind."""
    from tenancy.catalog.days import today
    from tenancy.clock.page import page as calendar_page

    loaded = load_or_exit(environment)
    start = dt.datetime.combine(begin.date() if begin else today(), dt.time(), dt.UTC)
    _write({out: calendar_page(loaded.environment, loaded.tenants, start, days)})


@command.command(
    short_help="Write Grafana dashboards as JSON and ConfigMaps.",
    epilog=example("tenancy report dashboards bank --out dashboards"),
)
@environment_argument
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Write the files into this folder."
)
def dashboards(environment: str, out: Path) -> None:
    """Write Grafana dashboards for ENV: one for the platform, one for every tenant.

    Each dashboard is written twice: as JSON to import, and as a ConfigMap that Grafana's sidecar finds by its label.
    """
    import yaml

    from tenancy.planning.aws.prices import node_prices
    from tenancy.planning.observability.dashboards import all_dashboards, config_map
    from tenancy.planning.observability.dashboards import as_json as as_file

    loaded = load_or_exit(environment)
    files: dict[Path, str] = {}
    for tenant, board in all_dashboards(loaded.environment, loaded.tenants, node_prices(loaded.environment)):
        files[out / f"{board['uid']}.json"] = as_file(board)
        item = config_map(loaded.environment, tenant, board)
        files[out / f"{board['uid']}.configmap.yaml"] = yaml.safe_dump(item, sort_keys=False, allow_unicode=True)
    _write(files)


def _write(files: Mapping[Path, str]) -> None:
    """Write the files; if one cannot be written, end with a message."""
    with report_write_errors():
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    for path, text in files.items():
        click.echo(f"{path}: {-(-len(text.encode()) // 1024)} KiB", err=True)


@command.command(
    short_help="Show supply, guarantees and lendable GPUs.",
    epilog=example("tenancy report capacity local"),
)
@environment_argument
@report_format
def capacity(environment: str, form: str) -> None:
    """Show the supply of ENV per flavor, its guarantees, lendable GPUs, and how much each tenant may store.

    Counts are GPUs, slices or replicas. Guarantees are backed only by nodes that are always on (nodes.min); nodes up to
    nodes.max are autoscaled, not guaranteed.
    """
    from tenancy.planning.aws.cluster import cluster_plan, upgrade_surges
    from tenancy.planning.kubernetes.api_storage import api_storage
    from tenancy.planning.queueing.capacity import supply

    loaded = load_or_exit(environment, form)
    flavors = supply(loaded.environment, loaded.tenants)
    storage = api_storage(loaded.environment, loaded.tenants)
    surges = upgrade_surges(cluster_plan(loaded.environment, loaded.day))
    tables = [
        *supply_tables.capacity(loaded.environment.environment, flavors),
        supply_tables.upgrades(surges),
        supply_tables.api_storage(storage),
    ]
    value = {"flavors": as_json(flavors), "upgrades": as_json(surges), "api_storage": as_json(storage)}
    show(form, tables, value, _empty_report_text(loaded))


@command.command(
    short_help="Show what the nodes of each pool yield.",
    epilog=example("tenancy report pools local train-a100"),
)
@environment_argument
@click.argument("pool", required=False, metavar="[POOL]")
@report_format
def pools(environment: str, pool: str | None, form: str) -> None:
    """Show what the nodes of each pool of ENV yield, and the CPU, memory and disk for each GPU, slice or replica.

    With POOL the report also shows how much of a node the system and the platform's pods take.
    """
    from tenancy.planning.queueing.pool_yields import pool_yield

    loaded = load_or_exit(environment, form)
    known_pools = loaded.environment.pools
    if pool is not None and pool not in known_pools:
        _unknown_pool(pool, loaded.environment.environment, known_pools)
    names = known_pools if pool is None else [pool]
    pool_yields = [pool_yield(loaded.environment, name, loaded.tenants) for name in names]
    tables = [*supply_tables.pools(pool_yields), *(map(supply_tables.node, pool_yields) if pool else ())]
    show(form, tables, {"pools": as_json(pool_yields)}, _empty_report_text(loaded))


@command.command(
    short_help="Show what a lost GPU, node, rack or zone costs.",
    epilog=example("tenancy report failures local --nodes-per-rack 8"),
)
@environment_argument
@click.option(
    "--nodes-per-rack",
    "rack",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of nodes in one rack, an assumption, because AWS does not publish racks. Default: 4.",
)
@report_format
def failures(environment: str, rack: int | None, form: str) -> None:
    """Show the GPUs lost with a GPU, node, rack or zone of ENV, and the guarantees that are then not met."""
    from tenancy.planning.queueing.capacity import RACK, losses

    loaded = load_or_exit(environment, form)
    losses_by_scope = losses(loaded.environment, loaded.tenants, rack or RACK)
    value = {"rack": rack or RACK, "losses": as_json(losses_by_scope)}
    show(form, supply_tables.failures(losses_by_scope, rack or RACK), value, _empty_report_text(loaded))


@command.command(
    short_help="Estimate what the platform costs a month without GPU machines.",
    epilog=example("tenancy report costs bank"),
)
@environment_argument
@report_format
def costs(environment: str, form: str) -> None:
    """Estimate what ENV costs a month on AWS without its GPU machines: control plane, network, keys, logs, the nodes of
    the platform and of pools without GPUs, and root volumes.

    The prices are AWS' list prices of us-east-1, or those of `costs` in the file for pools. An estimate and no bill:
    data transfer, requests, buckets, autoscaled nodes and taxes are not in it. `tenancy chargeback` has what was used.
    """
    from tenancy.planning import make_plan
    from tenancy.planning.fixed_costs import fixed_costs

    loaded = load_or_exit(environment, form)
    plan = make_plan(loaded, loaded.day)
    cost_items = fixed_costs(loaded.environment, plan)
    value = {"estimate": True, **supply_tables.costs_value(cost_items)}
    table = supply_tables.costs(loaded.environment, cost_items)
    show(form, [table], value, "Nothing to estimate: aws.enabled is false, so nothing on AWS is made.")


def _empty_report_text(loaded: Any) -> str:
    """Why a report of supply is empty."""
    return f"Nothing to report: the environment has no {'flavors' if loaded.environment.pools else 'pools'}."


@command.command(
    short_help="Show who has which role, and where.",
    epilog=example("tenancy report access local --subject fraud-engineers"),
)
@optional_environment
@click.option("--tenant", metavar="NAME", help="Limit the report to this tenant.")
@click.option(
    "--subject", "who", metavar="NAME", help="Limit the report to this group, user, service account or IAM identity."
)
@click.option(
    "--live",
    is_flag=True,
    help="Compare with the bindings in the cluster too; exit with code 1 if they differ from the files.",
)
@lab_option
@report_format
def access(environment: str | None, tenant: str | None, who: str | None, live: bool, lab: bool, form: str) -> None:
    """Show who has which role in ENV, where, by which line of which spec file, and since when.

    Since when is the date of the last git commit that changed the line. Default of ENV: the only environment.
    """
    from tenancy.cli import review
    from tenancy.planning import make_plan
    from tenancy.planning.access_review import inactive_grants, rights
    from tenancy.planning.access_review import review as entries_of

    loaded = load_or_exit(environment_or_default(environment), form, lab)
    if tenant:
        tenant_or_exit(loaded, tenant)
    plan = make_plan(loaded, loaded.day)
    entries = review.with_source_lines(
        loaded, review.select_entries(entries_of(loaded.environment, loaded.tenants, plan), tenant, who)
    )
    value = {"environment": loaded.environment.environment, "access": [entry.as_dict() for entry in entries]}
    grants_not_made = inactive_grants(loaded.environment, loaded.tenants, plan)
    entries_not_made = review.with_source_lines(loaded, review.select_entries(grants_not_made, tenant, who))
    value["not_made"] = [entry.as_dict() for entry in entries_not_made]
    tables = [*review.tables(entries, rights(plan)), review.not_made_table(entries_not_made)]
    has_differences = False
    if live:
        from tenancy.cluster.api import Api, ApiUnreachable
        from tenancy.lab.layout import enter_lab

        enter_lab(plan.context)
        try:
            bindings_not_in_files, bindings_not_in_cluster = review.differences(Api(plan.context), plan, tenant)
        except ApiUnreachable as error:
            fail(str(error))
        tables += review.difference_tables(bindings_not_in_files, bindings_not_in_cluster)
        value |= {"not_in_files": as_json(bindings_not_in_files), "not_in_cluster": as_json(bindings_not_in_cluster)}
        has_differences = bool(bindings_not_in_files or bindings_not_in_cluster)
    value["rights"] = as_json(rights(plan))
    if not (entries or entries_not_made or form == "json"):
        click.echo(f"No group, user or identity of that name is in the files of {loaded.environment.environment}.")
    else:
        show(form, tables, value)
    if has_differences:
        sys.exit(FAILED)


@command.command(
    short_help="Show what a takeover of namespaces would change.",
    epilog=example("tenancy report adoption local --tenant fraud"),
)
@environment_argument
@click.option("--tenant", metavar="NAME", help="Limit the report to namespaces of this tenant.")
@lab_option
@report_format
def adoption(environment: str, tenant: str | None, lab: bool, form: str) -> None:
    """Show what the takeover of existing namespaces would change, and which objects in them would be refused.

    For each namespace that the spec files name, or whose name has the form of a tenant's: labels and annotations that
    change, existing objects that stay, quotas below current use, and what Pod Security and the admission policies
    (guards) would refuse, by dry runs. For every other namespace with work: what the guards refuse there. Of a Kueue
    that the environment does not install: settings with which GPUs run uncounted. Nothing on the cluster is changed.

    Exit codes: 0 nothing to report, 1 findings or namespaces that are not taken over, 2 bad input.
    """
    from tenancy.cli import adoption as report
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.cluster.kueue_settings import kueue_settings
    from tenancy.lab.layout import enter_lab
    from tenancy.lifecycle.adoption import State, mode, spaces
    from tenancy.planning import make_plan

    loaded = load_or_exit(environment, form, lab)
    if tenant:
        tenant_or_exit(loaded, tenant)
    plan = make_plan(loaded, loaded.day)
    enter_lab(plan.context)
    try:
        api = Api(plan.context)
        guards = mode(api, plan.environment)
        namespaces = spaces(api, loaded.environment, plan, tenant)
        settings = kueue_settings(api, plan)
    except ApiUnreachable as error:
        fail(str(error))
    kueue = [*settings.problems, *settings.remarks]
    value = {"environment": plan.environment, "guards": guards, "kueue": kueue, "namespaces": as_json(namespaces)}
    if not (namespaces or form == "json"):
        click.echo(f"No namespace of {plan.environment} exists on the cluster: there is nothing to take over.")
        for text in kueue:
            click.echo(text)
    else:
        show(form, report.tables(plan.environment, namespaces, guards, kueue, lab=lab), value)
    if settings.problems or any(
        space.findings or space.state not in {State.ADOPTED, State.UNMANAGED} for space in namespaces
    ):
        sys.exit(FAILED)


@command.command(
    short_help="Show objects that drifted on the cluster.",
    epilog=example("tenancy report drift local"),
)
@environment_argument
@lab_option
@report_format
def drift(environment: str, lab: bool, form: str) -> None:
    """Show drift: objects on the cluster that were changed, removed or added since the stacks of ENV were updated.

    The report names who made each change and when, from the managed fields of the object. Nothing is changed;
    `tenancy up` reverts drift. For AWS resources use `pulumi refresh --preview-only`.

    Exit codes: 0 no drift, 1 drift, 2 the cluster or the state cannot be read.
    """
    from tenancy.cli.engine import open_driver
    from tenancy.cluster.api import ApiUnreachable
    from tenancy.cluster.selectors import environment_selector
    from tenancy.deploy.driver import RunFailed
    from tenancy.lab.layout import LabError
    from tenancy.planning import make_plan
    from tenancy.planning.scope import StackScope, stacks

    loaded = load_or_exit(environment, form, lab)
    plan = make_plan(loaded, loaded.day)
    try:
        driver = open_driver(loaded, functools.partial(click.echo, err=True))
        stack_names = driver.stacks(plan.environment)
        altered_objects = [
            (name, altered)
            for name, scope, tenant in stacks(plan, loaded.environment.stacks)
            if name in stack_names and scope is not StackScope.CLUSTER
            for altered, _ in driver.drift_with_managers(
                driver.open_read_only(name), environment_selector(plan.environment, tenant)
            )
        ]
    except (RunFailed, LabError, ApiUnreachable) as error:
        fail(str(error), BAD_INPUT)
    rows = [(name, altered.name, altered.description, altered.writers) for name, altered in altered_objects]
    title = f"Drifted objects of {plan.environment}"
    records = [dict(zip(("stack", "object", "what", "by"), row, strict=True)) for row in rows]
    if rows or form == "json":
        show(form, [Table(title, ("stack", "object", "what", "by"), rows)], {"drift": records})
    else:
        click.echo(f"No drift: the objects of the stacks of {plan.environment} on the cluster are unchanged.")
    if rows:
        sys.exit(FAILED)


def _unknown_pool(name: str, environment: str, known_pools: Iterable[str]) -> None:
    from tenancy.spec.reading.mistakes import nearest

    similar_names = nearest(name, known_pools)
    change = f"use {' or '.join(similar_names)}" if similar_names else "declare one under pools"
    fail(f"given pool {name!r}; rule: a pool of {environment}; change: {change}", BAD_INPUT)
