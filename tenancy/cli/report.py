"""`tenancy report`: what the files amount to, as tables, JSON or Markdown."""

from __future__ import annotations

import dataclasses
import functools
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from tenancy.catalog.nodes import Resources
from tenancy.cli.common import (
    BAD_INPUT,
    FAILED,
    environment_argument,
    example,
    fail,
    lab_option,
    load_or_exit,
    print_json,
    tenant_or_exit,
    writing,
)
from tenancy.cli.new import optional_environment, the_environment

if TYPE_CHECKING:
    from tenancy.plan.capacity import FlavorSupply, Loss, PoolYield, Unmet

WIDTH = 100
GUTTER = 2
NARROWEST = 24
"""Characters that a last column keeps, however wide the others are."""

Cell = str | int | float | None


class Table(NamedTuple):
    """A part of a report: a title, columns, and remarks below them."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    remarks: Sequence[str] = ()


report_format = click.option(
    "--format", "form", type=click.Choice(["text", "json", "markdown"]), default="text", help="How to print the answer."
)


class _Reports(click.Group):
    """With the name of an environment in the place of a report's it writes the page."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, ["page", *args] if args and args[0] not in own else args)


@click.group(cls=_Reports, epilog=example("tenancy report bank --out bank.html"))
def command() -> None:
    """Show what the files of an environment amount to: supply, pools, what a failure costs, and who may do what.

    `tenancy report ENV --out PAGE` writes all of it as a page to look at. Only `adoption`, `drift` and --live ask a
    cluster: of the others the same files always give the same report.
    """


@command.command(
    epilog=example("tenancy report bank --out bank.html\n  tenancy report page bank --tenant fraud --out fraud.html")
)
@environment_argument
@click.option("--tenant", help="The page of this one alone, with its own numbers and nobody else's name.")
@click.option("--simulation", type=click.Path(path_type=Path), metavar="FILE", help="JSON of `tenancy simulate`.")
@click.option("--chargeback", type=click.Path(path_type=Path), metavar="FILE", help="JSON of `tenancy chargeback`.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    metavar="PATH",
    help="PAGE.html; any other name is a folder, for the environment's page and one for every tenant.",
)
def page(environment: str, tenant: str | None, simulation: Path | None, chargeback: Path | None, out: Path) -> None:
    """Write ENV as a page: who has what, who can reach whom and what holds it, capacity, cost.

    One file that asks nobody for anything; light or dark as the reader's system is, and fit to be printed. What it
    cannot know it says: use over time and what was paid come from --simulation and --chargeback.
    """
    loaded = load_or_exit(environment)
    if tenant:
        tenant_or_exit(loaded, tenant)
    from tenancy.report import given
    from tenancy.report.page import Pages

    name = loaded.environment.environment
    try:
        course = given.simulation(simulation, name) if simulation else None
        charged = given.chargeback(chargeback, name) if chargeback else None
    except given.Unreadable as error:
        fail(str(error), BAD_INPUT)
    pages = Pages(loaded, course, charged)
    if out.suffix == ".html":
        _write({out: pages.tenant(tenant) if tenant else pages.environment()})
        return
    found = {} if tenant else {out / f"{name}.html": pages.environment()}
    # A tenant may be called as its environment is.
    folder = out / "tenants"
    chosen = [one.tenant for one in loaded.tenants if tenant in {None, one.tenant}]
    _write(found | {folder / f"{one}.html": pages.tenant(one) for one in sorted(chosen)})


@command.command(epilog=example("tenancy report dashboards bank --out dashboards"))
@environment_argument
@click.option("--out", type=click.Path(path_type=Path), required=True, metavar="FOLDER", help="Where to write them.")
def dashboards(environment: str, out: Path) -> None:
    """Write the dashboards of ENV for Grafana: one for the platform, one for every tenant.

    Each as JSON to be imported, and as a ConfigMap that Grafana's sidecar finds by its label.
    """
    import yaml

    from tenancy.plan.dashboards import as_json as as_file
    from tenancy.plan.dashboards import config_map, every
    from tenancy.plan.prices import node_prices

    loaded = load_or_exit(environment)
    files: dict[Path, str] = {}
    for tenant, board in every(loaded.environment, loaded.tenants, node_prices(loaded.environment)):
        files[out / f"{board['uid']}.json"] = as_file(board)
        item = config_map(loaded.environment, tenant, board)
        files[out / f"{board['uid']}.configmap.yaml"] = yaml.safe_dump(item, sort_keys=False, allow_unicode=True)
    _write(files)


