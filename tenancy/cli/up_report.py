"""Output of `tenancy up`: progress and changes as text, or one JSON record for each stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from tenancy.cli.common import print_json

if TYPE_CHECKING:
    from tenancy.deploy.changes import Outcome

MAX_NEW_OBJECTS = 12
MAX_GRANT_ROWS = 60
"""Max rows of the table of grants."""


class Report:
    """Prints progress as it comes; with `json` to stderr, and at the end one record for each stack to stdout.

    A record has `stack`, `causes` (why it ran, empty if it did not), `result` (`unchanged`, `previewed`, `updated`,
    `failed`, `not run`), `seconds`, `error` (null unless it failed) and `changes`, one entry for each object.
    """

    def __init__(self, form: str) -> None:
        self._json = form == "json"
        self._records: dict[str, dict[str, Any]] = {}

    def say(self, text: str) -> None:
        """Print a line of progress."""
        click.echo(text, err=self._json)

    def show(self, stack: str, outcome: Outcome) -> None:
        """Print the changes of a stack, or note them for its record."""
        if self._json:
            self._record(stack)["changes"] += [asdict(change) for change in outcome.changes]
        else:
            show(outcome)

    def plan(self, stack: str, causes: list[str]) -> None:
        """Note why a stack will run; without causes it is unchanged."""
        self._record(stack).update(causes=causes, result="not run" if causes else "unchanged")

    def ended(self, stack: str, result: str, seconds: float, error: str | None = None) -> None:
        """Note how a stack's run ended."""
        self._record(stack).update(result=result, seconds=round(seconds, 1), error=error)

    def end(self) -> None:
        """Print the records."""
        if self._json:
            print_json(list(self._records.values()))

    def _record(self, stack: str) -> dict[str, Any]:
        empty: dict[str, Any] = {"stack": stack, "causes": [], "result": "not run", "seconds": 0.0, "error": None}
        return self._records.setdefault(stack, {**empty, "changes": []})


class StackReport(Report):
    """The report of a stack that runs beside others, kept until the stack has ended: its lines stay together."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._pending: list[Callable[[], None]] = []

    def say(self, text: str) -> None:
        """Keep a line of progress."""
        self._pending.append(partial(self._report.say, text))

    def show(self, stack: str, outcome: Outcome) -> None:
        """Keep the changes of a stack."""
        self._pending.append(partial(self._report.show, stack, outcome))

    def flush(self) -> None:
        """Print what was kept; only the main thread calls it."""
        for print_line in self._pending:
            print_line()
        self._pending.clear()


def show(outcome: Outcome) -> None:
    """Print the objects that changed, by tenant; of many new objects only the count per kind is printed."""
    for tenant, changes in outcome.by_tenant():
        printed_changes = [change for change in changes if change.operation != "create"]
        new_objects = [change for change in changes if change.operation == "create"]
        for change in printed_changes + (new_objects if len(new_objects) <= MAX_NEW_OBJECTS else []):
            click.echo(f"  {tenant:<14} {change}")
        if len(new_objects) > MAX_NEW_OBJECTS:
            kinds: dict[str, int] = {}
            for change in new_objects:
                kind = change.object.partition(" ")[0]
                kinds[kind] = kinds.get(kind, 0) + 1
            text = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            click.echo(f"  {tenant:<14} + {text}")
    if outcome.grants:
        from tenancy.cli.tables import print_tables
        from tenancy.output.tables import Table

        rows, header = sorted(outcome.grants), ("tenant", "namespace", "at", "before", "after")
        remarks = (
            [f"and {len(rows) - MAX_GRANT_ROWS} more: see `tenancy who-can`"] if len(rows) > MAX_GRANT_ROWS else []
        )
        print_tables([Table("Grants on AWS", header, rows[:MAX_GRANT_ROWS], remarks)])
