"""Functions that commands share: reading an environment, options, exit codes."""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import functools
import gc
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click

from tenancy.catalog.text import escape_output, printed_json
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import STACKS_FOLDER, Loaded, load, on_lab
from tenancy.spec.reading.problems import Problem, SpecError

FAILED = 1
BAD_INPUT = 2
EPOCH_VARIABLE = "SOURCE_DATE_EPOCH"
"""Environment variable with the time to record, in seconds since 1970 UTC, for outputs that can be made again."""

P = ParamSpec("P")
R = TypeVar("R")

environment_argument = click.argument("environment", metavar="ENV")
lab_option = click.option("--lab", is_flag=True, help="Use the lab on this machine instead of the cluster of ENV.")
format_option = click.option(
    "--format", "form", type=click.Choice(["text", "json"]), default="text", help="Format of the output. Default: text."
)


class DefaultGroup(click.Group):
    """A group that takes its first word for an argument of the command `default` unless it names another command:
    with `page`, `tenancy report ENV` is `tenancy report page ENV`."""

    def __init__(self, *args: Any, default: str, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """The words, with the default command before them if they begin with no command."""
        known_words = {*self.commands, *ctx.help_option_names}
        return super().parse_args(ctx, [self.default, *args] if args and args[0] not in known_words else args)


def example(text: str) -> str:
    """Epilog of a command: an example that can be pasted."""
    return "\b\nExample:\n  " + text


def print_json(value: Any) -> None:
    """Print plain values as indented JSON."""
    click.echo(printed_json(json.dumps(value, indent=2)))


def say(text: str, *, err: bool = False) -> None:
    """Print text that may hold what others wrote, such as names in manifests."""
    click.echo(escape_output(text), err=err)


def fail(message: str, code: int = FAILED) -> NoReturn:
    """End with one message on stderr."""
    say(f"tenancy: {message}", err=True)
    sys.exit(code)


def recorded_time() -> dt.datetime:
    """The time that an output records, UTC: SOURCE_DATE_EPOCH if it is set, so that equal facts give equal bytes."""
    text = os.environ.get(EPOCH_VARIABLE)
    if text is None:
        return dt.datetime.now(dt.UTC).replace(microsecond=0)
    if not text.isascii() or not text.isdigit():
        fail(f"given {EPOCH_VARIABLE}={text}; rule: whole seconds since 1970; change: write such a number", BAD_INPUT)
    return dt.datetime.fromtimestamp(int(text), dt.UTC)


@contextlib.contextmanager
def report_write_errors() -> Generator[None]:
    """Turn a failed write to --out into a message and the exit code of bad input."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            raise
        input_text = f"--out {error.filename}"
        fail(
            f"given {input_text}; rule: a path that can be written ({error.strerror}); change: another path", BAD_INPUT
        )


def load_or_exit(
    environment: str, form: str = "text", lab: bool = False, read: Callable[[str], Loaded] = load
) -> Loaded:
    """The environment's spec; with a mistake in it, every problem is printed and the exit code is 2.

    With `lab` it is the environment as the lab runs it.
    """
    # What a command reads and plans stays in use until the command ends, so frequent collections find no garbage and
    # would take as long as the planning itself.
    gc.set_threshold(500_000, 50, 1000)
    # The last collection would find none either.
    atexit.register(gc.freeze)
    try:
        loaded = read(environment)
        return on_lab(loaded) if lab else loaded
    except SpecError as error:
        if form == "json":
            print_json({"problems": [problem.as_dict() for problem in error.problems]})
        else:
            for problem in error.problems:
                say(str(problem), err=True)
            count = len(error.problems)
            click.echo(f"tenancy: {count} problem{'s' * (count > 1)}; nothing was changed", err=True)
        sys.exit(BAD_INPUT)


def print_notes(notes: Iterable[Problem]) -> None:
    """Print notes: facts that are not mistakes, on stderr."""
    for note in notes:
        say(f"note: {note}", err=True)


def refuses_bad_input(command: Callable[P, R]) -> Callable[P, R]:
    """Decorator: a rule that the command's own arguments break ends the command with exit code 2."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except Violation as violation:
            fail(str(violation), BAD_INPUT)

    return run


def tenant_or_exit(loaded: Loaded, name: str, *, allow_removed: bool = True) -> Any:
    """The tenant of that name; without one, exit code 2 and a message with the known names.

    Without `removed`, a tenant whose file says `offboarding: remove` is refused too: nothing of it is left.
    """
    for tenant in loaded.tenants:
        if tenant.tenant == name:
            if tenant.offboarding == "remove" and not allow_removed:
                input_text = f"tenant {name}, whose file says offboarding: remove"
                change = "name another tenant; to restore this one, drop `offboarding` and run `tenancy up`"
                fail(f"given {input_text}; rule: a tenant that has namespaces; change: {change}", BAD_INPUT)
            return tenant
    known_names = ", ".join(loaded_tenant.tenant for loaded_tenant in loaded.tenants)
    fail(
        f"given tenant {name!r}; rule: a tenant of {loaded.environment.environment}; change: use one of {known_names}",
        2,
    )


def environment_or_default(environment: str | None) -> str:
    """The environment that was named, or the only one of the project."""
    if environment is not None:
        return environment
    for folder in (Path.cwd(), *Path.cwd().parents):
        if environment_files := sorted((folder / STACKS_FOLDER).glob("*/environment.yaml")):
            if len(environment_files) == 1:
                return str(environment_files[0].parent)
            known_names = " or ".join(path.parent.name for path in environment_files)
            fail(
                f"given no ENV; rule: there are {len(environment_files)} environments; change: name {known_names}",
                BAD_INPUT,
            )
    return ""


optional_environment = click.argument("environment", metavar="[ENV]", required=False)
