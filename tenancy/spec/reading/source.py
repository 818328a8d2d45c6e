"""A spec file as plain values, with the place of each value in the file.

YAML read strictly: what it would resolve silently (a key given twice, an octal number, a tag, aliases that
multiply) is refused or stays text. Keys are always text, so that `on:` is the key `on`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from tenancy.catalog.files import IrregularFile, LargeFile, LinkedFile, read_file
from tenancy.catalog.text import unseen

Location = tuple[str | int, ...]
"""Keys and indices that lead to a place in a file."""

MAX_FILE_BYTES = 1 << 20
MAX_DEPTH = 40
MAX_VALUES = 200_000
_SAFE_DEPTH = 1000

_STR, _SEQ, _MAP = (f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))
_NULL, _BOOL, _INT, _FLOAT, _MERGE = (f"tag:yaml.org,2002:{k}" for k in ("null", "bool", "int", "float", "merge"))

# Words of YAML 1.1, as other tools read them; each in the three spellings that YAML accepts.
_WORDS = {"": _NULL, "~": _NULL, "<<": _MERGE} | {
    spelling: tag
    for tag, words in ((_NULL, ["null"]), (_BOOL, ["true", "false", "yes", "no", "on", "off"]))
    for word in words
    for spelling in (word, word.capitalize(), word.upper())
}
_TRUE = frozenset({"true", "yes", "on"})
_NUMBER_START = frozenset("0123456789+-.")
_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,999})")
_DECIMAL = re.compile(r"[-+]?([0-9]+\.[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
# In YAML 1.1 a carriage return, U+0085, U+2028 and U+2029 end a line, and a comment with it; tools that show changes
# do not break lines there.
_UNPRINTABLE = re.compile("\r(?!\n)|[^\t\n\r\x20-\x7e\xa0-\u2027\u202a-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class FileMark(NamedTuple):
    """Line and column, both from 1."""

    line: int
    column: int


class UnusableFile(Exception):
    """A file, or a place in it, that cannot be used."""

    def __init__(self, mark: FileMark, fault: str, rule: str, change: str) -> None:
        super().__init__(fault)
        self.mark, self.given, self.rule, self.change = mark, fault, rule, change


_SAFE: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _NodeLoader(_SAFE):
    """Composes nodes; values are made from them by `_Reader`."""

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is ScalarNode:
            if not implicit[0]:
                return _STR
            if tag := _WORDS.get(value):
                return tag
            if value[0] in _NUMBER_START:
                if _INTEGER.fullmatch(value):
                    return _INT
                if _DECIMAL.fullmatch(value):
                    return _FLOAT
            # 0644, 0x10, 1_000, 12:30 and dates stay text: YAML readers disagree on them.
            return _STR
        return _SEQ if kind is SequenceNode else _MAP


def read_text(path: Path) -> str:
    """The file's text; raises UnusableFile if it cannot be read."""
    top = FileMark(1, 1)
    try:
        data = read_file(path, MAX_FILE_BYTES, links=False)
    except LinkedFile as error:
        # Problems are shown with the file's content, and a link could lead to any file of the machine.
        rule = "a spec is read from a file of its own folder"
        raise UnusableFile(top, str(error), rule, "replace the link by its target") from None
    except IrregularFile as error:
        raise UnusableFile(top, str(error), "a spec is read from a file", "put a YAML file there") from None
    except LargeFile as error:
        rule = f"a spec file has at most {MAX_FILE_BYTES} bytes"
        raise UnusableFile(top, str(error), rule, "check what was written there") from None
    except OSError as error:
        fault = f"a file that cannot be read ({error.strerror or type(error).__name__})"
        raise UnusableFile(top, fault, "a spec file is readable", "check the path and its permissions") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8", "replace")
        fault = f"byte 0x{data[error.start]:02x}"
        raise UnusableFile(_mark_at(before), fault, "a spec file is UTF-8", "save the file as UTF-8") from None
    if (place := _unprintable(text)) is not None:
        character = text[place]
        change = "end lines with line feeds" if character == "\r" else "delete it"
        fault = f"character U+{ord(character):04X}"
        raise UnusableFile(_mark_at(text[:place]), fault, "a spec file has only visible characters", change)
    return text


