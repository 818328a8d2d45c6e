"""Doing literally what a message about a spec file says, on the content of the file."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import yaml

from tenancy.spec.reading.problems import Problem
from tests.demo import Demo

_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")


class NotNamed(Exception):
    """The message names no change that can be done without a choice."""


def follow(files: Demo, problem: Problem) -> None:
    """Make the change that the message names, the first one where it names several."""
    name = problem.file.rpartition("/")[2].removesuffix(".yaml")
    for pattern, action in _ACTIONS:
        if match := re.match(pattern, problem.change):
            action(files[name], problem, *match.groups())
            return
    raise NotNamed(f"{problem.field}: {problem.change}")


def _path(content: Any, field: str) -> list[Any]:
    """The parts of a field's path; a key with dots in it is one part."""
    parts: list[Any] = []
    remaining_field = field
    while remaining_field:
        if index := re.match(r"\[(\d+)\]\.?", remaining_field):
            parts.append(int(index[1]))
            content, remaining_field = content[parts[-1]], remaining_field[index.end() :]
            continue
        keys = [key for key in content if re.match(rf"{re.escape(str(key))}(?=[.\[]|$)", remaining_field)]
        key = max(keys, key=len) if keys else remaining_field
        parts.append(key)
        content = content.get(key) if keys else None
        remaining_field = remaining_field[len(key) :].removeprefix(".")
    return parts


def _holder(content: Any, field: str) -> tuple[Any, Any]:
    *parents, last = _path(content, field)
    for part in parents:
        content = content.setdefault(part, {}) if isinstance(content, dict) else content[part]
    return content, last


def _rename(content: Any, problem: Problem, name: str) -> None:
    holder, last = _holder(content, problem.field)
    if problem.given.startswith(("key ", str(last))):
        holder[name] = holder.pop(last)
    else:
        holder[last] = name


def _set(content: Any, problem: Problem, text: str) -> None:
    holder, last = _holder(content, problem.field)
    if isinstance(holder, dict) and isinstance(holder[last], dict) and isinstance(yaml.safe_load(text), str):
        holder[text] = holder.pop(last)  # the field is under a name, and the message is about the name
    else:
        holder[last] = yaml.safe_load(text)


def _set_text(content: Any, problem: Problem, text: str) -> None:
    holder, last = _holder(content, problem.field)
    holder[last] = text


def _drop(content: Any, problem: Problem) -> None:
    holder, last = _holder(content, problem.field)
    holder.pop(last)


def _default(content: Any, problem: Problem, key: str, amount: str) -> None:
    container, _ = _holder(content, problem.field.rpartition(".max")[0] + ".default")
    container["default"][key] = amount


def _drop_from(content: Any, problem: Problem, key: str, _: str) -> None:
    holder, last = _holder(content, problem.field)
    assert last == key, "the message is about this key"
    holder.pop(last)


def _set_field(content: Any, problem: Problem, name: str, text: str) -> None:
    """`write name: value`, in place of the field."""
    holder, last = _holder(content, problem.field)
    holder.pop(last)
    holder[name] = yaml.safe_load(text)


def _layout(content: Any, problem: Problem, text: str) -> None:
    parts = [part.split(" x ") for part in text.split(" + ")]
    holder, last = _holder(content, problem.field)
    holder[last] = {profile: int(count) for count, profile in parts}


def _declare(content: Any, _: Problem, name: str, flavor: str) -> None:
    content["flavors"][name] = yaml.safe_load(flavor)


def _fewer_slices(content: Any, problem: Problem, max_slices: str) -> None:
    pool = content["pools"][problem.field.split(".")[1]]
    (profile,) = pool["mig"]["layout"]
    pool["mig"]["layout"] = {profile: int(max_slices)}


def _share_by(content: Any, problem: Problem, max_replicas: str) -> None:
    pool = content["pools"][problem.field.split(".")[1]]
    (mode,) = pool["gpu-sharing"]
    pool["gpu-sharing"] = {mode: int(max_replicas)}


_VALUE = r"""("[^"]*"|\{[^}]*\}|\[[^\]]*\]|[^\s,;]+)"""
_ACTIONS: tuple[tuple[str, Callable[..., None]], ...] = (
    (r"did you mean '([^']+)'\?", _rename),
    (r'quote it: "([^"]*)"', _set_text),
    (r"the nearest that fit: ([^;]+)", _layout),
    (r"declare its GPU or slices under flavors, such as ([^:]+): (\{[^}]*\})", _declare),
    (r"cut each GPU into (\d+) slices", _fewer_slices),
    (r"share by (\d+) at most", _share_by),
    (r"drop it\b", _drop),
    (r"write ([^:\s]+): (\S+) under default", _default),
    (r"drop (\S+) from (\w+)", _drop_from),
    (rf"write ([a-z][a-z-]*): {_VALUE}", _set_field),
    (rf"(?:write|use) (?:it (?:as|like) |one of |one such as )?{_VALUE}", _set),
)
