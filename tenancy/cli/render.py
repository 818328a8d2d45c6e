from __future__ import annotations

from pathlib import Path

import click

from tenancy.cli.common import BAD_INPUT, environment_argument, example, fail, load_or_exit, writing

_TOOLS = ("argo", "flux", "operator", "deployments")


@click.command("render", epilog=example("tenancy render local --out build/local"))
@environment_argument
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder; made if it is not there."
)
@click.option(
    "--gitops",
    "tool",
    type=click.Choice(_TOOLS),
    help="Also what this tool reads, under gitops/: Argo CD, Flux, Pulumi's Kubernetes operator, Pulumi Deployments.",
)
@click.option("--repo", metavar="URL", help="With --gitops: the repository that the tool fetches.")
@click.option("--path", default=".", help="Folder of the repository that holds what is rendered. Absent: its root.")
@click.option("--revision", default="main", help="Branch of the repository. Absent: main.")
@click.option("--image", default="", help="With operator and deployments: the image that they run, by its digest.")
@click.option("--organization", default="", help="With operator and deployments: of Pulumi Cloud.")
@click.option("--backend", default="", help="With operator: address of the state. Absent: Pulumi Cloud.")
@click.option("--role", default="", help="With deployments: the role of AWS that they take.")
def command(environment: str, out: Path, tool: str | None, repo: str | None, **given: str) -> None:
    """Write the objects of ENV as YAML: the folder platform/ and one folder per tenant.

    The same objects as the engine makes, byte for byte the same at every run. Files are numbered in the
    order in which they are safe to apply. With `aws.enabled` also charts/, each chart with its values, and
    cluster/, what AWS is asked for: to read and compare, not for kubectl. Files of a former run that are no
    longer needed are removed; a folder that holds anything else is refused.
    """
    from tenancy.plan import make_plan
    from tenancy.plan.render import ForeignFiles, write

    loaded = load_or_exit(environment)
    plan = make_plan(loaded.environment, loaded.tenants)
    wanted = None
    if tool:
        from tenancy.gitops import Source, Tool, rendered

        if not repo:
            fail(f"given --gitops {tool} without --repo; rule: a repository; change: write its address", BAD_INPUT)
        image = given["image"]
        if tool == "operator" or (tool == "deployments" and image):
            _check_image(tool, image)
        if tool == "deployments" and not given["organization"]:
            fail("given deployments without --organization; rule: one of Pulumi Cloud; change: write it", BAD_INPUT)
        wanted = rendered(plan, loaded.environment.stacks, Tool(tool), Source(repo, **given))
    elif repo:
        fail("given --repo without --gitops; rule: it is for a tool; change: name the tool, or drop it", BAD_INPUT)
    try:
        with writing():
            count = write(plan, out, wanted)
    except ForeignFiles as error:
        fail(str(error), BAD_INPUT)
    click.echo(f"{count} objects in {out}")
    on_aws = [tenant.name for tenant in plan.tenants if tenant.aws]
    if tool in {"argo", "flux"} and (plan.platform.data or on_aws):
        whose = f" and of {len(on_aws)} tenants" if on_aws else ""
        click.echo(
            f"note: given --gitops {tool} and what the platform{whose} have on AWS; rule: it makes objects of "
            "Kubernetes alone: no bucket, key, role, Pod Identity association or access entry; change: use operator or "
            "deployments, or make these yourself (docs/gitops.md)",
            err=True,
        )


def _check_image(tool: str, image: str) -> None:
    import re

    if not re.fullmatch(r"\S+@sha256:[0-9a-f]{64}", image):
        change = "build ci/Containerfile, push it, and write name@sha256:…"
        fail(f"given --image {image!r} with {tool}; rule: an image by its digest; change: {change}", BAD_INPUT)