def _write(files: Mapping[Path, str]) -> None:
    """Write what was made, all of it or a message."""
    with writing():
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    for path, text in files.items():
        click.echo(f"{path}: {-(-len(text.encode()) // 1024)} KiB", err=True)


@command.command(epilog=example("tenancy report capacity local"))
@environment_argument
@report_format
def capacity(environment: str, form: str) -> None:
    """Show what ENV has of each flavor, whose it is, and what may be lent.

    Surely there are the nodes of nodes.min; only they back a guarantee. What is above comes by luck.
    """
    from tenancy.plan.capacity import supply

    loaded = load_or_exit(environment, form)
    found = supply(loaded.environment, loaded.tenants)
    show(form, capacity_tables(loaded.environment.environment, found), {"flavors": as_json(found)})


@command.command(epilog=example("tenancy report pools local train-a100"))
@environment_argument
@click.argument("pool", required=False, metavar="[POOL]")
@report_format
def pools(environment: str, pool: str | None, form: str) -> None:
    """Show what the pools of ENV yield, and what one slice or GPU gets of its node.

    With POOL also where the rest of a node goes: to its system, and to the platform's own pods.
    """
    from tenancy.plan.capacity import pool_yield

    loaded = load_or_exit(environment, form)
    known = loaded.environment.pools
    if pool is not None and pool not in known:
        _unknown_pool(pool, loaded.environment.environment, known)
    names = known if pool is None else [pool]
    found = [pool_yield(loaded.environment, name, loaded.tenants) for name in names]
    show(form, [*_pools(found), *(map(_node, found) if pool else ())], {"pools": as_json(found)})


@command.command(epilog=example("tenancy report failures local --rack 8"))
@environment_argument
@click.option("--rack", type=click.IntRange(min=1), help="Nodes of one rack; absent: 4, for AWS tells of no racks.")
@report_format
def failures(environment: str, rack: int | None, form: str) -> None:
    """Show what a lost GPU, node, rack or zone of ENV costs, and whose guarantees then do not hold."""
    from tenancy.plan.capacity import RACK, losses

    loaded = load_or_exit(environment, form)
    found = losses(loaded.environment, loaded.tenants, rack or RACK)
    show(form, _failures(found, rack or RACK), {"rack": rack or RACK, "losses": as_json(found)})


@command.command(epilog=example("tenancy report access local --who fraud-engineers"))
@optional_environment
@click.option("--tenant", help="Of this one alone.")
@click.option("--who", metavar="NAME", help="Of this group, user, service account or identity alone.")
@click.option("--live", is_flag=True, help="Also what the cluster's bindings say else; exit code 1 if they do.")
@lab_option
@report_format
def access(environment: str | None, tenant: str | None, who: str | None, live: bool, lab: bool, form: str) -> None:
    """Show who may do what where in ENV, by which line of which file, and since when.

    Since when is the day of the commit that made the line what it is.
    """
    from tenancy.cli import review
    from tenancy.plan import make_plan
    from tenancy.plan.access_review import review as entries_of
    from tenancy.plan.access_review import rights

    loaded = load_or_exit(the_environment(environment), form, lab)
    if tenant:
        tenant_or_exit(loaded, tenant)
    plan = make_plan(loaded.environment, loaded.tenants)
    found = review.told(loaded, review.chosen(entries_of(loaded.environment, loaded.tenants, plan), tenant, who))
    value = {"environment": loaded.environment.environment, "access": [told.as_dict() for told in found]}
    tables = review.tables(loaded, found, rights(plan))
    differ = False
    if live:
        from tenancy.lab.layout import enter_lab
        from tenancy.live.api import Api, Unreachable

        enter_lab(plan.context)
        try:
            extra, lacking = review.differences(Api(plan.context), plan, tenant)
        except Unreachable as error:
            fail(str(error))
        tables += review.compared(extra, lacking)
        value |= {"not_in_files": as_json(extra), "not_in_cluster": as_json(lacking)}
        differ = bool(extra or lacking)
    value["rights"] = as_json(rights(plan))
    if not (found or form == "json"):
        click.echo(f"Nobody of that name is in the files of {loaded.environment.environment}.")
    else:
        show(form, tables, value)
    if differ:
        sys.exit(FAILED)


