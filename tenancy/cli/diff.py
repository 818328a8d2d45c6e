"""`tenancy diff`: what a change of the files means to tenants."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import click

from tenancy.catalog.text import escape_output, printed_json
from tenancy.cli.common import BAD_INPUT, FAILED, example, fail, refuses_bad_input

_SUFFIXES = {"markdown": "md", "json": "json", "stacks": "stacks"}
_ALARMS = ("lost-guarantee", "wider-access", "new-exception", "broken-rule", "disruption", "higher-cost")


@click.command("diff", epilog=example("tenancy diff main..HEAD -- stacks/bank --format markdown"))
@click.argument("words", nargs=-1, metavar="[FROM..TO] ENV | FOLDER FOLDER")
@click.option(
    "--preview",
    "previews",
    multiple=True,
    metavar="FILE",
    help="Output of `pulumi preview --json` for one stack, to compare instead of spec files; - for standard input; "
    "repeatable.",
)
@click.option("--from", "start", metavar="REV", help="Git revision before the change. Default: HEAD.")
@click.option("--to", "end", metavar="REV", help="Git revision after the change, or worktree. Default: worktree.")
@click.option(
    "--fail-on",
    multiple=True,
    type=click.Choice([*_ALARMS, "any", "nothing"]),
    default=["broken-rule"],
    help="Exit with code 1 if the change has an effect of this kind; repeatable. Default: broken-rule.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "markdown", "json", "stacks"]),
    default="text",
    help="Format of the output; stacks lists only the stacks to run, one a line: stage, environment, name, operation. "
    "Default: text.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the result into this folder too, as ENV.md, ENV.json and ENV.stacks.",
)
@refuses_bad_input
def command(
    words: tuple[str, ...],
    previews: tuple[str, ...],
    start: str | None,
    end: str | None,
    fail_on: tuple[str, ...],
    form: str,
    out: Path | None,
) -> None:
    """Show what each tenant gains or loses between two versions of ENV's spec files, or by the previews of a program.

    The result lists GPUs, network reach, rights, dollars, rules and exceptions, work that is replaced or drained, and
    the stacks to run. FROM..TO are two git revisions; FROM...TO compares TO with the merge base of both. Two folders
    are compared as they are. The working tree is not changed, and no cluster is needed.

    Exit codes: 0 success, 1 the change has an effect that --fail-on names, 2 bad input.
    """
    from tenancy.diff import outputs
    from tenancy.diff.alarms import alarm
    from tenancy.diff.changes import diff

    if previews:
        name, before, after, changes = _compare_previews(words, previews, start, end)
    else:
        name, before, after = _spec_states(words, start, end)
        if before.loaded is None and after.loaded is None and not (before.problems or after.problems):
            input_text = f"given {name}, which is neither in {before.name} nor in {after.name}"
            fail(f"{input_text}; rule: an environment; change: name its folder", BAD_INPUT)
        changes = diff(before, after)
    data = outputs.as_json(name, before, after, changes)
    forms: dict[str, Callable[[], str]] = {
        "text": lambda: escape_output(outputs.text(name, before, after, changes)) + "\n",
        "markdown": lambda: outputs.markdown(name, before, after, changes) + "\n",
        "json": lambda: printed_json(json.dumps(data, indent=2)) + "\n",
        "stacks": lambda: escape_output(outputs.stack_lines(name, changes)),
    }
    click.echo(forms[form](), nl=False)
    if out:
        out.mkdir(parents=True, exist_ok=True)
        for kind, suffix in _SUFFIXES.items():
            (out / f"{name}.{suffix}").write_text(forms[kind](), "utf-8")
    alarms = {change_alarm.value for change in changes if (change_alarm := alarm(change))}
    if "nothing" not in fail_on and (alarms & set(fail_on) or (alarms and "any" in fail_on)):
        sys.exit(FAILED)


def _compare_previews(words: tuple[str, ...], paths: tuple[str, ...], start: str | None, end: str | None) -> tuple:
    """A title, two sides without loaded spec files, and the changes."""
    from tenancy.diff import previews
    from tenancy.diff.changes import SpecState

    if words or start or end:
        fail("given --preview and spec files; rule: one or the other; change: drop one of them", BAD_INPUT)
    try:
        preview_files = [previews.read(path) for path in paths]
        changes = previews.changes(preview_files)
    except previews.NotAPreview as error:
        fail(str(error), BAD_INPUT)
    return (
        f"{previews.environment(preview_files)}, preview",
        SpecState("the state"),
        SpecState("the preview"),
        changes,
    )


def _spec_states(words: tuple[str, ...], start: str | None, end: str | None) -> tuple:
    """The environment's name, and its two sides."""
    from tenancy.diff.sources import WORKTREE, merge_base, spec_at_revision, spec_in_folder

    if not words:
        fail("given nothing to compare; rule: an environment, two folders or --preview; change: see --help", BAD_INPUT)
    if len(words) == 2 and all(Path(word).is_dir() for word in words) and not (start or end):
        before_folder, after_folder = map(Path, words)
        return (
            after_folder.resolve().name,
            spec_in_folder(before_folder, str(before_folder)),
            spec_in_folder(after_folder, str(after_folder)),
        )
    *revisions, folder = words
    if len(revisions) > 1 or (revisions and ".." not in revisions[0]) or (revisions and (start or end)):
        input_text = " ".join(words)
        fail(f"given {input_text}; rule: FROM..TO and an environment, or two folders; change: see --help", BAD_INPUT)
    if revisions:
        uses_merge_base = "..." in revisions[0]
        start, _, end = revisions[0].partition("..." if uses_merge_base else "..")
        start, end = start or "HEAD", end or "HEAD"
        start = merge_base(start, end) if uses_merge_base else start
    environment_folder = _environment_folder(folder)
    sides = [
        spec_in_folder(environment_folder, WORKTREE) if rev == WORKTREE else spec_at_revision(environment_folder, rev)
        for rev in (start or "HEAD", end or WORKTREE)
    ]
    return (environment_folder.resolve().name, *sides)


def _environment_folder(word: str) -> Path:
    """The folder of an environment, which may exist in only one of the revisions."""
    from tenancy.spec.loader import STACKS_FOLDER, find_folder
    from tenancy.spec.reading.problems import SpecError

    try:
        return find_folder(word)
    except SpecError:
        return Path(word) if "/" in word else Path(STACKS_FOLDER) / word
