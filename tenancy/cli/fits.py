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
    environment_or_default,
    example,
    fail,
    format_option,
    lab_option,
    load_or_exit,
    optional_environment,
    print_json,
    say,
)
from tenancy.spec.fields.people import Role
from tenancy.spec.fields.tenant import Namespace, Tenant
from tenancy.spec.loader import Loaded

if TYPE_CHECKING:
    from tenancy.explain.fits_answers import Fit
    from tenancy.kube.requests import Impersonation

WIDTH = 100
CONTROL_WIDTH = 16
"""Width of the column with the name of a control, in characters."""
VERDICT_MARKS = {"fits": "yes", "not asked": "?", "waits": "wait", "never": "no"}
WORK_KINDS = ("CronJob", "Deployment", "Job", "Pod", "ReplicaSet", "StatefulSet")


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
    """Say whether the work in FILE (- for standard input) would be admitted now, and if not, which control stops it.

    FILE is a manifest of a pod, job or another kind that runs pods. No object is created: the API server gets dry runs
    of the object and of its pods, as the tenant's developers; then the free quota of the namespace and of the queue is
    compared with what the work asks for. Default of ENV: the only environment.

    Exit codes: 0 the work fits now, 1 it waits, never starts or cannot be decided, 2 bad input.
    """
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.explain.fits import fit
    from tenancy.explain.fits_answers import FitVerdict
    from tenancy.kube.pods import NotWork
    from tenancy.lab.layout import enter_lab

    items = list(_read(file))
    loaded = load_or_exit(environment_or_default(environment), form, lab)
    work_kinds = _kinds(loaded)
    namespaced_items = [(_set_namespace(item, namespace), item) for item in items]
    targets = [(*_tenant_and_namespace(loaded, space), item) for space, item in namespaced_items]
    if not any(item["kind"] in work_kinds for item in items):
        kinds = ", ".join(dict.fromkeys(str(item["kind"]) for item in items))
        fail(f"given {kinds}; rule: a kind that runs pods; change: use one of {', '.join(work_kinds)}", BAD_INPUT)
    requests = [(*_identity(tenant, part, group), item) for tenant, part, item in targets]
    context = loaded.environment.cluster.context
    enter_lab(context)
    try:
        api = Api(context)
        answers = [
            fit(api, loaded.environment, item, identity, description) for identity, description, item in requests
        ]
    except NotWork as error:
        fail(f"given {error}; rule: a manifest that the API server accepts; change: write what is missing", BAD_INPUT)
    except ApiUnreachable as error:
        fail(str(error))
    if form == "json":
        print_json([{**asdict(answer), "verdict": answer.verdict} for answer in answers])
    else:
        say("\n\n".join(_text(answer) for answer in answers))
    if any(answer.verdict is not FitVerdict.FITS for answer in answers):
        sys.exit(FAILED)


def _kinds(loaded: Loaded) -> tuple[str, ...]:
    from tenancy.planning.guards.facts import frameworks

    return (*WORK_KINDS, *(framework.kind for framework in frameworks(loaded.environment)))


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
        is_list = isinstance(document, dict) and document.get("kind") == "List"
        for item in document.get("items") or () if is_list else [document]:
            texts = [item.get(key) for key in ("apiVersion", "kind")] if isinstance(item, dict) else [None]
            metadata = item.get("metadata") if isinstance(item, dict) else None
            name = (metadata.get("name") or metadata.get("generateName")) if isinstance(metadata, dict) else None
            if not all(isinstance(text, str) and text for text in (*texts, name)):
                rule = "an object has apiVersion, kind and metadata.name"
                fail(f"{file}: given an object without them; rule: {rule}; change: write them", BAD_INPUT)
            yield item


def _set_namespace(item: dict[str, Any], namespace: str | None) -> str:
    metadata = item["metadata"]
    manifest_namespace = metadata.get("namespace")
    if namespace and manifest_namespace and namespace != manifest_namespace:
        input_text = f"--namespace {namespace} and metadata.namespace {manifest_namespace}"
        fail(f"given {input_text}; rule: an object is in one namespace; change: drop one of the two", BAD_INPUT)
    if not (namespace or manifest_namespace):
        rule = "work is in a tenant's namespace"
        fail(
            f"given {item['kind']} {metadata.get('name')} without one; rule: {rule}; change: add --namespace", BAD_INPUT
        )
    metadata["namespace"] = namespace or manifest_namespace
    return str(metadata["namespace"])


def _tenant_and_namespace(loaded: Loaded, name: str) -> tuple[Tenant, Namespace]:
    from tenancy.spec.reading.mistakes import nearest

    spaces = {t.namespace_name(part): (t, part) for t in loaded.tenants for part in t.namespaces}
    if name not in spaces:
        similar_names = " or ".join(nearest(name, spaces)) or "one that a tenant file has"
        rule = f"a namespace of a tenant of {loaded.environment.environment}"
        fail(f"given namespace {name!r}; rule: {rule}; change: use {similar_names}", BAD_INPUT)
    return spaces[name]


def _identity(tenant: Tenant, part: Namespace, group: str | None) -> tuple[Impersonation, str]:
    """The identity that creates the work, and its name in messages."""
    from tenancy.kube.requests import Impersonation

    name = f"fits@{tenant.tenant}"
    if group:
        return Impersonation(name, (group,)), f"group {group}"
    members = [person for person in tenant.people if not person.namespaces or part.name in person.namespaces]
    creators = [person for role in (Role.DEVELOPER, Role.OWNER) for person in members if person.role is role]
    if not creators:
        input_text = f"{tenant.tenant}, whose file has no developer or owner in {part.name}"
        fail(
            f"given {input_text}; rule: work is created by a developer or owner; change: name a group with --as",
            BAD_INPUT,
        )
    first = min(creators, key=lambda person: (person.role is not Role.DEVELOPER, person.kind, person.name))
    if first.kind == "Group":
        return Impersonation(name, (first.name,)), f"group {first.name}"
    return Impersonation(first.name), f"user {first.name}"


def _text(answer: Fit) -> str:
    from tenancy.explain.fits_answers import FitVerdict

    conclusion = {
        FitVerdict.FITS: "fits now.",
        FitVerdict.UNKNOWN: "cannot be decided.",
        FitVerdict.WAITS: "waits: it would be admitted, and does not start now.",
        FitVerdict.NEVER: "never starts as it is.",
    }[answer.verdict]
    lines = [f"{answer.kind} {answer.name} in {answer.namespace}, as {answer.asked_as}: {conclusion}"]
    for control_answer in answer.said:
        change = f" To change: {control_answer.change.rstrip('.')}." if control_answer.change else ""
        head = f"  {VERDICT_MARKS[control_answer.verdict]:<5}{control_answer.plane:<{CONTROL_WIDTH}}"
        wrapped = textwrap.wrap(control_answer.sentence + change, WIDTH - len(head), break_on_hyphens=False)
        lines += [head + wrapped[0], *(" " * len(head) + line for line in wrapped[1:])]
    return "\n".join(lines)