@command.command(epilog=example("tenancy report adoption local --tenant fraud"))
@environment_argument
@click.option("--tenant", help="Of this one alone.")
@lab_option
@report_format
def adoption(environment: str, tenant: str | None, lab: bool, form: str) -> None:
    """Show what taking over namespaces that exist would change, and what would be refused of what is in them.

    Of each namespace that the files name or that is called as a tenant's: labels and annotations that change, what
    stays beside ours, quotas below what is in use, and what Pod Security and the guards say of what is there, asked
    as dry runs. Exit code 1 if there is anything to know.
    """
    from tenancy.cli import adoption as report
    from tenancy.lab.layout import enter_lab
    from tenancy.live.adoption import State, mode, spaces
    from tenancy.live.api import Api, Unreachable
    from tenancy.plan import make_plan

    loaded = load_or_exit(environment, form, lab)
    if tenant:
        tenant_or_exit(loaded, tenant)
    plan = make_plan(loaded.environment, loaded.tenants)
    enter_lab(plan.context)
    try:
        api = Api(plan.context)
        guards = mode(api, plan.environment)
        found = spaces(api, loaded.environment, plan, tenant)
    except Unreachable as error:
        fail(str(error))
    value = {"environment": plan.environment, "guards": guards, "namespaces": as_json(found)}
    if not (found or form == "json"):
        click.echo(f"No namespace of {plan.environment} is there: nothing is taken over.")
    else:
        show(form, report.tables(plan.environment, found, guards), value)
    if any(space.findings or space.state is not State.OURS for space in found):
        sys.exit(FAILED)


@command.command(epilog=example("tenancy report drift local"))
@environment_argument
@lab_option
@report_format
def drift(environment: str, lab: bool, form: str) -> None:
    """Show what somebody else changed, removed or wrote beside on the cluster since the stacks of ENV made it.

    By whom and when, by the API server's own record. It changes nothing; `tenancy up` puts it back. What AWS has
    `pulumi refresh --preview-only` compares. Exit code 1 if there is anything, 2 if it cannot be looked at.
    """
    from tenancy.components.scope import Scope, selector_of, stacks
    from tenancy.engine.driver import Driver, Failed
    from tenancy.lab.layout import LabError
    from tenancy.live.api import Unreachable
    from tenancy.plan import make_plan

    loaded = load_or_exit(environment, form, lab)
    plan = make_plan(loaded.environment, loaded.tenants)
    try:
        driver = Driver.of(loaded, functools.partial(click.echo, err=True))
        there = driver.stacks(plan.environment)
        found = [
            (name, each)
            for name, scope, tenant in stacks(plan, loaded.environment.stacks)
            if name in there and scope is not Scope.CLUSTER
            for each, _ in driver.altered(driver.look_at(name), selector_of(plan, tenant))
        ]
    except (Failed, LabError, Unreachable) as error:
        fail(str(error), BAD_INPUT)
    rows = [(name, each.name, "is gone" if each.live is None else each.fields, each.by) for name, each in found]
    title = f"What of {plan.environment} is not as it was made"
    records = [dict(zip(("stack", "object", "what", "by"), row, strict=True)) for row in rows]
    if rows or form == "json":
        show(form, [Table(title, ("stack", "object", "what", "by"), rows)], {"drift": records})
    else:
        click.echo(f"All that the stacks of {plan.environment} made on the cluster is as it was made.")
    if rows:
        sys.exit(FAILED)


