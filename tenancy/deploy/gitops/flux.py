"""Flux: a Kustomization for the platform, and two for each tenant, which wait for one another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tenancy.catalog import vocabulary
from tenancy.deploy.gitops.source import FOLDER, GitOpsSource, annotated, needs_manual_removal, resource, shard_of
from tenancy.kube.objects import Object
from tenancy.planning.common.names import truncate_with_hash
from tenancy.planning.plan_model import Plan
from tenancy.planning.render import files, reference_files, text_of
from tenancy.spec.fields.environment import Layout

PRUNE_ANNOTATION = "kustomize.toolkit.fluxcd.io/prune"
SHARD = "sharding.fluxcd.io/key"
"""Label by which a kustomize-controller is told the Kustomizations that are its own (`--watch-label-selector`)."""
_ACCESS = "20-access.yaml"
_LABEL = 63
"""Characters of a name: Flux writes a Kustomization's as a label."""
_FLUX = "flux-system"
"""Namespace that its installer uses."""


def for_flux(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:  # noqa: ARG001
    """All files of a rendering, and the Kustomizations. A Kustomization applies a whole folder, so a tenant's access
    bindings are in a folder of their own."""
    items_by_path = {
        _access_path(path): [
            annotated(item, {PRUNE_ANNOTATION: "disabled"}) if needs_manual_removal(item) else item for item in items
        ]
        for path, items in files(plan)
    }
    return {
        **{path: text_of(items) for path, items in (*items_by_path.items(), *reference_files(plan)) if items},
        f"{FOLDER}/flux.yaml": text_of(list(_kustomizations(plan, source))),
    }


def _access_path(path: str) -> str:
    folder, _, name = path.rpartition("/")
    if path.startswith("platform/"):
        return path
    return f"{folder}/{'access' if name == _ACCESS else 'isolation'}/{name}"


def _kustomizations(plan: Plan, source: GitOpsSource) -> Iterator[Object]:
    name = plan.environment
    fetch = {"url": source.repository, "ref": {"branch": source.revision}, "interval": "5m"}
    yield resource("source.toolkit.fluxcd.io/v1", "GitRepository", name, _FLUX, fetch)

    def kustomization(title: str, folder: str, prerequisite: str | None, tenant: str = "") -> Object:
        spec: Object = {
            "sourceRef": {"kind": "GitRepository", "name": name},
            "path": f"./{source.path}/{folder}".replace("/./", "/"),
            "interval": "10m",
            "retryInterval": "2m",
            "timeout": "5m",
            "prune": True,
            "wait": True,
            # Not until they are gone: a queue stays while its work runs, and the controller would do nothing else.
            "deletionPolicy": "Delete",
            "kubeConfig": {"configMapRef": {"name": name}},
        }
        if prerequisite:
            spec["dependsOn"] = [{"name": prerequisite}]
        item = resource("kustomize.toolkit.fluxcd.io/v1", "Kustomization", title, _FLUX, spec)
        if tenant and source.shards:
            item["metadata"]["labels"] = {SHARD: shard_of(tenant, source.shards)}
        return item

    platform = f"{name}.platform"
    yield kustomization(platform, "platform", None)
    for tenant in plan.tenants:
        stack_name = vocabulary.derived_name(name, tenant.name)
        isolation, access = (
            truncate_with_hash(f"{stack_name}.{part}", _LABEL, ".") for part in ("isolation", "access")
        )
        yield kustomization(isolation, f"tenants/{tenant.name}/isolation", platform, tenant.name)
        yield kustomization(access, f"tenants/{tenant.name}/access", isolation, tenant.name)
