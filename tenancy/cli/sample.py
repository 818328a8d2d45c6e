from __future__ import annotations

import re

import click

from tenancy.cli.common import (
    BAD_INPUT,
    environment_argument,
    example,
    fail,
    lab_option,
    load_or_exit,
    print_json,
    refuses_bad_input,
    tenant_or_exit,
)


@click.command("sample", epilog=example("tenancy sample pod local --tenant fraud --gpu a100=1 | kubectl create -f -"))
@click.argument("kind", type=click.Choice(["pod", "job", "mpijob"]))
@environment_argument
@lab_option
@click.option("--tenant", required=True, metavar="NAME", help="Tenant that the pod or job is for.")
@click.option(
    "--namespace",
    metavar="NAME",
    help="Namespace of the tenant that the work is for, such as train. Default: the tenant's first namespace.",
)
@click.option(
    "--gpu",
    "gpus",
    multiple=True,
    metavar="FLAVOR=N",
    help="Number of GPUs of a flavor that the work requests; repeatable. Default: no GPU.",
)
@refuses_bad_input
def command(kind: str, environment: str, lab: bool, tenant: str, namespace: str | None, gpus: tuple[str, ...]) -> None:
    """Print, as JSON, the smallest pod, job or MPIJob that ENV admits from a tenant's developers.

    A job that asks for more GPUs than a node has gets several pods of equal size (completions and parallelism). An
    MPIJob names what becomes of its workers (cleanPodPolicy), as its queue requires.

    Where GPUs are requested by a ResourceClaim, the output is a List: the ResourceClaimTemplate, then the pod or job.
    """
    from tenancy.planning.kubernetes.samples import (
        LargerThanNodes,
        find_namespace,
        missing_pool,
        sample_to_create,
        split,
    )

    loaded = load_or_exit(environment, lab=lab)
    tenant_spec = tenant_or_exit(loaded, tenant, allow_removed=False)
    namespace_spec, gpu_counts = find_namespace(tenant_spec, namespace), _gpu_counts(gpus)
    try:
        print_json(sample_to_create(kind, loaded.environment, tenant_spec, namespace_spec, gpu_counts))
    except LargerThanNodes as error:
        fail(str(error), BAD_INPUT)
    for flavor, count in gpu_counts.items():
        pods, gpus_per_pod, pool = split(kind, loaded.environment, tenant_spec, namespace_spec, flavor, count)
        if pods > 1:
            click.echo(f"note: {pods} pods of {gpus_per_pod} {flavor}: no node of pool {pool} has {count}", err=True)
    if not gpu_counts and (pool_warning := missing_pool(loaded.environment, tenant_spec, namespace_spec)):
        click.echo(f"warning: {pool_warning}", err=True)


def _gpu_counts(gpus: tuple[str, ...]) -> dict[str, int]:
    counts = {}
    for text in gpus:
        flavor, equals, count = text.partition("=")
        if not flavor or (equals and not re.fullmatch("[1-9][0-9]{0,5}", count)):
            change = "write --gpu FLAVOR=N with N of 1 or more"
            fail(f"given --gpu {text}; rule: a flavor and a number; change: {change}", BAD_INPUT)
        counts[flavor] = int(count or "1")
    return counts
