"""The StorageClass of EBS volumes, which claims name."""

from __future__ import annotations

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning.aws.identity import volume_key
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.planning.common.names import NAMESPACE_TAG
from tenancy.spec.fields.environment import Environment

_TENANT_TAGS = {
    "tagSpecification_1": f"{NAMESPACE_TAG}={{{{ .PVCNamespace }}}}",
    # Empty for the platform's own namespaces, whose names have no separator.
    "tagSpecification_2": f'{vocabulary.TENANT_TAG}={{{{ if .PVCNamespace | contains "{vocabulary.SEPARATOR}" }}}}'
    f'{{{{ .PVCNamespace | field "{vocabulary.SEPARATOR}" 0 }}}}{{{{ end }}}}',
}
"""Tags of each volume, which the driver writes from its claim: aws-ebs-csi-driver `docs/tagging.md`, 2026-11-23. It
needs the provisioner's --extra-create-metadata, which is on unless switched off (`controller.extraCreateMetadata`)."""


def storage_classes(environment: Environment) -> tuple[Object, ...]:
    """EKS has no default class, and its gp2 asks for no encryption. In a cluster that another tool made, the driver is
    unknown, so a class is made there only if the file asks for it.

    It is not the default: a claim says of which class it is (stor-03).
    """
    if not environment.makes_storage_class:
        return ()
    # Without a key of the file's or the cluster's own, EBS encrypts with the account's default key.
    has_own_key = environment.builds_cluster or environment.aws.kms_key_arn
    key = {"kmsKeyId": volume_key(environment)} if has_own_key else {}
    disk = {
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3", "encrypted": "true", **key, **_TENANT_TAGS},
        "reclaimPolicy": "Delete",
        # Of the zone that the pod's node is in.
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    return (
        manifest("storage.k8s.io/v1", "StorageClass", vocabulary.STORAGE_CLASS, platform_labels(environment), disk),
    )
