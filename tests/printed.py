"""Blocks of the README and the pages that show a command with its output: `$ tenancy …` and the lines below it."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
MARK = re.compile(r"<!-- printed: (?P<scenario>[a-z][a-z0-9-]*) -->")
COMMAND = re.compile(r"^\$ ", re.MULTILINE)
OMISSION = "…"
"""Mark in a page for output that it leaves out: at the end of a line, or as a line of its own."""

_SECONDS = re.compile(r"\d+\.\d+ s\b")
_DAY_AND_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z")


class Printed(NamedTuple):
    """One command of a block and what the page says that it prints."""

    page: str
    line: int
    command: str
    output: str
    scenario: str
    """The name in the comment `<!-- printed: NAME -->` above the block; empty where the checkout's files suffice."""
    earlier: tuple[str, ...] = ()
    """Commands of the block, without output, between the command with output before this one and this one."""

    @property
    def words(self) -> list[str]:
        return shlex.split(self.command)[1:]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.command}"


def printed() -> Iterator[Printed]:
    """Each command of each page that is shown with its output."""
    for page in PAGES:
        yield from printed_in(page.name, page.read_text("utf-8"))


def printed_in(page: str, text: str) -> Iterator[Printed]:
    """Each command with its output in the text of one page."""
    for block in fenced_blocks(text):
        mark = MARK.fullmatch(block.above)
        yield from _commands(page, block.line + 1, block.text.splitlines(), mark["scenario"] if mark else "")


class FencedBlock(NamedTuple):
    """A block of code of a page."""

    line: int
    """Of its first fence."""
    above: str
    """The line above it."""
    text: str


def fenced_blocks(text: str) -> Iterator[FencedBlock]:
    """Each block of code in the text of one page."""
    lines = text.splitlines()
    fences = [number for number, line in enumerate(lines) if line.strip().startswith("```")]
    for first, last in zip(fences[::2], fences[1::2], strict=True):
        line_above = lines[first - 1].strip() if first else ""
        yield FencedBlock(first + 1, line_above, textwrap.dedent("\n".join(lines[first + 1 : last])))


def _commands(page: str, start: int, block: list[str], scenario: str) -> Iterator[Printed]:
    starts = [number for number, line in enumerate(block) if line.startswith("$ ")]
    earlier: list[str] = []
    for begin, end in zip(starts, [*starts[1:], len(block)], strict=False):
        body = begin
        while block[body].endswith("\\"):
            body += 1
        command = " ".join(line.removesuffix("\\").strip() for line in block[begin : body + 1]).removeprefix("$ ")
        output = "\n".join(block[body + 1 : end])
        if output.replace(OMISSION, "").strip():
            yield Printed(page, start + begin, command, output, scenario, tuple(earlier))
            earlier = []
        else:
            earlier.append(command)


def page_block(page: str, start: str, number: int = 0) -> Printed:
    """The block of a page whose command starts with a text: of several the one with this number.

    Called with literals alone: by them `test_printed_output.py` knows which blocks are compared.
    """
    blocks = [block for block in printed() if block.page == page and block.command.startswith(start)]
    assert len(blocks) > number, f"{page} has {len(blocks)} blocks that start with {start!r}"
    return blocks[number]


def compare(block: Printed, output: str) -> None:
    """Fail with the first difference if the text of a block is not what its command printed."""
    assert matches(block.output, output), (
        f"{block}\nnot printed: {first_difference(block.output, output)}\nprinted:\n{output}"
    )


def matches(page_text: str, output: str) -> bool:
    """Whether a page's text is what a command printed, but for line breaks, blanks, seconds, times and omissions."""
    return re.fullmatch(_pattern(page_text), _plain(output), re.DOTALL) is not None


def first_difference(page_text: str, output: str) -> str:
    """The first part of a page's text, between two omissions, that the output does not have in its place."""
    remaining_output = _plain(output)
    for part in filter(None, map(str.strip, _plain(page_text).split(OMISSION))):
        _, match, after = remaining_output.partition(part)
        if not match:
            return part
        remaining_output = after
    return f"(the page ends before the output does: {remaining_output.strip()[:200]!r})"


def _plain(text: str) -> str:
    text = _DAY_AND_TIME.sub("TIME", _SECONDS.sub("SECONDS", text))
    return " ".join(text.split())


def _pattern(page_text: str) -> str:
    parts = [re.escape(part.strip()) for part in _plain(page_text).split(OMISSION)]
    return r"\s*" + r".*?".join(rf"{part}\s*" if part else "" for part in parts)
