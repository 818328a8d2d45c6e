from __future__ import annotations

import click

from tenancy.cli.can import account_of, json_option, optional_environment, target_or_exit, unknown
from tenancy.cli.common import BAD_INPUT, example, fail, print_json


@click.command("who-can", epilog=example("tenancy who-can s3://bank-datasets/teams/fraud/ bank"))
@click.argument("resource")
@optional_environment
@json_option
def command(resource: str, environment: str | None, as_json: bool) -> None:
    """Show who may read, write, list or delete at RESOURCE, and which statements allow it.

    RESOURCE is s3://bucket/prefix, or the ARN of a secret, a log group, a queue or a repository. A prefix that ends
    with '/' stands for all that is in it. The answer comes from the files of ENV alone; without ENV it is the one with
    AWS on. Exit code 0 also where nobody may.
    """
    from tenancy.cli.report import Table, as_text
    from tenancy.iam.answers import SERVICES, who_can

    account = account_of(environment)
    about = target_or_exit(account, resource)
    service = about.arn.split(":")[2]
    if service not in SERVICES or (service == "s3" and not about.bucket):
        rule = "a bucket, a secret, a log group, a queue or a repository"
        fail(f"given {resource!r}; rule: {rule}; change: ask `tenancy can` about other things", BAD_INPUT)
    if not about.bucket and about.arn not in (known := account.owned(service)) and not account.thing(about.arn).policy:
        unknown("ARN", about.arn, known)
    found = list(who_can(account, about))
    if as_json:
        print_json([held.as_dict() for held in found])
        return
    if not found:
        click.echo(f"{resource}: nobody of the plan's")
        return
    rows = [
        (held.who.tenant, held.who.part, held.under or "all of it", held.what, held.who.role.name, held.statements())
        for held in found
    ]
    header = ("tenant", "part", "under", "may", "role", "allowed by")
    remarks = [
        f"and {account.environment.aws.platform_role}, as far as its own policies go, which are not the plan's",
        "by pods of the cluster: over TLS, through the VPC's endpoint",
    ]
    click.echo(as_text(Table(f"Who can at {resource}", header, rows, remarks)))
