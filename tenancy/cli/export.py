from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tenancy.catalog.files import read_text_file
from tenancy.catalog.text import pluralize
from tenancy.cli.common import (
    BAD_INPUT,
    environment_argument,
    example,
    fail,
    lab_option,
    load_or_exit,
    tenant_or_exit,
)

if TYPE_CHECKING:
    from tenancy.lifecycle.export import ExportedObjects
    from tenancy.spec.fields.environment import Environment
    from tenancy.spec.fields.tenant import Tenant

PRIVATE_MODE, READABLE_MODE = 0o600, 0o644
FOLDER_MODE = 0o700


@click.command("export", epilog=example("tenancy export fraud local --out fraud-export"))
@click.argument("tenant", metavar="TENANT")
@environment_argument
@lab_option
@click.option(
    "--out", type=click.Path(path_type=Path), required=True, metavar="DIR", help="Create this folder and write into it."
)
@click.option(
    "--include-secrets",
    "with_secrets",
    is_flag=True,
    help="Write the contents of Secrets too, to files that only you can read.",
)
def command(tenant: str, environment: str, lab: bool, out: Path, with_secrets: bool) -> None:
    """Write what TENANT owns in ENV into a folder: its Kubernetes objects as YAML, and a list of everything else.

    The objects can be created in another cluster. The data in volumes and buckets is not copied: the list says where
    it is. The cluster is not changed. README.md in DIR ends with what was not exported, and why.

    Exit codes: 0 success, 1 something could not be read, 2 bad input.
    """
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.lab.layout import enter_lab
    from tenancy.lifecycle.export import collect

    loaded = load_or_exit(environment, lab=lab)
    tenant_spec = tenant_or_exit(loaded, tenant)
    if os.path.lexists(out):
        fail(f"given --out {out}, which exists; rule: an export is written once; change: name a new folder", BAD_INPUT)
    enter_lab(loaded.environment.cluster.context)
    name = loaded.environment.environment
    namespace_names = [tenant_spec.namespace_name(part) for part in tenant_spec.namespaces]
    try:
        api = Api(loaded.environment.cluster.context)
        exported = collect(api, name, namespace_names, with_secrets=with_secrets)
        queues = _queues(api, tenant, namespace_names) if loaded.environment.has_queues else []
    except ApiUnreachable as error:
        fail(str(error))
    files = dict(_files(loaded.folder, loaded.environment, tenant_spec, exported, queues))
    _write(out, files)
    click.echo(
        f"{out}: {pluralize(exported.count, 'object')} of {', '.join(namespace_names)}, "
        f"{pluralize(len(exported.volumes), 'volume')}, "
        f"{sum(exported.left_out.values())} left out: see {out / 'README.md'}"
    )
    if tenant_spec.offboarding is None:
        click.echo(f"{tenant} is not on hold and may still change: write `offboarding: export` into its file first")
    if exported.unread:
        fail(f"{len(exported.unread)} kinds could not be read; README.md names them")


def _queues(api: Any, tenant: str, spaces: Sequence[str]) -> list[dict[str, Any]]:
    from tenancy.catalog import vocabulary
    from tenancy.cluster.user_copies import user_copy
    from tenancy.kube.requests import collection
    from tenancy.planning.queueing.queue_names import API

    return [
        user_copy({"apiVersion": API, "kind": kind, **item})
        for kind in ("Cohort", "ClusterQueue", "LocalQueue")
        for item in api.items(f"{collection(API, kind)}?labelSelector={vocabulary.TENANT}={tenant}", absent=True)
        if item["metadata"].get("namespace", spaces[0]) in spaces
    ]


def _files(
    folder: Path, environment: Environment, tenant: Tenant, exported: ExportedObjects, queues: list[dict[str, Any]]
) -> Iterator[tuple[str, tuple[str, int]]]:
    """Relative path -> text and mode."""
    from tenancy.lifecycle.export import SECRET

    for (space, plural), items in sorted(exported.objects.items()):
        mode = PRIVATE_MODE if items[0]["kind"] == SECRET else READABLE_MODE
        yield f"objects/{space}/{plural}.yaml", (_yaml(items), mode)
    yield "record/volumes.yaml", (_yaml([[asdict(volume) for volume in exported.volumes]]), READABLE_MODE)
    yield "record/people.yaml", (_yaml([_people(tenant)]), READABLE_MODE)
    yield "record/data.yaml", (_yaml([_data(environment, tenant)]), READABLE_MODE)
    if queues:
        yield "record/queues.yaml", (_yaml(queues), READABLE_MODE)
    source = next((path for path in (folder / "tenants").glob("*.y*ml") if _is_spec_of(path, tenant.tenant)), None)
    if source:
        yield "record/tenant.yaml", (read_text_file(source), READABLE_MODE)
    yield "README.md", (_readme(environment, tenant, exported), READABLE_MODE)


