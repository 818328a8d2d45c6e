"""`owner` and `people`: who answers for a tenant, and who gets which role."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import Field

from tenancy.rules.values import foreign_subject
from tenancy.spec.fields.base import Mail, ShortName, Slug, Spec, TextForm
from tenancy.spec.reading.mistakes import Mistake, rule_mistake


class Owner(Spec):
    """The group or person responsible for a tenant."""

    name: Slug = Field(description="Group or person responsible for the tenant; a label. Required.")
    mail: Mail = Field(description="Mail address that receives alerts and reports; an annotation. Required.")


class Role(StrEnum):
    """A set of rights in a tenant's namespaces."""

    VIEWER = "viewer"  # reads everything but secrets
    DEVELOPER = "developer"  # runs workloads, reads and writes the tenant's secrets
    OPERATOR = "operator"  # operates workloads: scales, restarts and debugs them; creates none
    OWNER = "owner"  # a developer who also manages service accounts and sees the access bindings


_Subject = Annotated[
    str,
    TextForm(
        r"^[^\s\x00-\x1f\x7f|<>`]([^\x00-\x1f\x7f|<>`]*[^\s\x00-\x1f\x7f|<>`])?$",
        "a name as the identity provider spells it, without spaces around it and without '|', '<', '>' and '`'",
        "drop these, spaces around it and control characters",
        253,
    ),
]


_NamespaceAccount = Annotated[
    str,
    TextForm(
        r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?/[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$",
        "a namespace of the tenant and a service account of it, with a slash between",
        "write it like train/pipeline",
        95,
    ),
]


class Subject(Spec):
    """A group or a user of the identity provider, or a service account of the tenant."""

    group: _Subject | None = Field(
        default=None,
        description="Group of the identity provider. One of group, user and service-account. Default: none.",
    )
    user: _Subject | None = Field(
        default=None,
        description="User of the identity provider. One of group, user and service-account. Default: none.",
    )
    service_account: _NamespaceAccount | None = Field(
        default=None,
        description="Service account that a namespace of the tenant declares, as <namespace>/<name>. One of group, "
        "user and service-account. Default: none.",
    )
    namespaces: tuple[ShortName, ...] = Field(
        default=(),
        min_length=1,
        description="Namespaces of the tenant in which the entry applies. Default: all namespaces.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        subjects = [name for name in ("group", "user", "service-account") if getattr(self, name.replace("-", "_"))]
        if len(subjects) != 1:
            rule = "an entry is one group, one user or one service account"
            change = "write exactly one of group, user and service-account"
            yield Mistake((), f"both {subjects[0]} and {subjects[1]}" if subjects else "none of them", rule, change)
        elif self.kind != "ServiceAccount" and (stranger := foreign_subject(self.kind, self.name, person=True)):
            yield rule_mistake((self.kind.lower(),), "rbac-05", stranger)

    @property
    def kind(self) -> Literal["Group", "User", "ServiceAccount"]:
        """Kind of the RBAC subject: Group, User or ServiceAccount."""
        return "Group" if self.group is not None else "User" if self.user is not None else "ServiceAccount"

    @property
    def name(self) -> str:
        """Name of the RBAC subject; of a service account `<namespace>/<name>`."""
        return self.group or self.user or self.service_account or ""


class Person(Subject):
    """A group, user or service account, and its role in the tenant."""

    role: Role = Field(description="Role of the group, user or service account. Required.")
