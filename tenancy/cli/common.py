"""What the commands share: reading an environment, and how they end."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import sys
from collections.abc import Callable, Generator, Iterable
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from tenancy.rules.catalogue import Violation
from tenancy.spec import Loaded, Problem, SpecError, load, on_lab

FAILED = 1
BAD_INPUT = 2

P = ParamSpec("P")
R = TypeVar("R")

environment_argument = click.argument("environment", metavar="ENV")
lab_option = click.option("--lab", is_flag=True, help="On this machine's lab, whatever cluster ENV is for.")
format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="How to print the answer."
)


def example(text: str) -> str:
    """Epilog of a command: an example that can be pasted."""
    return "\b\nExample:\n  " + text


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End with one message on stderr."""
    click.echo(f"tenancy: {message}", err=True)
    sys.exit(code)


@contextlib.contextmanager
def writing() -> Generator[None]:
    """What is written to --out within, or a message: a place that cannot be written is bad input."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        given = f"--out {error.filename}"
        fail(f"given {given}; rule: a path that can be written ({error.strerror}); change: another path", BAD_INPUT)


def load_or_exit(environment: str, form: str = "text", lab: bool = False) -> Loaded:
    """The environment's spec; with a mistake in it, every problem is printed and the exit code is 2.

    With `lab` it is the environment as the lab plays it.
    """
    # Nothing that a command reads or plans is garbage before it ends: walking it all again and again would take
    # as long as making it.
    gc.set_threshold(500_000, 50, 1000)
    try:
        loaded = load(environment)
        return on_lab(loaded) if lab else loaded
    except SpecError as error:
        if form == "json":
            print_json({"problems": [problem.as_dict() for problem in error.problems]})
        else:
            for problem in error.problems:
                click.echo(str(problem), err=True)
            count = len(error.problems)
            click.echo(f"tenancy: {count} problem{'s' * (count > 1)}; nothing was changed", err=True)
        sys.exit(BAD_INPUT)


def tell(notes: Iterable[Problem]) -> None:
    """What is no mistake and should be known."""
    for note in notes:
        click.echo(f"note: {note}", err=True)


def refuses_bad_input(command: Callable[P, R]) -> Callable[P, R]:
    """A broken rule in a command's own arguments ends it with exit code 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except Violation as violation:
            fail(str(violation), BAD_INPUT)

    return run


def tenant_or_exit(loaded: Loaded, name: str) -> Any:
    """The tenant of that name, or exit code 2 with the names that there are."""
    for tenant in loaded.tenants:
        if tenant.tenant == name:
            return tenant
    known = ", ".join(t.tenant for t in loaded.tenants)
    fail(f"given tenant {name!r}; rule: a tenant of {loaded.environment.environment}; change: use one of {known}", 2)