def _is_spec_of(path: Path, tenant: str) -> bool:
    import yaml

    document = yaml.safe_load(read_text_file(path))
    return isinstance(document, dict) and document.get("tenant") == tenant


def _yaml(documents: Sequence[Any]) -> str:
    import yaml

    return yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True, explicit_start=True, width=120)


def _people(tenant: Tenant) -> dict[str, Any]:
    """Access before the tenant left: each subject with its role."""
    people = [
        {"kind": p.kind, "name": p.name, "role": p.role.value, "namespaces": list(p.namespaces)} for p in tenant.people
    ]
    ci = tenant.ci.model_dump(mode="json", exclude_none=True, exclude_defaults=True) if tenant.ci else None
    return {"people": people, **({"pipeline": ci} if ci else {})}


def _data(environment: Environment, tenant: Tenant) -> dict[str, Any]:
    """Resources that the tenant has on AWS, or would have with aws.enabled: true."""
    from tenancy.planning.aws import kinds

    uses = tenant.aws_resources
    resources: dict[str, Any] = {
        "prefixes": [f"s3://{g.bucket}/{g.prefix} ({g.access.value})" for g in tenant.storage],
        **{
            kind.key: [kind.name(environment, tenant, name) for name in sorted(getattr(uses, kind.field))]
            for kind in kinds.KINDS
        },
        "efs-access-points": [files.access_point for files in uses.efs_access_points],
    }
    return {
        "aws": "enabled" if environment.aws.enabled else "switched off",
        **{k: v for k, v in resources.items() if v},
    }


def _readme(environment: Environment, tenant: Tenant, exported: ExportedObjects) -> str:
    """Contents of the folder, and what it leaves out."""
    name, today = environment.environment, dt.datetime.now(dt.UTC).date()
    tomorrow = today + dt.timedelta(days=1)
    stage = tenant.offboarding.value if tenant.offboarding else "not leaving"
    cost = (
        f"tenancy chargeback {name} --from {exported.created} --to {tomorrow} --tenant {tenant.tenant} --prometheus URL"
    )
    lines = [
        f"# {tenant.title or tenant.tenant}, as {name} had it on {today}",
        "",
        f"Tenant {tenant.tenant} of {tenant.owner.name} ({tenant.owner.mail}), cost center {tenant.cost_center}, at "
        f"stage: {stage}.",
        "",
        "| here | what |",
        "|---|---|",
        *(f"| `objects/{s}/{plural}.yaml` | {len(items)} |" for (s, plural), items in sorted(exported.objects.items())),
        f"| `record/volumes.yaml` | {len(exported.volumes)} volumes: size, driver, handle, reclaim policy |",
        "| `record/data.yaml` | prefixes of buckets, repositories, secrets, logs and queues on AWS |",
        "| `record/people.yaml` | people and groups with their roles |",
        *(["| `record/queues.yaml` | its queues and their guarantees |"] if environment.has_queues else []),
        "| `record/tenant.yaml` | its spec file |",
        "",
        "To create the objects in another cluster: create the namespaces, then `kubectl apply -f objects/NAMESPACE/`. "
        "PersistentVolumeClaims are created empty.",
        "",
        f"Cost of the tenant so far: `{cost}`, or with `--tables FOLDER` from tables that were recorded.",
        "",
        "## What was not exported, and why",
        "",
        "- Data in volumes, buckets and repositories: it stays at the places listed in `record/`; copy it from there.",
        "- Logs, metrics and the bill: they belong to the platform, which keeps them for its own retention periods.",
        *(f"- {kind} ({count}): {why}." for (kind, why), count in sorted(exported.left_out.items())),
        *(f"  - Secret {space}/{secret} ({kind})" for space, secret, kind in exported.secrets),
        *(f"- Could not be read: {text}." for text in exported.unread),
    ]
    if exported.running:
        lines += ["", "## Pods that were still running", "", *(f"- Pod {name}" for name in exported.running)]
    return "\n".join(lines) + "\n"


def _write(out: Path, files: dict[str, tuple[str, int]]) -> None:
    """Write all files or none: the folder is written under a temporary name and renamed at the end."""
    part = out.with_name(f".{out.name}.part-{os.getpid()}")
    try:
        part.mkdir(FOLDER_MODE, parents=True)
        for name, (text, mode) in files.items():
            path = part / name
            path.parent.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
                file.write(text)
        part.rename(out)
    except OSError as error:
        shutil.rmtree(part, ignore_errors=True)
        rule = f"a folder that can be created ({error.strerror})"
        fail(f"given --out {out}; rule: {rule}; change: another path", BAD_INPUT)
