"""Objects from YAML and JSON, each with the file and line where it begins."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tenancy.catalog.files import read_file, read_input
from tenancy.catalog.text import escape_invisible
from tenancy.check.admission.cel import syntax_mistake
from tenancy.check.lines import MAX_BYTES, line_of
from tenancy.kube.documents import Lined, ManifestLoader, documents
from tenancy.kube.kinds import GROUPS, group_of, placed
from tenancy.kube.objects import get_path
from tenancy.rules.findings import UNREADABLE, Object

SUFFIXES = (".yaml", ".yml", ".json")
STDIN = "-"
_STDIN_NAME = "stdin"
_NOT_READ = frozenset({"node_modules", "__pycache__"})


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A line of a file; the first line is 1."""

    file: str
    line: int
    node: Any = field(default=None, compare=False, repr=False)
    """The object's YAML, in which fields are looked up; None if it is not kept."""

    def of(self, text: str) -> FilePosition:
        """The line of the field that a finding's text names; this line if none is found."""
        line = line_of(self.node, text)
        return FilePosition(self.file, line) if line else self

    def __str__(self) -> str:
        return f"{escape_invisible(self.file)}:{self.line}"


@dataclass(frozen=True, slots=True)
class Unread:
    """A file or object that cannot be checked: its place, what was given, the rule and what to change."""

    place: FilePosition
    given: str
    rule: str
    change: str

    def __str__(self) -> str:
        return escape_invisible(f"{self.place}: given {self.given}; rule: {self.rule}; change: {self.change}")


@dataclass(frozen=True, slots=True)
class Unjudged:
    """An object that cannot be checked, or only in part, and sources from which objects are made."""

    place: FilePosition
    object: str
    reason: str

    def __str__(self) -> str:
        return f"{self.object} in {self.place}: {self.reason}"


@dataclass(slots=True)
class Manifests:
    """The objects of all files with their positions, and what could not be read."""

    objects: list[tuple[Object, FilePosition]] = field(default_factory=list)
    unread: list[Unread] = field(default_factory=list)
    unjudged: list[Unjudged] = field(default_factory=list)
    others: list[FilePosition] = field(default_factory=list)
    """Documents that are no objects of Kubernetes: values of charts, settings of programs."""
    files: int = 0


def read(paths: Iterable[str]) -> Manifests:
    """Every object of files, of folders with their subfolders, and of `-`, the standard input."""
    manifests = Manifests()
    for path_text in paths:
        if path_text == STDIN:
            _input(manifests)
            continue
        path = Path(path_text)
        if path.is_dir():
            _folder(manifests, path)
        else:
            _file(manifests, path)
    return manifests


def read_text(name: str, text: str) -> Manifests:
    """Every object of a text without a file."""
    manifests = Manifests()
    _take(manifests, name, text.encode())
    return manifests


def _input(manifests: Manifests) -> None:
    try:
        _take(manifests, _STDIN_NAME, read_input())
    except OSError as error:
        manifests.unread.append(_no_file(_STDIN_NAME, error))


def _folder(manifests: Manifests, folder: Path) -> None:
    has_content = False
    for home, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith(".") and name not in _NOT_READ)
        if "Chart.yaml" in files:
            place = FilePosition(os.path.relpath(Path(home) / "Chart.yaml"), 1)
            reason = "a chart's source: pipe `helm template` into `tenancy check -`"
            manifests.unjudged.append(Unjudged(place, f"chart {Path(home).name}", reason))
            folders[:], has_content = [], True
            continue
        for name in sorted(files):
            if name.lower().endswith(SUFFIXES) and not name.startswith("."):
                has_content = True
                _file(manifests, Path(home) / name, folder)
    if not has_content:
        place = FilePosition(os.path.relpath(folder), 1)
        manifests.unread.append(
            Unread(place, "a folder without manifests", "files end with .yaml, .yml or .json", "name another")
        )


def _file(manifests: Manifests, path: Path, folder: Path | None = None) -> None:
    """A link in a folder leads to files of that folder or of the current one: the author of a pull request writes
    links too, and a report shows parts of what it reads."""
    path_text = os.path.relpath(path)
    try:
        _take(manifests, Path(path_text).as_posix(), read_file(path, inside=(folder, Path.cwd()) if folder else ()))
    except (OSError, ValueError) as error:
        manifests.unread.append(_no_file(path_text, error))


def _no_file(path_text: str, error: OSError | ValueError) -> Unread:
    reason = getattr(error, "strerror", None) or error
    return Unread(
        FilePosition(path_text, 1), f"no file that can be read ({reason})", "a file, a folder or -", "name another"
    )


