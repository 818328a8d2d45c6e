from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from tenancy.cli.common import BAD_INPUT, FAILED, example, fail, format_option, load_or_exit, print_json

if TYPE_CHECKING:
    from tenancy.iam.account import AccountIdentity, AccountModel
    from tenancy.iam.answers import Target
    from tenancy.spec.loader import Loaded

optional_environment = click.argument("environment", metavar="[ENV]", required=False)


@click.command("can", epilog=example("tenancy can fraud s3:GetObject s3://bank-datasets/teams/fraud/x bank"))
@click.argument("tenant", metavar="TENANT[/NAMESPACE]")
@click.argument("action")
@click.argument("resource")
@optional_environment
@format_option
def command(tenant: str, action: str, resource: str, environment: str | None, form: str) -> None:
    """Say whether TENANT may do ACTION on RESOURCE, and which IAM statements decide.

    ACTION is one action of IAM, such as s3:GetObject. RESOURCE is s3://bucket/key or an ARN. The answer is computed
    from the spec files of ENV, without asking AWS, for the role of each namespace and of the pipeline. Default
    of ENV: the only environment with aws.enabled: true.

    Exit codes: 0 at least one role is allowed, 1 none is, 2 bad input.
    """
    from tenancy.iam.answers import can

    account = account_of(environment)
    target = target_or_exit(account, resource)
    if not re.fullmatch(r"[a-z0-9-]+:[A-Za-z0-9]+", action):
        change = "write it like s3:GetObject"
        fail(f"given action {action!r}; rule: one action of IAM, without a wildcard; change: {change}", BAD_INPUT)
    decisions = [(identity, can(account, identity, action, target)) for identity in _identities(account, tenant)]
    if form == "json":
        print_json(
            [
                {
                    "tenant": identity.tenant,
                    "namespace": identity.namespace,
                    "role": identity.role.arn,
                    "allowed": verdict.answer.allowed,
                    "condition": verdict.condition or None,
                    "because": list(verdict.answer.reasons()),
                }
                for identity, verdict in decisions
            ]
        )
    else:
        for identity, verdict in decisions:
            click.echo(f"{identity}: {verdict.word}")
            for reason in verdict.answer.reasons():
                click.echo(f"  {reason}")
        if not decisions:
            click.echo(f"{tenant}: no\n  the tenant has no identity on AWS: no grants, and no pipeline")
    if not any(verdict.answer.allowed for _, verdict in decisions):
        raise SystemExit(FAILED)


def account_of(environment: str | None) -> AccountModel:
    """The AWS account as the spec files of an environment define it."""
    from tenancy.iam.account import AccountModel
    from tenancy.planning import make_plan

    loaded = load_or_exit(environment) if environment else _only_aws_environment()
    if not loaded.environment.aws.enabled:
        input_text = f"{loaded.environment.environment}, with aws.enabled: false"
        fail(
            f"given {input_text}; rule: identities need AWS; change: name an environment with aws.enabled: true",
            BAD_INPUT,
        )
    return AccountModel(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day))


def _only_aws_environment() -> Loaded:
    """The only environment of the project with aws.enabled: true."""
    folders = {
        path.parent.name: str(path.parent)
        for base in (Path.cwd(), *Path.cwd().parents)
        for path in sorted(base.glob("stacks/*/environment.yaml"))
    }
    loaded_by_name = {
        name: loaded for name, folder in folders.items() if (loaded := load_or_exit(folder)).environment.aws.enabled
    }
    if len(loaded_by_name) != 1:
        known_names = ", ".join(loaded_by_name) or "none"
        fail(
            f"given no ENV; rule: an environment with aws.enabled: true, here {known_names}; change: name it last",
            BAD_INPUT,
        )
    return next(iter(loaded_by_name.values()))


def target_or_exit(account: AccountModel, resource: str) -> Target:
    """The resource that a URL or an ARN names; without one, exit code 2."""
    from tenancy.iam.answers import target

    resource_target = target(account, resource)
    if resource_target is None:
        change = "write s3://bank-models/fraud/x, or an ARN"
        fail(f"given {resource!r}; rule: an S3 URL or an ARN; change: {change}", BAD_INPUT)
    if resource_target.bucket and resource_target.bucket not in account.environment.buckets:
        fail_unknown_name("bucket", resource_target.bucket, account.environment.buckets)
    return resource_target


def _identities(account: AccountModel, tenant_text: str) -> list[AccountIdentity]:
    name, _, namespace = tenant_text.partition("/")
    tenants = [tenant.tenant for tenant in account.tenants]
    if name not in tenants:
        fail_unknown_name("tenant", name, tenants)
    identities = list(account.of_tenant(name))
    if namespace and namespace not in (known_namespaces := [identity.namespace for identity in identities]):
        fail_unknown_name(f"identity of {name}", namespace, known_namespaces)
    return [identity for identity in identities if not namespace or identity.namespace == namespace]


def fail_unknown_name(kind: str, name: str, known_names: Iterable[str]) -> NoReturn:
    """End with exit code 2 and the known name that is most similar to the given one."""
    names = list(known_names)
    similar_names = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    change = (
        f"did you mean {similar_names[0]!r}?"
        if similar_names
        else f"use one of {', '.join(names) or 'none: there are none'}"
    )
    fail(f"given {kind} {name!r}; rule: a name that the spec files have; change: {change}", BAD_INPUT)
