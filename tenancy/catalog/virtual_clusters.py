"""Resources that the control plane of a virtual cluster takes of its namespace, besides the work in it.

Requests of CPU and of the sum of the memory as the chart has them, but 512Mi for the syncer, which also runs the API
server and its database; the chart gives it no limit of CPU (loft-sh/vcluster@7e3deaa chart/values.yaml).
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
"""Copies binaries before the other starts."""
DNS: Size = {
    "requests": {"cpu": "20m", "memory": "64Mi", "ephemeral-storage": "64Mi"},
    "limits": {"cpu": "1", "memory": "170Mi", "ephemeral-storage": "1Gi"},
}
CONTAINERS: Mapping[str, Size] = {"the syncer": SYNCER, "its Kubernetes": KUBERNETES, "its DNS": DNS}
RUNNING = (SYNCER, DNS)
"""Containers that run at the same time; init containers count only if they are larger."""
PODS = len(RUNNING)
VOLUME = "5Gi"
