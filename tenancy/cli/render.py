from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import click

from tenancy.cli.common import (
    BAD_INPUT,
    environment_argument,
    example,
    fail,
    load_or_exit,
    print_notes,
    report_write_errors,
)
from tenancy.spec.loader import spec_notes

_OBJECT_TOOLS = ("argo", "flux")
"""Tools that apply rendered objects; the others run the program."""
_TOOLS = (*_OBJECT_TOOLS, "operator", "deployments")


@click.command("render", epilog=example("tenancy render local --out build/local"))
@environment_argument
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the files into this folder, which is created if it does not exist.",
)
@click.option(
    "--gitops",
    "tool",
    type=click.Choice(_TOOLS),
    help="Write the configuration of this GitOps tool too, under gitops/: Argo CD, Flux, the Pulumi Kubernetes "
    "operator or Pulumi Deployments. Default: none.",
)
@click.option(
    "--repo", metavar="URL", help="Git repository that the GitOps tool fetches the files from. Required with --gitops."
)
@click.option(
    "--path",
    default=".",
    metavar="FOLDER",
    help="Folder of the rendered files in --repo; for --gitops. Default: the root of the repository.",
)
@click.option(
    "--revision", default="main", metavar="BRANCH", help="Branch of --repo to fetch; for --gitops. Default: main."
)
@click.option(
    "--image",
    default="",
    metavar="NAME@DIGEST",
    help="Container image that runs the Pulumi program, by digest. Required with --gitops operator, optional with "
    "deployments.",
)
@click.option(
    "--organization",
    default="",
    metavar="NAME",
    help="Organization in Pulumi Cloud. Required with --gitops deployments, optional with operator.",
)
@click.option(
    "--backend",
    default="",
    metavar="URL",
    help="Address of the Pulumi state backend; for --gitops operator. Default: Pulumi Cloud.",
)
@click.option(
    "--role", default="", metavar="ARN", help="IAM role that Pulumi Deployments assumes; for --gitops deployments."
)
@click.option(
    "--preview",
    is_flag=True,
    help="Write Stacks that preview the branch of --revision and update nothing; for --gitops operator.",
)
@click.option(
    "--stack",
    "stacks",
    multiple=True,
    metavar="STACK",
    help="Write the Stack of this stack of ENV only; repeatable, for --gitops operator with --preview. Default: all.",
)
@click.option(
    "--shards",
    type=click.IntRange(2, 1000),
    metavar="N",
    help="Divide the tenants into N parts, each with an Application of its own (argo) or with a label for a controller "
    "of its own (flux). Default: one Application, no label.",
)
@click.option(
    "--no-prune",
    is_flag=True,
    help="Write Applications that delete nothing, while the number of --shards changes; for --gitops argo.",
)
def command(
    environment: str,
    out: Path,
    tool: str | None,
    repo: str | None,
    preview: bool,
    stacks: tuple[str, ...],
    shards: int | None,
    no_prune: bool,
    **source_options: str,
) -> None:
    """Write the objects of ENV as YAML: the folder platform/ and one folder per tenant.

    The objects are those that `tenancy up` creates, and every run writes the same bytes. File names are numbered in the
    order in which the files are safe to apply. Three folders are to read and compare, and not for kubectl: charts/,
    each Helm chart with its values; cluster/, the layouts of slices; and with `aws.enabled: true` aws/, every resource
    on AWS with its policies, of the cluster, the platform and each tenant. Files of an earlier run that are no longer
    needed are removed; a folder with any other file is refused.
    """
    from tenancy.planning import make_plan
    from tenancy.planning.render import ForeignFiles, file_texts, write

    loaded = load_or_exit(environment)
    print_notes(spec_notes(loaded))
    plan = make_plan(loaded, loaded.day)
    if preview and tool != "operator":
        fail("given --preview; rule: it is for --gitops operator; change: name it, or drop --preview", BAD_INPUT)
    if stacks and not preview:
        fail("given --stack without --preview; rule: only previews are of single stacks; change: drop it", BAD_INPUT)
    if shards and tool not in _OBJECT_TOOLS:
        fail(f"given --shards {shards}; rule: it is for --gitops argo or flux; change: name one, or drop it", BAD_INPUT)
    if no_prune and tool != "argo":
        fail("given --no-prune; rule: it is for --gitops argo; change: name it, or drop --no-prune", BAD_INPUT)
    files = None
    if tool:
        from tenancy.deploy.gitops import GitOpsRefused, GitOpsSource, GitOpsTool, rendered

        if not repo:
            fail(f"given --gitops {tool} without --repo; rule: a repository; change: add --repo URL", BAD_INPUT)
        image = source_options["image"]
        if tool == "operator" or (tool == "deployments" and image):
            _check_image(tool, image)
        if tool == "deployments" and not source_options["organization"]:
            given_tool = "--gitops deployments without --organization"
            fail(f"given {given_tool}; rule: an organization in Pulumi Cloud; change: add --organization", BAD_INPUT)
        try:
            source = GitOpsSource(
                repo, **source_options, preview=preview, stacks=stacks, shards=shards or 0, prune=not no_prune
            )
            files = rendered(plan, loaded.environment.stacks, GitOpsTool(tool), source)
        except GitOpsRefused as error:
            fail(str(error), BAD_INPUT)
        if tool == "argo":
            _expect_safe_moves(out, files)
    elif repo:
        fail("given --repo without --gitops; rule: --repo is for a GitOps tool; change: name it or drop it", BAD_INPUT)
    if plan.account:
        from tenancy.cli.render_aws import aws_texts
        from tenancy.components.aws_registrations import aws_registrations

        files = {**(file_texts(plan) if files is None else files), **aws_texts(aws_registrations(plan))}
    try:
        with report_write_errors():
            count = write(plan, out, files)
    except ForeignFiles as error:
        fail(str(error), BAD_INPUT)
    click.echo(f"{count} objects in {out}")
    if tool in _OBJECT_TOOLS and plan.admission.enforced:
        click.echo(
            f"note: given --gitops {tool} and guards: enforce; rule ns-06: the tool does not ask what the cluster "
            "runs, and guards refuse new pods in namespaces without a decision; change: on a cluster with other work "
            f"render guards: audit first, until `tenancy report adoption {plan.environment}` is empty (docs/gitops.md)",
            err=True,
        )
    aws_tenants = [tenant.name for tenant in plan.tenants if tenant.aws]
    if tool in _OBJECT_TOOLS and (plan.platform.data or aws_tenants):
        tenants_text = f" and of {len(aws_tenants)} tenants" if aws_tenants else ""
        click.echo(
            f"note: given --gitops {tool} and AWS resources of the platform{tenants_text}; rule: the tool "
            "creates Kubernetes "
            "objects only: no bucket, key, role, Pod Identity association or access entry; change: use operator or "
            "deployments, or create these yourself (docs/gitops.md)",
            err=True,
        )


def _expect_safe_moves(out: Path, files: Mapping[str, str]) -> None:
    from tenancy.deploy.gitops.argo import FILE, moves_unsafely
    from tenancy.deploy.gitops.source import FOLDER

    name = f"{FOLDER}/{FILE}"
    path = out / name
    if path.is_file() and moves_unsafely(path.read_text("utf-8"), files[name]):
        fail(
            f"given other Applications than {path} has; rule: none may prune while tenants move to another one, or the "
            "former one deletes their access and queues; change: render the former ones with --no-prune and apply "
            "them, then the new ones with --no-prune, and leave it out when all are synced (docs/gitops.md)",
            BAD_INPUT,
        )


def _check_image(tool: str, image: str) -> None:
    import re

    if not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image):
        change = "build ci/Containerfile, push it, and write name@sha256:…"
        fail(f"given --image {image!r} with {tool}; rule: an image by digest; change: {change}", BAD_INPUT)