def _unknown_pool(given: str, environment: str, known: Iterable[str]) -> None:
    from tenancy.spec.pools import nearest

    close = nearest(given, known)
    change = f"use {' or '.join(close)}" if close else "declare one under pools"
    fail(f"given pool {given!r}; rule: a pool of {environment}; change: {change}", BAD_INPUT)


# What each report says


def capacity_tables(environment: str, flavors: Sequence[FlavorSupply]) -> list[Table]:
    total = Table(
        f"Supply of {environment}",
        ("flavor", "surely", "at most", "guaranteed", "free", "lendable", "in an upgrade"),
        [(f.flavor, f.surely, f.at_most, f.guaranteed, f.free, f.lendable, f.upgrading) for f in flavors],
        [f"in an upgrade: {_missing(unmet)}" for f in flavors for unmet in f.unmet],
    )
    by_pool = Table(
        "By pool",
        ("flavor", "pool", "a node", "surely", "at most", "in an upgrade"),
        [(f.flavor, p.pool, p.node, p.surely, p.at_most, p.upgrading) for f in flavors for p in f.pools],
    )
    by_tenant = Table(
        "By tenant",
        ("flavor", "tenant", "guaranteed", "lends", "may borrow", "surely there"),
        [(f.flavor, t.tenant, t.guaranteed, t.lends, t.borrows, t.borrowable) for f in flavors for t in f.tenants],
    )
    return [total, by_pool, by_tenant]


def _pools(found: Sequence[PoolYield]) -> list[Table]:
    table = Table(
        "Pools",
        ("pool", "instance", "nodes", "by", "bought, and cut"),
        [(p.pool, p.instance, _nodes(p), p.provisioner, f"{p.purchase}: {p.layout}") for p in found],
    )
    units = Table(
        "What a node offers, and what of it one gets when all are in use",
        ("pool", "flavor", "a node", "vCPU", "memory GiB", "disk GiB", "asked for as"),
        [
            (
                p.pool,
                u.flavor or f"none ({u.profile or 'GPU'})",
                u.count,
                cores(u.each.cpu),
                gib(u.each.memory),
                gib(u.each.ephemeral),
                u.resource,
            )
            for p in found
            for u in p.units
        ],
        [f"{p.pool}: {note}" for p in found for note in p.notes],
    )
    return [table, units]


def _nodes(pool: PoolYield) -> str:
    same = pool.nodes_min == pool.nodes_max
    return str(pool.nodes_max) if same else f"{pool.nodes_min} to {pool.nodes_max}"


def _node(pool: PoolYield) -> Table:
    units = sum(unit.count for unit in pool.units)
    return Table(
        f"Where a node of {pool.pool} goes",
        ("part", "vCPU", "memory GiB", "disk GiB", "pods"),
        [
            ("sold by EC2", float(pool.vcpu), float(pool.memory_gib), None, None),
            ("allocatable", *_amounts(pool.allocatable), pool.allocatable.pods),
            ("platform's pods", *_amounts(pool.daemonsets), pool.daemonsets.pods),
            ("left for tenants", *_amounts(pool.left), pool.left.pods),
            ("one pod for each GPU, slice or replica", None, None, None, units),
            ("left beside them", None, None, None, pool.pods_left),
        ],
    )


def _amounts(of: Resources) -> tuple[float, float, float]:
    return cores(of.cpu), gib(of.memory), gib(of.ephemeral)


def _failures(found: Sequence[Loss], rack: int) -> list[Table]:
    from tenancy.spec.crossfile import some

    lost = Table(
        "What a failure takes, at worst",
        ("lost", "of", "nodes", "GPUs", "guarantees", "of each flavor"),
        [
            (
                loss.scope,
                loss.where,
                loss.nodes,
                loss.gpus,
                f"{missing} missing" if (missing := sum(unmet.missing for unmet in loss.unmet)) else "hold",
                ", ".join(f"{count} {flavor}" for flavor, count in loss.units.items()),
            )
            for loss in found
        ],
        [
            f"a rack is taken as {rack} nodes",
            "a node with a broken GPU is repaired by being replaced: what is lost then is the node",
        ],
    )
    unmet = Table(
        "Guarantees that do not hold until it is repaired",
        ("lost", "of", "flavor", "there", "guaranteed", "missing", "by tenant"),
        [
            (loss.scope, loss.where, u.flavor, u.there, u.guaranteed, u.missing, _largest(u))
            for loss in found
            for u in loss.unmet
        ],
    )
    hit = Table(
        "Who may have work there",
        ("of", "tenants", "names"),
        [
            (where, len(names), some(names) or None)
            for where, names in {loss.where: loss.tenants for loss in found}.items()
        ],
    )
    return [lost, unmet, hit]


