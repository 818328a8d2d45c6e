"""Pulumi Kubernetes Operator v2, a Stack for each stack, and Pulumi Deployments, settings for each stack."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Iterator, Mapping

from tenancy.catalog import vocabulary
from tenancy.deploy.gitops.source import FOLDER, GitOpsRefused, GitOpsSource, resource
from tenancy.kube.objects import Object
from tenancy.planning.common.names import truncate_with_hash
from tenancy.planning.plan_model import Plan
from tenancy.planning.render import file_texts, text_of
from tenancy.planning.scope import StackScope, stacks
from tenancy.spec.fields.environment import Layout

_WORKSPACE = 63 - len("-workspace-0")
"""Characters of a Stack's name: the operator calls a pod by it."""
_OPERATOR = "pulumi-system"
"""Namespace of docs/gitops.md."""


def _order(plan: Plan, layout: Layout) -> Iterator[tuple[str, StackScope, str | None]]:
    """Name, scope, and the stack that has to exist before it."""
    prerequisite_scopes = {
        StackScope.CLUSTER: None,
        StackScope.ALL: StackScope.CLUSTER,
        StackScope.PLATFORM: StackScope.CLUSTER,
        StackScope.TENANT: StackScope.PLATFORM,
    }
    all_stacks = list(stacks(plan, layout))
    by_scope = {scope: name for name, scope, _ in all_stacks}
    for name, scope, _ in all_stacks:
        yield name, scope, by_scope.get(prerequisite_scopes[scope] or scope) if prerequisite_scopes[scope] else None


PACK = {"PULUMI_OPTION_POLICY_PACK": "policy"}
"""The engine takes any option from the environment: a preview and an update judge by the pack."""


WORKSPACE_RESOURCES: Object = {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"memory": "1Gi"}}
"""Resources of a Workspace's pod: engine, provider, program and pack of one stack take 450 MiB. The operator's own
default is 100m and 64Mi (v2.9.0 `workspace_webhook.go`)."""


PREVIEW_POLL = 60
"""Seconds between two looks at the branch of a pull request: the least that the operator takes."""


def for_operator(plan: Plan, layout: Layout, source: GitOpsSource) -> Mapping[str, str]:
    """All files of a rendering, and the Stacks; GitOpsRefused for a stack that the environment does not have."""
    all_stacks = list(_order(plan, layout))
    stack_names = {name for name, _, _ in all_stacks}
    if unknown_stacks := sorted(set(source.stacks) - stack_names):
        raise GitOpsRefused(
            f"given --stack {', '.join(unknown_stacks)}; rule: a stack of {plan.environment}; change: use one of "
            f"{', '.join(sorted(stack_names))}"
        )
    selected = [entry for entry in all_stacks if not source.stacks or entry[0] in source.stacks]
    stack_objects = [_stack(plan, name, prerequisite, source) for name, _, prerequisite in selected]
    return {**file_texts(plan), f"{FOLDER}/stacks.yaml": text_of(stack_objects)}


def _stack(plan: Plan, name: str, prerequisite: str | None, source: GitOpsSource) -> Object:
    options = {
        **PACK,
        **vocabulary.PATCH_FORCE_ENVIRONMENT,
        **({"PULUMI_BACKEND_URL": source.backend} if source.backend else {}),
    }
    variables: Object = {key: {"type": "Literal", "literal": {"value": value}} for key, value in options.items()}
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
    elif prerequisite:
        spec["prerequisites"] = [{"name": _object_name(prerequisite)}]
    labels = {vocabulary.ENVIRONMENT: plan.environment}
    stack_object = resource("pulumi.com/v1", "Stack", title, _OPERATOR, spec)
    return {**stack_object, "metadata": {**stack_object["metadata"], "labels": labels}}


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
        repository_flags = [
            "--github-repo",
            source.repository,
            "--branch",
            source.revision,
            "--preview-prs",
            "--push-to-deploy",
        ]
        paths = ["--path-filter", f"stacks/{plan.environment}/**"]
        command = ["pulumi", "deployment", "settings", "edit", "--stack", _qualified(source, name)]
        lines.append(shlex.join([*command, *repository_flags, *paths, *pack, *image, *role]))
    return {**file_texts(plan), f"{FOLDER}/deployments.sh": text_of([]) + "\n".join(lines) + "\n"}
