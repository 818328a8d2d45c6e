from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenancy.cli.common import (
    BAD_INPUT,
    FAILED,
    environment_argument,
    example,
    fail,
    format_option,
    lab_option,
    load_or_exit,
    print_json,
)

if TYPE_CHECKING:
    from rich.console import Console

    from tenancy.cluster.api import Api
    from tenancy.cluster.denial import AuditLog
    from tenancy.verify.attacks import Attack
    from tenancy.verify.verification import Result

SHOWN_REFUSALS = 3
GUTTER = 2
"""Characters between two columns."""
MIN_SENTENCE = 40
"""Least width, in characters, at which a reader recognises an attack by its description."""


@click.command("verify", epilog=example("tenancy verify local --only gpu-"))
@environment_argument
@lab_option
@format_option
@click.option(
    "--brief", is_flag=True, help="Print one line per rule instead of one per attack; gaps are printed in full."
)
@click.option("--only", metavar="PREFIX", default="", help="Run only the attacks whose id starts with this prefix.")
@click.option(
    "--attacks",
    "attack_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Run the attacks in this YAML or JSON file instead of the built-in ones.",
)
@click.option(
    "--audit-log",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Audit log of the API server, to compare each answer with. Default: the lab's log, if the lab is attacked; "
    "otherwise none.",
)
def command(
    environment: str, lab: bool, form: str, brief: bool, only: str, attack_file: Path | None, audit_log: Path | None
) -> None:
    """Attack the live cluster of ENV as its tenants, and show which control refused each attack.

    Each attack has a twin that differs in one field and must be admitted, because a cluster that refuses every request
    proves nothing. An attack counts as refused only if the expected control refused it. Requests that would write are
    sent as dry runs: no object is created.

    Exit codes: 0 every attack was refused by the expected control and every twin admitted, 1 there is a gap, or the
    admission policies (guards) only warn, 2 bad input.
    """
    from tenancy.catalog.files import UnusableInput
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.cluster.denial import AuditLog, ForeignLogError
    from tenancy.lab.layout import enter_lab
    from tenancy.lifecycle.adoption import mode
    from tenancy.planning import make_plan
    from tenancy.spec.fields.environment import GuardsMode
    from tenancy.verify.attacks import all_attacks
    from tenancy.verify.verification import NotDeployedError, find_scene

    loaded = load_or_exit(environment, form, lab)
    plan = make_plan(loaded, loaded.day)
    file_attacks = _read(attack_file) if attack_file else None
    enter_lab(plan.context)
    try:
        api = Api(plan.context)
        log = audit_log or lab_log(api)
        only_warns = mode(api, plan.environment) is GuardsMode.AUDIT
        # If guards only warn, the audit log records refusals that no response contains, so the two are not compared.
        audit = AuditLog(log) if log and not only_warns else None
        if only_warns:
            click.echo(f"tenancy: {_only_warn(plan.environment)}", err=True)
        scene = find_scene(api, loaded, plan)
        candidates = all_attacks(scene) if file_attacks is None else file_attacks
        attacks = [attack for attack in candidates if attack.id.startswith(only)]
        if not attacks:
            fail(
                f"given --only {only}; rule: a prefix of an attack's id; change: drop --only to list all attacks",
                BAD_INPUT,
            )
        results = _run_attacks(api, attacks, audit, form)
    except UnusableInput as error:
        fail(f"given --audit-log {error.filename} ({error}); rule: a log file; change: name one", BAD_INPUT)
    except (ForeignLogError, NotDeployedError, ApiUnreachable) as error:
        fail(str(error))
    if form == "json":
        print_json([result.as_dict() for result in results])
    else:
        _show(results, audit is not None, brief)
    if only_warns or any(result.gap for result in results):
        sys.exit(FAILED)


def _only_warn(environment: str) -> str:
    return (
        f"given a cluster whose guards only warn; rule: tenants are isolated; change: correct the findings of `tenancy "
        f"report adoption {environment}`, set guards to enforce in environment.yaml and run `tenancy up "
        f"{environment}`. Until then the attacks below that were not refused succeed"
    )


def _run_attacks(api: Api, attacks: list[Attack], audit: AuditLog | None, form: str) -> list[Result]:
    from tenancy.verify.verification import run

    if form == "json" or not sys.stderr.isatty():
        return run(api, attacks, audit)
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    bar = Progress("attacks", BarColumn(), MofNCompleteColumn(), console=Console(stderr=True), transient=True)
    with bar as progress:
        task = progress.add_task("attacks", total=len(attacks))
        return run(api, attacks, audit, on_attack_done=lambda: progress.advance(task))


def _read(file: Path) -> list[Attack]:
    import yaml

    from tenancy.catalog.files import SETTINGS, read_text_file
    from tenancy.verify.attacks import from_entries

    try:
        entries = yaml.safe_load(read_text_file(file, SETTINGS))
        if not isinstance(entries, list):
            raise ValueError("given no list; change: write a list of attacks")
        return list(from_entries(entries))
    except (OSError, ValueError, KeyError, RecursionError, yaml.YAMLError) as error:
        fail(f"{file}: {error}", BAD_INPUT)


