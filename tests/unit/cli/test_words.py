"""Plain words: prose has technical terms instead of indefinite pronouns, and every command and option has help."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tenancy.cli import main
from tenancy.spec.json_schema import MODELS, schema

ROOT = Path(__file__).parents[3]
AVOIDED = ("nobody", "somebody", "whoever", "anybody", "everybody", "whomever")
"""Each stands for a technical term that the sentence should have: "the deployer", "another tenant", "unallocated"."""
PLACES = (
    *(f"tenancy/{path.name}" for path in sorted((ROOT / "tenancy").iterdir()) if path.name != "__pycache__"),
    *(
        "policy",
        "s3-client",
        "docs",
        "ci",
        "bench",
        "scripts",
        "stacks",
        "examples",
        "README.md",
        "CONTRIBUTING.md",
        "Makefile",
    ),
)
MIN_WORDS = 3
"""Words of a help text."""

METAPHORS = ("fence", "witness", "luck", "surely", "ledger", "stakes", "door", "in_force", "walls")
"""Private names for what has a term: cluster network policies, readiness probe, burst, min, calculator, access, active,
isolation resources."""
_METAPHOR = re.compile(rf"(?<![a-z])(?:{'|'.join(METAPHORS)})s?(?![a-z])", re.IGNORECASE)
_WORD = re.compile(rf"\b(?:{'|'.join(AVOIDED)})\b", re.IGNORECASE)


def texts(place: Path) -> Iterator[tuple[Path, str]]:
    """The text files at a place."""
    for path in [place] if place.is_file() else sorted(place.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            try:
                yield path, path.read_text("utf-8")
            except UnicodeDecodeError:
                continue  # an image, or a table in Parquet


@pytest.mark.parametrize("place", PLACES)
def test_prose_names_who_it_is_about(place: str) -> None:
    bad_lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path, text in texts(ROOT / place)
        for number, line in enumerate(text.splitlines(), 1)
        if _WORD.search(line)
    ]
    assert not bad_lines, "write the technical term instead:\n" + "\n".join(bad_lines)


def test_no_test_is_satisfied_by_nothing() -> None:
    """`assert all(…)` is true of nothing too; a property's example may have none."""
    files = [
        path for path in sorted((ROOT / "tests").rglob("*.py")) if "from hypothesis" not in path.read_text("utf-8")
    ]
    assert len(files) > 200
    bare_all = re.compile(r"^\s+assert all\(", re.MULTILINE)
    assert [path.name for path in files if bare_all.search(path.read_text("utf-8"))] == []
    assert bare_all.search("    assert all(found)")


@pytest.mark.parametrize("word", AVOIDED)
@pytest.mark.parametrize("line", ["what {} is promised", "{}'s queue", "({})", "{}."])
def test_an_avoided_word_is_found(word: str, line: str) -> None:
    assert _WORD.search(line.format(word))
    assert _WORD.search(line.format(word.capitalize()))
    assert not _WORD.search(line.format(f"x{word}"))


def python_files() -> list[Path]:
    paths = sorted((ROOT / "tenancy").rglob("*.py"))
    assert len(paths) > 300
    return paths


def test_identifiers_and_prose_have_terms_of_the_field() -> None:
    bad_lines = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in python_files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if _METAPHOR.search(line)
    ]
    assert not bad_lines, "write the term of the glossary instead:\n" + "\n".join(bad_lines)


@pytest.mark.parametrize("word", METAPHORS)
@pytest.mark.parametrize("line", ["def _{}(self)", "{}s_of", "# The {} of a tenant", "{}: true"])
def test_a_private_name_is_found(word: str, line: str) -> None:
    assert _METAPHOR.search(line.format(word))
    assert not _METAPHOR.search(line.format(f"x{word}x"))


def test_a_class_name_stands_for_one_thing() -> None:
    names: dict[str, list[str]] = {}
    for path in python_files():
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                names.setdefault(node.name, []).append(str(path.relative_to(ROOT)))
    assert len(names) > 300
    assert {name: places for name, places in names.items() if len(places) > 1} == {}


def test_no_key_of_a_file_has_a_former_name() -> None:
    for kind in MODELS:
        keys = set(re.findall(r'"([a-z-]+)": \{', json.dumps(schema(kind))))
        assert "namespaces" in keys
        assert not keys & {"reach", "accept", "between-parts"}


# Help


def commands(command: click.Command, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """A command and all commands below it, with the words that call them."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            subcommand = command.get_command(context, name)
            assert subcommand is not None
            yield from commands(subcommand, (*path, name))


COMMANDS = dict(commands(main))


def faults(text: str | None) -> list[str]:
    """Reasons why a help text is not a sentence."""
    text = (text or "").strip()
    text_faults = [] if len(text.split()) >= MIN_WORDS else [f"fewer than {MIN_WORDS} words"]
    text_faults += [] if text[:1].isupper() else ["no capital letter at the start"]
    return text_faults + ([] if text.endswith(".") else ["no full stop at the end"])


def summary(command: click.Command) -> str:
    """The first paragraph of a command's help."""
    return (command.help or "").strip().partition("\n\n")[0]


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_and_option_has_a_help_text_that_is_a_sentence(path: tuple[str, ...]) -> None:
    command = COMMANDS[path]
    name = " ".join(("tenancy", *path))
    sentence_faults = [f"{name}: {summary(command)!r}: {fault}" for fault in faults(summary(command))]
    for option in command.get_params(click.Context(command)):
        if isinstance(option, click.Option) and not option.hidden:
            sentence_faults += [f"{name} {option.opts[0]}: {option.help!r}: {fault}" for fault in faults(option.help)]
    assert not sentence_faults, "\n".join(sentence_faults)


def test_the_list_of_commands_has_sentences_too() -> None:
    from tenancy.cli import COMMANDS as LISTED

    assert [f"{name}: {fault}" for name, text in LISTED.items() for fault in faults(text)] == []


@pytest.mark.parametrize("text", [None, "", "Whose.", "of this one alone.", "Limit the report to this tenant"])
def test_a_text_that_is_no_sentence_is_found(text: str | None) -> None:
    assert faults(text)
    assert not faults("Limit the report to this tenant.")
