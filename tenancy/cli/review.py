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
from tenancy.spec.loader import ENVIRONMENT_FILE, SUFFIXES, TENANTS_FOLDER, Loaded
from tenancy.spec.reading.source import compose, find, read_text
from tenancy.spec.reading.spec_folder import SpecFolder

if TYPE_CHECKING:
    from tenancy.cluster.api import Api
    from tenancy.planning import Plan

NOT_COMMITTED = "not committed"
NO_GIT = "no git"
SHORT_HASH = 7
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
        entry = self.entry
        field = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in entry.field).lstrip(".")
        about = {
            "tenant": entry.tenant or None,
            "kind": entry.kind,
            "who": entry.subject,
            "may": entry.role,
            "where": list(entry.applies_to),
        }
        return {**about, "file": self.file, "line": self.line, "field": field, "since": self.since}


def with_source_lines(loaded: Loaded, entries: Iterable[AccessGrant]) -> list[ReviewEntry]:
    """Place of each entry in the files, and the last change of its line."""
    files = _files(loaded.folder)
    spec_folder = SpecFolder(loaded.folder)
    nodes = {name: compose(read_text(spec_folder.source(path))) for name, path in files.items()}
    ages: dict[str, list[str]] = {}
    review_entries = []
    for entry in entries:
        path = files[entry.file]
        line = find(nodes[entry.file], entry.field).value.line
        since = ages.setdefault(entry.file, _ages(path))
        review_entries.append(
            ReviewEntry(entry, os.path.relpath(path), line, since[line - 1] if line <= len(since) else NOT_COMMITTED)
        )
    return review_entries


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
        blame_output = _git(path, "blame", "--line-porcelain", "--", path.name)
    except OSError:
        return [NO_GIT] * lines
    if blame_output is None:
        return [NOT_COMMITTED] * lines
    dates, commit = [], ""
    for text in blame_output.splitlines():
        key, _, value = text.partition(" ")
        if len(key) == len(_NO_COMMIT) and value[:1].isdigit():
            commit = key
        elif key == "committer-time":
            # In UTC, so that the report is the same on every machine.
            day = dt.datetime.fromtimestamp(int(value), dt.UTC).date().isoformat()
            dates.append(NOT_COMMITTED if commit == _NO_COMMIT else f"{day} {commit[:SHORT_HASH]}")
    return dates


def _git(path: Path, *command: str) -> str | None:
    process = subprocess.run(
        ["git", "-C", str(path.parent), *command], capture_output=True, text=True, errors="replace", check=False
    )
    return process.stdout if process.returncode == 0 else None


def select_entries(entries: Iterable[AccessGrant], tenant: str | None, who: str | None) -> list[AccessGrant]:
    """Entries of one tenant and of the platform, which has access everywhere; of one name, or of the group that an
    IAM role maps to."""

    def group(entry: AccessGrant) -> str:
        return entry.role.removeprefix(IS_GROUP).partition(",")[0] if entry.role.startswith(IS_GROUP) else ""

    return [
        entry
        for entry in entries
        if (tenant is None or entry.tenant in {"", tenant}) and who in {None, entry.subject, group(entry)}
    ]


def differences(api: Api, plan: Plan, tenant: str | None) -> tuple[list[Binding], list[Binding]]:
    """Bindings of the cluster that the files do not have, and bindings of the files that the cluster does not have.

    Of ClusterRoleBindings, only those to subjects to which the files give access to a namespace.
    """
    from tenancy.kube.requests import collection
    from tenancy.planning.access_review import bindings, planned_bindings

    planned_bindings = {
        binding for binding in planned_bindings(plan) if tenant is None or binding.namespace in _spaces(plan, tenant)
    }
    namespace_names = {
        name
        for planned_tenant in plan.tenants
        if tenant in {None, planned_tenant.name}
        for name in _spaces(plan, planned_tenant.name)
    }
    subjects = {(binding.kind, binding.name) for binding in planned_bindings}
    rbac = "rbac.authorization.k8s.io/v1"
    cluster_bindings = {
        binding
        for item in api.items(collection(rbac, "RoleBinding"))
        for binding in bindings(item)
        if binding.namespace in namespace_names
    }
    for item in api.items(f"/apis/{rbac}/clusterrolebindings"):
        cluster_bindings |= {binding for binding in bindings(item) if (binding.kind, binding.name) in subjects}
    return sorted(cluster_bindings - planned_bindings), sorted(planned_bindings - cluster_bindings)