def _take(manifests: Manifests, file: str, content: bytes) -> None:
    manifests.files += 1
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        manifests.unread.append(
            Unread(FilePosition(file, line), "bytes that are not UTF-8", "a manifest is text", "save it as UTF-8")
        )
        return
    try:
        read = list(documents(text))
    except yaml.YAMLError as error:
        manifests.unread.append(_broken(text, file, error))
        return
    except (RecursionError, ValueError) as error:
        detail = "a document that is too deep" if isinstance(error, RecursionError) else str(error)
        manifests.unread.append(Unread(FilePosition(file, 1), detail, "a manifest is YAML or JSON", "correct it"))
        return
    keeps = len(content) <= MAX_BYTES
    for document, line in read:
        try:
            items = list(_items(document, line))
            if not items and document[0] not in (None, {}, []):
                _note(manifests, document[0], FilePosition(file, line))
            for item, at_line, node in items:
                if problem := misshapen(item):
                    manifests.unread.append(
                        Unread(FilePosition(file, at_line), problem, "an object of Kubernetes", _CORRECT)
                    )
                    continue
                place = FilePosition(file, at_line, node if keeps else None)
                if detail := mistaken_expression(item):
                    change = "write an expression that the API server compiles"
                    manifests.unread.append(Unread(place.of(detail), detail, "an expression is CEL", change))
                else:
                    manifests.objects.append((item, place))
        except UNREADABLE as error:  # a release's chart and values are looked for where they stand
            detail = f"an object that cannot be read ({error})"
            manifests.unread.append(Unread(FilePosition(file, line), detail, "an object of Kubernetes", _CORRECT))


_SOURCES = "Kustomization"


def _note(manifests: Manifests, document: Any, place: FilePosition) -> None:
    """A document without an object: a file of kustomize, from which objects are made, or one of another program."""
    kind = document.get("kind") if isinstance(document, Mapping) else None
    if kind == _SOURCES or Path(place.file).stem == "kustomization":
        reason = "a source of objects: pipe `kustomize build` into `tenancy check -`"
        manifests.unjudged.append(Unjudged(place, _SOURCES, reason))
    else:
        manifests.others.append(place)


def _broken(text: str, file: str, error: yaml.YAMLError) -> Unread:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    lines = text.rstrip().splitlines() or [""]
    line = min(mark.line + 1 if mark else 1, len(lines))
    source_line = lines[line - 1].strip()
    template = "{{" in text
    change = "pipe `helm template` into `tenancy check -`" if template else "correct it"
    what = " ".join(str(getattr(error, "problem", "") or error).split())
    return Unread(FilePosition(file, line), f"{source_line[:60]!r} ({what})", "a manifest is YAML or JSON", change)


_CORRECT = "write it as the API accepts it; `kubectl explain` shows the form"


def _entries(node: Any, count: int) -> list[Any]:
    """Nodes of the entries of a list, or of the list under `items`."""
    if isinstance(node, yaml.MappingNode):
        node = next((value for key, value in node.value if getattr(key, "value", None) == "items"), None)
    return node.value if isinstance(node, yaml.SequenceNode) else [None] * count


def _items(lined: Lined, line: int) -> Iterator[tuple[Object, int, Any]]:
    """The objects of a document with their lines and nodes: itself, those of a list, or the release of a chart."""
    document, node = lined
    if isinstance(document, list):
        for entry, inner in zip(document, _entries(node, len(document)), strict=False):
            yield from _items((entry, inner), inner.start_mark.line + 1 if inner else line)
        return
    if not isinstance(document, Mapping):
        return
    kind, entries = str(document.get("kind") or ""), document.get("items")
    if kind.endswith("List") and isinstance(entries, list):
        for entry, inner in zip(entries, _entries(node, len(entries)), strict=False):
            if isinstance(entry, Mapping) and not entry.get("kind"):
                entry = {"apiVersion": document.get("apiVersion"), "kind": kind.removesuffix("List"), **entry}
            yield from _items((entry, inner), inner.start_mark.line + 1 if inner else line)
    elif release := _release(document):
        yield release, line, node
    elif kind in GROUPS or (kind and document.get("apiVersion") and _is_named(document)):
        # Configurations of programs have a kind too, but no name: those of kustomize, the kubelet and kind.
        yield placed(document), line, node


