"""Devices by claim (DRA): a class for each flavor, so that a claim says as much as a flavor does."""

from __future__ import annotations

from tenancy.catalog.boards import PRODUCTS
from tenancy.kube.objects import Object
from tenancy.planning.common.labels import manifest, platform_labels
from tenancy.rules.claim_forms import DRIVER
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Flavor
from tenancy.spec.fields.tenant import Tenant


def device_class(flavor: str) -> str:
    """Name of a flavor's device class."""
    return flavor


def claimable_flavors(environment: Environment) -> dict[str, Flavor]:
    """Flavors that have a class. A replica has none: its class would match whole GPUs."""
    if not environment.uses_device_claims:
        return {}
    return {name: flavor for name, flavor in sorted(environment.flavors.items()) if flavor.gpu_sharing is None}


def granted_classes(environment: Environment, tenant: Tenant) -> list[str]:
    """Device classes that the tenant's claims may name."""
    return [device_class(flavor) for flavor in claimable_flavors(environment) if flavor in tenant.gpus]


def device_classes(environment: Environment) -> tuple[Object, ...]:
    """A class for each flavor. None names an extended resource: then one pod would count in two quotas."""
    labels = platform_labels(environment)
    return tuple(
        manifest(
            "resource.k8s.io/v1",
            "DeviceClass",
            device_class(name),
            labels,
            {"spec": {"selectors": [{"cel": {"expression": _expression(flavor)}}]}},
        )
        for name, flavor in claimable_flavors(environment).items()
    )


def _expression(flavor: Flavor) -> str:
    """Over what the driver publishes: `deviceinfo.go` and `mig.go` of its `cmd/gpu-kubelet-plugin`."""
    attributes = f"device.attributes['{DRIVER}']"
    terms = [f"device.driver == '{DRIVER}'", f"{attributes}.type == '{'mig' if flavor.mig else 'gpu'}'"]
    if flavor.mig:
        terms.append(f"{attributes}.profile == '{flavor.mig}'")
    # A slice has the product of the board that it is cut from, word for word; "NVIDIA L4" begins "NVIDIA L40S" too.
    terms.append(f"{attributes}.productName == '{PRODUCTS[flavor.gpu]}'")
    return " && ".join(terms)
