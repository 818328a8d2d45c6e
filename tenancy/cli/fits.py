from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tenancy.cli.common import (
    BAD_INPUT,
    FAILED,
    example,
    fail,
    format_option,
    lab_option,
    load_or_exit,
    optional_environment,
    print_json,
    say,
    the_environment,
)
from tenancy.schema.people import Role
from tenancy.schema.tenant import Namespace, Tenant
from tenancy.validation import Loaded

if TYPE_CHECKING:
    from tenancy.kube.requests import Impersonation
    from tenancy.live.fits_answers import Fit

WIDTH = 100
PLANE = 16
"""Width of the column with the name of a control, in characters."""
MARKS = {"fits": "yes", "not asked": "?", "waits": "wait", "never": "no"}
WORK = ("CronJob", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet")


@click.command("fits", epilog=example("tenancy sample job local --tenant fraud --gpu a100=1 | tenancy fits - local"))
@click.argument("file")
@optional_environment
@lab_option
@click.option(
    "--namespace",
    "-n",
    metavar="NAME",
    help="Namespace to create the work in. Default: metadata.namespace of the manifest.",
)
@click.option(
    "--as", "group", metavar="GROUP", help="Group that creates the work. Default: the tenant's group of developers."
)
@format_option
def command(file: str, environment: str | None, lab: bool, namespace: str | None, group: str | None, form: str) -> None:
    """Say whether the work in FILE (- for standard input) would start now, and if not, which control stops it.

    FILE is a manifest of a pod, job or another kind that runs pods. No object is created: the API server gets dry runs
    of the object and of its pods, as the tenant's developers; then the current queues, quotas and nodes are compared
    with what the work asks for. Default of ENV: the only environment.

    Exit codes: 0 the work fits now, 1 it waits, never starts or cannot be decided, 2 bad input.
    """
    from tenancy.kube.pods import NotWork
    from tenancy.lab.layout import enter_lab
    from tenancy.live.api import Api, ApiUnreachable
    from tenancy.live.fits import fit
    from tenancy.live.fits_answers import FitVerdict

    items = list(_read(file))
    loaded = load_or_exit(the_environment(environment), form, lab)
    known = _kinds(loaded)
    placed = [(_placed(item, namespace), item) for item in items]
    asked = [(*_where(loaded, space), item) for space, item in placed]
    if not any(item["kind"] in known for item in items):
        kinds = ", ".join(dict.fromkeys(str(item["kind"]) for item in items))
        fail(f"given {kinds}; rule: a kind that runs pods; change: use one of {', '.join(known)}", BAD_INPUT)
    asking = [(*_who(tenant, part, group), item) for tenant, part, item in asked]
    context = loaded.environment.cluster.context
    enter_lab(context)
    try:
        api = Api(context)
        found = [fit(api, loaded.environment, item, who, told) for who, told, item in asking]
    except NotWork as error:
        fail(f"given {error}; rule: a manifest that the API server accepts; change: write what is missing", BAD_INPUT)
    except ApiUnreachable as error:
        fail(str(error))
    if form == "json":
        print_json([{**asdict(one), "verdict": one.verdict} for one in found])
    else:
        say("\n\n".join(_text(one) for one in found))
    if any(one.verdict is not FitVerdict.FITS for one in found):
        sys.exit(FAILED)


def _kinds(loaded: Loaded) -> tuple[str, ...]:
    from tenancy.planning.guards.facts import frameworks

    return (*WORK, *(framework.kind for framework in frameworks(loaded.environment)))


def _read(file: str) -> Iterator[dict[str, Any]]:
    """The objects of a manifest; those of a List one by one."""
    import yaml

    from tenancy.catalog.files import read_file, read_input

    try:
        text = (read_input() if file == "-" else read_file(file)).decode("utf-8-sig")
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        fail(
            f"given {file} ({error.strerror}); rule: a file that can be read, or -; change: name such a file", BAD_INPUT
        )
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        problem = " ".join(str(error).split())
        fail(f"{file}: given no YAML ({problem}); rule: a manifest is YAML or JSON; change: correct it", BAD_INPUT)
    if not documents:
        rule, change = "a manifest has a Kubernetes object", "write one; `tenancy sample job ENV` prints an example"
        fail(f"{file}: given an empty file; rule: {rule}; change: {change}", BAD_INPUT)
    for document in documents:
        listed = isinstance(document, dict) and document.get("kind") == "List"
        for item in document.get("items") or () if listed else [document]:
            texts = [item.get(key) for key in ("apiVersion", "kind")] if isinstance(item, dict) else [None]
            metadata = item.get("metadata") if isinstance(item, dict) else None
            name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
            if not all(isinstance(text, str) and text for text in (*texts, name)):
                rule = "an object has apiVersion, kind and metadata.name"
                fail(f"{file}: given an object without them; rule: {rule}; change: write them", BAD_INPUT)
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
    from tenancy.schema.pools import nearest

    spaces = {t.namespace_name(part): (t, part) for t in loaded.tenants for part in t.namespaces}
    if name not in spaces:
        close = " or ".join(nearest(name, spaces)) or "one that a tenant file has"
        rule = f"a namespace of a tenant of {loaded.environment.environment}"
        fail(f"given namespace {name!r}; rule: {rule}; change: use {close}", BAD_INPUT)
    return spaces[name]


def _who(tenant: Tenant, part: Namespace, group: str | None) -> tuple[Impersonation, str]:
    """The identity that creates the work, and its name in messages."""
    from tenancy.kube.requests import Impersonation

    name = f"fits@{tenant.tenant}"
    if group:
        return Impersonation(name, (group,)), f"group {group}"
    held = [p for p in tenant.people if not p.namespaces or part.name in p.namespaces]
    makers = [p for role in (Role.DEVELOPER, Role.OWNER) for p in held if p.role is role]
    if not makers:
        given = f"{tenant.tenant}, whose file has no developer or owner in {part.name}"
        fail(f"given {given}; rule: work is created by a developer or owner; change: name a group with --as", BAD_INPUT)
    first = min(makers, key=lambda p: (p.role is not Role.DEVELOPER, p.kind, p.name))
    if first.kind == "Group":
        return Impersonation(name, (first.name,)), f"group {first.name}"
    return Impersonation(first.name), f"user {first.name}"


def _text(found: Fit) -> str:
    from tenancy.live.fits_answers import FitVerdict

    conclusion = {
        FitVerdict.FITS: "fits now.",
        FitVerdict.UNKNOWN: "cannot be decided.",
        FitVerdict.WAITS: "waits: it would be admitted, and does not start now.",
        FitVerdict.NEVER: "never starts as it is.",
    }[found.verdict]
    lines = [f"{found.kind} {found.name} in {found.namespace}, as {found.asked_as}: {conclusion}"]
    for said in found.said:
        change = f" To change: {said.change.rstrip('.')}." if said.change else ""
        head = f"  {MARKS[said.verdict]:<5}{said.plane:<{PLANE}}"
        wrapped = textwrap.wrap(said.sentence + change, WIDTH - len(head), break_on_hyphens=False)
        lines += [head + wrapped[0], *(" " * len(head) + line for line in wrapped[1:])]
    return "\n".join(lines)
