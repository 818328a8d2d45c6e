"""The fields of an object for which an expression refuses it, found by asking the expression again without them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tenancy.kube.objects import Object

_WORD = re.compile(r"\w+")
SOME_IMAGE = f"x@sha256:{'0' * 64}"
"""Placeholder of a container's image, which cannot be absent."""
_MOST_QUESTIONS = 200
_WIDTH = 120

Path = tuple[str | int, ...]
_REQUIRED_FIELDS: frozenset[Path] = frozenset({("apiVersion",), ("kind",), ("metadata", "name")})
"""Fields without which there is no object to ask about."""


def fields_at_fault(item: Object, refuses: Callable[[Object], bool], text: str) -> str:
    """Paths of the fields with their values; the object's kind if no single field is at fault.

    `refuses` says whether the expression, whose text is `text`, refuses an object.
    """
    paths = _Search(refuses, set(_WORD.findall(text))).paths(item)
    return "; ".join(_field_text(item, path) for path in paths if path not in ((), ("metadata",))) or str(
        item.get("kind")
    )


@dataclass(slots=True)
class _Search:
    refuses: Callable[[Object], bool]
    words: set[str]
    """Words of the expression: it reads no other field."""
    questions_left: int = _MOST_QUESTIONS
    passed_over: Path = ()
    """A part without which the expression accepts the object, and in which nothing is at fault."""

    def paths(self, item: Object) -> list[Path]:
        """Paths of the fields without which the expression accepts the object, as far as they can be told."""
        first = self._narrowed(item)
        # Without a part that has no fault, such as the head of a cluster, no pod may be left to judge.
        parts = [(), *(first[0][:depth] for depth in range(1, len(first[0])))]
        for self.passed_over in parts:
            paths = self._narrowed(item) if self.passed_over else first
            without: dict[Path, Any] = {_removable(path): None for path in reversed(paths)}
            if () not in paths and not self._refused(item, without):
                return paths
        return first

    def _narrowed(self, item: Object) -> list[Path]:
        return list(dict.fromkeys(self.narrowed(item, (), (), item)))

    def _refused(self, base: Object, changes: Mapping[Path, Any]) -> bool:
        self.questions_left -= 1
        for path, value in changes.items():
            base = _with(base, path, value)
        return self.questions_left <= 0 or self.refuses(base)

    def narrowed(self, base: Object, at: Path, path: Path, value: Any) -> Iterator[Path]:
        """Paths of what is at fault in a value; `at` is its path in `base`, an object without other faults."""
        if isinstance(value, Mapping):
            inside = [key for key in value if (*at, key) not in _REQUIRED_FIELDS and (*path, key) != self.passed_over]
            inside.sort(key="metadata".__eq__)
            for key in inside:
                if not self._refused(base, {(*at, key): _neutral(value[key], key)}):
                    yield from self.narrowed(base, (*at, key), (*path, key), value[key])
                    return
            # Names that an author chooses, such as those of replica groups, are in no expression.
            read_keys = [key for key in inside if key in self.words] or inside
            nested_keys = [key for key in read_keys if isinstance(value[key], Mapping | list)]
            is_found = False
            for key in nested_keys:
                others: dict[Path, Any] = {
                    (*at, sibling): {} if (*at, sibling) == ("spec",) else _neutral(value[sibling], sibling)
                    for sibling in nested_keys
                    if sibling != key
                }
                if (path and not others) or (others and self._refused(base, others)):
                    alone = base
                    for other_path, neutral in others.items():
                        alone = _with(alone, other_path, neutral)
                    yield from self.narrowed(alone, (*at, key), (*path, key), value[key])
                    is_found = True
            scalar_keys = [key for key in value if key in self.words and not isinstance(value[key], Mapping | list)]
            if path and scalar_keys and not is_found:
                yield from ((*path, key) for key in scalar_keys)
            elif not is_found:
                yield path
        elif isinstance(value, list) and 0 < len(value) <= self.questions_left:
            is_found = False
            for number, element in enumerate(value):
                if len(value) == 1 or self._refused(base, {at: [element]}):
                    yield from self.narrowed(_with(base, at, [element]), (*at, 0), (*path, number), element)
                    is_found = True
            if not is_found:
                yield path
        else:
            yield path


def _removable(path: Path) -> Path:
    """The innermost entry of a list on a path, or the field itself where there is none."""
    numbers = [place for place, step in enumerate(path) if isinstance(step, int)]
    return path[: numbers[-1] + 1] if numbers else path


def _neutral(value: Any, key: Any = "") -> Any:
    if key == "image":
        return SOME_IMAGE
    if key == "metadata" and isinstance(value, Mapping):
        return {field: value[field] for field in ("name", "namespace") if field in value}
    return [] if isinstance(value, list) else None


def _with(value: Any, path: Path, new: Any) -> Any:
    if not path:
        return new
    step, *deeper = path
    if isinstance(value, Mapping):
        result = {**value, step: _with(value[step], tuple(deeper), new)}
        if not deeper and new is None:
            del result[step]
        return result
    entries = list(value)
    if not deeper and new is None:
        del entries[step]  # ty: ignore[invalid-argument-type]
    else:
        entries[step] = _with(entries[step], tuple(deeper), new)  # ty: ignore[invalid-argument-type, invalid-assignment]
    return entries


def _field_text(item: Object, path: Path) -> str:
    value: Any = item
    text = ""
    for step in path:
        value = value[step]
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    value_text = json.dumps(value, ensure_ascii=False, default=str) if isinstance(value, Mapping | list) else str(value)
    if isinstance(value, bool):
        value_text = value_text.lower()
    return f"{text}: {value_text if len(value_text) <= _WIDTH else value_text[:_WIDTH] + '…'}"
