"""Argo CD: Applications in sync waves, and their AppProject."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping

import yaml

from tenancy.catalog import vocabulary
from tenancy.catalog.sizes import ETCD_REQUEST
from tenancy.catalog.text import pluralize
from tenancy.deploy.gitops.source import (
    FOLDER,
    GitOpsRefused,
    GitOpsSource,
    annotated,
    every_shard,
    needs_manual_removal,
    resource,
    shard_of,
)
from tenancy.kube.objects import Object
from tenancy.planning.plan_model import Plan
from tenancy.planning.render import files, reference_files, text_of
from tenancy.spec.fields.environment import Layout

WAVE, SYNC = "argocd.argoproj.io/sync-wave", "argocd.argoproj.io/sync-options"
COMPARE = "argocd.argoproj.io/compare-options"
STATUS_BYTES = 300
"""Bytes of the two entries of an object in an Application's status, without its names (Argo CD 3.5.2)."""
FILE = "argo.yaml"
"""File of the AppProject and the Applications."""
_OWN_BYTES = 8192
"""Bytes of an Application without objects, with room for messages."""
_ARGO = "argocd"
"""Namespace that its installer uses."""
_SHARDS = "shards"
_README = (
    text_of([])
    + "# The tenants of one Application. The folder is there without a tenant too: Argo CD syncs no missing folder.\n"
)


def wave(path: str) -> int:
    """Sync wave of a file's objects: all of the platform's before any of a tenant's, access bindings last of all."""
    part, _, file_path = path.partition("/")
    number = int(file_path.rpartition("/")[2].partition("-")[0])
    return number - 100 if part == "platform" else number


def application_bytes(items: Iterable[Object]) -> int:
    """Bytes of an Application that has synced these objects at once, a little more than it has: of each object its
    status has an entry among the resources and one in the result of the operation, which repeats the names."""
    return _OWN_BYTES + sum(_status_bytes(item) for item in items)


def _status_bytes(item: Object) -> int:
    names = [item["apiVersion"], item["kind"], item["metadata"]["name"], item["metadata"].get("namespace", "")]
    return STATUS_BYTES + 3 * sum(map(len, names))


