from __future__ import annotations

import click

from tenancy.cli.can import account_of, optional_environment, target_or_exit, unknown
from tenancy.cli.common import BAD_INPUT, example, fail, format_option, print_json


@click.command("who-can", epilog=example("tenancy who-can s3://bank-datasets/teams/fraud/ bank"))
@click.argument("resource")
@optional_environment
@format_option
def command(resource: str, environment: str | None, form: str) -> None:
    """Show which tenants may read, write, list or delete at RESOURCE, and which IAM statements allow it.

    RESOURCE is s3://bucket/prefix, or the ARN of a secret, a log group, a queue or a repository. A prefix that ends
    with '/' stands for all objects below it. The answer is computed from the spec files of ENV, without asking AWS.
    Default of ENV: the only environment with aws.enabled: true.

    Exit codes: 0 success, even if no tenant has access, 2 bad input.
    """
    from tenancy.cli.tables import print_tables
    from tenancy.iam.answers import SERVICES, who_can
    from tenancy.output.tables import Table

    account = account_of(environment)
    about = target_or_exit(account, resource)
    service = about.arn.split(":")[2]
    if service not in SERVICES or (service == "s3" and not about.bucket):
        rule = "a bucket, a secret, a log group, a queue or a repository"
        fail(f"given {resource!r}; rule: {rule}; change: use `tenancy can` for other resources", BAD_INPUT)
    if not about.bucket and about.arn not in (known := account.owned(service)) and not account.thing(about.arn).policy:
        unknown("ARN", about.arn, known)
    found = list(who_can(account, about))
    if form == "json":
        print_json([held.as_dict() for held in found])
        return
    if not found:
        click.echo(f"{resource}: no role of the plan has access")
        return
    rows = [
        (
            held.who.tenant,
            held.who.namespace,
            held.under or "all of it",
            held.what,
            held.who.role.name,
            held.statements(),
        )
        for held in found
    ]
    header = ("tenant", "namespace", "under", "may", "role", "allowed by")
    remarks = [
        f"{account.environment.aws.platform_role} has access too, as its own policies allow, which are not in the plan",
        "pods of the cluster have access only over TLS and through the VPC endpoint",
    ]
    print_tables([Table(f"Access to {resource}", header, rows, remarks)])
