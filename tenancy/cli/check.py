"""`tenancy check`: manifests from any source, judged by the rules of the spec files and the policy pack."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from tenancy import __version__
from tenancy.cli.common import BAD_INPUT, FAILED, example, fail, print_json, refuses_bad_input, say

_FORMATS = ("text", "json", "sarif", "junit")


@click.command("check", epilog=example("tenancy check build/local deploy/ --preset regulated"))
@click.argument("paths", nargs=-1, required=True, metavar="PATH…")
@click.option(
    "--preset",
    type=click.Choice(["baseline", "restricted", "regulated"]),
    default="restricted",
    help="Set of rules: baseline, those that isolate tenants; restricted, every rule; regulated, every rule and none "
    "of them advisory. Default: restricted.",
)
@click.option(
    "--exceptions",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with a list of exceptions, each with rule, resource, reason, owner and until (a date). An expired "
    "exception fails the check. Default: no exceptions.",
)
@click.option(
    "--env",
    "environment",
    metavar="ENV",
    help="Environment of which the API server's answer is told, offline, from its files. Default: none; the rules that "
    "hold everywhere are applied.",
)
@click.option(
    "--namespace",
    metavar="NAME",
    help="Namespace of objects that name none; for --env. Default: that of the API, default.",
)
@click.option(
    "--as",
    "identity",
    metavar="PERSON|ROLE",
    help="Who creates the objects, for --env: a role in the namespace, a user or group, or platform. "
    "Default: developer.",
)
@click.option("--tenant-label", metavar="KEY", help="Label of a namespace whose value names its tenant.")
@click.option(
    "--platform-namespace",
    "platform",
    multiple=True,
    metavar="NAMESPACE",
    help="Namespace of the platform, not of a tenant; repeatable.",
)
@click.option(
    "--strict",
    is_flag=True,
    help="Fail with exit code 1 if anything is not judged. Default: what is not judged is named.",
)
@click.option(
    "--format", "form", type=click.Choice(_FORMATS), default="text", help="Format of the output. Default: text."
)
@click.option("--all", "everything", is_flag=True, help="Print every finding. Default: at most one screen.")
@refuses_bad_input
def command(
    paths: tuple[str, ...],
    preset: str,
    exceptions: Path | None,
    environment: str | None,
    namespace: str | None,
    identity: str | None,
    tenant_label: str | None,
    platform: tuple[str, ...],
    strict: bool,
    form: str,
    everything: bool,
) -> None:
    """Check manifests against the rules: rendered folders, output of charts, a GitOps repository, a cluster's dump.

    PATH is a file, a folder with its subfolders, or - for standard input. No cluster and no Pulumi engine is needed.
    If no namespace has a label that names its tenant, every namespace that is not the platform's counts as one tenant.
    With --env it says for each object what the API server of the environment answers to its creation, and why its queue
    would never start it.

    Exit codes: 0 no mandatory rule is broken, no object is refused and each can start, 1 a mandatory rule is broken, an
    object is refused or can never start, an exception has expired or, with --strict, anything is not judged or not
    decided, 2 a manifest cannot be read, or the environment, the namespace or the person is unknown.
    """
    if environment is None and (
        unused_options := [option for option, value in (("--namespace", namespace), ("--as", identity)) if value]
    ):
        fail(
            f"given {unused_options[0]} without --env; rule: it is of an environment; change: add --env ENV", BAD_INPUT
        )
    from tenancy.check import outputs
    from tenancy.check.judge import judge
    from tenancy.check.reader import read
    from tenancy.rules.levels import PolicyPreset

    waivers = _waivers(exceptions) if exceptions else ()
    manifests = read(paths)
    answers = tenants = None
    if environment is not None:
        answers, tenants = _answers(manifests, environment, namespace, identity)
    verdict = judge(
        manifests,
        PolicyPreset(preset),
        waivers,
        label=tenant_label,
        platform=platform,
        strict=strict,
        answers=answers,
        tenants=tenants,
    )
    if not verdict.objects and not verdict.unread and not verdict.unjudged:
        fail(
            f"given {' '.join(paths)}, without an object; rule: manifests; change: name a file or folder with objects",
            BAD_INPUT,
        )
    if form == "text" and verdict.unread and not verdict.objects:
        pass  # nothing was read: the sentences on it say all
    elif form == "json":
        print_json({**outputs.as_json(verdict), "unread": [str(message) for message in verdict.unread]})
    else:
        click.echo(
            outputs.sarif(verdict, __version__, exceptions.as_posix() if exceptions else "")
            if form == "sarif"
            else outputs.junit(verdict)
            if form == "junit"
            else outputs.text(verdict, everything=everything)
        )
    for message in verdict.unread:
        say(str(message), err=True)
    if verdict.unread:
        sys.exit(BAD_INPUT)
    if not verdict.passes:
        sys.exit(FAILED)


def _answers(manifests: Any, environment: str, namespace: str | None, identity: str | None) -> tuple[Any, Any]:
    """Answers of the API server of an environment, and the tenants of its namespaces."""
    from tenancy.check.admission.identities import UnknownIdentityError
    from tenancy.check.admission.server import OfflineApiServer
    from tenancy.check.answers import UnknownNamespaceError, answers, tenants_of
    from tenancy.cli.common import load_or_exit
    from tenancy.planning import make_plan

    loaded = load_or_exit(environment)
    plan = make_plan(loaded, loaded.day)
    server = OfflineApiServer.of_environment(plan, loaded.environment.cluster.kubernetes)
    try:
        return (
            answers(manifests, server, loaded.environment, loaded.folder.name, namespace, identity),
            tenants_of(server),
        )
    except (UnknownIdentityError, UnknownNamespaceError) as error:
        fail(str(error), BAD_INPUT)


def _waivers(path: Path) -> tuple:
    import yaml

    from tenancy.catalog.files import SETTINGS, read_text_file
    from tenancy.rules.catalogue import Violation
    from tenancy.rules.exceptions import waivers

    try:
        document = yaml.safe_load(read_text_file(path, SETTINGS))
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        reason = " ".join(str(error).split())
        fail(f"given --exceptions {path}: {reason}; rule: a YAML file with a list; change: correct it", BAD_INPUT)
    try:
        return waivers([] if document is None else document)
    except Violation as violation:
        raise Violation("exc-01", f"{path}: {violation.given}", violation.change) from None
