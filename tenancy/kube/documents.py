"""YAML and JSON of others as plain values, in bounded time and memory.

libyaml composes recursively and ends the process past some 10,000 levels; an alias of aliases stands for a billion
values in a few lines.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

_BASE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
DEEPEST = 200
"""Levels of a document; a CustomResourceDefinition with a pod template in its schema has some 50."""
LARGEST = 1_000_000
"""Values of a text with expanded aliases; an object of 1.5 MiB, the most that etcd takes, has fewer."""
_BRACKET = re.compile(r'"(?:[^"\\\n]|\\.)*"|[\[{]|[\]}]')


class ManifestLoader(_BASE):
    """Dates stay texts, as in the API."""


ManifestLoader.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in rules if tag != "tag:yaml.org,2002:timestamp"]
    for first, rules in _BASE.yaml_implicit_resolvers.items()
}

Lined = tuple[Any, Any]
"""A value, and its node in the file; None for JSON with tabs."""


def documents(text: str) -> Iterator[tuple[Lined, int]]:
    """Each document of a text, and its line. Raises YAMLError or ValueError if it is neither YAML nor JSON or stands
    for too many values, RecursionError if it is too deep."""
    _refuse_size(text)
    _refuse_depth(text)
    if "\t" in text and text.lstrip().startswith(("{", "[")):  # JSON may be indented by tabs, YAML may not
        document = json.loads(text)
        json.dumps(document, ensure_ascii=False).encode()  # a lone surrogate can be written, but not printed
        yield (document, None), 1
        return
    loader = ManifestLoader(text)
    aliased, values = "*" in text and "&" in text, 0
    try:
        while loader.check_node():
            node = loader.get_node()
            values += _size(node, {}) if aliased else 0
            if values > LARGEST:
                raise ValueError("aliases of aliases with more than a million values")
            yield (loader.construct_document(node), node), node.start_mark.line + 1
    finally:
        loader.dispose()


def _refuse_size(text: str) -> None:
    """A value takes a line or a comma, which are counted before the text is read."""
    if any(part.count(",") + part.count("\n") > 2 * LARGEST for part in text.split("\n---")):
        raise ValueError(f"a document of more than {2 * LARGEST:,} lines and commas")


def _refuse_depth(text: str) -> None:
    depth = deepest = 0
    for bracket in _BRACKET.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(bracket[0], 0)
        deepest = max(deepest, depth)
    indent = max((len(line) - len(line.lstrip(" -?")) for line in text.splitlines()), default=0)
    if deepest + indent < DEEPEST:
        return
    depth = 0
    for event in yaml.parse(text, Loader=ManifestLoader):
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise RecursionError


def _size(node: Any, sizes: dict[int, int]) -> int:
    """Number of values of a document with expanded aliases."""
    if id(node) not in sizes:
        sizes[id(node)] = 1  # an alias inside of its own anchor
        children = node.value if isinstance(node, yaml.CollectionNode) else ()
        pairs = (part for child in children for part in (child if isinstance(child, tuple) else (child,)))
        sizes[id(node)] = 1 + sum(_size(part, sizes) for part in pairs)
    return sizes[id(node)]
