from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenancy import __version__
from tenancy.catalog.regions import REGIONS
from tenancy.cli.common import BAD_INPUT, example, fail
from tenancy.repository import Forge, RepositoryAnswers, default_registry, repository
from tenancy.rules.values import name_misfit
from tenancy.spec.loader import STACKS_FOLDER, load
from tenancy.spec.reading.problems import SpecError

if TYPE_CHECKING:
    from tenancy.spec.reading.problems import Problem

ALLOWED_ENTRIES = frozenset({".git", ".venv", "venv"})
"""Entries that a folder may contain before: none of them is replaced."""
REQUIRED_OPTIONS = ("organisation", "group", "region", "account")
"""Options without a default: asked for on a terminal, required elsewhere."""
ORGANISATION_LENGTH = 40
_EXAMPLE = "tenancy init clusters --organisation acme --group gpu-platform --region eu-central-1 --account 111122223333"


def _matching(pattern: str, rule: str) -> click.types.FuncParamType:
    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise click.BadParameter(f"given {text!r}; rule: {rule}")
        return text

    return click.types.FuncParamType(read)


def _organisation(text: str) -> str:
    if misfit := name_misfit(text, ORGANISATION_LENGTH):
        raise click.BadParameter(f"given {misfit}; rule: lower-case letters, digits and hyphens, like acme")
    return text


ORGANISATION = click.types.FuncParamType(_organisation)
GROUP = _matching(r"[A-Za-z0-9][\w.@/+-]{0,62}", "the name of a group, like gpu-platform")
ACCOUNT = _matching(r"[0-9]{12}", "an account id of 12 digits")
REGISTRY = _matching(r"[a-z0-9][a-z0-9.:/_-]{0,120}/", "the beginning of image names, like registry.acme.example/")


@click.command("init", epilog=example(_EXAMPLE))
@click.argument("folder", metavar="DIR", type=click.Path(file_okay=False, path_type=Path))
@click.option("--organisation", type=ORGANISATION, metavar="NAME", help="Name of the organisation, such as acme.")
@click.option("--group", type=GROUP, metavar="NAME", help="Group of the platform team, such as gpu-platform.")
@click.option("--region", type=click.Choice(REGIONS), metavar="REGION", help="AWS region of prod.")
@click.option("--account", type=ACCOUNT, metavar="ID", help="AWS account of prod, 12 digits.")
@click.option(
    "--registry",
    type=REGISTRY,
    metavar="PREFIX/",
    help="Beginning of the names of images that pods may use. Default: the registry of --account.",
)
@click.option(
    "--ci",
    "forge",
    type=click.Choice([forge.value for forge in Forge]),
    help="Workflows for pull requests, merges and the night. Default: none.",
)
def command(
    folder: Path,
    organisation: str | None,
    group: str | None,
    region: str | None,
    account: str | None,
    registry: str | None,
    forge: str | None,
) -> None:
    """Write a new repository into DIR.

    It has a Pulumi program, the environments dev (on the lab) and prod (on AWS) with example tenants, the policy pack,
    workflows, and an owner for each file.

    On a terminal the command asks for options that are not given; elsewhere --organisation, --group, --region and
    --account are required. DIR is made; one that exists may contain a .git and a virtual environment, nothing else. To
    update the files to another version, write a second repository with the same options and compare.
    """
    _refuse_nonempty(folder)
    option_values = {"organisation": organisation, "group": group, "region": region, "account": account}
    if missing_options := [key for key, value in option_values.items() if value is None]:
        if not _on_terminal():
            options = " ".join(f"--{key}" for key in missing_options)
            fail(f"given no {options}; rule: required; change: add the options, or run it on a terminal", BAD_INPUT)
        kinds = {"organisation": ORGANISATION, "group": GROUP, "region": click.Choice(REGIONS), "account": ACCOUNT}
        questions = {
            "organisation": "Organisation",
            "group": "Group of the platform team",
            "region": "AWS region of prod",
            "account": "AWS account of prod",
        }
        for key in missing_options:
            option_values[key] = click.prompt(questions[key], type=kinds[key], show_choices=False, err=True)
        if forge is None:
            choice = click.Choice([forge.value for forge in Forge])
            forge = click.prompt("Workflows", type=choice, default=Forge.NONE.value, err=True)
    answer_texts = {key: str(value) for key, value in option_values.items()}
    answers = RepositoryAnswers(
        **answer_texts,
        registry=registry or default_registry(answer_texts["account"], answer_texts["region"]),
        forge=Forge(forge or Forge.NONE),
    )
    files = list(repository(answers, __version__))
    _validate_files(files)
    try:
        _write(folder, files)
    except OSError as error:
        rule = f"a folder that can be written ({error.strerror})"
        fail(f"given {error.filename or folder}; rule: {rule}; change: name another one", BAD_INPUT)
    click.echo(f"Written: {folder} ({len(files)} files)\n\nNext:")
    enter = "" if folder.resolve() == Path.cwd() else f"  cd {folder}\n"
    click.echo(
        f"{enter}"
        "  pip install -r requirements.txt   the versions with which this one was tested\n"
        "  tenancy validate dev\n"
        "  tenancy lab up dev     a control plane on this machine, for dev\n"
        "  tenancy up dev         preview with the policy pack, then update\n"
        "\nREADME.md has the rest. stacks/prod is an example: correct it before its first update."
    )


def _on_terminal() -> bool:
    return sys.stdin.isatty()


def _refuse_nonempty(folder: Path) -> None:
    entry_names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
    if other_names := [name for name in entry_names if name not in ALLOWED_ENTRIES]:
        more_text = f" and {len(other_names) - 1} more" if len(other_names) > 1 else ""
        input_text = f"{folder}, which contains {other_names[0]}{more_text}"
        fail(f"given {input_text}; rule: no file is replaced; change: name an empty folder or a new one", BAD_INPUT)


def _validate_files(files: Iterable[tuple[str, str, bool]]) -> None:
    """Exit code 2 with every problem of the environments that the files would make."""
    with tempfile.TemporaryDirectory(prefix="tenancy-init-") as scratch:
        trial = Path(scratch)
        _write(trial, files)
        problems: list[Problem] = []
        for folder in sorted((trial / STACKS_FOLDER).iterdir()):
            try:
                load(folder)
            except SpecError as error:
                relative_folder = f"{STACKS_FOLDER}/{folder.name}"
                problems += [
                    replace(problem, file=f"{relative_folder}{problem.file.partition(relative_folder)[2]}")
                    for problem in error.problems
                ]
    for problem in problems:
        click.echo(str(problem), err=True)
    if problems:
        fail(f"{len(problems)} problem{'s' * (len(problems) > 1)}; nothing was written", BAD_INPUT)


def _write(folder: Path, files: Iterable[tuple[str, str, bool]]) -> None:
    for name, text, runs in files:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, "utf-8")
        if runs:
            path.chmod(0o755)
