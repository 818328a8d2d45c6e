"""What a tenant's first run left that was ended before its state was written, on an API server that is only played."""

from __future__ import annotations

from typing import Any, cast

import pytest

from tenancy.catalog import vocabulary
from tenancy.cluster.api import Api, Response
from tenancy.deploy.unrecorded_objects import find_unrecorded, remove_all, remove_unplanned
from tenancy.lifecycle.removal import RemovalTimeout

RBAC = "rbac.authorization.k8s.io/v1"
QUEUES = "kueue.x-k8s.io/v1beta2"
KINDS = {
    "v1": [("Namespace", "namespaces", False), ("ConfigMap", "configmaps", True), ("Pod", "pods", True)],
    RBAC: [("RoleBinding", "rolebindings", True)],
    QUEUES: [("ClusterQueue", "clusterqueues", False)],
}


def item(name: str, namespace: str = "", manager: str = "pulumi-kubernetes-1", **annotations: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name, "annotations": annotations, "managedFields": [{"manager": manager}]}
    metadata["managedFields"][0] |= {"operation": "Apply", "fieldsV1": {"f:data": {}}}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


class Cluster:
    """Lists these objects, whatever the selector, and removes what it is asked to."""

    def __init__(self, refused: str = "") -> None:
        self.selectors: set[str] = set()
        self.removed: list[str] = []
        self.refused = refused
        self.objects = {
            "/api/v1/namespaces": [item("voice--main"), item("voice--old", **{vocabulary.LEAVING: vocabulary.LEFT})],
            "/api/v1/configmaps": [item("kept", "voice--main"), item("former", "voice--main")],
            "/api/v1/pods": [item("of-the-tenant", "voice--main", manager="kubectl")],
            f"/apis/{RBAC}/rolebindings": [item("former", "voice--main")],
            f"/apis/{QUEUES}/clusterqueues": [item("voice")],
        }

    def request(self, method: str, path: str, *_: object, **__: object) -> Response:
        plain, _, query = path.partition("?")
        if method == "DELETE":
            self.removed.append(plain)
            return Response(403 if plain == self.refused else 200, {"message": "no"})
        if plain == "/apis":
            versions = [version for version in KINDS if "/" in version]
            return Response(200, {"groups": [{"preferredVersion": {"groupVersion": version}} for version in versions]})
        version = plain.removeprefix("/apis/").removeprefix("/api/")
        if version in KINDS:
            names = ("kind", "name", "namespaced")
            resources = [dict(zip(names, row, strict=True)) | {"verbs": ["list"]} for row in KINDS[version]]
            return Response(200, {"resources": resources})
        if plain in self.objects:
            self.selectors.add(query)
            return Response(200, {"items": self.objects[plain]})
        return Response(404 if plain in self.removed else 200, {"metadata": {}})

    def items(self, path: str, absent: bool = False) -> list[dict[str, Any]]:
        del path, absent
        return []


def unrecorded_objects(cluster: Cluster) -> list[str]:
    return [str(unrecorded) for unrecorded in find_unrecorded(cast("Api", cluster), "bank", "voice")]


def test_what_the_engine_wrote_with_the_tenants_labels_is_found_but_no_namespace_that_it_left() -> None:
    cluster = Cluster()
    assert unrecorded_objects(cluster) == [
        "Namespace voice--main",
        "ConfigMap voice--main/kept",
        "ConfigMap voice--main/former",
        "RoleBinding voice--main/former",
        "ClusterQueue voice",
    ]
    (selector,) = cluster.selectors
    assert selector == f"labelSelector={vocabulary.ENVIRONMENT}%3Dbank%2C{vocabulary.TENANT}%3Dvoice".replace(
        "/", "%2F"
    )


def test_what_the_plan_has_not_is_removed_access_first_and_namespaces_stay() -> None:
    cluster = Cluster()
    api = cast("Api", cluster)
    planned = {"/api/v1/namespaces/voice--main/configmaps/kept", f"/apis/{QUEUES}/clusterqueues/voice"}
    removed = remove_unplanned(api, find_unrecorded(api, "bank", "voice"), planned)
    assert [str(reference) for reference in removed] == [
        "RoleBinding voice--main/former",
        "ConfigMap voice--main/former",
    ]
    assert cluster.removed == [
        f"/apis/{RBAC}/namespaces/voice--main/rolebindings/former",
        "/api/v1/namespaces/voice--main/configmaps/former",
    ]


def test_a_whole_tenant_is_removed_access_first_and_its_queues_last() -> None:
    cluster = Cluster()
    cluster.objects["/api/v1/pods"] = []
    api = cast("Api", cluster)
    remove_all(api, find_unrecorded(api, "bank", "voice"), 1, print)
    first, second, *_, last = cluster.removed
    assert first.endswith("/rolebindings/former")
    assert second == "/api/v1/namespaces/voice--main"
    assert last.endswith("/clusterqueues/voice")


def test_an_object_that_cannot_be_removed_is_named_with_the_answer() -> None:
    cluster = Cluster(refused=f"/apis/{RBAC}/namespaces/voice--main/rolebindings/former")
    api = cast("Api", cluster)
    with pytest.raises(RemovalTimeout, match="RoleBinding voice--main/former cannot be removed: 403 no"):
        remove_unplanned(api, find_unrecorded(api, "bank", "voice"), ())
