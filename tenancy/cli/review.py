"""`tenancy report access`: the review, with the lines of the files that it rests on and since when they stand."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tenancy.cli.report import Table
from tenancy.plan.access_review import BREAK_GLASS, CI, IAM_ROLE, IS_GROUP, SERVICE_ACCOUNT, Binding, Entry, Right
from tenancy.spec import Loaded
from tenancy.spec.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER
from tenancy.spec.source import compose, find, read_text

if TYPE_CHECKING:
    from tenancy.live.api import Api
    from tenancy.plan import Plan

NOT_COMMITTED = "not committed"
NO_GIT = "no git"
SHORT = 7
"""Characters of a commit's name."""
_NOBODY = "0" * 40
"""What blame calls the commit of a line that is in none."""


class Told(NamedTuple):
    """An entry with its line."""

    entry: Entry
    file: str
    line: int
    since: str
    """Date and commit, or why there is none."""

    @property
    def day(self) -> str:
        """As tables show it; the commit is in JSON."""
        return self.since if self.since in {NOT_COMMITTED, NO_GIT} else self.since.partition(" ")[0]

    def as_dict(self) -> dict[str, Any]:
        e = self.entry
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in e.field).lstrip(".")
        about = {"tenant": e.tenant or None, "kind": e.kind, "who": e.who, "may": e.role, "where": list(e.where)}
        return {**about, "file": self.file, "line": self.line, "field": field, "since": self.since}


def told(loaded: Loaded, entries: Iterable[Entry]) -> list[Told]:
    """Where each entry is written, and since when the line has stood as it is."""
    files = _files(loaded.folder)
    nodes = {name: compose(read_text(path)) for name, path in files.items()}
    ages: dict[str, list[str]] = {}
    found = []
    for entry in entries:
        path = files[entry.file]
        line = find(nodes[entry.file], entry.field).value.line
        since = ages.setdefault(entry.file, _ages(path))
        found.append(Told(entry, os.path.relpath(path), line, since[line - 1] if line <= len(since) else NOT_COMMITTED))
    return found


def _files(folder: Path) -> dict[str, Path]:
    """The file of each tenant by its name; that of the environment by none."""
    paths = [path for path in sorted((folder / TENANTS_FOLDER).iterdir()) if path.suffix in SUFFIXES]
    return {"": folder / ENVIRONMENT_FILE, **{path.stem: path for path in paths if path.name[0] != "."}}


def _ages(path: Path) -> list[str]:
    """For each line of a file the day and commit that made it what it is."""
    lines = len(path.read_bytes().splitlines())
    try:
        if _git(path, "rev-parse", "--is-inside-work-tree") is None:
            return [NO_GIT] * lines
        blamed = _git(path, "blame", "--line-porcelain", "--", path.name)
    except OSError:
        return [NO_GIT] * lines
    if blamed is None:
        return [NOT_COMMITTED] * lines
    found, commit = [], ""
    for text in blamed.splitlines():
        first, _, rest = text.partition(" ")
        if len(first) == len(_NOBODY) and rest[:1].isdigit():
            commit = first
        elif first == "committer-time":
            # In UTC, so that a report is the same wherever it is made.
            day = dt.datetime.fromtimestamp(int(rest), dt.UTC).date().isoformat()
            found.append(NOT_COMMITTED if commit == _NOBODY else f"{day} {commit[:SHORT]}")
    return found


def _git(path: Path, *command: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(path.parent), *command], capture_output=True, text=True, errors="replace", check=False
    )
    return done.stdout if done.returncode == 0 else None


def chosen(entries: Iterable[Entry], tenant: str | None, who: str | None) -> list[Entry]:
    """Of one tenant, with the platform, which gets in everywhere; of one name, or of the group that an IAM role is."""

    def group(entry: Entry) -> str:
        return entry.role.removeprefix(IS_GROUP).partition(",")[0] if entry.role.startswith(IS_GROUP) else ""

    return [e for e in entries if (tenant is None or e.tenant in {"", tenant}) and who in {None, e.who, group(e)}]


