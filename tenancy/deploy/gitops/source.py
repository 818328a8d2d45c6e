"""Settings that all tools share: the source of rendered files, and the objects that only a person removes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.common.names import shard_number
from tenancy.planning.kubernetes.network import DEFAULT_DENY

FOLDER = "gitops"
"""Folder of the tool's own resources, next to the rendered files."""
_ISOLATION = {("NetworkPolicy", DEFAULT_DENY), ("ServiceAccount", vocabulary.DEFAULT_ACCOUNT)}
_ISOLATION_KINDS = {
    *("Namespace", "ResourceQuota", "LimitRange"),
    # The guards, and the cluster network policies: both only refuse.
    *("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "CiliumClusterwideNetworkPolicy"),
}


class GitOpsTool(StrEnum):
    """A GitOps tool that a configuration can be written for."""

    ARGO = "argo"  # one Application, in sync waves
    FLUX = "flux"  # Kustomizations that wait for one another
    OPERATOR = "operator"  # Pulumi Kubernetes Operator v2: a Stack for each stack
    DEPLOYMENTS = "deployments"  # Pulumi Cloud: settings for each stack


@dataclass(frozen=True)
class GitOpsSource:
    """Repository from which the tool reads rendered files, or the project for Pulumi's two tools."""

    repository: str
    path: str = "."
    """Path of the rendered folder in the repository."""
    revision: str = "main"
    """A branch."""
    image: str = ""
    """Image of the operator's workspaces, by digest."""
    organization: str = ""
    """Organization in Pulumi Cloud; empty with another backend."""
    backend: str = ""
    """Address of the state, for the operator's workspaces. Default: Pulumi Cloud."""
    role: str = ""
    """ARN of the AWS role that Deployments assume."""
    preview: bool = False
    """The operator previews the branch and never updates: for a pull request."""
    stacks: Sequence[str] = ()
    """Stacks to preview; empty for all."""
    shards: int = 0
    """Parts that the tenants are divided into, for Argo CD and Flux; 0 for none."""
    prune: bool = True
    """Argo CD deletes what is no longer rendered."""


class GitOpsRefused(ValueError):
    """The tool cannot apply the environment; the message says what to use in its place."""


def shard_of(tenant: str, shards: int) -> str:
    """The shard of a tenant, by its name."""
    return f"shard-{shard_number(tenant, shards)}"


def every_shard(shards: int) -> list[str]:
    """All shards, with and without tenants."""
    return [f"shard-{number + 1}" for number in range(shards)]


def needs_manual_removal(item: Object) -> bool:
    """Whether only a person may remove it: a namespace, which is deleted with its content, and its isolation.

    A namespace's account `default` too: the cluster makes it again at once, with tokens in all of its pods.
    """
    return (item["kind"], item["metadata"]["name"]) in _ISOLATION or item["kind"] in _ISOLATION_KINDS


def annotated(item: Object, more: Mapping[str, str]) -> Object:
    """The object with these annotations too."""
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **more}}}


def resource(api: str, kind: str, name: str, namespace: str, spec: Object) -> Object:
    """An object of a tool's own kind."""
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