def lab_log(api: Api) -> Path | None:
    """The lab's audit log, if the kubeconfig points to the lab of this project."""
    from tenancy.lab.layout import Lab, LabError

    try:
        lab = Lab.locate()
        points_to_this_server = lab.kubeconfig.is_file() and f'"{api.host}"' in lab.kubeconfig.read_text("utf-8")
    except (LabError, OSError):
        return None
    log = lab.folder / "audit.log"
    return log if points_to_this_server and log.exists() else None


def _show(results: list[Result], has_audit_log: bool, brief: bool) -> None:
    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    if brief:
        _print_rule_table(console, results)
    else:
        _print_attack_table(console, results)
    results_run = [result for result in results if not result.skipped]
    gaps = [result for result in results_run if result.gap]
    for result in gaps:
        console.print(f"[red]{result.attack.id}[/]: {_plain(_gap_text(result))}", soft_wrap=True)
    counts = (
        f"{len(results_run)} attacks: {sum(r.refused for r in results_run)} refused by the expected control, "
        f"{sum(r.twin_admitted for r in results_run)} twins admitted, {len(gaps)} gap{'' if len(gaps) == 1 else 's'}"
    )
    skipped = len(results) - len(results_run)
    skipped_text = f", {skipped} skipped" if skipped else ""
    log = "; the audit log agrees" if has_audit_log and not any(r.problem for r in results_run) else ""
    console.print(f"[{'red' if gaps else 'green'}]{counts}{skipped_text}[/]{log}", soft_wrap=True)
    example_results = list({r.attack.rule: r for r in results_run if not r.gap and "To change:" in r.message}.values())
    if example_results:
        console.print("Messages that a tenant gets, for example:")
    for result in example_results[:SHOWN_REFUSALS]:
        console.print(f"  {_plain(result.message.partition('denied request: ')[2])}", soft_wrap=True)


def _print_rule_table(console: Console, results: list[Result]) -> None:
    """Print one line per rule and control: number of attacks, number refused, and the first attack as an example."""
    from rich.table import Table

    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        if not result.skipped:
            control = result.attack.expected_denier.partition("/")[0]
            groups.setdefault((result.attack.rule, control), []).append(result)
    table = Table(box=None, pad_edge=False)
    for title in ("rule", "for example", "refused by", "attacks", "refused", "twins admitted"):
        numeric = title in {"attacks", "refused", "twins admitted"}
        table.add_column(title, justify="right" if numeric else "left", no_wrap=True)
    for (rule, control), members in groups.items():
        refused, admitted = sum(m.refused for m in members), sum(m.twin_admitted for m in members)
        style = "red" if any(m.gap for m in members) else None
        cells = (rule, _plain(members[0].attack.attack), control, str(len(members)), str(refused), str(admitted))
        table.add_row(*cells, style=style)
    console.print(table, soft_wrap=True)


def _print_attack_table(console: Console, results: list[Result]) -> None:
    from rich.table import Table

    rows = [(result, _cells(result)) for result in sorted(results, key=_order)]
    widths = [max(len(cells[column]) for _, cells in rows) for column in range(5)]
    width_left = console.width - sum(widths[2:]) - 3 * GUTTER
    # On a narrow terminal the id is left out, not the denier; `--format json` and the line of every gap have the id.
    with_id = width_left - widths[0] - GUTTER >= MIN_SENTENCE
    sentence = width_left - widths[0] - GUTTER if with_id else width_left
    table = Table(box=None, pad_edge=False)
    if with_id:
        table.add_column("id", no_wrap=True, min_width=widths[0])
    table.add_column("attack", no_wrap=True, overflow="ellipsis", max_width=max(sentence, GUTTER))
    for title, width in zip(("expected denier", "actual", "twin"), widths[2:], strict=True):
        table.add_column(title, no_wrap=True, min_width=width)
    for result, cells in rows:
        style = "red" if result.gap else "dim" if result.skipped else None
        table.add_row(*map(_plain, cells if with_id else cells[1:]), style=style)
    console.print(table, soft_wrap=True)
    for result, _ in rows:
        if result.skipped:
            console.print(f"skipped {result.attack.id}: {_plain(result.skipped)}", style="dim", soft_wrap=True)


def _order(result: Result) -> tuple[bool, bool]:
    return (not result.gap, bool(result.skipped))


def _cells(result: Result) -> tuple[str, ...]:
    attack = result.attack
    if result.skipped:
        return (attack.id, attack.attack, attack.expected_denier, "skipped", "–")
    actual = "as expected" if result.refused else f"{result.status} {result.denier}"
    twin = "admitted" if result.twin_admitted else f"refused, {result.twin_status}"
    return (attack.id, attack.attack, attack.expected_denier, actual, twin)


def _gap_text(result: Result) -> str:
    if result.problem:
        return result.problem
    if result.refused:
        return f"its twin should be admitted: {result.twin_status} {result.twin_message}"
    if result.status < 400:
        return f"{result.status}: the attack succeeded; {result.attack.expected_denier} should have refused it"
    return f"refused by {result.denier}, not by {result.attack.expected_denier}: {result.message}"


def _plain(text: Any) -> str:
    from rich.markup import escape

    return escape(str(text))
