from __future__ import annotations

import pulumi

from tenancy.planning.common.charts import HelmChart

OCI = "oci://"
TIMEOUT_SECONDS = 900
"""Seconds: the GPU Operator's daemonsets wait for one another on every node."""


class HelmRelease(pulumi.CustomResource):
    """A chart as a Helm release, so that its hooks run and `helm list` knows it."""

    def __init__(self, name: str, chart: HelmChart, opts: pulumi.ResourceOptions) -> None:
        oci = chart.repository.startswith(OCI)
        chart_source = (
            {"chart": f"{chart.repository}/{chart.chart}"}
            if oci
            else {"chart": chart.chart, "repositoryOpts": {"repo": chart.repository}}
        )
        properties = {
            **chart_source,
            "name": chart.name,
            "namespace": chart.namespace,
            "createNamespace": True,
            "version": chart.version,
            "values": chart.values,
            # A release that fails is taken back: half an operator leaves nodes without GPUs.
            "atomic": True,
            "timeout": TIMEOUT_SECONDS,
        }
        super().__init__("kubernetes:helm.sh/v3:Release", name, properties, opts)
