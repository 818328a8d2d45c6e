"""Every command line that the README and the pages show is one that the program takes; without a cluster, they run."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
import yaml
from click.testing import CliRunner

from scripts.reference import MARKER
from tenancy.cli import main
from tests.conftest import nonempty

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {"claims.md", "exhaustive.md", "rules.md", "spec.md", "side-by-side.md"}
OPERATORS = {"|", "&&", "||", ";", "&", ">", ">>", "2>", "<"}

WORDS = {"ENV": "local", "POOL": "train-a100", "DIR": "out", "PAGE": "page.html", "FILE": "-", "COMPONENT": "kueue"}
"""Placeholders of lines, each with a real value."""
OFFLINE = "validate render catalog sample rules schema check can who-can chargeback report new".split()
LIVE = {("report", "adoption"), ("report", "drift")}
NOT_HERE = (
    "--exceptions exceptions.yaml",
    "october/",
    "validate dev",
    "run.json",
    "build/",
    "chart.yaml",
    "check deploy",
    "path/to",
    "rendered/",
    "IMAGE",
    "$",
    "{{",
)
"""Marks of a line that reads what only a reader has."""


class Line(NamedTuple):
    where: str
    text: str
    is_whole: bool
    """Shown to be typed as it is; otherwise a mention, which may leave arguments out."""


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Lines inside of code blocks, those that go on put together."""
    inside, command_text, began = False, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith("```"):
            inside = not inside
            continue
        if not inside:
            continue
        command_text, began = (f"{command_text} {line.strip()}", began) if command_text else (line.strip(), number)
        if command_text.endswith("\\"):
            command_text = command_text[:-1].rstrip()
            continue
        yield began, command_text
        command_text = ""


def lines() -> Iterator[Line]:
    for page in PAGES:
        if page.name in GENERATED:
            continue
        text = page.read_text("utf-8").partition(MARKER)[0]
        for number, line in _blocks(text):
            for command in _commands(line):
                yield Line(f"{page.name}:{number}", command, is_whole=True)
        for number, line in enumerate(text.splitlines(), 1):
            # A row of a table of commands is to be run; elsewhere a name may stand for the command.
            row = page.name in {"README.md", "commands.md"} and line.startswith("| `tenancy")
            first_cell, other_cells = line.split(" | ", 1) if row else ("", line)
            for part, is_whole in ((first_cell, True), (other_cells, False)):
                for code in re.findall(r"`(tenancy [^`]+)`", part):
                    yield Line(f"{page.name}:{number}", code, is_whole)


def _commands(line: str) -> Iterator[str]:
    """The calls of tenancy in a line of shell, without the words that explain them."""
    line = re.split(r"\s{2,}(?=\S)", line.removeprefix("$ ").strip())[0]
    line = re.sub(r"\s#\s.*", "", line)
    for part in re.split(r"\s(?:\||&&|\|\||;)\s", line):
        if part.startswith("tenancy "):
            yield part


def words_of(line: Line) -> list[str] | None:
    """Its arguments, with a value where a word stands for one; None where it is cut off in the middle."""
    command_text = re.sub(r"\s(?:[0-9]?>|<).*", "", line.text)
    try:
        words = shlex.split(command_text)[1:]
    except ValueError:
        return None
    stated_words = [word for i, word in enumerate(words) if word not in {"…", "..."} or words[i - 1].startswith("--")]
    return [_filled(word) for word in stated_words if not (word.startswith("[") and word.endswith("]"))]


def _filled(word: str) -> str:
    word = WORDS.get(word, word)
    return re.sub(r"…$", "", word).replace("PATH", "tests") or "x"


def parsed(words: list[str]) -> click.Context:
    """As the program would take them, without running anything."""
    command: click.Command = main
    context = command.make_context("tenancy", list(words))
    while isinstance(command, click.Group):
        _, subcommand, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert subcommand is not None
        command = subcommand
        context = command.make_context("tenancy", list(words), parent=context)
    return context


LINES = list(lines())
IDS = [f"{line.where} {line.text[:60]}" for line in LINES]


