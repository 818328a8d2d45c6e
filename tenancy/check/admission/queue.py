"""Work that a queue can never admit, whatever else runs: it would be created, and never start.

The causes are those of `tenancy fits` and `tenancy why`, computed for a cluster in which nothing else runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

from tenancy.catalog import vocabulary
from tenancy.catalog.controllers import QUEUE
from tenancy.check.admission.cluster import ClusterObjects
from tenancy.kube.objects import Object, get_path
from tenancy.kube.pods import NotWork, Pods, min_pods_to_start, pods_of, queued_metadata
from tenancy.kube.quota_tree import Tree
from tenancy.planning.queueing.assignment import FlavorAssigner, counted_resources, never_causes
from tenancy.planning.queueing.causes import WaitCause, no_queue, on_hold
from tenancy.spec.fields.environment import Environment

GROUP = "kueue.x-k8s.io"


class QueueAdmission:
    """The queues of an environment, without any work in them."""

    def __init__(self, environment: Environment, cluster: ClusterObjects) -> None:
        self._environment, self._cluster = environment, cluster

    @cached_property
    def _tree(self) -> Tree:
        return Tree.read([*self._cluster.all(GROUP, "ClusterQueue"), *self._cluster.all(GROUP, "Cohort")])

    def obstacles(self, item: Object, namespace: str) -> Iterator[WaitCause]:
        """Why an object that the API server admits would never start; nothing if it could.

        `item` has the defaults of admission: requests of its containers, and the name of its queue.
        """
        space = get_path(self._cluster.namespace(namespace), "metadata", "labels") or {}
        if vocabulary.TENANT not in space or not self._environment.has_queues:
            return
        try:
            sets = pods_of(item)
        except NotWork:
            return
        if not sets:
            return
        if least := min_pods_to_start(item):
            sets = [replace(pods, count=min(pods.count, least)) for pods in sets]
        name = str((queued_metadata(item).get("labels") or {}).get(QUEUE) or vocabulary.DEFAULT_QUEUE)
        local = self._cluster.get(GROUP, "LocalQueue", name, namespace)
        queue = (
            self._cluster.get(GROUP, "ClusterQueue", get_path(local, "spec", "clusterQueue") or "") if local else None
        )
        if local is None or queue is None:
            yield no_queue(name)
            return
        if any(get_path(queue_item, "spec", "stopPolicy") not in (None, "None") for queue_item in (local, queue)):
            yield on_hold()
            return
        yield from self._unplaced(queue, sets, namespace)

    def _unplaced(self, queue: Object, sets: list[Pods], namespace: str) -> Iterator[WaitCause]:
        flavors = {flavor["metadata"]["name"]: flavor for flavor in self._cluster.all(GROUP, "ResourceFlavor")}
        tree = self._tree.queues[queue["metadata"]["name"]]
        assigner = FlavorAssigner(self._environment, queue, tree, flavors)

        def claim_template(name: str) -> Object | None:
            return self._cluster.get("resource.k8s.io", "ResourceClaimTemplate", name, namespace)

        demands = [(pods, counted_resources(self._environment, pods, claim_template)) for pods in sets]
        yield from never_causes(self._environment, assigner.place(demands), sets)
