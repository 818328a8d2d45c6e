from __future__ import annotations

from dataclasses import asdict

import click

from tenancy.catalog.vocabulary import LAB_CONTEXT
from tenancy.cli.common import BAD_INPUT, example, fail, format_option, print_json


@click.command("why", epilog=example("tenancy why job/hello-gpu -n fraud--train"))
@click.argument("work", metavar="[KIND/]NAME")
@click.option("--namespace", "-n", required=True, metavar="NAME", help="Namespace of the work, such as fraud--train.")
@click.option("--context", metavar="NAME", help="Context of the kubeconfig to use. Default: the current context.")
@click.option("--lab", is_flag=True, help="Use the lab on this machine.")
@click.option("--verbose", "-v", is_flag=True, help="Print the message of Kueue, the scheduler or the API server too.")
@format_option
def command(work: str, namespace: str, context: str | None, lab: bool, verbose: bool, form: str) -> None:
    """Say in one sentence why a job waits, or that it runs.

    KIND is pod, deployment, statefulset, job or another kind that Kueue queues; by default job. The command reads with
    the rights of the kubeconfig's user; the role viewer of the tenant is enough.
    """
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.explain.waiting import KINDS, WorkNotFound, explain
    from tenancy.lab.layout import enter_lab

    kind, _, name = work.rpartition("/")
    kind = kind.lower() or "job"
    if kind not in KINDS or not name:
        kinds = ", ".join(KINDS)
        fail(f"given {work}; rule: KIND/NAME of a kind that Kueue queues; change: use one of {kinds}", BAD_INPUT)
    if lab:
        enter_lab(LAB_CONTEXT)
    try:
        explanation = explain(Api(LAB_CONTEXT if lab else context), namespace, kind, name)
    except ApiUnreachable as error:
        fail(str(error))
    except WorkNotFound as error:
        fail(f"given {kind} {name} in {namespace}; {error}; change: see `kubectl get {kind}s -n {namespace}`")
    if form == "json":
        print_json(asdict(explanation))
        return
    queue_text = f" Workloads ahead of it in the same queue: {explanation.ahead}." if explanation.ahead else ""
    click.echo(f"{explanation.sentence}{queue_text}")
    if verbose and explanation.said:
        click.echo(f"  {explanation.said}")
