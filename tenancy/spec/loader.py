"""From files to models, or to a list of everything that is wrong with them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from tenancy.catalog import vocabulary as words
from tenancy.catalog.text import shown
from tenancy.spec.base import NEEDS_TEXT, Mistake, Spec, broken, written
from tenancy.spec.crossfile import ENVIRONMENT, between_tenants, crossfile
from tenancy.spec.environment import Cni, Encryption, Environment, nearest
from tenancy.spec.metrics import Collector
from tenancy.spec.notes import notes
from tenancy.spec.source import Location, Refused, compose, find, read_text, values
from tenancy.spec.tenant import Tenant

ENVIRONMENT_FILE = "environment.yaml"
TENANTS_FOLDER = "tenants"
STACKS_FOLDER = "stacks"
SUFFIXES = (".yaml", ".yml")
MOST_PROBLEMS = 100
"""Of one file: whoever has more has one mistake that breaks everything below it."""

_Model = TypeVar("_Model", bound=Spec)


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
        at = f"{self.file}:{self.line}:{self.column}:"
        field = f" {self.field}:" if self.field else ""
        rule = f"{self.id}: {self.rule}" if self.id else self.rule
        return f"{at}{field} given {self.given}; rule {rule}; change: {self.change}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class SpecError(Exception):
    """The files of an environment cannot be used; `problems` says why, all at once."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        unique = dict.fromkeys(problems)
        self.problems = tuple(sorted(unique, key=lambda p: (p.file, p.line, p.column, p.field, p.given)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Loaded:
    environment: Environment
    tenants: tuple[Tenant, ...]
    folder: Path


ON_LAB = "GPU_TENANCY_ON_LAB"
"""Set for the program of a stack whose cluster the lab stands in for."""


def on_lab(loaded: Loaded) -> Loaded:
    """The environment as the lab plays it: the same tenants and pools on fake nodes, and nothing on AWS."""
    environment = loaded.environment
    # Nothing there sends packets, and no Cilium runs that would know its policies.
    update = {"context": words.LAB_CONTEXT, "cni": Cni.VPC_CNI, "encryption": Encryption.NONE}
    cluster = environment.cluster.model_copy(update=update)
    aws = environment.aws.model_copy(update={"enabled": False})
    # No operator runs there that would know rules and monitors; `tenancy lab up --with metrics` evaluates them itself.
    metrics = environment.metrics.model_copy(update={"collector": Collector.NONE})
    played = environment.model_copy(update={"cluster": cluster, "aws": aws, "metrics": metrics})
    return replace(loaded, environment=played)


def find_folder(name: str | os.PathLike[str], root: Path | None = None) -> Path:
    """The folder of an environment: a name under `stacks/` of the project, or a folder itself."""
    text = os.fspath(name)
    bases = [root] if root else [Path.cwd(), *Path.cwd().parents]
    word = text.rstrip("/")
    if word and "/" not in word and word not in {".", ".."}:
        for base in bases:
            if _is_file(base / STACKS_FOLDER / word / ENVIRONMENT_FILE):
                return base / STACKS_FOLDER / word
    if text and _is_folder(text):
        return Path(text)
    known = [p.parent.name for base in bases for p in sorted((base / STACKS_FOLDER).glob(f"*/{ENVIRONMENT_FILE}"))]
    if text and _is_file(text):
        change = "name the folder that holds it"
    elif known:
        change = f"use {' or '.join(nearest(word, known))}, or name a folder that holds {ENVIRONMENT_FILE}"
    else:
        change = f"run it where {STACKS_FOLDER}/ lies, or name a folder that holds {ENVIRONMENT_FILE}"
    raise SpecError([Problem(shown(text), 1, 1, "", repr(text), "an environment is a folder", change)])


def _is_file(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - a Path raises for a name that is too long


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - likewise


class _File(Generic[_Model]):
    """One spec file, its model if it has one, and what is wrong with it."""

    def __init__(self, path: Path, kind: type[_Model]) -> None:
        self.path = path
        self.model: _Model | None = None
        self.document: Any = None
        self._refused: list[Refused] = []
        self._mistakes: list[tuple[Mistake, bool]] = []
        try:
            self.document, self._refused = values(compose(read_text(path)))
        except Refused as refused:
            self._refused = [refused]
            return
        if not isinstance(self.document, dict):
            needed = [info.alias or name for name, info in kind.model_fields.items() if info.is_required()]
            rule, change = "a file is a mapping of fields", f"write at least {', '.join(needed)}"
            self.add(Mistake((), written(self.document), rule, change))
            return
        try:
            self.model = kind.model_validate(self.document)
        except ValidationError as error:
            from tenancy.spec.messages import explain

            self._mistakes += explain(kind, error)

    def add(self, mistake: Mistake) -> None:
        self._mistakes.append((mistake, False))

    def problems(self) -> Iterator[Problem]:
        """All of them with their places, which are looked up only now: most files have none."""
        for refused in self._refused:
            yield _problem(self.path, *refused.mark, (), refused.given, refused.rule, refused.change)
        nodes = compose(read_text(self.path)) if self._mistakes else None
        for mistake, on_key in self._mistakes[:MOST_PROBLEMS]:
            place = find(nodes, mistake.where)
            # A short form, such as a part's name alone: what it stands for is not in the file.
            where = mistake.where[: place.depth] if place.scalar else mistake.where
            given, change = mistake.given, mistake.change
            if place.written and mistake.rule == NEEDS_TEXT:
                given, change = place.written, change.replace(f'"{given}"', f'"{place.written}"')
            mark = place.key if on_key else place.value
            yield _problem(self.path, *mark, where, given, mistake.rule, change, mistake.id)
        if more := len(self._mistakes[MOST_PROBLEMS:]):
            rule, change = f"a file shows {MOST_PROBLEMS} problems at once", "mend the others first"
            yield _problem(self.path, 10**6, 1, (), f"{more} problems more", rule, change)

    def salvage(self, environment: Environment) -> Tenant | None:
        """What can be judged of a tenant all the same."""
        if not isinstance(self.document, dict):
            return None
        from tenancy.spec.salvage import salvage

        return salvage(self.document, environment)

    @property
    def name(self) -> str:
        """What the tenant would be called, as far as one can tell."""
        given = self.document.get("tenant") if isinstance(self.document, dict) else None
        return given if isinstance(given, str) else self.path.stem


def load(name: str | os.PathLike[str], root: Path | None = None) -> Loaded:
    """Read an environment and all of its tenants.

    Raises SpecError with every problem found; files are shown relative to the working directory.
    """
    folder = find_folder(name, root)
    if problem := linked(folder, "an environment is a folder of its own"):
        raise SpecError([problem])
    environment = _environment(folder)
    paths, problems = _tenant_files(folder)
    files = [_File(path, Tenant) for path in paths]
    read = [file for file in files if file.model]
    tenants = [file.model for file in read if file.model]
    for file in read:
        for mistake in _misfiled(file):
            file.add(mistake)
    for index, mistake in between_tenants(tenants):
        read[index].add(mistake)
    # Without the folder every reference to a tenant would be wrong, and say nothing new.
    if environment.model and (files or not problems):
        broken_files = [file for file in files if not file.model]
        saved = [(file, tenant) for file in broken_files if (tenant := file.salvage(environment.model))]
        judged = [*read, *(file for file, _ in saved)]
        unread = [file.name for file in broken_files]
        for index, mistake in crossfile(environment.model, [*tenants, *(tenant for _, tenant in saved)], unread):
            (environment if index == ENVIRONMENT else judged[index]).add(mistake)
    problems += [problem for file in (environment, *files) for problem in file.problems()]
    if problems or environment.model is None:
        raise SpecError(problems)
    return Loaded(environment.model, tuple(sorted(tenants, key=lambda t: t.tenant)), folder)


def linked(path: Path, rule: str) -> Problem | None:
    """What is wrong with a path that leads somewhere else: who reviews what is there, nobody here can tell."""
    return _problem(path, 1, 1, (), "a link", rule, "put what it leads to there itself") if path.is_symlink() else None


def told(loaded: Loaded) -> tuple[Problem, ...]:
    """What is not wrong and should be known, with its place."""
    path = loaded.folder / ENVIRONMENT_FILE
    found = list(notes(loaded.environment, loaded.tenants))
    nodes = compose(read_text(path)) if found else None
    return tuple(
        _problem(path, *find(nodes, note.where).key, note.where, note.given, note.rule, note.change, note.id)
        for note in found
    )


def _environment(folder: Path) -> _File[Environment]:
    path = folder / ENVIRONMENT_FILE
    if not os.path.lexists(path):
        other = next((p.name for s in (".yml", ".YAML", ".YML") if (p := path.with_suffix(s)).exists()), None)
        change = (
            f"rename {other} to {ENVIRONMENT_FILE}"
            if other
            else f"create it, or name the folder that holds {ENVIRONMENT_FILE}"
        )
        raise SpecError([_problem(path, 1, 1, (), "no file", f"an environment has an {ENVIRONMENT_FILE}", change)])
    file = _File(path, Environment)
    if file.model:
        for mistake in _misnamed(file.model, folder):
            file.add(mistake)
    return file


def _misnamed(environment: Environment, folder: Path) -> Iterator[Mistake]:
    called = folder.resolve().name
    if environment.environment != called:
        given = f"{environment.environment!r} in folder {called!r}"
        yield broken(("environment",), "name-02", given, "name the environment as its folder")


def _misfiled(file: _File[Tenant]) -> Iterator[Mistake]:
    """Who reviews a change is told by the file's name, and what it changes by the tenant's."""
    if file.model and file.model.tenant != file.path.stem:
        given = f"{file.model.tenant!r} in {file.path.name!r}"
        yield broken(("tenant",), "name-02", given, "name the file as its tenant")


def _tenant_files(folder: Path) -> tuple[list[Path], list[Problem]]:
    """The tenants' files, and everything else that lies there: a file that is not read is a tenant that goes."""
    home = folder / TENANTS_FOLDER
    files: list[Path] = []
    problems: list[Problem] = []
    if problem := linked(home, f"tenants have their files in {TENANTS_FOLDER}/"):
        return [], [problem]
    try:
        paths = sorted(home.iterdir())
    except OSError as error:
        given = "no folder" if isinstance(error, FileNotFoundError) else f"no folder ({error.strerror})"
        change = f"create {TENANTS_FOLDER}/, with a .gitkeep in it while there is no tenant"
        return [], [_problem(home, 1, 1, (), given, f"tenants have their files in {TENANTS_FOLDER}/", change)]
    for path in paths:
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.suffix in SUFFIXES:
            files.append(path)
        elif path.is_dir() or path.suffix.lower() in {*SUFFIXES, ".json", ".jsonc", ".toml"}:
            given = "a folder" if path.is_dir() else f"suffix {path.suffix!r}"
            change = f"move its files up into {TENANTS_FOLDER}/" if path.is_dir() else "rename it to .yaml"
            rule = f"{TENANTS_FOLDER}/ holds a .yaml file for each tenant"
            problems.append(_problem(path, 1, 1, (), given, rule, change))
    return files, problems


def _problem(
    path: Path, line: int, column: int, where: Location, given: str, rule: str, change: str, id: str = ""
) -> Problem:
    file = shown(os.path.relpath(path))
    return Problem(file, line, column, _dotted(where), shown(given), rule, shown(change), id)


def _dotted(where: Location) -> str:
    out = ""
    for part in where:
        out += f"[{part}]" if isinstance(part, int) else f"{'.' if out else ''}{shown(part)}"
    return out
