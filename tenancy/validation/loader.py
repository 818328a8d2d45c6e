"""Reads spec files into models, or returns all of their mistakes."""

from __future__ import annotations

import ipaddress
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pydantic import ValidationError

from tenancy.catalog import vocabulary as words
from tenancy.catalog.days import as_deployed
from tenancy.catalog.files import read_file
from tenancy.catalog.text import shown
from tenancy.schema.base import NEEDS_TEXT, Mistake, Spec, broken, written
from tenancy.schema.cluster import Cni, Encryption
from tenancy.schema.environment import Environment, nearest
from tenancy.schema.metrics import Collector
from tenancy.schema.problems import Problem, SpecError, dotted
from tenancy.schema.services import Services
from tenancy.schema.source import Location, UnusableFile, compose, find, read_text, values
from tenancy.schema.tenant import Tenant
from tenancy.validation.crossfile import across
from tenancy.validation.found import ENVIRONMENT
from tenancy.validation.notes import notes, to_come
from tenancy.validation.spec_folder import SpecFolder
from tenancy.validation.validator import require_valid, vouch_for
from tenancy.validation.without_effect import without_effect

if TYPE_CHECKING:
    from tenancy.schema.salvage import ReadableEnvironment

ENVIRONMENT_FILE = "environment.yaml"
TENANTS_FOLDER = "tenants"
STACKS_FOLDER = "stacks"
SUFFIXES = (".yaml", ".yml")
MOST_PROBLEMS = 100
"""Problems of one file that are shown: more of them usually follow from one mistake."""

MOST_NOTES = 200
"""Notes of one environment that are shown: a thousand tenants may have a field without effect each."""

_Model = TypeVar("_Model", bound=Spec)


@dataclass(frozen=True, slots=True)
class Loaded:
    """The spec of an environment as read from its folder."""

    environment: Environment
    tenants: tuple[Tenant, ...]
    folder: Path
    written: Environment | None = None
    """The environment as in its file, if `environment` is the version of it that runs on the lab."""
    ended: tuple[Problem, ...] = ()
    """Of `load_deployed`: entries whose last day has passed."""


def handed_over(loaded: Loaded) -> Loaded:
    """What `load` read in another process of this program, whose models need no second check."""
    vouch_for(loaded.environment, loaded.tenants)
    return loaded


def with_tenants(loaded: Loaded, tenants: tuple[Tenant, ...]) -> Loaded:
    """The environment with what it has of its tenants. They need no second check, in which a pool or a wave might name
    a tenant that is not among them."""
    require_valid(loaded.environment, loaded.tenants)
    vouch_for(loaded.environment, tenants)
    return replace(loaded, tenants=tenants)


ON_LAB = "GPU_TENANCY_ON_LAB"
"""Environment variable of the program of a stack that runs on the lab instead of its cluster."""


