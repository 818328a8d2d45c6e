"""`tenancy report access`: the access review, with each entry's line in the spec files and its date."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tenancy.catalog.files import read_file
from tenancy.output.tables import Table
from tenancy.planning.access_review import (
    BREAK_GLASS,
    CI,
    IAM_ROLE,
    IS_GROUP,
    SERVICE_ACCOUNT,
    AccessGrant,
    Binding,
    Right,
)
from tenancy.schema.source import compose, find, read_text
from tenancy.validation import Loaded
from tenancy.validation.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER
from tenancy.validation.spec_folder import SpecFolder

if TYPE_CHECKING:
    from tenancy.live.api import Api
    from tenancy.planning import Plan

NOT_COMMITTED = "not committed"
NO_GIT = "no git"
SHORT = 7
"""Characters of a commit's hash that are shown."""
_NO_COMMIT = "0" * 40
"""Hash that `git blame` shows for a line that is not committed."""


class ReviewEntry(NamedTuple):
    """An entry of the review with its line in the spec files."""

    entry: AccessGrant
    file: str
    line: int
    since: str
    """Date and commit, or why there is no commit."""

    @property
    def day(self) -> str:
        """The date, as tables show it; the commit is only in JSON."""
        return self.since if self.since in {NOT_COMMITTED, NO_GIT} else self.since.partition(" ")[0]

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain values, for JSON."""
        e = self.entry
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in e.field).lstrip(".")
        about = {
            "tenant": e.tenant or None,
            "kind": e.kind,
            "who": e.subject,
            "may": e.role,
            "where": list(e.applies_to),
        }
        return {**about, "file": self.file, "line": self.line, "field": field, "since": self.since}


def told(loaded: Loaded, entries: Iterable[AccessGrant]) -> list[ReviewEntry]:
    """Where each entry is written, and when its line last changed."""
    files = _files(loaded.folder)
    home = SpecFolder(loaded.folder)
    nodes = {name: compose(read_text(home.source(path))) for name, path in files.items()}
    ages: dict[str, list[str]] = {}
    found = []
    for entry in entries:
        path = files[entry.file]
        line = find(nodes[entry.file], entry.field).value.line
        since = ages.setdefault(entry.file, _ages(path))
        found.append(
            ReviewEntry(entry, os.path.relpath(path), line, since[line - 1] if line <= len(since) else NOT_COMMITTED)
        )
    return found


def _files(folder: Path) -> dict[str, Path]:
    """File paths by tenant name; the key of the environment's file is empty."""
    paths = [path for path in sorted((folder / TENANTS_FOLDER).iterdir()) if path.suffix in SUFFIXES]
    return {"": folder / ENVIRONMENT_FILE, **{path.stem: path for path in paths if path.name[0] != "."}}


def _ages(path: Path) -> list[str]:
    """For each line of a file, the date and commit of its last change."""
    lines = len(read_file(path).splitlines())
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
        if len(first) == len(_NO_COMMIT) and rest[:1].isdigit():
            commit = first
        elif first == "committer-time":
            # In UTC, so that the report is the same on every machine.
            day = dt.datetime.fromtimestamp(int(rest), dt.UTC).date().isoformat()
            found.append(NOT_COMMITTED if commit == _NO_COMMIT else f"{day} {commit[:SHORT]}")
    return found


def _git(path: Path, *command: str) -> str | None:
    done = subprocess.run(
        ["git", "-C", str(path.parent), *command], capture_output=True, text=True, errors="replace", check=False
    )
    return done.stdout if done.returncode == 0 else None


def chosen(entries: Iterable[AccessGrant], tenant: str | None, who: str | None) -> list[AccessGrant]:
    """Entries of one tenant and of the platform, which has access everywhere; of one name, or of the group that an
    IAM role maps to."""

    def group(entry: AccessGrant) -> str:
        return entry.role.removeprefix(IS_GROUP).partition(",")[0] if entry.role.startswith(IS_GROUP) else ""

    return [e for e in entries if (tenant is None or e.tenant in {"", tenant}) and who in {None, e.subject, group(e)}]