def _release(document: Mapping[str, Any]) -> Object | None:
    """A chart's release by Flux, Argo CD or `tenancy render`, in one form."""
    spec, metadata = document.get("spec"), document.get("metadata")
    repository = version = None
    if document.get("kind") == "HelmRelease":
        chart, values = get_path(spec, "chart", "spec", "chart"), get_path(spec, "values")
        more, version = get_path(spec, "valuesFrom"), get_path(spec, "chart", "spec", "version")
    elif document.get("kind") == "Application" and "argoproj.io" in str(document.get("apiVersion")):
        source = get_path(spec, "source") or next(
            (
                source
                for source in get_path(spec, "sources") or ()
                if isinstance(source, Mapping) and source.get("chart")
            ),
            None,
        )
        chart, more = get_path(source, "chart"), get_path(source, "helm", "valueFiles")
        repository, version = get_path(source, "repoURL"), get_path(source, "targetRevision")
        values = get_path(source, "helm", "valuesObject")
        if values is None and isinstance(text := get_path(source, "helm", "values"), str):
            try:
                values = yaml.load(text, Loader=ManifestLoader)
            except yaml.YAMLError:
                values = None
        metadata = {**(metadata or {}), "namespace": get_path(spec, "destination", "namespace")}
    elif "kind" not in document and {"chart", "values", "name"} <= set(document):
        chart, values, more = document["chart"], document["values"], None
        metadata = {"name": document["name"], "namespace": document.get("namespace")}
    else:
        return None
    if not chart:
        return None
    release = {"kind": "Release", "metadata": metadata, "chart": chart, "values": values or {}}
    if repository and not str(repository).startswith(("https://", "http://")):
        release["chart"], repository = f"oci://{str(repository).removeprefix('oci://')}/{chart}", None
    details = {"version": version, "valueYamlFiles": more, "repositoryOpts": repository and {"repo": repository}}
    return {**release, **{key: value for key, value in details.items() if value}}


_TEXTS = (
    ("kind",),
    ("apiVersion",),
    ("metadata", "name"),
    ("metadata", "namespace"),
    ("roleRef", "kind"),
    ("roleRef", "name"),
)
_LISTS = (
    ("rules",),
    ("subjects",),
    ("spec", "ingress"),
    ("spec", "egress"),
    ("spec", "limits"),
    ("spec", "resourceGroups"),
    ("spec", "template", "spec", "containers"),
    ("spec", "containers"),
)
_MAPPINGS = (
    ("metadata",),
    ("metadata", "labels"),
    ("metadata", "annotations"),
    ("spec",),
    ("spec", "hard"),
    ("spec", "template"),
    ("spec", "template", "spec"),
    ("roleRef",),
)


_WITH_EXPRESSIONS = frozenset({"admissionregistration.k8s.io", "resource.k8s.io"})
_EXPRESSION = re.compile(r"expression$", re.IGNORECASE)


def mistaken_expression(item: Object) -> str | None:
    """An expression that is no CEL, with its path and what is wrong with it; None if there is none.

    Functions and types are not judged: Kubernetes has more of them than are known here.
    """
    waiting: list[tuple[str, Any]] = [("spec", item.get("spec"))] if group_of(item) in _WITH_EXPRESSIONS else []
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting += [(f"{path}.{key}", inner) for key, inner in value.items()]
        elif isinstance(value, list):
            waiting += [(f"{path}[{number}]", inner) for number, inner in enumerate(value)]
        elif isinstance(value, str) and _EXPRESSION.search(path) and (mistake := syntax_mistake(value)):
            return f"{path}: {value[:60]!r} ({mistake})"
    return None


def _is_named(item: Object) -> bool:
    return any(isinstance(get_path(item, "metadata", key), str) for key in ("name", "generateName"))


def misshapen(item: Object) -> str | None:
    """A field that rules read and that does not have the form of the API; None if there is none."""
    kind = item.get("kind")
    for path in _TEXTS:
        value = get_path(item, *path)
        if value is not None and not isinstance(value, str):
            return f"{kind} with {'.'.join(path)}: {value!r}"[:200]
    for path in _MAPPINGS:
        value = get_path(item, *path)
        if value is not None and not isinstance(value, Mapping) and path[-1] != "limits":
            return f"{kind} with {'.'.join(path)}: {value!r}"
    if not _is_named(item):
        return f"{kind} without a name"
    for path in _LISTS:
        value = get_path(item, *path)
        if kind in {"NodePool", "NodeOverlay"} or value is None:
            continue
        if not isinstance(value, list) or not all(isinstance(entry, Mapping) for entry in value):
            return f"{kind} with {'.'.join(path)}: {value!r}"[:200]
    return None
