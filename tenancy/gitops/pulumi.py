"""Pulumi Kubernetes Operator v2, a Stack for each stack, and Pulumi Deployments, settings for each stack."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping

from tenancy.catalog import vocabulary as words
from tenancy.gitops.source import FOLDER, GitOpsRefused, GitOpsSource, resource
from tenancy.kube.objects import Object
from tenancy.planning.common.names import truncate_with_hash
from tenancy.planning.model import Plan
from tenancy.planning.render import file_texts, text_of
from tenancy.planning.scope import StackScope, stacks
from tenancy.schema.environment import Layout

_WORKSPACE = 63 - len("-workspace-0")
"""Characters of a Stack's name: the operator calls a pod by it."""
_OPERATOR = "pulumi-system"
"""Namespace of docs/gitops.md."""


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


def for_operator(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:
    """All files of a rendering, and the Stacks; GitOpsRefused for a stack that the environment does not have."""
    every = list(_order(plan, layout))
    known = {name for name, _, _ in every}
    if unknown := sorted(set(source.stacks) - known):
        raise GitOpsRefused(
            f"given --stack {', '.join(unknown)}; rule: a stack of {plan.environment}; change: use one of "
            f"{', '.join(sorted(known))}"
        )
    chosen = [one for one in every if not source.stacks or one[0] in source.stacks]
    made = [_stack(plan, name, after, source) for name, _, after in chosen]
    return {**file_texts(plan), f"{FOLDER}/stacks.yaml": text_of(made)}


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
    made = resource("pulumi.com/v1", "Stack", title, _OPERATOR, spec)
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


def _object_name(stack: str) -> str:
    """The operator makes a Service of it, whose name has no dot; no stack's name holds three dashes."""
    mark = "---"
    return truncate_with_hash(stack.replace(".", mark), _WORKSPACE - len(mark) + 1, mark)


def _qualified(source: GitOpsSource, name: str) -> str:
    return f"{source.organization}/gpu-tenancy/{name}" if source.organization else name


def for_deployments(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:
    """All files of a rendering, and the script of settings."""
    lines = ["set -eu"]
    for name, _, _ in _order(plan, layout):
        role = ["--oidc-aws-role-arn", source.role, "--oidc-aws-session-name", name] if source.role else []
        pack = [part for key, value in PACK.items() for part in ("--env", f"{key}={value}")]
        image = ["--executor-image", source.image] if source.image else []
        what = ["--github-repo", source.repository, "--branch", source.revision, "--preview-prs", "--push-to-deploy"]
        paths = ["--path-filter", f"stacks/{plan.environment}/**"]
        command = ["pulumi", "deployment", "settings", "edit", "--stack", _qualified(source, name)]
        lines.append(shlex.join([*command, *what, *paths, *pack, *image, *role]))
    return {**file_texts(plan), f"{FOLDER}/deployments.sh": text_of([]) + "\n".join(lines) + "\n"}
