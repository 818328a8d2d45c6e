"""Resources that the control plane of a virtual cluster takes of its namespace, besides the work in it.

The CPU requests and the sum of the memory requests are the chart's; the syncer gets 512Mi of that sum, because it also
runs the API server and its database. The chart gives it no CPU limit (loft-sh/vcluster@7e3deaa chart/values.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping

Size = Mapping[str, Mapping[str, str]]

SYNCER: Size = {
    "requests": {"cpu": "200m", "memory": "512Mi", "ephemeral-storage": "1Gi"},
    "limits": {"cpu": "2", "memory": "4Gi", "ephemeral-storage": "8Gi"},
}
"""Syncer, API server, controllers and database: one container."""
KUBERNETES: Size = {
    "requests": {"cpu": "40m", "memory": "64Mi", "ephemeral-storage": "64Mi"},
    "limits": {"cpu": "100m", "memory": "256Mi", "ephemeral-storage": "1Gi"},
}
"""Init container that copies Kubernetes' binaries to the syncer's container."""
DNS: Size = {
    "requests": {"cpu": "20m", "memory": "64Mi", "ephemeral-storage": "64Mi"},
    "limits": {"cpu": "1", "memory": "170Mi", "ephemeral-storage": "1Gi"},
}
CONTAINERS: Mapping[str, Size] = {
    "the syncer": SYNCER,
    "the Kubernetes init container": KUBERNETES,
    "the DNS container": DNS,
}
CONCURRENT_CONTAINERS = (SYNCER, DNS)
"""Containers that run at the same time; init containers count only if they are larger."""
PODS = len(CONCURRENT_CONTAINERS)
"""Pods of a virtual cluster's control plane."""
VOLUME = "5Gi"
"""Size of the volume of its database."""
