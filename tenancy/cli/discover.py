from __future__ import annotations

from pathlib import Path

import click

from tenancy.cli.common import BAD_INPUT, example, fail


@click.command("discover", epilog=example("tenancy discover --context ml --out pools.yaml"))
@click.option("--context", help="Context of the kubeconfig. Default: its current context.")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="File to write. Default: print.")
def command(context: str | None, out: Path | None) -> None:
    """Read the nodes of a cluster that exists, and write its `pools`, `flavors` and `services` for environment.yaml.

    Managed and self-managed node groups, Karpenter and EKS Auto Mode are told apart by the labels of their nodes.
    Nothing on the cluster is changed; what its nodes lack is written as comments.
    """
    import yaml

    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.lifecycle.node_pools import detect_services, pools_of_nodes

    try:
        api = Api(context)
        nodes = api.items("/api/v1/nodes")
        services = detect_services(api)
    except ApiUnreachable as error:
        fail(str(error))
    discovery = pools_of_nodes(nodes)
    if not discovery.pools:
        remarks = "".join(f"\n{remark}" for remark in discovery.remarks) or "\nno nodes"
        fail(
            f"given a cluster of {len(nodes)} nodes without a pool; rule: a pool's instance type is in the catalogue; "
            f"change: use nodes of a type that `tenancy catalog` lists{remarks}",
            BAD_INPUT,
        )
    document = {"services": services, "flavors": discovery.flavors, "pools": discovery.pools}
    head = [f"{len(nodes)} nodes of {api.host}; cluster: {{mode: existing}} goes with them", *discovery.remarks]
    body = yaml.safe_dump(document, sort_keys=False, default_flow_style=None, width=120)
    text = "".join(f"# {line}\n" for line in head) + body
    if out is None:
        click.echo(text, nl=False)
        return
    out.write_text(text, "utf-8")
    click.echo(
        f"{out}: {len(discovery.pools)} pools, {len(discovery.flavors)} flavors, {len(discovery.remarks)} remarks"
    )
