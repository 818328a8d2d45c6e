from __future__ import annotations

from dataclasses import asdict

import click

from tenancy.catalog.vocabulary import LAB_CONTEXT
from tenancy.cli.common import BAD_INPUT, example, fail, format_option, print_json


@click.command("why", epilog=example("tenancy why job/hello-gpu -n fraud--train"))
@click.argument("work", metavar="[KIND/]NAME")
@click.option("--namespace", "-n", required=True, help="The namespace that it is in, such as fraud--train.")
@click.option("--context", help="Context of the kubeconfig; absent: the current one.")
@click.option("--lab", is_flag=True, help="On this machine's lab.")
@click.option("--verbose", "-v", is_flag=True, help="Also what Kueue, the scheduler or the API server said.")
@format_option
def command(work: str, namespace: str, context: str | None, lab: bool, verbose: bool, form: str) -> None:
    """Say in one sentence why a job waits, or that it runs.

    KIND is job (if absent), pod, deployment, statefulset or another kind that queues. It asks with the rights of the
    kubeconfig's user; a viewer of the tenant has enough.
    """
    from tenancy.lab.layout import enter_lab
    from tenancy.live.api import Api, Unreachable
    from tenancy.live.waiting import KINDS, NotFound, explain

    kind, _, name = work.rpartition("/")
    kind = kind.lower() or "job"
    if kind not in KINDS or not name:
        fail(f"given {work}; rule: a kind that queues, and a name; change: use one of {', '.join(KINDS)}", BAD_INPUT)
    if lab:
        enter_lab(LAB_CONTEXT)
    try:
        found = explain(Api(LAB_CONTEXT if lab else context), namespace, kind, name)
    except Unreachable as error:
        fail(str(error))
    except NotFound as error:
        fail(f"given {kind} {name} in {namespace}; {error}; change: see `kubectl get {kind}s -n {namespace}`")
    if form == "json":
        print_json(asdict(found))
        return
    behind = f" {found.ahead} of the same queue go first." if found.ahead else ""
    click.echo(f"{found.sentence}{behind}")
    if verbose and found.said:
        click.echo(f"  {found.said}")
