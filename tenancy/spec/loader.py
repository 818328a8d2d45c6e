"""From files to models, or to a list of everything that is wrong with them."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from tenancy.rules.catalogue import Violation
from tenancy.spec.crossfile import Location, crossfile
from tenancy.spec.environment import Environment
from tenancy.spec.tenant import Tenant

ENVIRONMENT_FILE = "environment.yaml"
TENANTS_FOLDER = "tenants"
STACKS_FOLDER = "stacks"
LARGEST_FILE = 1 << 20


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it is, what was given, which rule it broke and what to change."""

    file: str
    line: int
    column: int
    field: str
    given: str
    rule: str
    change: str
    id: str = ""

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}:{self.column}: {self.field}".rstrip(": ")
        rule = f"{self.id}: {self.rule}" if self.id else self.rule
        return f"{at}: given {self.given}; rule {rule}; change: {self.change}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class SpecError(Exception):
    """The files of an environment cannot be used; `problems` says why, all at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda p: (p.file, p.line, p.column, p.field)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Loaded:
    environment: Environment
    tenants: tuple[Tenant, ...]
    folder: Path


class _Loader(yaml.CSafeLoader if hasattr(yaml, "CSafeLoader") else yaml.SafeLoader):  # type: ignore[misc]
    """Refuses what YAML would silently resolve: a key given twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        mapping = super().construct_mapping(node, deep)
        if len(mapping) < len(node.value) and not any(key.tag == "tag:yaml.org,2002:merge" for key, _ in node.value):
            seen: set[Any] = set()
            for key, _ in node.value:
                name = self.construct_object(key, deep=True)
                if name in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"key {name!r} given twice", key.start_mark)
                seen.add(name)
        return mapping


def find_folder(name: str | os.PathLike[str], root: Path | None = None) -> Path:
    """The folder of an environment: a name under `stacks/` of the project, or a folder itself."""
    given = Path(name)
    for base in [root] if root else [Path.cwd(), *Path.cwd().parents]:
        if given.name == str(name) and (base / STACKS_FOLDER / given / ENVIRONMENT_FILE).is_file():
            return base / STACKS_FOLDER / given
    if given.is_dir():
        return given
    known = [
        path.parent.name
        for base in [Path.cwd(), *Path.cwd().parents]
        for path in sorted((base / STACKS_FOLDER).glob(f"*/{ENVIRONMENT_FILE}"))
    ]
    change = f"use one of {', '.join(known)}" if known else f"run it where {STACKS_FOLDER}/ lies, or name a folder"
    raise SpecError([Problem(str(name), 1, 1, "", repr(str(name)), "no such environment", change)])


def load(name: str | os.PathLike[str], root: Path | None = None) -> Loaded:
    """Read an environment and all of its tenants.

    Raises SpecError with every problem found; files are shown relative to the working directory.
    """
    folder = find_folder(name, root)
    problems: list[Problem] = []
    environment = _read(folder / ENVIRONMENT_FILE, Environment, problems)
    tenants, files = [], []
    for path in _tenant_files(folder):
        tenant = _read(path, Tenant, problems)
        if tenant is not None:
            tenants.append(tenant)
            files.append(path)
    if environment is not None:
        if environment.environment != folder.resolve().name:
            given = f"{environment.environment!r} in folder {folder.resolve().name}"
            violation = Violation("name-02", given, "name the environment as its folder")
            problems.append(_problem(folder / ENVIRONMENT_FILE, ("environment",), violation))
        problems += [_problem(files[i], where, violation) for i, where, violation in crossfile(environment, tenants)]
    if problems or environment is None:
        raise SpecError(problems)
    order = sorted(tenants, key=lambda t: t.tenant)
    return Loaded(environment, tuple(order), folder)


def _tenant_files(folder: Path) -> list[Path]:
    return sorted(p for p in (folder / TENANTS_FOLDER).glob("*.y*ml") if p.suffix in {".yaml", ".yml"})


def _read(path: Path, model: type[Any], problems: list[Problem]) -> Any:
    try:
        data = path.read_bytes()
        if len(data) > LARGEST_FILE:
            raise Violation("build-01", f"{len(data)} bytes", f"keep a file below {LARGEST_FILE} bytes")
        document = yaml.load(data.decode("utf-8"), _Loader)
        if not isinstance(document, dict):
            what = "nothing" if document is None else f"a {type(document).__name__}"
            problems.append(Problem(_shown(path), 1, 1, "", what, "a mapping of fields is needed", "see the docs"))
            return None
        return model.model_validate(document)
    except FileNotFoundError:
        change = f"create it, or name the folder that holds {ENVIRONMENT_FILE}"
        problems.append(Problem(_shown(path), 1, 1, "", "no file", "an environment has one", change))
    except (OSError, UnicodeDecodeError) as error:
        problems.append(Problem(_shown(path), 1, 1, "", str(error), "a readable UTF-8 file", "mend the file"))
    except Violation as violation:
        problems.append(_problem(path, (), violation))
    except yaml.YAMLError as error:
        problems.append(_yaml_problem(path, error))
    except RecursionError:
        problems.append(Problem(_shown(path), 1, 1, "", "nesting without end", "plain YAML", "drop the anchors"))
    except ValidationError as error:
        problems += _validation_problems(path, model, error)
    return None


