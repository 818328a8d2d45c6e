from __future__ import annotations

import click

from tenancy.cli.can import account_of, fail_unknown_name, optional_environment, target_or_exit
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
    from tenancy.iam.answers import requests_by_service, who_can
    from tenancy.output.tables import Table

    account = account_of(environment)
    target = target_or_exit(account, resource)
    service = target.arn.split(":")[2]
    if service not in requests_by_service() or (service == "s3" and not target.bucket):
        rule = "a bucket, a secret, a log group, a queue or a repository"
        fail(f"given {resource!r}; rule: {rule}; change: use `tenancy can` for other resources", BAD_INPUT)
    if (
        not target.bucket
        and target.arn not in (known_arns := account.owned(service))
        and not account.thing(target.arn).policy
    ):
        fail_unknown_name("ARN", target.arn, known_arns)
    access_answers = list(who_can(account, target))
    if form == "json":
        print_json([answer.as_dict() for answer in access_answers])
        return
    if not access_answers:
        click.echo(f"{resource}: no role of the plan has access")
        return
    rows = [
        (
            answer.identity.tenant,
            answer.identity.namespace,
            answer.prefix or "all of it",
            answer.what,
            answer.identity.role.name,
            answer.statements(),
        )
        for answer in access_answers
    ]
    header = ("tenant", "namespace", "under", "may", "role", "allowed by")
    remarks = [
        f"{account.environment.aws.platform_role} has access too, as its own policies allow, which are not in the plan",
        "pods of the cluster have access only over TLS and through the VPC endpoint",
    ]
    print_tables([Table(f"Access to {resource}", header, rows, remarks)])
