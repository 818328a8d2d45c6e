from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tenancy.cli.common import BAD_INPUT, FAILED, example, fail, format_option, lab_option, load_or_exit, print_json
from tenancy.cli.new import optional_environment, the_environment
from tenancy.spec import Loaded
from tenancy.spec.tenant import Namespace, Role, Tenant

if TYPE_CHECKING:
    from tenancy.live.api import Identity
    from tenancy.live.fits import Fit

WIDTH = 100
PLANE = 16
"""Columns that the name of a control takes."""
MARKS = {"fits": "yes", "not asked": "?", "waits": "wait", "never": "no"}
WORK = ("CronJob", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet")


@click.command("fits", epilog=example("tenancy sample job local --tenant fraud --gpu a100=1 | tenancy fits - local"))
@click.argument("file", type=click.File(encoding="utf-8"))
@optional_environment
@lab_option
@click.option("--namespace", "-n", help="Where; absent: the manifest's own, metadata.namespace.")
@click.option("--as", "group", metavar="GROUP", help="Who asks; absent: the tenant's developers.")
@format_option
def command(file: Any, environment: str | None, lab: bool, namespace: str | None, group: str | None, form: str) -> None:
    """Say whether the work in FILE (- for standard input) would be let in now, and if not, which control says no.

    Nothing is made: the API server is asked by a dry run of the object and of its pods, as the tenant's developers;
    then queues, quotas and nodes are counted as they stand. Exit code 0 if it fits now, 1 if it waits or never starts.
    """
    from tenancy.lab.layout import enter_lab
    from tenancy.live.api import Api, Unreachable
    from tenancy.live.fits import NotWork, Verdict, fit

    items = list(_read(file))
    loaded = load_or_exit(the_environment(environment), form, lab)
    known = _kinds(loaded)
    placed = [(_placed(item, namespace), item) for item in items]
    asked = [(*_where(loaded, space), item) for space, item in placed]
    if not any(item["kind"] in known for item in items):
        kinds = ", ".join(dict.fromkeys(str(item["kind"]) for item in items))
        fail(f"given {kinds}; rule: something that runs pods; change: use one of {', '.join(known)}", BAD_INPUT)
    asking = [(*_who(tenant, part, group), item) for tenant, part, item in asked]
    context = loaded.environment.cluster.context
    enter_lab(context)
    try:
        api = Api(context)
        found = [fit(api, loaded.environment, item, who, told) for who, told, item in asking]
    except NotWork as error:
        fail(f"given {error}; rule: a manifest as the API server takes it; change: write what is missing", BAD_INPUT)
    except Unreachable as error:
        fail(str(error))
    if form == "json":
        print_json([{**asdict(one), "verdict": one.verdict} for one in found])
    else:
        click.echo("\n\n".join(_text(one) for one in found))
    if any(one.verdict is not Verdict.FITS for one in found):
        sys.exit(FAILED)


def _kinds(loaded: Loaded) -> tuple[str, ...]:
    from tenancy.plan.guards.who import frameworks

    return (*WORK, *(framework.kind for framework in frameworks(loaded.environment)))


def _read(file: Any) -> Iterator[dict[str, Any]]:
    """The objects of a manifest; those of a List one by one."""
    import yaml

    try:
        documents = [document for document in yaml.safe_load_all(file.read()) if document is not None]
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        problem = " ".join(str(error).split())
        fail(f"{file.name}: given no YAML ({problem}); rule: a manifest is YAML or JSON; change: correct it", BAD_INPUT)
    if not documents:
        fail(f"{file.name}: given nothing; rule: a manifest holds an object; change: write one", BAD_INPUT)
    for document in documents:
        listed = isinstance(document, dict) and document.get("kind") == "List"
        for item in document.get("items") or () if listed else [document]:
            texts = [item.get(key) for key in ("apiVersion", "kind")] if isinstance(item, dict) else [None]
            metadata = item.get("metadata") if isinstance(item, dict) else None
            name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
            if not all(isinstance(text, str) and text for text in (*texts, name)):
                rule = "an object has apiVersion, kind and metadata.name"
                fail(f"{file.name}: given an object without them; rule: {rule}; change: write them", BAD_INPUT)
            yield item


def _placed(item: dict[str, Any], namespace: str | None) -> str:
    metadata = item["metadata"]
    written = metadata.get("namespace")
    if namespace and written and namespace != written:
        given = f"--namespace {namespace} and metadata.namespace {written}"
        fail(f"given {given}; rule: an object is in one namespace; change: drop one of the two", BAD_INPUT)
    if not (namespace or written):
        rule = "work is in a tenant's namespace"
        fail(
            f"given {item['kind']} {metadata.get('name')} without one; rule: {rule}; change: add --namespace", BAD_INPUT
        )
    metadata["namespace"] = namespace or written
    return str(metadata["namespace"])


def _where(loaded: Loaded, name: str) -> tuple[Tenant, Namespace]:
    from tenancy.spec.pools import nearest

    spaces = {t.namespace_name(part): (t, part) for t in loaded.tenants for part in t.namespaces}
    if name not in spaces:
        close = " or ".join(nearest(name, spaces)) or "one that a tenant file has"
        rule = f"a namespace of a tenant of {loaded.environment.environment}"
        fail(f"given namespace {name!r}; rule: {rule}; change: use {close}", BAD_INPUT)
    return spaces[name]


def _who(tenant: Tenant, part: Namespace, group: str | None) -> tuple[Identity, str]:
    """Who asks, and how to call them."""
    from tenancy.live.api import Identity

    name = f"fits@{tenant.tenant}"
    if group:
        return Identity(name, (group,)), f"group {group}"
    held = [p for p in tenant.people if not p.namespaces or part.name in p.namespaces]
    makers = [p for role in (Role.DEVELOPER, Role.OWNER) for p in held if p.role is role]
    if not makers:
        given = f"{tenant.tenant}, whose file names nobody who makes work in {part.name}"
        fail(f"given {given}; rule: somebody asks; change: name a group with --as", BAD_INPUT)
    first = min(makers, key=lambda p: (p.role is not Role.DEVELOPER, p.kind, p.name))
    if first.kind == "Group":
        return Identity(name, (first.name,)), f"group {first.name}"
    return Identity(first.name), f"user {first.name}"


def _text(found: Fit) -> str:
    from tenancy.live.fits import Verdict

    conclusion = {
        Verdict.FITS: "fits now.",
        Verdict.UNKNOWN: "cannot be told.",
        Verdict.WAITS: "waits: it would be taken, and does not start now.",
        Verdict.NEVER: "never starts as it is.",
    }[found.verdict]
    lines = [f"{found.kind} {found.name} in {found.namespace}, as {found.asked_as}: {conclusion}"]
    for said in found.said:
        change = f" To change: {said.change.rstrip('.')}." if said.change else ""
        head = f"  {MARKS[said.verdict]:<5}{said.plane:<{PLANE}}"
        wrapped = textwrap.wrap(said.sentence + change, WIDTH - len(head), break_on_hyphens=False)
        lines += [head + wrapped[0], *(" " * len(head) + line for line in wrapped[1:])]
    return "\n".join(lines)
