"""Changes for the second run: values in spec files, or other spec files, read and validated like any others."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import yaml

from tenancy.catalog.files import read_text_file
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER, Loaded, linked, load
from tenancy.spec.reading.problems import Problem, SpecError

ENVIRONMENT = "environment"
CHANGE_HINT = "write it like fraud:gpus.a100.guaranteed=96, environment:pools.train-a100.nodes=64, or name a folder"


def with_changes(loaded: Loaded, changes: Sequence[str]) -> Loaded:
    """The environment with these changes; raises SpecError with places in the given files if it is no longer valid."""
    _refuse_repeated_fields(changes)
    with tempfile.TemporaryDirectory(prefix="gpu-tenancy-change-") as scratch:
        copy = Path(scratch) / loaded.environment.environment
        origins: dict[Path, Path] = {}
        _overlay(loaded.folder, copy, origins)
        for change in changes:
            if os.path.isdir(change):  # noqa: PTH112 - a Path raises for a name that is too long
                folder = Path(change)
                if (folder / ENVIRONMENT_FILE).is_file():
                    shutil.rmtree(copy)
                    origins.clear()
                    copy = Path(scratch) / folder.resolve().name
                _overlay(folder, copy, origins)
            else:
                _set_value(copy, change)
        display_names = {
            os.path.relpath(path): f"{os.path.relpath(origin)} (changed)" for path, origin in origins.items()
        }
        try:
            return load(copy)
        except SpecError as error:
            problems = [
                replace(problem, file=display_names.get(problem.file, problem.file)) for problem in error.problems
            ]
            raise SpecError(problems) from None


def _refuse_repeated_fields(changes: Sequence[str]) -> None:
    """Refuse two values for one field, because the second would silently replace the first."""
    changes_by_field: dict[str, str] = {}
    for change in changes:
        field, equals, _ = change.partition("=")
        if equals and field in changes_by_field and changes_by_field[field] != change:
            raise Violation(
                "ref-01", f"--change {changes_by_field[field]!r} and {change!r}", "give one value for a field"
            )
        changes_by_field[field] = change


def _overlay(folder: Path, copy: Path, origins: dict[Path, Path]) -> None:
    home = folder / TENANTS_FOLDER
    _refuse_links(folder, home)
    (copy / TENANTS_FOLDER).mkdir(parents=True, exist_ok=True)
    spec_files = [path for path in sorted(folder.iterdir()) if path.suffix in SUFFIXES]
    spec_files += sorted(home.iterdir()) if home.is_dir() else []
    if not spec_files:
        rule = "a change has files of an environment or of tenants"
        raise SpecError([Problem(str(folder), 1, 1, "", "no spec file", rule, "name the folder with the files")])
    for path in spec_files:
        if not path.is_file():
            continue
        target = copy / path.name if path.name == ENVIRONMENT_FILE else copy / TENANTS_FOLDER / path.name
        _refuse_links(path)
        shutil.copyfile(path, target)
        origins[target] = path


def _refuse_links(*paths: Path) -> None:
    for path in paths:
        if problem := linked(path, "changed files are in a folder of their own"):
            raise SpecError([problem])


def _set_value(copy: Path, change: str) -> None:
    """Write one value into its file, and keep every other line in its place."""
    field, equals, value = change.partition("=")
    target, colon, dotted = field.partition(":")
    if not (equals and colon and target and dotted):
        raise Violation("ref-01", f"--change {change!r}", CHANGE_HINT)
    path = copy / ENVIRONMENT_FILE if target == ENVIRONMENT else _tenant_file(copy, target, change)
    text = read_text_file(path)
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    keys = _keys(root, dotted)
    if "" in keys:
        raise Violation("ref-01", f"--change {change!r}, where a field has no name", CHANGE_HINT)
    path.write_text(_with_value(text, root, keys, value.strip(), change), "utf-8")


def _tenant_file(copy: Path, tenant: str, change: str) -> Path:
    names = []
    for path in sorted((copy / TENANTS_FOLDER).iterdir()):
        if path.suffix in SUFFIXES:
            document = yaml.safe_load(read_text_file(path))
            names.append(document.get("tenant") if isinstance(document, dict) else None)
            if names[-1] == tenant:
                return path
    known_names = ", ".join([ENVIRONMENT, *(str(name) for name in names if name)])
    raise Violation("ref-01", f"--change {change!r}, which names {tenant!r}", f"use one of {known_names}")


def _keys(node: yaml.Node | None, dotted: str) -> list[str]:
    """Follow the path part by part, because a key may contain a dot, such as a100-1g.5gb."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if dotted == key.value:
                return [key.value]
            if dotted.startswith(f"{key.value}."):
                return [key.value, *_keys(value, dotted.removeprefix(f"{key.value}."))]
    if isinstance(node, yaml.SequenceNode):
        head, _, remainder = dotted.partition(".")
        if head.isdigit() and int(head) < len(node.value):
            return [head, *(_keys(node.value[int(head)], remainder) if remainder else [])]
    head, _, remainder = dotted.partition(".")
    return [head, *(_keys(None, remainder) if remainder else [])]


def _with_value(text: str, node: yaml.Node | None, keys: Sequence[str], value: str, change: str) -> str:
    head, *remaining_keys = keys
    if isinstance(node, yaml.SequenceNode) and head.isdigit() and int(head) < len(node.value):
        return _with_node_value(text, node.value[int(head)], remaining_keys, value, change)
    if isinstance(node, yaml.SequenceNode):
        invalid_index = f"--change {change!r}: {head} is not an index of a list of {len(node.value)}"
        raise Violation(
            "ref-01", invalid_index, f"use 0 to {len(node.value) - 1}" if node.value else "write the whole list"
        )
    if not isinstance(node, yaml.MappingNode):
        raise Violation("ref-01", f"--change {change!r}: {head} is not in a mapping", "write the whole value above it")
    for key, child in node.value:
        if key.value == head:
            return _with_node_value(text, child, remaining_keys, value, change)
    new_value = value
    for key in reversed(remaining_keys):
        new_value = f"{{{key}: {new_value}}}"
    begin, end = _node_span(node)
    if node.flow_style:
        end -= 1
        return f"{text[:end]}{', ' if node.value else ''}{head}: {new_value}{text[end:]}"
    end_of_last = _node_span(node.value[-1][1])[1]
    indent = " " * (begin - text.rfind("\n", 0, begin) - 1)
    while end_of_last > 0 and text[end_of_last - 1] in " \n":
        end_of_last -= 1
    line = text.find("\n", end_of_last)
    end_of_last = len(text) if line < 0 else line
    return f"{text[:end_of_last]}\n{indent}{head}: {new_value}{text[end_of_last:]}"


def _with_node_value(text: str, node: yaml.Node, remaining_keys: Sequence[str], value: str, change: str) -> str:
    if remaining_keys:
        return _with_value(text, node, remaining_keys, value, change)
    begin, end = _node_span(node)
    if not isinstance(node, yaml.ScalarNode) and not getattr(node, "flow_style", True):
        raise Violation(
            "ref-01", f"--change {change!r}, which replaces several lines", "name one of the fields below it"
        )
    return f"{text[:begin]}{value}{text[end:]}"


def _node_span(node: yaml.Node) -> tuple[int, int]:
    assert node.start_mark is not None
    assert node.end_mark is not None
    return node.start_mark.index, node.end_mark.index