def on_lab(loaded: Loaded) -> Loaded:
    """The environment as it runs on the lab: the same tenants and pools on fake nodes, without AWS."""
    environment = loaded.environment
    require_valid(environment, loaded.tenants)
    # No packets are sent on the lab, and no Cilium enforces its policies.
    update = {"context": words.LAB_CONTEXT, "cni": Cni.VPC_CNI, "encryption": Encryption.NONE}
    cluster = environment.cluster.model_copy(update={**update, "mode": None})
    aws = environment.aws.model_copy(update={"enabled": False})
    # No operator reads rules and monitors on the lab; `tenancy lab up --with metrics` evaluates them itself.
    metrics = environment.metrics.model_copy(update={"collector": Collector.NONE})
    # A simulated node runs no program: the clock is a process beside the lab.
    queues = environment.queues.model_copy(update={"clock_image": None})
    update = {"cluster": cluster, "aws": aws, "metrics": metrics, "queues": queues, "services": Services()}
    played = environment.model_copy(update=update)
    # Without what the lab omits (Cilium's host names, roles on AWS), rules are broken that the cluster keeps.
    vouch_for(played, loaded.tenants)
    return replace(loaded, environment=played, written=environment)


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
    known = [p.parent.name for base in bases for p in sorted((base / STACKS_FOLDER).glob(f"*/{ENVIRONMENT_FILE}"))]
    if text and _is_file(text):
        change = "name the folder that contains it"
    elif known:
        change = f"use {' or '.join(nearest(word, known))}, or name a folder that contains {ENVIRONMENT_FILE}"
    else:
        change = f"run it in the folder with {STACKS_FOLDER}/, or name a folder that contains {ENVIRONMENT_FILE}"
    raise SpecError([Problem(shown(text), 1, 1, "", repr(text), "an environment is a folder", change)])


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
            given = "an empty file" if self.document is None else written(self.document)
            self.add(Mistake((), given, rule, change))
            return
        try:
            self.model = kind.from_file(self.document)
        except ValidationError as error:
            from tenancy.schema.messages import explain

            self._mistakes += explain(kind, error)

    def add(self, mistake: Mistake) -> None:
        self._mistakes.append((mistake, False))

    def problems(self) -> Iterator[Problem]:
        """All problems with their places, which are looked up only here: most files have none."""
        for refused in self._refused:
            yield _problem(self.path, *refused.mark, (), refused.given, refused.rule, refused.change)
        nodes = compose(read_text(self._source)) if self._mistakes else None
        for mistake, on_key in self._mistakes[:MOST_PROBLEMS]:
            place = find(nodes, mistake.where)
            # A short form, such as a namespace's name alone: its full form is not in the file.
            where = mistake.where[: place.depth] if place.scalar else mistake.where
            given, change = mistake.given, mistake.change
            if place.written and mistake.rule == NEEDS_TEXT:
                given, change = place.written, change.replace(f'"{given}"', f'"{place.written}"')
            mark = place.key if on_key else place.value
            yield _problem(self.path, *mark, where, given, mistake.rule, change, mistake.id)
        if more := len(self._mistakes[MOST_PROBLEMS:]):
            rule, change = f"a file shows {MOST_PROBLEMS} problems at once", "correct the others first"
            yield _problem(self.path, 10**6, 1, (), f"{more} more problems", rule, change)

    def salvage(self, environment: Environment) -> Tenant | None:
        """The part of a broken tenant that can still be checked; mistakes that the first ones hid are added."""
        if not isinstance(self.document, dict):
            return None
        from tenancy.schema.salvage import salvage

        found = salvage(self.document, environment)
        for mistake in found[1] if found else ():
            self.add(mistake)
        return found[0] if found else None

    def readable(self) -> ReadableEnvironment | None:
        """What can be read of a broken environment; mistakes that the first ones hid are added."""
        if not isinstance(self.document, dict) or self.model:
            return None
        from tenancy.schema.salvage import salvage_environment

        found = salvage_environment(self.document)
        for mistake in found.further if found else ():
            self.add(mistake)
        return found

    @property
    def name(self) -> str:
        """The tenant's name, if it can be read."""
        given = self.document.get("tenant") if isinstance(self.document, dict) else None
        return given if isinstance(given, str) else self.path.stem


def read(path: Path, kind: type[_Model]) -> _Model:
    """The model of one file. Raises SpecError with every problem of it, with line and column."""
    file = _File(path, kind)
    if problems := list(file.problems()):
        raise SpecError(problems)
    if file.model is None:
        raise AssertionError(f"{path}: a file is a model or has problems")
    return file.model