def for_argo(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:  # noqa: ARG001
    """All files of a rendering, and the Applications; GitOpsRefused if one of them has more objects than etcd takes."""
    _expect_room(plan, source.shards)
    placed = {
        _file_location(path, source.shards): [_in_wave(item, wave(path)) for item in items]
        for path, items in files(plan)
    }
    return {
        **{path: text_of(items) for path, items in (*placed.items(), *reference_files(plan)) if items},
        **{f"{_SHARDS}/{shard}/README.md": _README for shard in every_shard(source.shards)},
        f"{FOLDER}/{FILE}": text_of(list(_applications(plan, source))),
    }


def moves_unsafely(former: str, new: str) -> bool:
    """Whether tenants go to other Applications between these two texts of `argo.yaml`, while one may prune: the former
    Application of a tenant would delete what its next one has not taken over yet."""
    former_pruning, new_pruning = _prunes(former), _prunes(new)
    return former_pruning.keys() != new_pruning.keys() and any((*former_pruning.values(), *new_pruning.values()))


def _prunes(text: str) -> dict[str, bool]:
    """Whether each Application prunes, by its name; nothing of a text that is not as it was rendered."""
    try:
        return {
            item["metadata"]["name"]: bool(item["spec"]["syncPolicy"]["automated"]["prune"])
            for item in yaml.safe_load_all(text)
            if item["kind"] == "Application"
        }
    except (yaml.YAMLError, KeyError, TypeError):
        return {}


def _file_location(path: str, shards: int) -> str:
    """Location of a file. The tenants of an Application are in a folder of their own, so that it need not change when
    one comes or goes."""
    part, _, tenant_path = path.partition("/")
    tenant, _, name = tenant_path.partition("/")
    return f"{_SHARDS}/{shard_of(tenant, shards)}/{tenant}/{name}" if shards and part != "platform" else path


def _expect_room(plan: Plan, shards: int) -> None:
    sizes = {tenant.name: sum(map(_status_bytes, tenant.objects())) for tenant in plan.tenants}
    platform = application_bytes(plan.platform.objects())
    largest = max(platform, _largest(sizes, shards)) if shards else platform + sum(sizes.values())
    if largest <= ETCD_REQUEST:
        return
    # A quarter is left for more tenants, because another number moves tenants.
    enough = next((n for n in range(2, 2 * len(sizes)) if _largest(sizes, n) <= 3 * ETCD_REQUEST // 4), None)
    fits = enough is not None and platform <= ETCD_REQUEST
    raise GitOpsRefused(
        f"given {pluralize(len(plan.tenants), 'tenant')} and "
        f"{f'--shards {shards}' if shards else 'one Application of Argo CD'}; "
        "rule: the status of an Application names each of its objects, and etcd takes "
        f"{ETCD_REQUEST // 1024} KiB for an object: the largest takes {largest // 1024} KiB; "
        f"change: {f'--shards {enough}' if fits else 'another tool, or several environments'} (docs/gitops.md)"
    )


def _largest(sizes: Mapping[str, int], shards: int) -> int:
    """Bytes of the largest of the tenants' Applications; `sizes` are by the tenants' names."""
    bytes_by_shard = dict.fromkeys(every_shard(shards), _OWN_BYTES)
    for tenant, size in sizes.items():
        bytes_by_shard[shard_of(tenant, shards)] += size
    return max(bytes_by_shard.values())


def _in_wave(item: Object, number: int) -> Object:
    # What stays of a removed tenant would keep the Application out of sync, which Argo CD then syncs at intervals of up
    # to five minutes: so late it would put back what is deleted of other tenants.
    prune_options = (
        {SYNC: "Prune=false,Delete=false", COMPARE: "IgnoreExtraneous"} if needs_manual_removal(item) else {}
    )
    return annotated(item, {WAVE: str(number), **prune_options})


def _applications(plan: Plan, source: GitOpsSource) -> Iterator[Object]:
    """The AppProject, and one Application for all, or one for the platform and one for each shard. Between Applications
    waves have no effect unless a health check for Applications is configured, so nothing relies on their order."""
    name = plan.environment
    kinds = sorted(
        {(item["apiVersion"].rpartition("/")[0], item["kind"], _is_cluster_wide(item)) for item in plan.objects()}
    )
    project = {
        "description": f"What gpu-tenancy renders of {name}",
        "sourceRepos": [source.repository],
        "destinations": [{"name": plan.context, "namespace": "*"}],
        "clusterResourceWhitelist": [{"group": g, "kind": k} for g, k, wide in kinds if wide],
        "namespaceResourceWhitelist": [{"group": g, "kind": k} for g, k, wide in kinds if not wide],
    }
    yield resource("argoproj.io/v1alpha1", "AppProject", name, _ARGO, project)
    if not source.shards:
        yield _application(plan, source, name, ".", "{platform/*,tenants/*/*}")
        return
    yield _application(plan, source, f"{name}.platform", "platform", "*")
    for shard in every_shard(source.shards):
        # The last tenant of a shard loses its access too when its file goes; what isolates it stays in any case.
        yield _application(plan, source, f"{name}.{shard}", f"{_SHARDS}/{shard}", "*/*", empty=True)


def _application(
    plan: Plan, source: GitOpsSource, name: str, folder: str, include: str, *, empty: bool = False
) -> Object:
    spec = {
        "project": plan.environment,
        "source": {
            "repoURL": source.repository,
            "targetRevision": source.revision,
            "path": posixpath.normpath(f"{source.path}/{folder}"),
            "directory": {"recurse": True, "include": include},
        },
        "destination": {"name": plan.context, "namespace": vocabulary.PLATFORM_NAMESPACE},
        "syncPolicy": {
            "automated": {"prune": source.prune, "selfHeal": True, "allowEmpty": empty},
            "syncOptions": [
                *("ServerSideApply=true", "PruneLast=true", "ApplyOutOfSyncOnly=true"),
                # In the foreground, Argo's default, a tenant's object could keep one of the platform's.
                "PrunePropagationPolicy=background",
            ],
            "retry": {"limit": 5, "backoff": {"duration": "30s", "factor": 2, "maxDuration": "10m"}},
        },
    }
    return resource("argoproj.io/v1alpha1", "Application", name, _ARGO, spec)


def _is_cluster_wide(item: Object) -> bool:
    return "namespace" not in item["metadata"]