def _unprintable(text: str) -> int | None:
    """Place of the first invisible character that changes what is read or shown."""
    if text.isascii() and text.replace("\n", "").isprintable():
        return None
    match = _UNPRINTABLE.search(text)
    places = [match.start()] if match else []
    places += [] if (hidden := unseen(text)) is None else [hidden]
    return min(places, default=None)


def _mark_at(before: str) -> FileMark:
    """The place right after some text."""
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return FileMark(len(lines), len(lines[-1]) + 1)


def _mark(mark: Any) -> FileMark:
    return FileMark(mark.line + 1, mark.column + 1)


def compose(text: str) -> Node | None:
    """The file's nodes, None for an empty file; raises Refused if it is not YAML."""
    try:
        _refuse_depth(text)
        loader = _NodeLoader(text)
        try:
            return loader.get_single_node()
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        raise _syntax(text, error) from None
    except RecursionError:
        raise _too_deep(FileMark(1, 1)) from None


def _too_deep(mark: FileMark) -> UnusableFile:
    return UnusableFile(
        mark, f"more than {MAX_DEPTH} levels", "a spec file is shallow", "check brackets and anchors here"
    )


def _refuse_depth(text: str) -> None:
    """libyaml composes recursively and crashes the process past some 10,000 levels."""
    longest = max(map(len, text.splitlines()), default=0)
    if 2 * longest + text.count("[") + text.count("{") < _SAFE_DEPTH:
        return
    depth = 0
    for event in yaml.parse(text, _NodeLoader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                raise _too_deep(_mark(event.start_mark))
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


def _syntax(text: str, error: yaml.YAMLError) -> UnusableFile:
    problem = str(getattr(error, "problem", None) or "unreadable YAML")
    problem_mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    context_mark = getattr(error, "context_mark", None)
    context = str(getattr(error, "context", None) or "")
    mark = _mark(problem_mark) if problem_mark else FileMark(1, 1)
    lines = text.splitlines()
    line = lines[problem_mark.line] if problem_mark and problem_mark.line < len(lines) else ""
    rule = "a file is valid YAML"
    if "another document" in problem:
        return UnusableFile(mark, "a second document", "a file contains one document", "give it a file of its own")
    if (
        "cannot start any token" in problem
        and problem_mark
        and line[problem_mark.column : problem_mark.column + 1] == "\t"
    ):
        return UnusableFile(mark, "a tab", "YAML is indented with spaces", "replace the tab by spaces")
    if context_mark and "flow" in context and "did not find expected" in problem:
        closing_bracket = "}" if "mapping" in context else "]"
        fault = f"a bracket that is not closed before line {mark.line}"
        return UnusableFile(_mark(context_mark), fault, rule, f"close it with {closing_bracket}")
    if context_mark and "quoted scalar" in context:
        return UnusableFile(_mark(context_mark), "a quote that is not closed", rule, "close the quote")
    if "undefined alias" in problem:
        return UnusableFile(mark, "an alias without an anchor", rule, "write the value out, or quote a text with '*'")
    if "mapping values are not allowed" in problem:
        return UnusableFile(
            mark, "a ':' where no key is allowed", rule, "indent like its neighbours, or quote the text"
        )
    change = "correct the line: indent like its neighbours, quote texts with special characters"
    return UnusableFile(mark, f"{problem}{f' {context}' if context else ''}", rule, change)


class _ValueReader:
    """Makes values from nodes, and collects keys that are given twice."""

    __slots__ = ("refused_parts", "remaining_values")

    def __init__(self) -> None:
        self.remaining_values = MAX_VALUES
        self.refused_parts: dict[FileMark, UnusableFile] = {}

    def value(self, node: Node, depth: int = 0) -> Any:
        if isinstance(node, ScalarNode):
            self.remaining_values -= 1
            return node.value if node.tag == _STR else self.scalar(node)
        if node.tag not in {_SEQ, _MAP}:
            self.tagged(node)
        if isinstance(node, MappingNode):
            return self.mapping(node, depth)
        self.spend(node, depth)
        return [self.value(child, depth + 1) for child in node.value]

    def spend(self, node: Node, depth: int) -> None:
        self.remaining_values -= 1
        if self.remaining_values < 0:
            # Aliases of aliases: small on disk, huge once they are expanded.
            fault, rule = f"more than {MAX_VALUES} values", "aliases do not multiply the values of a file"
            raise UnusableFile(_mark(node.start_mark), fault, rule, "write the values out")
        if depth > MAX_DEPTH:
            raise _too_deep(_mark(node.start_mark))

    def mapping(self, node: MappingNode, depth: int) -> dict[str, Any]:
        self.spend(node, depth)
        values: dict[str, Any] = {}
        merged_nodes: list[Node] = []
        for key, child in node.value:
            if not isinstance(key, ScalarNode):
                self.refuse(key, "a list or mapping as a key", "a key is text", "write a name before the ':'")
            elif key.tag == _MERGE:
                merged_nodes += child.value if isinstance(child, SequenceNode) else [child]
            elif key.value in values:
                self.refuse(key, f"key {key.value!r} twice", "a key is given once", "keep one of the two")
            else:
                values[key.value] = self.value(child, depth + 1)
        for merged_node in merged_nodes:
            if isinstance(merged_node, MappingNode):
                values = self.mapping(merged_node, depth + 1) | values
            else:
                self.refuse(
                    merged_node, "'<<' without a mapping", "'<<' merges a mapping", "name an anchor of a mapping"
                )
        return values

    def scalar(self, node: ScalarNode) -> Any:
        match node.tag:
            case "tag:yaml.org,2002:null":
                return None
            case "tag:yaml.org,2002:bool" if node.value in _WORDS:
                return node.value.lower() in _TRUE
            case "tag:yaml.org,2002:int" if _INTEGER.fullmatch(node.value):
                return int(node.value)
            case "tag:yaml.org,2002:float" if _DECIMAL.fullmatch(node.value):
                return float(node.value.lower().replace(".inf", "inf").replace(".nan", "nan"))
        if node.tag != _MERGE:
            self.tagged(node)
        return node.value

    def tagged(self, node: Node) -> None:
        self.refuse(node, f"tag {node.tag}", "values are plain", "drop the tag")

    def refuse(self, node: Node, fault: str, rule: str, change: str) -> None:
        # By place: the same mistake occurs again at each alias.
        self.remaining_values -= 1
        mark = _mark(node.start_mark)
        self.refused_parts.setdefault(mark, UnusableFile(mark, fault, rule, change))


def values(node: Node | None) -> tuple[Any, list[UnusableFile]]:
    """The plain value of a file's nodes, and the refused parts."""
    reader = _ValueReader()
    if node is None:
        return None, []
    value = reader.value(node)
    return value, list(reader.refused_parts.values())


@dataclass(frozen=True, slots=True)
class NodePosition:
    """Result of a search for a location: `depth` parts of it are in the file; the last one is a `scalar`, with its text
    as `written` if YAML reads it as another type."""

    key: FileMark
    value: FileMark
    depth: int
    is_scalar: bool
    scalar_text: str | None


def find(root: Node | None, location: Location) -> NodePosition:
    """The place of a value, or of the nearest value around it in the file."""
    node: Any = root
    key: Any = None
    depth = 0
    for part in location:
        child = next(_children(node, part), None)
        if child is None:
            break
        key, node = child
        depth += 1
    top = _mark(node.start_mark) if node else FileMark(1, 1)
    at_key = _mark(key.start_mark) if key else top
    # A block begins a line below its key, an alias elsewhere: the place of both is that of the key.
    scalar = isinstance(node, ScalarNode)
    nearby = scalar and not (key and _mark(node.start_mark) < at_key)
    text = node.value if isinstance(node, ScalarNode) and node.tag != _STR else None
    return NodePosition(at_key, top if nearby or not key else at_key, depth, scalar, text)


def _children(node: Node | None, part: str | int) -> Iterator[tuple[Node | None, Node]]:
    if isinstance(node, SequenceNode):
        if isinstance(part, int) and part < len(node.value):
            yield None, node.value[part]
    elif isinstance(node, MappingNode):
        for key, child in node.value:
            if isinstance(key, ScalarNode) and key.tag != _MERGE and key.value == str(part):
                yield key, child
        for key, child in node.value:
            if key.tag == _MERGE:
                for merged_node in child.value if isinstance(child, SequenceNode) else [child]:
                    yield from _children(merged_node, part)
