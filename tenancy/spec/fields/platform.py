"""`platform`: the platform's own group, namespaces and services."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tenancy.catalog import vocabulary
from tenancy.rules.values import LONGEST_EXCEPTION, foreign_subject, tenants_name
from tenancy.spec.fields.base import Day, LabelValue, Reason, Slug, Spec, TextForm
from tenancy.spec.reading.mistakes import Mistake, rule_mistake

_Group = Annotated[
    str,
    TextForm(
        r"^[A-Za-z0-9][A-Za-z0-9._:@/-]*$", "a group's name without spaces", "write it like gpu-platform-team", 253
    ),
]
_Address = Annotated[
    str, TextForm(r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", "a path or address", "write it like docs/rules.md", 200)
]


_Mirror = Annotated[
    str,
    TextForm(
        r"^(oci|https?)://[A-Za-z0-9.-]+(:[0-9]+)?(/[A-Za-z0-9._-]+)*$",
        "an OCI registry's path, or a chart repository's address",
        "write it like oci://registry.bank.example/charts",
        200,
    ),
]


_LabelKey = Annotated[
    str,
    TextForm(
        r"^([a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "a label's key",
        "write it like app.kubernetes.io/name",
        317,
    ),
]


_Key = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+"
        r"(/[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?)?$",
        "a domain of keys, or one key",
        "write it like sidecar.istio.io or reloader.stakater.com/auto",
        317,
    ),
]


class PlatformService(Spec):
    """Pods of the platform that tenants' files may name under egress and ingress."""

    namespace: Slug = Field(
        description="Namespace of the service: one of platform.namespaces, or a system namespace. Required."
    )
    labels: dict[_LabelKey, LabelValue] = Field(
        min_length=1, description="Labels that all pods of the service have. Required."
    )

    def mistakes(self) -> Iterator[Mistake]:
        if vocabulary.DNS_CACHE_NAME in self.labels.values():
            fault = f"{vocabulary.DNS_CACHE_NAME}, whose pods are on the node's network"
            rule = "a network policy selects no pod on the node's network"
            change = "drop the service and the entries that name it, and set cluster.node-local-dns to true"
            yield Mistake(("labels",), fault, rule, change)


_Namespaces = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$|^[a-z0-9][a-z0-9-]{2,61}\*$",
        "a namespace's name, or its first three or more characters with '*' at the end",
        "write it like sonobuoy or e2e-*",
    ),
]


class TemporaryNamespaces(Spec):
    """Namespaces that guards ignore for a time, such as those that a test suite makes."""

    name: _Namespaces = Field(
        description="Name of a namespace, or the beginning of names followed by '*', such as e2e-*. It never matches "
        "a tenant's namespace. Required."
    )
    until: Day = Field(
        description=f"Last day on which the entry is valid, at most {LONGEST_EXCEPTION} days ahead. Required."
    )
    reason: Reason = Field(description="Reason for the entry, one sentence for an auditor. Required.")

    def matches(self, namespace: str) -> bool:
        """Whether guards ignore the namespace. They know by `--` that it is a tenant's."""
        if vocabulary.SEPARATOR in namespace:
            return False
        start = self.name.removesuffix("*")
        return namespace == start or (start != self.name and namespace.startswith(start))

    def mistakes(self) -> Iterator[Mistake]:
        if fault := tenants_name(self.name):
            yield rule_mistake(("name",), "name-01", fault, "name a namespace, or a beginning of names, without '--'")


class Platform(Spec):
    """The platform team and its namespaces and services."""

    group: _Group = Field(
        description="Kubernetes group of the platform team, the only group that may change tenants' namespaces. On "
        "EKS an access entry maps an IAM role to it. Required.",
    )
    namespaces: tuple[Slug, ...] = Field(
        default=(),
        description="Namespaces of the platform's own services (monitoring, operators). Guards do not apply there, "
        "so none has a name of the form <tenant>--<namespace>. Always included: "
        f"{', '.join(vocabulary.SYSTEM_NAMESPACES)}. Default: no others.",
    )
    unmanaged_namespaces: tuple[Slug, ...] = Field(
        default=(),
        description="Namespaces whose work belongs neither to a tenant nor to the platform and keeps running. Guards "
        "only check that it uses no GPU (gpu-12) and no tenant's label or queue; no tenant has rights there. "
        "Default: none.",
    )
    temporary_namespaces: tuple[TemporaryNamespaces, ...] = Field(
        default=(),
        description="Namespaces that guards ignore until a given day, by name or by the beginning of names, for "
        "conformance test suites. Default: none.",
    )
    chart_mirror: _Mirror | None = Field(
        default=None,
        description="Registry or repository of all Helm charts, such as oci://registry.bank.example/charts. Default: "
        "each chart comes from its own repository on the internet.",
    )
    services: dict[Slug, PlatformService] = Field(
        default_factory=dict,
        description="Services of the platform that tenants may name under egress and ingress, by name: a registry, an "
        "ingress, a metrics collector. Default: none.",
    )
    metadata_keys: tuple[_Key, ...] = Field(
        default=(),
        description="Further keys of labels and annotations that tenants may write: a domain, with those below it, or "
        "one key, such as sidecar.istio.io or reloader.stakater.com/auto. Each is for an agent that may obey tenants "
        "(meta-01). Default: keys without a domain, those of Kubernetes and of tools that deploy, and those under the "
        "domain of the tenant's owner.mail.",
    )
    storage_classes: tuple[Slug, ...] = Field(
        default=(),
        description="Storage classes that tenants' claims may name (stor-12). Default: tenancy-gp3, the environment's "
        "own.",
    )
    volume_attributes_classes: tuple[Slug, ...] = Field(
        default=(),
        description="Classes of volume attributes that tenants' claims may name: a volume's type, IOPS and "
        "throughput, and so its price (stor-12). Default: none.",
    )
    docs: _Address = Field(
        default="docs/rules.md",
        description="Path or address of the page about the rules; every refusal ends with a link to it. Default: "
        "docs/rules.md.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if fault := foreign_subject("Group", self.group):
            change = "name a group of the platform team; EKS grants system:masters to no identity"
            yield rule_mistake(("group",), "rbac-05", fault, change)
        for i, name in enumerate(self.namespaces):
            if fault := tenants_name(name):
                change = "name a namespace of the platform's own, without '--'"
                yield rule_mistake(("namespaces", i), "name-01", fault, change)
        for i, name in enumerate(self.unmanaged_namespaces):
            if fault := tenants_name(name):
                change = "adopt it by the file of the tenant whose name it begins with"
                yield rule_mistake(("unmanaged-namespaces", i), "name-01", fault, change)
