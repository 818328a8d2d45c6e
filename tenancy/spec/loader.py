"""Reads spec files into models, or returns all of their mistakes."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from tenancy.catalog import vocabulary
from tenancy.catalog.days import today
from tenancy.catalog.files import read_file
from tenancy.catalog.text import escape_invisible
from tenancy.spec.checks.crossfile import check_all
from tenancy.spec.checks.indexed_mistakes import ENVIRONMENT_INDEX
from tenancy.spec.checks.notes import notes, tenants_without_file
from tenancy.spec.checks.validator import ValidSpec
from tenancy.spec.checks.without_effect import without_effect
from tenancy.spec.fields.base import Spec
from tenancy.spec.fields.cluster import Cni, Encryption
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.metrics import Collector
from tenancy.spec.fields.services import Services
from tenancy.spec.fields.tenant import Tenant
from tenancy.spec.reading.mistakes import NEEDS_TEXT, Mistake, describe_value, nearest, rule_mistake
from tenancy.spec.reading.problems import Problem, SpecError, dotted_path
from tenancy.spec.reading.source import Location, UnusableFile, compose, find, read_text, values
from tenancy.spec.reading.spec_folder import SpecFolder

if TYPE_CHECKING:
    from tenancy.spec.salvage import ReadableEnvironment

ENVIRONMENT_FILE = "environment.yaml"
TENANTS_FOLDER = "tenants"
STACKS_FOLDER = "stacks"
SUFFIXES = (".yaml", ".yml")
MAX_PROBLEMS = 100
"""Problems of one file that are shown: more of them usually follow from one mistake."""

MAX_NOTES = 200
"""Notes of one environment that are shown: a thousand tenants may have a field without effect each."""

_Model = TypeVar("_Model", bound=Spec)


@dataclass(frozen=True, slots=True)
class Loaded(ValidSpec):
    """The spec of an environment as read from its folder."""

    folder: Path
    day: dt.date
    """The day on which it was read and is valid."""
    file_environment: Environment | None = None
    """The environment as in its file, if `environment` is the version of it that runs on the lab."""
    ended: tuple[Problem, ...] = ()
    """Problems of `load_deployed`: entries whose last day has passed."""


ON_LAB = "GPU_TENANCY_ON_LAB"
"""Environment variable of the program of a stack that runs on the lab instead of its cluster."""


def on_lab(loaded: Loaded) -> Loaded:
    """The environment as it runs on the lab: the same tenants and pools on fake nodes, without AWS.

    Without what the lab omits (Cilium's host names, roles on AWS), rules are broken that the cluster keeps.
    """
    environment = loaded.environment
    # No packets are sent on the lab, and no Cilium enforces its policies.
    update = {"context": vocabulary.LAB_CONTEXT, "cni": Cni.VPC_CNI, "encryption": Encryption.NONE}
    cluster = environment.cluster.model_copy(update={**update, "mode": None})
    aws = environment.aws.model_copy(update={"enabled": False})
    # No operator reads rules and monitors on the lab; `tenancy lab up --with metrics` evaluates them itself.
    metrics = environment.metrics.model_copy(update={"collector": Collector.NONE})
    # A simulated node runs no program: the clock is a process beside the lab.
    queues = environment.queues.model_copy(update={"clock_image": None})
    update = {"cluster": cluster, "aws": aws, "metrics": metrics, "queues": queues, "services": Services()}
    return replace(loaded, environment=environment.model_copy(update=update), file_environment=environment)


def find_folder(name: str | os.PathLike[str], root: Path | None = None) -> Path:
    """The folder of an environment, given by a name under `stacks/` of the project or by its path."""
    text = os.fspath(name)
    bases = [root] if root else [Path.cwd(), *Path.cwd().parents]
    word = text.rstrip("/")
    if word and "/" not in word and word not in {".", ".."}:
        for base in bases:
            if _is_file(base / STACKS_FOLDER / word / ENVIRONMENT_FILE):
                return base / STACKS_FOLDER / word
    if text and _is_folder(text):
        return Path(text)
    environment_names = [
        p.parent.name for base in bases for p in sorted((base / STACKS_FOLDER).glob(f"*/{ENVIRONMENT_FILE}"))
    ]
    if text and _is_file(text):
        change = "name the folder that contains it"
    elif environment_names:
        change = (
            f"use {' or '.join(nearest(word, environment_names))}, or name a folder that contains {ENVIRONMENT_FILE}"
        )
    else:
        change = f"run it in the folder with {STACKS_FOLDER}/, or name a folder that contains {ENVIRONMENT_FILE}"
    raise SpecError([Problem(escape_invisible(text), 1, 1, "", repr(text), "an environment is a folder", change)])


def _is_file(path: str | os.PathLike[str]) -> bool:
    return os.path.isfile(path)  # noqa: PTH113 - a Path raises for a name that is too long


def _is_folder(path: str) -> bool:
    return os.path.isdir(path)  # noqa: PTH112 - likewise


class _File(Generic[_Model]):
    """One spec file, its model if it is valid, and its mistakes. `source` is where it is read, `path` by default."""

    def __init__(self, path: Path, kind: type[_Model], source: Path | None = None) -> None:
        self.path = path
        self._source = source or path
        self.model: _Model | None = None
        self.document: Any = None
        self._refused: list[UnusableFile] = []
        self._mistakes: list[tuple[Mistake, bool]] = []
        try:
            self.document, self._refused = values(compose(read_text(self._source)))
        except UnusableFile as refused:
            self._refused = [refused]
            return
        if not isinstance(self.document, dict):
            needed = [info.alias or name for name, info in kind.model_fields.items() if info.is_required()]
            rule, change = "a file is a mapping of fields", f"write at least {', '.join(needed)}"
            fault = "an empty file" if self.document is None else describe_value(self.document)
            self.add(Mistake((), fault, rule, change))
            return
        try:
            self.model = kind.from_file(self.document)
        except ValidationError as error:
            from tenancy.spec.reading.messages import located_mistakes

            self._mistakes += located_mistakes(kind, error)

    def add(self, mistake: Mistake) -> None:
        self._mistakes.append((mistake, False))

    def problems(self) -> Iterator[Problem]:
        """All problems with their places, which are looked up only here: most files have none."""
        for part in self._refused:
            yield _problem(self.path, *part.mark, (), part.given, part.rule, part.change)
        nodes = compose(read_text(self._source)) if self._mistakes else None
        for mistake, on_key in self._mistakes[:MAX_PROBLEMS]:
            position = find(nodes, mistake.location)
            # A short form, such as a namespace's name alone: its full form is not in the file.
            location = mistake.location[: position.depth] if position.is_scalar else mistake.location
            fault, change = mistake.given, mistake.change
            if position.scalar_text and mistake.rule == NEEDS_TEXT:
                fault, change = position.scalar_text, change.replace(f'"{fault}"', f'"{position.scalar_text}"')
            mark = position.key if on_key else position.value
            yield _problem(self.path, *mark, location, fault, mistake.rule, change, mistake.id)
        if more := len(self._mistakes[MAX_PROBLEMS:]):
            rule, change = f"a file shows {MAX_PROBLEMS} problems at once", "correct the others first"
            yield _problem(self.path, 10**6, 1, (), f"{more} more problems", rule, change)

    def salvage(self, environment: Environment) -> Tenant | None:
        """The part of a broken tenant that can still be checked; mistakes that the first ones hid are added."""
        if not isinstance(self.document, dict):
            return None
        from tenancy.spec.salvage import salvage

        partial_tenant = salvage(self.document, environment)
        for mistake in partial_tenant[1] if partial_tenant else ():
            self.add(mistake)
        return partial_tenant[0] if partial_tenant else None

    def readable(self) -> ReadableEnvironment | None:
        """Readable part of a broken environment; mistakes that the first ones hid are added."""
        if not isinstance(self.document, dict) or self.model:
            return None
        from tenancy.spec.salvage import salvage_environment

        readable = salvage_environment(self.document)
        for mistake in readable.further if readable else ():
            self.add(mistake)
        return readable

    @property
    def name(self) -> str:
        """The tenant's name, if it can be read."""
        tenant_name = self.document.get("tenant") if isinstance(self.document, dict) else None
        return tenant_name if isinstance(tenant_name, str) else self.path.stem


def read(path: Path, kind: type[_Model]) -> _Model:
    """The model of one file. Raises SpecError with every problem of it, with line and column."""
    file = _File(path, kind)
    if problems := list(file.problems()):
        raise SpecError(problems)
    if file.model is None:
        raise AssertionError(f"{path}: a file is a model or has problems")
    return file.model


def load(name: str | os.PathLike[str], root: Path | None = None, day: dt.date | None = None) -> Loaded:
    """Read an environment and all of its tenants, which have to be valid on `day`, by default today in UTC.

    Raises SpecError with every problem found; files are shown relative to the working directory.
    """
    return _load(name, root, day or today(), refuse_past=True)


def _load(name: str | os.PathLike[str], root: Path | None, day: dt.date, *, refuse_past: bool) -> Loaded:
    folder = find_folder(name, root)
    if problem := linked(folder, "an environment is a folder of its own"):
        raise SpecError([problem])
    home = SpecFolder(folder)
    environment = _environment(home)
    paths, problems = _tenant_files(home)
    files = [_File(path, Tenant, home.source(path)) for path in paths]
    read = [file for file in files if file.model]
    tenants = [file.model for file in read if file.model]
    for file in read:
        for mistake in _misfiled(file):
            file.add(mistake)
    salvaged: list[tuple[_File[Tenant], Tenant]] = []
    unreadable_names: list[str] = []
    # Without the folder every reference to a tenant would be a further mistake with the same cause.
    base_environment = environment.model if files or not problems else None
    readable = environment.readable() if base_environment is None and files else None
    if readable:
        base_environment = readable.model
    if base_environment:
        tenants = [tenant.with_namespace_names(base_environment.namespace_name) for tenant in tenants]
        broken_files = [file for file in files if not file.model]
        salvaged = [(file, tenant) for file in broken_files if (tenant := file.salvage(base_environment))]
        salvaged = [(file, tenant.with_namespace_names(base_environment.namespace_name)) for file, tenant in salvaged]
        unreadable_names = [file.name for file in broken_files]
    checked_files = [*read, *(file for file, _ in salvaged)]
    mistakes = check_all(
        base_environment,
        tenants,
        day,
        [tenant for _, tenant in salvaged],
        unreadable_names,
        refuse_past=refuse_past,
    )
    for index, mistake in mistakes:
        if readable is None or not readable.may_follow_from_dropped(mistake):
            (environment if index == ENVIRONMENT_INDEX else checked_files[index]).add(mistake)
    problems += [*environment.problems(), *(problem for file in files for problem in file.problems())]
    if problems or environment.model is None:
        raise SpecError(problems)
    return Loaded(environment.model, tuple(sorted(tenants, key=lambda t: t.tenant)), folder, day)


def load_deployed(name: str | os.PathLike[str], day: dt.date | None = None) -> Loaded:
    """Read an environment that was valid when it was deployed: an entry whose last day has passed since then is no
    mistake and has no effect.

    Raises SpecError, as `load` does, if there is any other problem.
    """
    day = day or today()
    try:
        return load(name, day=day)
    except SpecError as error:
        try:
            loaded = _load(name, None, day, refuse_past=False)
        except SpecError:
            raise error from None
        return replace(loaded, ended=error.problems)


def linked(path: Path, rule: str) -> Problem | None:
    """A problem for a symbolic link: changes of its target are not reviewed with the environment."""
    return _problem(path, 1, 1, (), "a link", rule, "replace the link by its target") if path.is_symlink() else None


def spec_notes(loaded: Loaded, tenant: str | None = None) -> tuple[Problem, ...]:
    """Notes on valid files, with their places; with `tenant`, only those on this tenant."""
    environment, tenants = loaded.environment, loaded.tenants
    selected_tenants = [candidate for candidate in tenants if tenant in (None, candidate.tenant)]
    indexed_notes = [(ENVIRONMENT_INDEX, note) for note in notes(environment, selected_tenants)]
    indexed_notes += [(ENVIRONMENT_INDEX, note) for note in tenants_without_file(environment, tenants)]
    if tenant is None:
        indexed_notes += without_effect(environment, tenants, loaded.file_environment or environment)
    else:
        ineffective_fields = without_effect(environment, selected_tenants, loaded.file_environment or environment)
        indexed_notes += [
            (tenants.index(selected_tenants[index]), note)
            for index, note in ineffective_fields
            if index != ENVIRONMENT_INDEX
        ]
    home = SpecFolder(loaded.folder)
    nodes: dict[Path, Any] = {}
    problems = []
    for index, note in indexed_notes[:MAX_NOTES]:
        path = (
            loaded.folder / ENVIRONMENT_FILE if index == ENVIRONMENT_INDEX else _file_of(loaded, tenants[index].tenant)
        )
        if path not in nodes:
            nodes[path] = compose(read_text(home.source(path)))
        mark = find(nodes[path], note.location).key
        problems.append(_problem(path, *mark, note.location, note.given, note.rule, note.change, note.id))
    if more := len(indexed_notes[MAX_NOTES:]):
        fault, rule = f"{more} more notes", f"{MAX_NOTES} notes are shown at once"
        problems.append(_problem(loaded.folder / ENVIRONMENT_FILE, 1, 1, (), fault, rule, "follow the others first"))
    return tuple(problems)


def _file_of(loaded: Loaded, tenant: str) -> Path:
    home = loaded.folder / TENANTS_FOLDER
    return next((path for suffix in SUFFIXES if (path := home / f"{tenant}{suffix}").exists()), home / f"{tenant}.yaml")


def _environment(home: SpecFolder) -> _File[Environment]:
    path = home.folder / ENVIRONMENT_FILE
    if not os.path.lexists(path):
        misnamed_file = next((p.name for s in (".yml", ".YAML", ".YML") if (p := path.with_suffix(s)).exists()), None)
        change = (
            f"rename {misnamed_file} to {ENVIRONMENT_FILE}"
            if misnamed_file
            else f"create it, or name the folder that contains {ENVIRONMENT_FILE}"
        )
        raise SpecError([_problem(path, 1, 1, (), "no file", f"an environment has an {ENVIRONMENT_FILE}", change)])
    file = _File(path, Environment, home.source(path))
    if file.model:
        for mistake in _misnamed(file.model, home.folder):
            file.add(mistake)
        if name := file.model.aws.network.aws_ip_ranges_file:
            _add_ranges(file, home.source(home.folder / name))
    return file


def _add_ranges(file: _File[Environment], path: Path) -> None:
    """Add S3's published ranges of the region to the environment, which then judges them like its own."""
    location: Location = ("aws", "network", "aws-ip-ranges-file")
    assert file.model, "of a valid environment"
    rule = "AWS' published list of addresses is a JSON file beside environment.yaml"
    change = "download https://ip-ranges.amazonaws.com/ip-ranges.json"
    try:
        if path.is_symlink():
            raise ValueError("a link")
        ranges = s3_ranges(json.loads(read_file(path)), file.model.aws.region)
    except (OSError, ValueError, KeyError, TypeError) as error:
        fault = error.strerror if isinstance(error, OSError) else error
        file.add(Mistake(location, f"{path.name} ({fault})", rule, change))
        return
    if not ranges:
        fault = f"{path.name} without ranges of S3 in region {file.model.aws.region!r}"
        file.add(Mistake(location, fault, rule, "write aws.region, or download the list again"))
        return
    network = file.document["aws"]["network"]
    service_ranges = [*network.get("aws-service-cidrs", ()), *ranges]
    document = {
        **file.document,
        "aws": {**file.document["aws"], "network": {**network, "aws-service-cidrs": service_ranges}},
    }
    try:
        file.model = Environment.model_validate(document)
    except ValidationError as error:
        from tenancy.spec.reading.messages import located_mistakes

        for mistake, _ in located_mistakes(Environment, error):
            file.add(replace(mistake, location=location))


def s3_ranges(published: Mapping[str, Any], region: str) -> list[str]:
    """S3's IPv4 ranges of a region in AWS' published list, adjacent ones joined.

    Raises KeyError, TypeError or ValueError if it is no such list.
    """
    rows = [row for row in published["prefixes"] if (row["service"], row["region"]) == ("S3", region)]
    networks = [ipaddress.IPv4Network(row["ip_prefix"]) for row in rows]
    return [str(network) for network in ipaddress.collapse_addresses(networks)]


def _misnamed(environment: Environment, folder: Path) -> Iterator[Mistake]:
    folder_name = folder.resolve().name
    if environment.environment != folder_name:
        fault = f"{environment.environment!r} in folder {folder_name!r}"
        yield rule_mistake(("environment",), "name-02", fault, "name the environment as its folder")


def _misfiled(file: _File[Tenant]) -> Iterator[Mistake]:
    """The file's name decides who reviews a change, and the tenant's name what it changes: both are the same."""
    if file.model and file.model.tenant != file.path.stem:
        fault = f"{file.model.tenant!r} in {file.path.name!r}"
        yield rule_mistake(("tenant",), "name-02", fault, "name the file as its tenant")


def _tenant_files(spec: SpecFolder) -> tuple[list[Path], list[Problem]]:
    """The tenants' files, and a problem for every other file: a tenant whose file is not read would be removed."""
    home = spec.folder / TENANTS_FOLDER
    files: list[Path] = []
    problems: list[Problem] = []
    if problem := linked(spec.source(home), f"tenants have their files in {TENANTS_FOLDER}/"):
        return [], [problem]
    try:
        paths = list(spec.entries(TENANTS_FOLDER))
    except OSError as error:
        fault = "no folder" if isinstance(error, FileNotFoundError) else f"no folder ({error.strerror})"
        change = f"create {TENANTS_FOLDER}/, with a .gitkeep in it while there is no tenant"
        return [], [_problem(home, 1, 1, (), fault, f"tenants have their files in {TENANTS_FOLDER}/", change)]
    for path in paths:
        name = home / path.name
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.suffix in SUFFIXES:
            files.append(name)
        elif path.is_dir() or path.suffix.lower() in {*SUFFIXES, ".json", ".jsonc", ".toml"}:
            fault = "a folder" if path.is_dir() else f"suffix {path.suffix!r}"
            change = f"move its files up into {TENANTS_FOLDER}/" if path.is_dir() else "rename it to .yaml"
            rule = f"{TENANTS_FOLDER}/ contains only a .yaml file for each tenant"
            problems.append(_problem(name, 1, 1, (), fault, rule, change))
    return files, problems


def _problem(
    path: Path, line: int, column: int, location: Location, fault: str, rule: str, change: str, id: str = ""
) -> Problem:
    file = escape_invisible(os.path.relpath(path))
    return Problem(
        file, line, column, dotted_path(location), escape_invisible(fault), rule, escape_invisible(change), id
    )
