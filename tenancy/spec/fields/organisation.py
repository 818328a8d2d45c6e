"""`organisation`: the company and its departments."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from tenancy.catalog import vocabulary
from tenancy.rules.values import reserved_label
from tenancy.spec.fields.base import LabelKey, Line, Slug, Spec, TextForm
from tenancy.spec.fields.queues import SharingPreset, Weight
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


class Department(Spec):
    """A group of tenants with one weight and one lending policy: a Kueue Cohort."""

    title: Line = Field(default="", description="Display name of the department; an annotation. Default: empty.")
    sharing: SharingPreset = Field(
        default=SharingPreset.STRICT,
        description="Whether the department's tenants lend to and borrow from other departments, and use unallocated "
        "GPUs. Within the department, the tenants' own files decide. Default: strict, neither.",
    )
    weight: Weight = Field(
        default=1,
        description="Weight of the department when several departments borrow: borrowed GPUs are shared by weight. "
        "Default: 1.",
    )


_Annotation = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?/$|^([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?$",
        "an annotation's key, or its domain with '/'",
        "write it like bank.example/ or bank.example/runbook",
    ),
]


class Organisation(Spec):
    """The organisation that shares the cluster: the root of the queue tree, and its departments."""

    name: Slug = Field(description="Name of the organisation, the root of the queue tree. Required.")
    departments: dict[Slug, Department] = Field(
        min_length=1, description="Departments by name. Every tenant belongs to one. Required."
    )
    label_keys: tuple[LabelKey, ...] = Field(
        default=(),
        max_length=vocabulary.MOST_OWN_LABELS,
        description="Keys of labels that tenants' files may set besides the cost labels, such as project. Default: "
        "none.",
    )

    annotation_keys: tuple[_Annotation, ...] = Field(
        default=(),
        max_length=50,
        description="Annotations that tenants' files may set on namespaces: keys, or beginnings of keys that end with "
        "'/', such as bank.example/. Default: none.",
    )

    def takes_annotation(self, key: str) -> bool:
        """Whether tenants' files may set the annotation."""
        return any(
            key == allowed or (allowed[-1] == "/" and key.startswith(allowed)) for allowed in self.annotation_keys
        )

    def mistakes(self) -> Iterator[Mistake]:
        for field in ("label_keys", "annotation_keys"):
            for i, key in enumerate(getattr(self, field)):
                if fault := reserved_label(key):
                    yield rule_mistake((field.replace("_", "-"), i), "cost-04", fault)
