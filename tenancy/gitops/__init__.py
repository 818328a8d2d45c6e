"""A rendered environment for tools that apply it from a repository: Argo CD, Flux, Pulumi's operator or Deployments.

All of them keep one order: cluster-wide objects before tenants, and a tenant's isolation resources before its access
bindings. None of them deletes an isolation resource by itself: pruning only narrows what a tenant has.
"""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tenancy.catalog import vocabulary as words
from tenancy.catalog.sizes import ETCD_REQUEST
from tenancy.kube.objects import Object
from tenancy.planning.common.names import fitted
from tenancy.planning.kubernetes.network import DEFAULT_DENY
from tenancy.planning.model import Plan
from tenancy.planning.render import files, papers, text_of, texts
from tenancy.planning.scope import StackScope, stacks
from tenancy.schema.environment import Layout


class GitOpsTool(StrEnum):
    """A GitOps tool that a configuration can be written for."""

    ARGO = "argo"  # one Application, in sync waves
    FLUX = "flux"  # Kustomizations that wait for one another
    OPERATOR = "operator"  # Pulumi Kubernetes Operator v2: a Stack for each stack
    DEPLOYMENTS = "deployments"  # Pulumi Cloud: settings for each stack


@dataclass(frozen=True)
class GitOpsSource:
    """Where the tool finds what is rendered, or for Pulumi's two the project."""

    repository: str
    path: str = "."
    """Of the rendered folder in the repository."""
    revision: str = "main"
    """A branch."""
    image: str = ""
    """Of the operator's workspaces, by digest."""
    organization: str = ""
    """Of Pulumi Cloud; empty with a backend of one's own."""
    backend: str = ""
    """Address of the state, for the operator's workspaces. Default: Pulumi Cloud."""
    role: str = ""
    """Of AWS that Deployments take."""
    preview: bool = False
    """The operator previews the branch and never updates: for a pull request."""
    stacks: Sequence[str] = ()
    """Stacks to preview; empty for all."""


class GitOpsRefused(ValueError):
    """What the tool cannot keep; the message says what to use in its place."""


WAVE, SYNC = "argocd.argoproj.io/sync-wave", "argocd.argoproj.io/sync-options"
COMPARE = "argocd.argoproj.io/compare-options"
KEPT = "kustomize.toolkit.fluxcd.io/prune"
STATUS_BYTES = 300
"""Of the two entries of an object in an Application's status, without its names (Argo CD 3.5.2)."""
ACCESS = "20-access.yaml"
FOLDER = "gitops"
_ISOLATION_KINDS = {
    *("Namespace", "ResourceQuota", "LimitRange"),
    # The guards, and the cluster network policies: both only refuse.
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CiliumClusterwideNetworkPolicy"),
}
_LABEL, _WORKSPACE = 63, 63 - len("-workspace-0")
"""Characters of a name: Flux writes a Kustomization's as a label, the operator calls a pod by its Stack's."""
_ARGO, _FLUX, _OPERATOR = "argocd", "flux-system", "pulumi-system"
"""Namespaces that their own installers use, the last by docs/gitops.md."""


def rendered(plan: Plan, layout: Layout, tool: GitOpsTool, source: GitOpsSource) -> Mapping[str, str]:
    """Relative path -> text, of everything that `tenancy render` writes and of what the tool reads beside it."""
    return _TOOLS[tool](plan, layout, source)


# Argo CD


def wave(path: str) -> int:
    """Sync wave of a file's objects: all of the platform's before any of a tenant's, access bindings last of all."""
    part, _, rest = path.partition("/")
    number = int(rest.rpartition("/")[2].partition("-")[0])
    return number - 100 if part == "platform" else number


def application_bytes(items: Iterable[Object]) -> int:
    """Bytes of an Application that has synced these objects at once, a little more than it has: of each object its
    status has an entry among the resources and one in the result of the operation, which repeats the names."""
    return 8192 + sum(_status_bytes(item) for item in items)


def _status_bytes(item: Object) -> int:
    named = [item["apiVersion"], item["kind"], item["metadata"]["name"], item["metadata"].get("namespace", "")]
    return STATUS_BYTES + 3 * sum(map(len, named))


def _argo(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:  # noqa: ARG001
    if (size := application_bytes(plan.objects())) > ETCD_REQUEST:
        count = sum(1 for _ in plan.objects())
        raise GitOpsRefused(
            f"given {count} objects of {len(plan.tenants)} tenants for an Application of Argo CD; rule: its status "
            f"names each of them, and etcd takes {ETCD_REQUEST // 1024} KiB for an object: these take "
            f"{size // 1024} KiB; change: another tool, or several environments (docs/gitops.md)"
        )
    made = {path: [_in_wave(item, wave(path)) for item in items] for path, items in files(plan)}
    return {
        **{path: text_of(items) for path, items in (*made.items(), *papers(plan)) if items},
        f"{FOLDER}/argo.yaml": text_of(list(_application(plan, source))),
    }


def _in_wave(item: Object, number: int) -> Object:
    # What stays of a removed tenant would keep the Application out of sync, which Argo CD then syncs at intervals of up
    # to five minutes: so late it would put back what is deleted of other tenants.
    stays = {SYNC: "Prune=false,Delete=false", COMPARE: "IgnoreExtraneous"} if _stays(item) else {}
    return _annotated(item, {WAVE: str(number), **stays})


def _stays(item: Object) -> bool:
    """Whether only a person may remove it: a namespace, which is deleted with its content, and its isolation."""
    denies = item["kind"] == "NetworkPolicy" and item["metadata"]["name"] == DEFAULT_DENY
    return denies or item["kind"] in _ISOLATION_KINDS


def _annotated(item: Object, more: Mapping[str, str]) -> Object:
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **more}}}