def _spaces(plan: Plan, tenant: str) -> frozenset[str]:
    return frozenset(space.name for space in plan.tenant(tenant).namespaces)


# As tables


def tables(entries: Sequence[ReviewEntry], rights: Sequence[Right]) -> list[Table]:
    """Tables of the access review: rights of roles, then the entries of each tenant."""
    roles = {entry.entry.role for entry in entries}
    role_rights = [right for right in rights if right.role in roles]
    remarks = ["group membership is decided by your identity provider"]
    parts = [
        Table(
            "Rights of each role in a namespace",
            ("role", "verbs", "resources"),
            [(right.role, right.may, ", ".join(right.to)) for right in role_rights],
            remarks,
        )
    ]
    for tenant in dict.fromkeys(entry.entry.tenant for entry in entries):
        parts += _tenant_tables(tenant, [entry for entry in entries if entry.entry.tenant == tenant])
    return parts


def _tenant_tables(tenant: str, entries: Sequence[ReviewEntry]) -> list[Table]:
    name = tenant or "the platform"
    aws = [entry for entry in entries if entry.entry.kind in {IAM_ROLE, BREAK_GLASS}]
    data = [entry for entry in entries if entry.entry.kind == SERVICE_ACCOUNT]
    pipelines = [entry for entry in entries if entry.entry.kind == CI]
    people = [entry for entry in entries if entry.entry.kind not in {IAM_ROLE, BREAK_GLASS, SERVICE_ACCOUNT, CI}]
    return [
        Table(
            f"People of {name}, {_file(people)}",
            ("who", "kind", "role", "since", "line", "namespaces"),
            [
                (
                    entry.entry.subject,
                    entry.entry.kind,
                    entry.entry.role,
                    entry.day,
                    entry.line,
                    ", ".join(entry.entry.applies_to),
                )
                for entry in people
            ],
        ),
        Table(
            f"Pipelines of {name}, {_file(pipelines)}",
            ("role", "namespace", "since", "line", "who"),
            [
                (entry.entry.role, where, entry.day, entry.line, entry.entry.subject)
                for entry in pipelines
                for where in entry.entry.applies_to
            ],
        ),
        Table(
            f"Data of {name}, {_file(data)}",
            ("pods of", "access", "since", "line", "place"),
            [
                (entry.entry.subject, entry.entry.role, entry.day, entry.line, ", ".join(entry.entry.applies_to))
                for entry in data
            ],
        ),
        Table(
            f"AWS identities with access to {name}, {_file(aws)}",
            ("access", "since", "line", "identity"),
            [(entry.entry.role, entry.day, entry.line, entry.entry.subject) for entry in aws],
        ),
    ]


def not_made_table(entries: Sequence[ReviewEntry]) -> Table:
    """Grants on AWS in the files of an environment with aws.enabled: false."""
    return Table(
        "In the files and not created, because aws.enabled is false",
        ("who", "kind", "access", "file", "line", "where"),
        [
            (
                entry.entry.subject,
                entry.entry.kind,
                entry.entry.role,
                entry.file,
                entry.line,
                ", ".join(entry.entry.applies_to),
            )
            for entry in entries
        ],
    )


def _file(entries: Sequence[ReviewEntry]) -> str:
    return ", ".join(dict.fromkeys(entry.file for entry in entries))


def difference_tables(not_in_files: Sequence[Binding], not_in_cluster: Sequence[Binding]) -> list[Table]:
    """Tables of the bindings that only the cluster has, and of those that only the files have."""
    header = ("namespace", "who", "kind", "role")

    def rows(bindings: Sequence[Binding]) -> list[tuple[str, ...]]:
        return [(b.namespace or "every", b.name, b.kind, b.role) for b in bindings]

    return [
        Table("In the cluster and not in the files", header, rows(not_in_files)),
        Table("In the files and not in the cluster", header, rows(not_in_cluster)),
    ]
