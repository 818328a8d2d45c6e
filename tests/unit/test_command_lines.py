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

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
GENERATED = {"claims.md", "rules.md", "spec.md", "side-by-side.md"}
OPERATORS = {"|", "&&", "||", ";", "&", ">", ">>", "2>", "<"}

WORDS = {"ENV": "local", "POOL": "train-a100", "DIR": "out", "PAGE": "page.html", "FILE": "-", "COMPONENT": "kueue"}
"""What stands for a value in a line, and a value that is one."""
OFFLINE = "validate render catalog sample rules schema check can who-can chargeback report new".split()
LIVE = {("report", "adoption"), ("report", "drift")}
NOT_HERE = (
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
    whole: bool
    """Shown to be typed as it is; otherwise a mention, which may leave arguments out."""


def _blocks(text: str) -> Iterator[tuple[int, str]]:
    """Lines inside of code blocks, those that go on put together."""
    inside, held, began = False, "", 0
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip().startswith("```"):
            inside = not inside
            continue
        if not inside:
            continue
        held, began = (f"{held} {line.strip()}", began) if held else (line.strip(), number)
        if held.endswith("\\"):
            held = held[:-1].rstrip()
            continue
        yield began, held
        held = ""


def lines() -> Iterator[Line]:
    for page in PAGES:
        if page.name in GENERATED:
            continue
        text = page.read_text("utf-8").partition(MARKER)[0]
        for number, line in _blocks(text):
            for command in _commands(line):
                yield Line(f"{page.name}:{number}", command, whole=True)
        for number, line in enumerate(text.splitlines(), 1):
            # A row of a table of commands is to be run; elsewhere a name may stand for the command.
            row = page.name in {"README.md", "commands.md"} and line.startswith("| `tenancy")
            shown, rest = line.split(" | ", 1) if row else ("", line)
            for part, whole in ((shown, True), (rest, False)):
                for code in re.findall(r"`(tenancy [^`]+)`", part):
                    yield Line(f"{page.name}:{number}", code, whole)


def _commands(line: str) -> Iterator[str]:
    """The calls of tenancy in a line of shell, without the words that explain them."""
    line = re.split(r"\s{2,}(?=\S)", line.removeprefix("$ ").strip())[0]
    line = re.sub(r"\s#\s.*", "", line)
    for part in re.split(r"\s(?:\||&&|\|\||;)\s", line):
        if part.startswith("tenancy "):
            yield part


def words_of(line: Line) -> list[str] | None:
    """Its arguments, with a value where a word stands for one; None where it is cut off in the middle."""
    whole = re.sub(r"\s(?:[0-9]?>|<).*", "", line.text)
    try:
        found = shlex.split(whole)[1:]
    except ValueError:
        return None
    kept = [word for i, word in enumerate(found) if word not in {"…", "..."} or found[i - 1].startswith("--")]
    return [_filled(word) for word in kept if not (word.startswith("[") and word.endswith("]"))]


def _filled(word: str) -> str:
    word = WORDS.get(word, word)
    return re.sub(r"…$", "", word).replace("PATH", "tests") or "x"


def parsed(words: list[str]) -> click.Context:
    """As the program would take them, without running anything."""
    command: click.Command = main
    context = command.make_context("tenancy", list(words))
    while isinstance(command, click.Group):
        _, below, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert below is not None
        command = below
        context = command.make_context("tenancy", list(words), parent=context)
    return context


LINES = list(lines())
IDS = [f"{line.where} {line.text[:60]}" for line in LINES]


def test_there_are_lines_to_look_at() -> None:
    assert sum(line.whole for line in LINES) > 60
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
        if isinstance(error, left_out) and (not line.whole or "…" in line.text):
            return
        pytest.fail(f"{line.where}: {line.text}: {error.format_message()}")


@pytest.mark.parametrize("words", ["report dashboards local", "chargeback local", "queues local --brif", "nowhere"])
def test_a_line_that_the_program_does_not_take_is_found(words: str) -> None:
    with pytest.raises(click.UsageError):
        parsed(words.split())


def test_make_up_ends_with_how_the_shell_finds_the_program() -> None:
    # Of a make that runs the tests nothing is inherited: as its child this one would say which folder it leaves.
    alone = {key: value for key, value in os.environ.items() if not key.startswith("MAKE") and key != "MFLAGS"}
    asked = ["make", "-n", "up"]
    planned = subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=True, env=alone).stdout
    last = planned.splitlines()[-1]
    said = subprocess.run(
        ["bash", "-c", last], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
    )
    assert said.stdout.splitlines()[-1] == "  . .lab/env"
    assert "`. .lab/env`" in (ROOT / "README.md").read_text("utf-8").partition("## The same in Python")[0]


# Those that need nothing but the files


def runs_here(line: Line) -> bool:
    words = words_of(line)
    if not line.whole or not words or words[0] not in OFFLINE or "…" in line.text:
        return False
    if tuple(words[:2]) in LIVE or "--live" in words or "--prometheus" in words or "-" in words:
        return False
    return not any(mark in line.text for mark in NOT_HERE) and "BUCKET" not in line.text and "TENANT" not in line.text


HERE: dict[str, list[Line]] = {}
for _line in LINES:
    if runs_here(_line):
        HERE.setdefault(_line.where.partition(":")[0], []).append(_line)


def test_there_are_lines_to_run() -> None:
    found = [line for of in HERE.values() for line in of]
    assert len(found) > 25
    assert {words[0] for line in found if (words := words_of(line))} >= {"validate", "render", "report", "can", "new"}


@pytest.mark.parametrize("page", HERE)
def test_the_lines_of_a_page_that_need_no_cluster_run_one_after_the_other(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stacks", "schemas", "tests/foreign"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for line in HERE[page]:
        result = CliRunner().invoke(main, words_of(line))
        assert result.exception is None or isinstance(result.exception, SystemExit), f"{line.where}: {result.exception}"
        # A finding is an answer too; what cannot be read is none.
        assert result.exit_code in {0, 1}, f"{line.where}: {line.text}: {result.output[-500:]}"


def test_the_pages_count_the_objects_of_an_update_as_the_files_make_them() -> None:
    from tenancy.planning import make_plan
    from tenancy.validation import Tenant, load

    onboarding = (ROOT / "docs" / "onboarding.md").read_text("utf-8")
    blocks = re.findall(r"```yaml\n(.*?)```", onboarding, re.DOTALL)
    scoring = Tenant.model_validate(yaml.safe_load(next(block for block in blocks if "tenant: scoring" in block)))
    local = load(ROOT / "stacks" / "local")
    plan = make_plan(local.environment, [*local.tenants, scoring])
    counts = {tenant.name: len([*tenant.objects()]) for tenant in plan.tenants}
    assert f"local: {len(counts)} tenants\n" in onboarding
    assert f"scoring +{counts['scoring']}; " in onboarding
    per_tenant = ", ".join(f"{tenant} +{counts[tenant]}" for tenant in ("fraud", "performance", "research"))
    platform = sum(1 for _ in plan.platform.objects())
    assert f"platform +{platform}, {per_tenant}; 0 unchanged" in (ROOT / "docs" / "quickstart.md").read_text("utf-8")
