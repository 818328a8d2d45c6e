"""Which charts a cluster gets, from its pools."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tenancy.plan import charts, names, node_config
from tenancy.plan.charts import Chart
from tenancy.plan.pools import tolerations
from tenancy.spec.environment import Cni, Environment


def releases(environment: Environment) -> tuple[Chart, ...]:
    """The charts in the order in which they are installed; none without machines."""
    if not environment.aws.enabled:
        return ()
    mirror = environment.platform.chart_mirror
    return tuple(replace(chart, repository=mirror) if mirror else chart for chart in _releases(environment))


def _releases(environment: Environment) -> Iterator[Chart]:
    pools, everywhere = environment.pools, tolerations(environment)
    if environment.cluster.cni is Cni.CILIUM:
        yield charts.cilium()
    if any(pool.scales for pool in pools.values()):
        yield charts.karpenter_crds()
        yield charts.karpenter(
            cluster=environment.cluster.name,
            queue=names.karpenter_queue(environment),
            region=environment.aws.region,
        )
    yield charts.gpu_operator(
        everywhere,
        device_plugin_configs=node_config.device_plugin_configs(environment),
        dra=environment.devices_by_claim,
    )
    if environment.devices_by_claim:
        yield charts.dra_driver(everywhere)
    if with_efa := [name for name, pool in pools.items() if pool.efa]:
        yield charts.efa_plugin(everywhere, with_efa)
