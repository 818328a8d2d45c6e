"""The line of a field that a finding names, in the YAML of its object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

_PATH = re.compile(r"[A-Za-z][\w-]*(?:\.[A-Za-z][\w-]*|\[\d+\])+")
_KEY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_WORD = re.compile(r"[A-Za-z][\w-]*")
_STEP = re.compile(r"[^.\[\]]+")
MAX_BYTES = 4 << 20
"""Bytes of a file up to which places of fields are kept: a larger one is the dump of a cluster."""


def line_of(node: Any, text: str) -> int | None:
    """The line of the first field that a finding's text names: by its path, else by its key. None if there is none, or
    if what is wrong is that the field is absent."""
    if not isinstance(node, yaml.MappingNode):
        return None
    for path in _PATH.findall(text):
        line, depth = _follow(node, path)
        # A part of a path alone, such as `spec`, is no better than the object's own line.
        if line is not None and depth > 1:
            return line
    keys = dict(_keys(node, 0))
    for pattern in (_KEY, _WORD):
        for name in pattern.findall(text):
            if name in keys:
                return keys[name]
    return None


def _follow(node: Any, path: str) -> tuple[int | None, int]:
    """The line of the deepest part of a path that is there, and how many parts are."""
    line, depth = None, 0
    for step in _STEP.findall(path):
        if isinstance(node, yaml.MappingNode):
            entry = next((pair for pair in node.value if getattr(pair[0], "value", None) == step), None)
            if entry is None:
                break
            line, node = entry[0].start_mark.line + 1, entry[1]
        elif isinstance(node, yaml.SequenceNode) and step.isdigit() and int(step) < len(node.value):
            node = node.value[int(step)]
            line = node.start_mark.line + 1
        else:
            break
        depth += 1
    return line, depth


_DEEPEST = 40
_PLAIN = frozenset("apiVersion kind metadata name namespace spec".split())


def _keys(node: Any, depth: int) -> Iterator[tuple[str, int]]:
    """Every key of a node with its line; of a key that is there more than once, the first comes last."""
    children = node.value if isinstance(node, yaml.CollectionNode) and depth < _DEEPEST else ()
    for child in reversed(children):
        if isinstance(child, tuple):
            yield from _keys(child[1], depth + 1)
            if isinstance(child[0], yaml.ScalarNode) and child[0].value not in _PLAIN:
                yield child[0].value, child[0].start_mark.line + 1
        else:
            yield from _keys(child, depth + 1)