def _shown(path: Path) -> str:
    return os.path.relpath(path)


def _yaml_problem(path: Path, error: yaml.YAMLError) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
    what = getattr(error, "problem", None) or str(error).splitlines()[0]
    return Problem(_shown(path), line, column, "", what, "a file is valid YAML with unique keys", "mend the line")


def _problem(path: Path, where: Location, violation: Violation) -> Problem:
    line, column = _position(path, where)
    rule = violation.rule
    return Problem(
        _shown(path), line, column, _dotted(where), violation.given, rule.title, violation.change, rule.id
    )


def _validation_problems(path: Path, model: type[BaseModel], error: ValidationError) -> Iterator[Problem]:
    for detail in error.errors(include_url=False):
        where = tuple(detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, Violation):
            yield _problem(path, where, cause)
            continue
        given, rule, change = _plain(model, where, detail, cause)
        line, column = _position(path, where, on_key=detail["type"] == "extra_forbidden")
        yield Problem(_shown(path), line, column, _dotted(where), given, rule, change)


def _plain(model: type[BaseModel], where: Location, detail: Any, cause: object) -> tuple[str, str, str]:
    """What was given, the rule and the change, for what pydantic itself found."""
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        known = _fields_at(model, where[:-1])
        close = difflib.get_close_matches(str(where[-1]), known, n=1, cutoff=0.5)
        change = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(known)}"
        return f"key {str(where[-1])!r}", "only known keys are read", change
    if kind == "missing":
        return "nothing", f"{where[-1]!r} is required", f"add {where[-1]}"
    if kind in {"enum", "literal_error"}:
        expected = str(context.get("expected", ""))
        names = [name.strip(" '") for name in expected.replace(" or ", ",").split(",")]
        close = difflib.get_close_matches(str(value), names, n=1, cutoff=0.5)
        change = f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(names)}"
        return _short(value), f"one of {', '.join(names)}", change
    if kind == "string_type" and isinstance(value, bool | int | float):
        return _short(value), "a text is needed", f'quote it: "{value}" (YAML reads it as {type(value).__name__})'
    if kind == "string_pattern_mismatch":
        return _short(value), f"has the form {context['pattern']}", "write it in that form"
    message = str(cause) if cause else detail["msg"][:1].lower() + detail["msg"][1:]
    return _short(value), message, "write a value that the rule admits"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _dotted(where: Location) -> str:
    out = ""
    for part in where:
        out += f"[{part}]" if isinstance(part, int) else f".{part}" if out else str(part)
    return out


def _fields_at(model: type[BaseModel], where: Location) -> list[str]:
    """The keys that a place in a file may have, found by walking the JSON Schema."""
    schema = model.model_json_schema(by_alias=True)
    node: Any = schema
    for part in where:
        node = _resolved(schema, node)
        if isinstance(part, int):
            node = node.get("items", {})
        else:
            node = node.get("properties", {}).get(part) or node.get("additionalProperties") or {}
    return list(_resolved(schema, node).get("properties", {}))


def _resolved(schema: Any, node: Any) -> Any:
    for choice in [node, *node.get("anyOf", []), *node.get("allOf", [])]:
        if "$ref" in choice:
            return schema["$defs"][choice["$ref"].rsplit("/", 1)[1]]
    return node


def _position(path: Path, where: Location, on_key: bool = False) -> tuple[int, int]:
    """Line and column, from 1, of a place in a file: of its value, or of the nearest thing around it."""
    try:
        node = yaml.compose(path.read_text("utf-8"), _Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return 1, 1
    mark = node.start_mark if node else None
    for depth, part in enumerate(where):
        last = depth == len(where) - 1
        if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
            node = node.value[part]
            mark = node.start_mark
        elif isinstance(node, yaml.MappingNode):
            found = next(((k, v) for k, v in node.value if k.value == str(part)), None)
            if found is None:
                break
            mark = found[0].start_mark
            node = found[1]
            if last and not on_key and isinstance(node, yaml.ScalarNode):
                mark = node.start_mark
        else:
            break
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)
