"""What claims name: the StorageClass of a cluster that is made here."""

from __future__ import annotations

from tenancy.catalog import vocabulary as words
from tenancy.plan.identity import volume_key
from tenancy.plan.labels import manifest, platform_labels
from tenancy.plan.model import Object
from tenancy.spec.environment import Environment


def storage_classes(environment: Environment) -> tuple[Object, ...]:
    """EKS has no default class, and its gp2 asks for no encryption; of somebody else's cluster nobody knows the driver.

    It is not the default: a claim says of which class it is (stor-03).
    """
    if not environment.aws.enabled:
        return ()
    disk = {
        "provisioner": "ebs.csi.aws.com",
        "parameters": {"type": "gp3", "encrypted": "true", "kmsKeyId": volume_key(environment)},
        "reclaimPolicy": "Delete",
        # Of the zone that the pod's node is in.
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": True,
    }
    return (manifest("storage.k8s.io/v1", "StorageClass", words.STORAGE_CLASS, platform_labels(environment), disk),)
