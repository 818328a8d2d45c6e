"""Write the generated reference pages: docs/commands.md below its marker, and docs/api.md.

    python -m scripts.reference

The commands come from click, the API from `tenancy.__all__`. A test compares the committed pages with the
generated ones.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click

from scripts import api_page
from tenancy.cli import main

DOCS = Path(__file__).parents[1] / "docs"
MARKER = "<!-- Generated below this line by python -m scripts.reference; the lines above are written by hand. -->\n"

_DEFAULT = re.compile(r"\s*\bDefault: (?P<value>.+)\.$")


def commands_page(page_text: str) -> str:
    """The page of the commands: its hand-written start, up to the marker, and the reference of every command."""
    start, marker, _ = page_text.partition(MARKER)
    if not marker:
        raise ValueError(f"given a page without a marker; rule: generated text is below {MARKER.strip()}")
    return start + MARKER + "\n" + "\n".join(_reference())


def _reference() -> Iterator[str]:
    yield "## Reference"
    yield ""
    yield "Exit codes, where a command has none of its own: 0 success, 1 a finding or a failed step, 2 bad input."
    for path, command, context in _commands(main, click.Context(main, info_name="tenancy")):
        yield from ("", f"### {path}", "")
        yield from _command(command, context)


def _commands(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command, click.Context]]:
    if context.parent:
        yield context.command_path.partition(" ")[2], command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            if (subcommand := command.get_command(context, name)) and not subcommand.hidden:
                yield from _commands(subcommand, click.Context(subcommand, info_name=name, parent=context))


def _command(command: click.Command, context: click.Context) -> Iterator[str]:
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield from ("```", usage, "```", "")
    paragraphs = [" ".join(part.split()) for part in inspect.cleandoc(command.help or "").split("\n\n")]
    yield "\n\n".join(paragraphs)
    if rows := [_row(option) for option in command.params if isinstance(option, click.Option)]:
        yield from ("", "| option | default | meaning |", "|---|---|---|", *rows)
    if command.epilog:
        _, _, example = command.epilog.partition("Example:\n")
        yield from ("", "```", inspect.cleandoc("\n" + example), "```")


def _row(option: click.Option) -> str:
    names = ", ".join(option.opts)
    if not (option.is_flag or option.count):
        names += f" {_value(option)}"
    text = option.help or ""
    if default_match := _DEFAULT.search(text):
        text, default = text[: default_match.start()], default_match["value"]
    elif option.required:
        default = "required"
    elif option.is_flag:
        default = "off"
    else:
        default = str(option.default) if option.show_default and option.default is not None else "–"
    return f"| {_cell(f'`{names}`')} | {_cell(default)} | {_cell(text + _range(option))} |"


def _value(option: click.Option) -> str:
    if isinstance(option.type, click.Choice):
        return "|".join(str(choice) for choice in option.type.choices)
    return option.metavar or option.type.name.upper()


def _range(option: click.Option) -> str:
    kind = option.type
    if not isinstance(kind, click.IntRange | click.FloatRange):
        return ""
    if kind.max is None:
        return f" At least {kind.min}."
    return f" {kind.min} to {kind.max}."


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")


def write() -> None:
    """Write both pages."""
    commands = DOCS / "commands.md"
    commands.write_text(commands_page(commands.read_text("utf-8")), "utf-8")
    (DOCS / "api.md").write_text(api_page.page(), "utf-8")


if __name__ == "__main__":
    write()