def load(name: str | os.PathLike[str], root: Path | None = None) -> Loaded:
    """Read an environment and all of its tenants.

    Raises SpecError with every problem found; files are shown relative to the working directory.
    """
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
    saved: list[tuple[_File[Tenant], Tenant]] = []
    unread: list[str] = []
    # Without the folder every reference to a tenant would be a further mistake with the same cause.
    whole = environment.model if files or not problems else None
    readable = environment.readable() if whole is None and files else None
    if readable:
        whole = readable.model
    if whole:
        tenants = [tenant.named(whole.namespace_name) for tenant in tenants]
        broken_files = [file for file in files if not file.model]
        saved = [(file, tenant) for file in broken_files if (tenant := file.salvage(whole))]
        saved = [(file, tenant.named(whole.namespace_name)) for file, tenant in saved]
        unread = [file.name for file in broken_files]
    judged = [*read, *(file for file, _ in saved)]
    for index, mistake in across(whole, tenants, [tenant for _, tenant in saved], unread):
        if readable is None or not readable.follows(mistake):
            (environment if index == ENVIRONMENT else judged[index]).add(mistake)
    problems += [problem for file in (environment, *files) for problem in file.problems()]
    if problems or environment.model is None:
        raise SpecError(problems)
    vouch_for(environment.model, tenants)
    return Loaded(environment.model, tuple(sorted(tenants, key=lambda t: t.tenant)), folder)


def load_deployed(name: str | os.PathLike[str]) -> Loaded:
    """Read an environment that was valid when it was deployed: an entry whose last day has passed since then is no
    mistake and has no effect.

    Raises SpecError, as `load` does, if there is any other problem.
    """
    try:
        return load(name)
    except SpecError as error:
        try:
            with as_deployed():
                loaded = load(name)
        except SpecError:
            raise error from None
        return replace(loaded, ended=error.problems)


def linked(path: Path, rule: str) -> Problem | None:
    """A problem for a symbolic link: changes of its target are not reviewed with the environment."""
    return _problem(path, 1, 1, (), "a link", rule, "replace the link by its target") if path.is_symlink() else None


def told(loaded: Loaded, tenant: str | None = None) -> tuple[Problem, ...]:
    """Notes on valid files, with their places; with `tenant`, only those on this tenant."""
    environment, tenants = loaded.environment, loaded.tenants
    among = [each for each in tenants if tenant in (None, each.tenant)]
    found = [(ENVIRONMENT, note) for note in notes(environment, among)]
    found += [(ENVIRONMENT, note) for note in to_come(environment, tenants)]
    if tenant is None:
        found += without_effect(environment, tenants, loaded.written or environment)
    else:
        idle = without_effect(environment, among, loaded.written or environment)
        found += [(tenants.index(among[index]), note) for index, note in idle if index != ENVIRONMENT]
    home = SpecFolder(loaded.folder)
    nodes: dict[Path, Any] = {}
    out = []
    for index, note in found[:MOST_NOTES]:
        path = loaded.folder / ENVIRONMENT_FILE if index == ENVIRONMENT else _file_of(loaded, tenants[index].tenant)
        if path not in nodes:
            nodes[path] = compose(read_text(home.source(path)))
        mark = find(nodes[path], note.where).key
        out.append(_problem(path, *mark, note.where, note.given, note.rule, note.change, note.id))
    if more := len(found[MOST_NOTES:]):
        given, rule = f"{more} more notes", f"{MOST_NOTES} notes are shown at once"
        out.append(_problem(loaded.folder / ENVIRONMENT_FILE, 1, 1, (), given, rule, "follow the others first"))
    return tuple(out)


def _file_of(loaded: Loaded, tenant: str) -> Path:
    home = loaded.folder / TENANTS_FOLDER
    return next((path for suffix in SUFFIXES if (path := home / f"{tenant}{suffix}").exists()), home / f"{tenant}.yaml")


def _environment(home: SpecFolder) -> _File[Environment]:
    path = home.folder / ENVIRONMENT_FILE
    if not os.path.lexists(path):
        other = next((p.name for s in (".yml", ".YAML", ".YML") if (p := path.with_suffix(s)).exists()), None)
        change = (
            f"rename {other} to {ENVIRONMENT_FILE}"
            if other
            else f"create it, or name the folder that contains {ENVIRONMENT_FILE}"
        )
        raise SpecError([_problem(path, 1, 1, (), "no file", f"an environment has an {ENVIRONMENT_FILE}", change)])
    file = _File(path, Environment, home.source(path))
    if file.model:
        for mistake in _misnamed(file.model, home.folder):
            file.add(mistake)
        if name := file.model.aws.network.service_ranges_file:
            _add_ranges(file, home.source(home.folder / name))
    return file