def test_there_are_lines_to_look_at() -> None:
    assert sum(line.is_whole for line in LINES) > 60
    assert {line.where.partition(":")[0] for line in LINES} >= {"README.md", "onboarding.md", "lab.md"}


@pytest.mark.parametrize("line", LINES, ids=IDS)
def test_every_command_line_is_one_that_the_program_takes(line: Line) -> None:
    words = words_of(line)
    if words is None or not words or words[0] == "x":
        pytest.fail(f"{line.where}: cannot be read as a command line: {line.text}")
    # A mention may leave out arguments, and the value of its last option; a line that is cut off too.
    left_out = (click.MissingParameter, click.BadOptionUsage)
    try:
        parsed(words)
    except click.UsageError as error:
        if isinstance(error, left_out) and (not line.is_whole or "…" in line.text):
            return
        pytest.fail(f"{line.where}: {line.text}: {error.format_message()}")


@pytest.mark.parametrize("words", ["report dashboards local", "chargeback local", "queues local --brif", "nowhere"])
def test_a_line_that_the_program_does_not_take_is_found(words: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(words.split())


def test_make_up_ends_with_how_the_shell_finds_the_program() -> None:
    # Of a make that runs the tests nothing is inherited: as its child this one would say which folder it leaves.
    alone = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    command = ["make", "-n", "up"]
    planned = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=alone).stdout
    last = planned.splitlines()[-1]
    completed = subprocess.run(
        ["bash", "-c", last], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    assert completed.stdout.splitlines()[-1] == "  . .lab/env"
    assert "`. .lab/env`" in (ROOT / "README.md").read_text("utf-8").partition("## The same in Python")[0]


# Those that need nothing but the files


def runs_here(line: Line) -> bool:
    words = words_of(line)
    if not line.is_whole or not words or words[0] not in OFFLINE or "…" in line.text:
        return False
    if tuple(words[:2]) in LIVE or "--live" in words or "--prometheus" in words or "-" in words:
        return False
    return not any(mark in line.text for mark in NOT_HERE) and "BUCKET" not in line.text and "TENANT" not in line.text


LINES_BY_PAGE: dict[str, list[Line]] = {}
for _line in LINES:
    if runs_here(_line):
        LINES_BY_PAGE.setdefault(_line.where.partition(":")[0], []).append(_line)


def test_there_are_lines_to_run() -> None:
    lines = [line for page_lines in LINES_BY_PAGE.values() for line in page_lines]
    assert len(lines) > 25
    assert {words[0] for line in lines if (words := words_of(line))} >= {"validate", "render", "report", "can", "new"}


@pytest.mark.parametrize("page", LINES_BY_PAGE)
def test_the_lines_of_a_page_that_need_no_cluster_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stacks", "schemas", "tests/foreign"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for line in nonempty(LINES_BY_PAGE[page]):
        result = CliRunner().invoke(main, words_of(line))
        assert result.exception is None or isinstance(result.exception, SystemExit), f"{line.where}: {result.exception}"
        # A finding is an answer too; what cannot be read is none.
        assert result.exit_code in {0, 1}, f"{line.where}: {line.text}: {result.output[-500:]}"


def test_the_pages_count_the_objects_of_an_update_as_the_files_make_them() -> None:
    from tenancy import planning
    from tenancy.spec.fields.tenant import Tenant
    from tenancy.spec.loader import load

    onboarding = (ROOT / "docs" / "onboarding.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", onboarding, re.DOTALL)
    scoring = Tenant.model_validate(yaml.safe_load(next(block for block in blocks if "tenant: scoring" in block)))
    local = load(ROOT / "stacks" / "local")
    plan = planning.plan(local.environment, [*local.tenants, scoring])
    counts = {tenant.name: len([*tenant.objects()]) for tenant in plan.tenants}
    assert f"local: {len(counts)} tenants\n" in onboarding
    assert f"scoring +{counts['scoring']}; " in onboarding
    per_tenant = ", ".join(f"{tenant} +{counts[tenant]}" for tenant in ("fraud", "performance", "research"))
    platform = sum(1 for _ in plan.platform.objects())
    assert f"platform +{platform}, {per_tenant}; 0 unchanged" in (ROOT / "docs" / "quickstart.md").read_text("utf-8")
