"""What the pages show as a command's output is what the command prints; those that need a cluster run in the lab."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from tenancy.cli import main
from tenancy.rules.catalogue import RULES
from tests.conftest import in_days
from tests.printed import (
    COMMAND,
    PAGES,
    Printed,
    compare,
    fenced_blocks,
    first_difference,
    matches,
    page_block,
    printed,
    printed_in,
)

ROOT = Path(__file__).parents[3]


def replaced(file: str, text: str, replacement: str) -> None:
    path = Path(file)
    content = path.read_text("utf-8")
    assert content.count(text) == 1, f"{file} has {text!r} {content.count(text)} times"
    path.write_text(content.replace(text, replacement), "utf-8")


def two_mistakes() -> None:
    replaced("stacks/local/tenants/fraud.yaml", "fraud-engineers, role: developer", "fraud-engineers, role: developr")
    replaced("stacks/local/tenants/fraud.yaml", "a100: {guaranteed: 32", "a100: {guaranteed: 320")


def one_slice_too_many() -> None:
    replaced("stacks/bank/environment.yaml", "mig: {layout: {1g.5gb: 4,", "mig: {layout: {1g.5gb: 5,")


def committed_files() -> None:
    commit("the files of before")


def without_the_new_tenant() -> None:
    Path("stacks/local/tenants/scoring.yaml").rename("scoring.yaml")


def with_the_new_tenant() -> None:
    Path("scoring.yaml").rename("stacks/local/tenants/scoring.yaml")


def a_change_of_fraud() -> None:
    fraud = "stacks/bank/tenants/fraud.yaml"
    committed_files()
    replaced(fraud, "model-audit, role: viewer", "model-audit, role: owner")
    replaced(fraud, "access: write-once", "access: read-write")
    replaced(fraud, "guaranteed: 64, sharing", "guaranteed: 48, sharing")
    commit("a change of fraud")


def a_range_that_is_too_wide() -> None:
    replaced("stacks/bank/tenants/fraud.yaml", "cidr: 198.51.100.0/24", "cidr: 0.0.0.0/0")


def an_exception_of_an_unknown_rule() -> None:
    exception = {
        "rule": "quota-99",
        "resource": "ResourceQuota team-a/gpus",
        "reason": "counted by a controller of ours",
    }
    exception |= {"owner": "platform@bank.example", "until": in_days(100)}
    Path("exceptions.yaml").write_text(yaml.safe_dump({"exceptions": [exception]}), "utf-8")


def commit(message: str) -> None:
    author = {"NAME": "someone", "EMAIL": "someone@bank.example"}
    identity = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in author.items()}
    for arguments in (["init", "--quiet", "--initial-branch=main"], ["add", "."], ["commit", "--quiet", "-m", message]):
        subprocess.run(["git", *arguments], check=True, env={**os.environ, **identity}, capture_output=True)


SCENARIOS: dict[str, Callable[[], None]] = {
    "two-mistakes": two_mistakes,
    "one-slice-too-many": one_slice_too_many,
    "committed-files": committed_files,
    "guarantee-too-large": without_the_new_tenant,
    "new-tenant-merged": with_the_new_tenant,
    "change-of-fraud": a_change_of_fraud,
    "range-too-wide": a_range_that_is_too_wide,
    "unknown-rule": an_exception_of_an_unknown_rule,
}
"""What is changed in the copy of the stacks before the command runs."""

COMPLETED = {
    "tenancy new scoring local --owner … --gpu a100=40": (
        "new scoring local --owner scoring-leads --mail scoring@bank.example --department risk --cost-center CC-4420 "
        "--tier batch --group scoring-engineers=developer --gpu a100=40"
    ).split()
}
"""Commands that a page cuts off, whole."""

FROM_FILES = {"catalog", "chargeback", "check", "diff", "new", "render", "sample", "validate"}
REPORTS_FROM_FILES = {"access", "capacity", "costs", "failures", "pools"}
OF_A_CLUSTER = {"--live", "--prometheus"}


def runs_offline(block: Printed) -> bool:
    """Whether a block shows one command of tenancy that reads files alone."""
    words = block.words
    if not block.command.startswith("tenancy ") or "|" in words or OF_A_CLUSTER & {*words}:
        return False
    return words[0] in FROM_FILES or (words[0] == "report" and words[1] in REPORTS_FROM_FILES)


BLOCKS = list(printed())
OFFLINE: dict[str, list[Printed]] = {}
for _block in BLOCKS:
    if runs_offline(_block):
        OFFLINE.setdefault(_block.page, []).append(_block)


def test_there_are_outputs_to_compare() -> None:
    commands = {block.words[0] for blocks in OFFLINE.values() for block in blocks}
    assert commands >= {"validate", "report", "new", "chargeback", "check", "diff"}


@pytest.mark.parametrize("page", OFFLINE)
def test_a_page_shows_what_the_command_prints(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("stacks", "schemas", "tests/foreign"):
        shutil.copytree(ROOT / name, tmp_path / name)
    shutil.copy(ROOT / "Pulumi.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    for block in OFFLINE[page]:
        if block.scenario:
            SCENARIOS[block.scenario]()
        result = CliRunner().invoke(main, COMPLETED.get(block.command, block.words))
        compare(block, result.output)


def compared_in_other_tests() -> Iterator[Printed]:
    """Blocks that other tests compare: those of each call of `page_block` in a file that compares."""
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text("utf-8")
        calls = ast.walk(ast.parse(text)) if "page_block(" in text and path != Path(__file__) else ()
        for call in calls:
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == page_block.__name__:
                yield page_block(*map(ast.literal_eval, call.args))


def test_each_output_on_a_page_is_compared_with_what_is_printed() -> None:
    """An output that no test can compare, such as a bill of yesterday, is told in prose or a table."""
    compared = {str(block) for block in compared_in_other_tests()}
    assert [str(block) for block in BLOCKS if str(block) not in compared and not runs_offline(block)] == []


OUTPUT = re.compile(
    r"^\s*(tenancy: |[a-z][a-z0-9.-]*: (preview|update|done) in |  \S+ +[~±+-] [A-Z]|note: )", re.MULTILINE
)
"""Lines that only the commands of this project print."""


def test_each_output_on_a_page_stands_below_its_command() -> None:
    """Without the line of its command no test finds an output to compare."""
    commandless = [
        f"{page.name}:{block.line}"
        for page in PAGES
        for block in fenced_blocks(page.read_text("utf-8"))
        if OUTPUT.search(block.text) and not COMMAND.search(block.text)
    ]
    assert commandless == []


def test_an_output_without_its_command_is_told() -> None:
    page = (
        "```\nlocal: preview in 1.5 s: fraud ~1\n```\n```\n$ tenancy up local\nlocal: preview in 1.5 s: fraud ~1\n```\n"
    )
    first, second = fenced_blocks(page)
    assert (first.line, second.line) == (1, 4)
    assert OUTPUT.search(first.text)
    assert not COMMAND.search(first.text)
    assert COMMAND.search(second.text)


def test_an_output_that_is_not_printed_any_more_is_told() -> None:
    page = "# A page\n\n```\n$ tenancy x\none\n…\nthree and\n  more (1.5 s)\n```\n"
    [block] = printed_in("page.md", page)
    assert block == Printed("page.md", 4, "tenancy x", "one\n…\nthree and\n  more (1.5 s)", "")
    assert matches(block.output, "one\ntwo\nthree and more (22.7 s)\n")
    for output in (
        "one\ntwo\nthree and more",
        "zero\none\nthree and more (1.5 s)",
        "one\nthree and more (1.5 s)\nfour",
    ):
        assert not matches(block.output, output)
    assert first_difference(block.output, "one\ntwo\nthree and less (1.5 s)") == "three and more (SECONDS)"


FINDING = re.compile(r"^\s*(?P<id>[a-z]+-\d+): .*?; why: (?P<why>.*); fix: (?P<fix>.*)$", re.MULTILINE)


@pytest.mark.parametrize(
    "page", [page for page in PAGES if FINDING.search(page.read_text("utf-8"))], ids=lambda p: p.name
)
def test_a_finding_on_a_page_has_its_rules_reason_and_correction(page: Path) -> None:
    for finding in FINDING.finditer(page.read_text("utf-8")):
        rule = RULES[finding["id"]]
        assert (finding["why"], finding["fix"]) == (rule.why, rule.fix)