def differences(api: Api, plan: Plan, tenant: str | None) -> tuple[list[Binding], list[Binding]]:
    """Bindings of the cluster that the files do not have, and bindings of the files that the cluster does not have.

    Of ClusterRoleBindings, only those to subjects to which the files give access to a namespace.
    """
    from tenancy.kube.requests import collection
    from tenancy.planning.access_review import bindings, planned_bindings

    wanted = {b for b in planned_bindings(plan) if tenant is None or b.namespace in _spaces(plan, tenant)}
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


def tables(found: Sequence[ReviewEntry], rights: Sequence[Right]) -> list[Table]:
    """Tables of the access review: rights of roles, then the entries of each tenant."""
    roles = {told.entry.role for told in found}
    shown = [right for right in rights if right.role in roles]
    remarks = ["group membership is decided by your identity provider"]
    parts = [
        Table(
            "Rights of each role in a namespace",
            ("role", "verbs", "resources"),
            [(right.role, right.may, ", ".join(right.to)) for right in shown],
            remarks,
        )
    ]
    for tenant in dict.fromkeys(told.entry.tenant for told in found):
        parts += _of(tenant, [told for told in found if told.entry.tenant == tenant])
    return parts


def _of(tenant: str, found: Sequence[ReviewEntry]) -> list[Table]:
    name = tenant or "the platform"
    aws = [told for told in found if told.entry.kind in {IAM_ROLE, BREAK_GLASS}]
    data = [told for told in found if told.entry.kind == SERVICE_ACCOUNT]
    pipelines = [told for told in found if told.entry.kind == CI]
    people = [told for told in found if told.entry.kind not in {IAM_ROLE, BREAK_GLASS, SERVICE_ACCOUNT, CI}]
    return [
        Table(
            f"People of {name}, {_file(people)}",
            ("who", "kind", "role", "since", "line", "namespaces"),
            [
                (t.entry.subject, t.entry.kind, t.entry.role, t.day, t.line, ", ".join(t.entry.applies_to))
                for t in people
            ],
        ),
        Table(
            f"Pipelines of {name}, {_file(pipelines)}",
            ("role", "namespace", "since", "line", "who"),
            [(t.entry.role, where, t.day, t.line, t.entry.subject) for t in pipelines for where in t.entry.applies_to],
        ),
        Table(
            f"Data of {name}, {_file(data)}",
            ("pods of", "access", "since", "line", "place"),
            [(t.entry.subject, t.entry.role, t.day, t.line, ", ".join(t.entry.applies_to)) for t in data],
        ),
        Table(
            f"AWS identities with access to {name}, {_file(aws)}",
            ("access", "since", "line", "identity"),
            [(t.entry.role, t.day, t.line, t.entry.subject) for t in aws],
        ),
    ]


def not_made(found: Sequence[ReviewEntry]) -> Table:
    """Grants on AWS in the files of an environment with aws.enabled: false."""
    return Table(
        "In the files and not created, because aws.enabled is false",
        ("who", "kind", "access", "file", "line", "where"),
        [(t.entry.subject, t.entry.kind, t.entry.role, t.file, t.line, ", ".join(t.entry.applies_to)) for t in found],
    )


def _file(found: Sequence[ReviewEntry]) -> str:
    return ", ".join(dict.fromkeys(told.file for told in found))


def compared(extra: Sequence[Binding], lacking: Sequence[Binding]) -> list[Table]:
    """Tables of the bindings that only the cluster has, and of those that only the files have."""
    header = ("namespace", "who", "kind", "role")

    def rows(some: Sequence[Binding]) -> list[tuple[str, ...]]:
        return [(b.namespace or "every", b.name, b.kind, b.role) for b in some]

    return [
        Table("In the cluster and not in the files", header, rows(extra)),
        Table("In the files and not in the cluster", header, rows(lacking)),
    ]