def _application(plan: Plan, source: GitOpsSource) -> Iterator[Object]:
    """One for all: between Applications, waves have no effect unless a health check for Applications is configured."""
    name = plan.environment
    kinds = sorted({(item["apiVersion"].rpartition("/")[0], item["kind"]) for item in plan.objects()})
    wide = {(item["apiVersion"].rpartition("/")[0], item["kind"]) for item in plan.objects() if _wide(item)}
    destination = {"name": plan.context, "namespace": words.PLATFORM_NAMESPACE}
    project = {
        "description": f"What gpu-tenancy renders of {name}",
        "sourceRepos": [source.repository],
        "destinations": [{"name": plan.context, "namespace": "*"}],
        "clusterResourceWhitelist": [{"group": g, "kind": k} for g, k in kinds if (g, k) in wide],
        "namespaceResourceWhitelist": [{"group": g, "kind": k} for g, k in kinds if (g, k) not in wide],
    }
    yield _made("argoproj.io/v1alpha1", "AppProject", name, _ARGO, project)
    spec = {
        "project": name,
        "source": {
            "repoURL": source.repository,
            "targetRevision": source.revision,
            "path": source.path,
            "directory": {"recurse": True, "include": "{platform/*,tenants/*/*}"},
        },
        "destination": destination,
        "syncPolicy": {
            "automated": {"prune": True, "selfHeal": True, "allowEmpty": False},
            "syncOptions": [
                *("ServerSideApply=true", "PruneLast=true", "ApplyOutOfSyncOnly=true"),
                # In the foreground, Argo's default, a tenant's object could keep one of the platform's.
                "PrunePropagationPolicy=background",
            ],
            "retry": {"limit": 5, "backoff": {"duration": "30s", "factor": 2, "maxDuration": "10m"}},
        },
    }
    yield _made("argoproj.io/v1alpha1", "Application", name, _ARGO, spec)


def _wide(item: Object) -> bool:
    return "namespace" not in item["metadata"]


def _made(api: str, kind: str, name: str, namespace: str, spec: Object) -> Object:
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}


# Flux