def _add_ranges(file: _File[Environment], path: Path) -> None:
    """Add S3's published ranges of the region to the environment, which then judges them like its own."""
    where: Location = ("aws", "network", "service-ranges-file")
    assert file.model, "of a valid environment"
    rule = "AWS' published list of addresses is a JSON file beside environment.yaml"
    change = "download https://ip-ranges.amazonaws.com/ip-ranges.json"
    try:
        if path.is_symlink():
            raise ValueError("a link")
        found = s3_ranges(json.loads(read_file(path)), file.model.aws.region)
    except (OSError, ValueError, KeyError, TypeError) as error:
        given = error.strerror if isinstance(error, OSError) else error
        file.add(Mistake(where, f"{path.name} ({given})", rule, change))
        return
    if not found:
        given = f"{path.name} without ranges of S3 in region {file.model.aws.region!r}"
        file.add(Mistake(where, given, rule, "write aws.region, or download the list again"))
        return
    network = file.document["aws"]["network"]
    every = [*network.get("service-ranges", ()), *found]
    document = {**file.document, "aws": {**file.document["aws"], "network": {**network, "service-ranges": every}}}
    try:
        file.model = Environment.model_validate(document)
    except ValidationError as error:
        from tenancy.schema.messages import explain

        for mistake, _ in explain(Environment, error):
            file.add(replace(mistake, where=where))


def s3_ranges(published: Mapping[str, Any], region: str) -> list[str]:
    """S3's IPv4 ranges of a region in AWS' published list, adjacent ones joined.

    Raises KeyError, TypeError or ValueError if it is no such list.
    """
    rows = [row for row in published["prefixes"] if (row["service"], row["region"]) == ("S3", region)]
    networks = [ipaddress.IPv4Network(row["ip_prefix"]) for row in rows]
    return [str(network) for network in ipaddress.collapse_addresses(networks)]


def _misnamed(environment: Environment, folder: Path) -> Iterator[Mistake]:
    called = folder.resolve().name
    if environment.environment != called:
        given = f"{environment.environment!r} in folder {called!r}"
        yield broken(("environment",), "name-02", given, "name the environment as its folder")


def _misfiled(file: _File[Tenant]) -> Iterator[Mistake]:
    """The file's name decides who reviews a change, and the tenant's name what it changes: both are the same."""
    if file.model and file.model.tenant != file.path.stem:
        given = f"{file.model.tenant!r} in {file.path.name!r}"
        yield broken(("tenant",), "name-02", given, "name the file as its tenant")


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
        given = "no folder" if isinstance(error, FileNotFoundError) else f"no folder ({error.strerror})"
        change = f"create {TENANTS_FOLDER}/, with a .gitkeep in it while there is no tenant"
        return [], [_problem(home, 1, 1, (), given, f"tenants have their files in {TENANTS_FOLDER}/", change)]
    for path in paths:
        name = home / path.name
        if path.name.startswith(".") or path.name.endswith("~"):
            continue
        if path.suffix in SUFFIXES:
            files.append(name)
        elif path.is_dir() or path.suffix.lower() in {*SUFFIXES, ".json", ".jsonc", ".toml"}:
            given = "a folder" if path.is_dir() else f"suffix {path.suffix!r}"
            change = f"move its files up into {TENANTS_FOLDER}/" if path.is_dir() else "rename it to .yaml"
            rule = f"{TENANTS_FOLDER}/ contains only a .yaml file for each tenant"
            problems.append(_problem(name, 1, 1, (), given, rule, change))
    return files, problems


def _problem(
    path: Path, line: int, column: int, where: Location, given: str, rule: str, change: str, id: str = ""
) -> Problem:
    file = shown(os.path.relpath(path))
    return Problem(file, line, column, dotted(where), shown(given), rule, shown(change), id)