def differences(api: Api, plan: Plan, tenant: str | None) -> tuple[list[Binding], list[Binding]]:
    """Bindings of the cluster that the files do not have, and the other way round.

    Of those that hold in the whole cluster, the ones to somebody whom the files let into a namespace.
    """
    from tenancy.live.api import collection
    from tenancy.plan.access_review import bindings, planned

    wanted = {b for b in planned(plan) if tenant is None or b.namespace in _spaces(plan, tenant)}
    spaces = {name for one in plan.tenants if tenant in {None, one.name} for name in _spaces(plan, one.name)}
    subjects = {(binding.kind, binding.name) for binding in wanted}
    rbac = "rbac.authorization.k8s.io/v1"
    there = {b for item in api.items(collection(rbac, "RoleBinding")) for b in bindings(item) if b.namespace in spaces}
    for item in api.items(f"/apis/{rbac}/clusterrolebindings"):
        there |= {b for b in bindings(item) if (b.kind, b.name) in subjects}
    return sorted(there - wanted), sorted(wanted - there)


def _spaces(plan: Plan, tenant: str) -> frozenset[str]:
    return frozenset(space.name for space in plan.tenant(tenant).namespaces)


# As tables


def tables(loaded: Loaded, found: Sequence[Told], rights: Sequence[Right]) -> list[Table]:
    roles = {told.entry.role for told in found}
    shown = [right for right in rights if right.role in roles]
    remarks = ["who is in a group says the identity provider, not these files"]
    parts = [
        Table(
            "What a role may do in a namespace",
            ("role", "may", "of"),
            [(right.role, right.may, ", ".join(right.to)) for right in shown],
            remarks,
        )
    ]
    for tenant in dict.fromkeys(told.entry.tenant for told in found):
        parts += _of(loaded, tenant, [told for told in found if told.entry.tenant == tenant])
    return parts


def _of(loaded: Loaded, tenant: str, found: Sequence[Told]) -> list[Table]:
    name = tenant or "the platform"
    aws = [told for told in found if told.entry.kind in {IAM_ROLE, BREAK_GLASS}]
    data = [told for told in found if told.entry.kind == SERVICE_ACCOUNT]
    pipelines = [told for told in found if told.entry.kind == CI]
    people = [told for told in found if told.entry.kind not in {IAM_ROLE, BREAK_GLASS, SERVICE_ACCOUNT, CI}]
    off = [] if loaded.environment.aws.enabled else ["AWS is switched off: this is written, and not made"]
    return [
        Table(
            f"People of {name}, {_file(people)}",
            ("who", "is", "as", "since", "line", "where"),
            [(t.entry.who, t.entry.kind, t.entry.role, t.day, t.line, ", ".join(t.entry.where)) for t in people],
        ),
        Table(
            f"Pipelines of {name}, {_file(pipelines)}",
            ("as", "where", "since", "line", "who"),
            [(t.entry.role, where, t.day, t.line, t.entry.who) for t in pipelines for where in t.entry.where],
        ),
        Table(
            f"Data of {name}, {_file(data)}",
            ("pods of", "may", "since", "line", "place"),
            [(t.entry.who, t.entry.role, t.day, t.line, ", ".join(t.entry.where)) for t in data],
            off,
        ),
        Table(
            f"Identities of AWS that lead to {name}, {_file(aws)}",
            ("as", "since", "line", "who"),
            [(t.entry.role, t.day, t.line, t.entry.who) for t in aws],
            off,
        ),
    ]


def _file(found: Sequence[Told]) -> str:
    return ", ".join(dict.fromkeys(told.file for told in found))


def compared(extra: Sequence[Binding], lacking: Sequence[Binding]) -> list[Table]:
    header = ("namespace", "who", "is", "role")

    def rows(some: Sequence[Binding]) -> list[tuple[str, ...]]:
        return [(b.namespace or "every", b.name, b.kind, b.role) for b in some]

    return [
        Table("In the cluster and not in the files", header, rows(extra)),
        Table("In the files and not in the cluster", header, rows(lacking)),
    ]