def _flux(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:  # noqa: ARG001
    """A Kustomization applies a whole folder, so a tenant's access bindings are in a folder of their own."""
    made = {
        _apart(path): [_annotated(item, {KEPT: "disabled"}) if _stays(item) else item for item in items]
        for path, items in files(plan)
    }
    return {
        **{path: text_of(items) for path, items in (*made.items(), *papers(plan)) if items},
        f"{FOLDER}/flux.yaml": text_of(list(_kustomizations(plan, source))),
    }


def _apart(path: str) -> str:
    folder, _, name = path.rpartition("/")
    if path.startswith("platform/"):
        return path
    return f"{folder}/{'access' if name == ACCESS else 'isolation'}/{name}"


def _kustomizations(plan: Plan, source: GitOpsSource) -> Iterator[Object]:
    name = plan.environment
    fetch = {"url": source.repository, "ref": {"branch": source.revision}, "interval": "5m"}
    yield _made("source.toolkit.fluxcd.io/v1", "GitRepository", name, _FLUX, fetch)

    def kustomization(title: str, folder: str, after: str | None) -> Object:
        spec: Object = {
            "sourceRef": {"kind": "GitRepository", "name": name},
            "path": f"./{source.path}/{folder}".replace("/./", "/"),
            "interval": "10m",
            "retryInterval": "2m",
            "timeout": "5m",
            "prune": True,
            "wait": True,
            "deletionPolicy": "WaitForTermination",
            "kubeConfig": {"configMapRef": {"name": name}},
        }
        if after:
            spec["dependsOn"] = [{"name": after}]
        return _made("kustomize.toolkit.fluxcd.io/v1", "Kustomization", title, _FLUX, spec)

    platform = f"{name}.platform"
    yield kustomization(platform, "platform", None)
    for tenant in plan.tenants:
        whole = words.derived_name(name, tenant.name)
        isolation, access = (fitted(f"{whole}.{part}", _LABEL, ".") for part in ("isolation", "access"))
        yield kustomization(isolation, f"tenants/{tenant.name}/isolation", platform)
        yield kustomization(access, f"tenants/{tenant.name}/access", isolation)


# Pulumi


def _order(plan: Plan, layout: Layout) -> Iterator[tuple[str, StackScope, str | None]]:
    """Name, scope, and the stack that has to exist before it."""
    before = {
        StackScope.CLUSTER: None,
        StackScope.ALL: StackScope.CLUSTER,
        StackScope.PLATFORM: StackScope.CLUSTER,
        StackScope.TENANT: StackScope.PLATFORM,
    }
    all_of = list(stacks(plan, layout))
    by_scope = {scope: name for name, scope, _ in all_of}
    for name, scope, _ in all_of:
        yield name, scope, by_scope.get(before[scope] or scope) if before[scope] else None


PACK = {"PULUMI_OPTION_POLICY_PACK": "policy"}
"""The engine takes any option from the environment: a preview and an update judge by the pack."""


WORKSPACE_RESOURCES: Object = {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
"""Of a Workspace's pod: engine, provider, program and pack of one stack take 450 MiB. The operator's own default is
100m and 64Mi (v2.9.0 `workspace_webhook.go`)."""


PREVIEW_POLL = 60
"""Seconds between two looks at the branch of a pull request: the least that the operator takes."""


def _operator(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:
    every = list(_order(plan, layout))
    known = {name for name, _, _ in every}
    if unknown := sorted(set(source.stacks) - known):
        raise GitOpsRefused(
            f"given --stack {', '.join(unknown)}; rule: a stack of {plan.environment}; change: use one of "
            f"{', '.join(sorted(known))}"
        )
    chosen = [one for one in every if not source.stacks or one[0] in source.stacks]
    made = [_stack(plan, name, after, source) for name, _, after in chosen]
    return {**texts(plan), f"{FOLDER}/stacks.yaml": text_of(made)}


def _stack(plan: Plan, name: str, after: str | None, source: GitOpsSource) -> Object:
    given = {**PACK, **words.OVERRULE, **({"PULUMI_BACKEND_URL": source.backend} if source.backend else {})}
    variables: Object = {key: {"type": "Literal", "literal": {"value": value}} for key, value in given.items()}
    if not source.backend:
        token = {"name": "pulumi", "key": "accessToken"}
        variables["PULUMI_ACCESS_TOKEN"] = {"type": "Secret", "secret": token}
    spec: Object = {
        "stack": _qualified(source, name),
        "projectRepo": source.repository,
        "branch": source.revision,
        "envRefs": variables,
        "serviceAccountName": "gpu-tenancy",
        "destroyOnFinalize": False,
        "refresh": True,
        "continueResyncOnCommitMatch": True,
        "resyncFrequencySeconds": 3600,
        "workspaceReclaimPolicy": "Delete",
        "workspaceTemplate": {
            "spec": {"image": source.image, "securityProfile": "restricted", "resources": WORKSPACE_RESOURCES}
        },
    }
    title = _object_name(name)
    if source.preview:
        # Once for each commit of the branch, beside the Stack that updates; the branches of two pull requests differ.
        spec |= {"preview": True, "continueResyncOnCommitMatch": False, "resyncFrequencySeconds": PREVIEW_POLL}
        branch = hashlib.sha256(source.revision.encode()).hexdigest()[:8]
        title = _object_name(f"{name}.preview-{branch}")
    elif after:
        spec["prerequisites"] = [{"name": _object_name(after)}]
    labels = {words.ENVIRONMENT: plan.environment}
    made = _made("pulumi.com/v1", "Stack", title, _OPERATOR, spec)
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


def _object_name(stack: str) -> str:
    """The operator makes a Service of it, whose name has no dot; no stack's name holds three dashes."""
    mark = "---"
    return fitted(stack.replace(".", mark), _WORKSPACE - len(mark) + 1, mark)


def _qualified(source: GitOpsSource, name: str) -> str:
    return f"{source.organization}/gpu-tenancy/{name}" if source.organization else name


def _deployments(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:
    lines = ["set -eu"]
    for name, _, _ in _order(plan, layout):
        role = ["--oidc-aws-role-arn", source.role, "--oidc-aws-session-name", name] if source.role else []
        pack = [part for key, value in PACK.items() for part in ("--env", f"{key}={value}")]
        image = ["--executor-image", source.image] if source.image else []
        what = ["--github-repo", source.repository, "--branch", source.revision, "--preview-prs", "--push-to-deploy"]
        paths = ["--path-filter", f"stacks/{plan.environment}/**"]
        command = ["pulumi", "deployment", "settings", "edit", "--stack", _qualified(source, name)]
        lines.append(shlex.join([*command, *what, *paths, *pack, *image, *role]))
    return {**texts(plan), f"{FOLDER}/deployments.sh": text_of([]) + "\n".join(lines) + "\n"}


_TOOLS: Mapping[GitOpsTool, Callable[[Plan, Layout, GitOpsSource], Mapping[str, str]]] = {
    GitOpsTool.ARGO: _argo,
    GitOpsTool.FLUX: _flux,
    GitOpsTool.OPERATOR: _operator,
    GitOpsTool.DEPLOYMENTS: _deployments,
}