def _missing(unmet: Unmet) -> str:
    return (
        f"{unmet.missing} of {unmet.guaranteed} {unmet.flavor} guaranteed are missing in {', '.join(unmet.pools)}: "
        f"{_largest(unmet)}"
    )


def _largest(unmet: Unmet) -> str:
    from tenancy.spec.crossfile import some

    return some([f"{name} {count}" for name, count in sorted(unmet.tenants.items(), key=lambda t: (-t[1], t[0]))])


# How it is printed


def cores(millicores: int) -> float:
    """Cores, rounded down to hundredths: what is shown is there."""
    return millicores // 10 / 100


def gib(mib: int) -> float:
    """GiB, rounded down to hundredths."""
    return mib * 100 // 1024 / 100


def as_json(value: Any) -> Any:
    """Dataclasses as JSON, with the numbers that the tables show."""
    match value:
        case Resources():
            amounts = {"vcpu": cores(value.cpu), "memory_gib": gib(value.memory)}
            return {**amounts, "disk_gib": gib(value.ephemeral), "pods": value.pods}
        case Fraction():
            return str(value)
        case Mapping():
            return {key: as_json(of) for key, of in value.items()}
        case list() | tuple():
            return [as_json(of) for of in value]
    if dataclasses.is_dataclass(value):
        return {field.name: as_json(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def show(form: str, tables: Sequence[Table], value: Any) -> None:
    """Print a report in the form that was asked for."""
    if form == "json":
        print_json(value)
        return
    write = as_markdown if form == "markdown" else as_text
    parts = [write(table) for table in tables if table.rows]
    click.echo("\n\n".join(parts) or "Nothing: the environment declares no pools.")


def as_text(table: Table) -> str:
    """Columns with two spaces between them; the last one wraps where it would be too wide."""
    cells, numeric = _written(table)
    widths = [max(map(len, column)) for column in zip(table.header, *cells, strict=True)]
    *ahead, last = widths
    before = sum(ahead) + GUTTER * len(ahead)
    room = max(WIDTH - before, NARROWEST)
    lines = [f"{table.title}:"]
    for row in (list(table.header), *cells):
        first, *more = [row[-1]] if last <= room else textwrap.wrap(row[-1], room, break_on_hyphens=False) or [""]
        padded = [_pad(cell, width, number) for cell, width, number in zip(row[:-1], ahead, numeric, strict=False)]
        end = _pad(first, min(last, room), numeric[-1])
        lines.append((" " * GUTTER).join([*padded, end]).rstrip())
        lines += [" " * before + line for line in more]
    for remark in table.remarks:
        lines += textwrap.wrap(f"- {remark}", WIDTH, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(lines)


def as_markdown(table: Table) -> str:
    cells, numeric = _written(table)
    rows = [table.header, ["---:" if number else "---" for number in numeric], *cells]
    lines = [f"## {table.title}", "", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines + [""] * bool(table.remarks) + [f"- {remark}" for remark in table.remarks])


def _written(table: Table) -> tuple[list[list[str]], list[bool]]:
    """The cells as texts, and which columns hold numbers."""
    columns = zip(*table.rows, strict=True)
    numeric = [all(cell is None or isinstance(cell, int | float) for cell in column) for column in columns]
    return [[_cell(cell) for cell in row] for row in table.rows], numeric


def _cell(cell: Cell) -> str:
    if cell is None:
        return "–"
    return f"{cell:.2f}" if isinstance(cell, float) else str(cell)


def _pad(cell: str, width: int, number: bool) -> str:
    return cell.rjust(width) if number else cell.ljust(width)
