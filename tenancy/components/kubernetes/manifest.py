"""A Kubernetes object of the plan as a resource of the engine."""

from __future__ import annotations

import pulumi

from tenancy.catalog import vocabulary
from tenancy.kube.objects import CLOCK_FIELDS, Object


def resource_type(manifest: Object) -> str:
    """The provider's type token, such as `kubernetes:networking.k8s.io/v1:NetworkPolicy`."""
    version = manifest["apiVersion"]
    return f"kubernetes:{version if '/' in version else 'core/' + version}:{manifest['kind']}"


BACKGROUND_DELETION = {"pulumi.com/deletionPropagationPolicy": "background"}
"""In the foreground, the provider's default, an object stays until every object that names it as owner with
`blockOwnerDeletion` is gone. A tenant could write that into a ConfigMap of its own, and keep a role binding."""

IMMUTABLE_FIELDS = {"LocalQueue": ["spec.clusterQueue"]}
"""Immutable fields, by kind: a change makes the object anew. Other immutable fields of Kueue's objects follow from
their names."""


class Manifest(pulumi.CustomResource):
    """Sends the object as the plan has it.

    The SDK's own classes would take 0.4 s to import, to turn names into other names and back.
    """

    def __init__(self, name: str, manifest: Object, opts: pulumi.ResourceOptions) -> None:
        kind = resource_type(manifest)
        if manifest["kind"] == "ServiceAccount" and manifest["metadata"]["name"] == vocabulary.DEFAULT_ACCOUNT:
            # The object exists already, or soon will: the API server makes one in every namespace.
            kind += "Patch"
        if immutable_fields := IMMUTABLE_FIELDS.get(manifest["kind"]):
            replace_opts = pulumi.ResourceOptions(replace_on_changes=immutable_fields, delete_before_replace=True)
            opts = pulumi.ResourceOptions.merge(opts, replace_opts)
        metadata = manifest["metadata"]
        if vocabulary.KEPT_BY_CLOCK in metadata.get("annotations", {}):
            ignore_opts = pulumi.ResourceOptions(ignore_changes=[".".join(path) for path in CLOCK_FIELDS])
            opts = pulumi.ResourceOptions.merge(opts, ignore_opts)
        notes = {**metadata.get("annotations", {}), **BACKGROUND_DELETION}
        super().__init__(kind, name, {**manifest, "metadata": {**metadata, "annotations": notes}}, opts)


def child_name(parent: str, manifest: Object) -> str:
    """Logical name, unique among the children of its kind: the engine shows the kind beside it."""
    name = manifest["metadata"]["name"]
    # `fraud` with its queue `fraud--training`: no object's name begins with a dash, so that both forms differ.
    return name if name.startswith(f"{parent}{vocabulary.SEPARATOR}") else f"{parent}-{name}"
