"""How pods, pipelines and people become somebody on AWS and in the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog.account import QUOTAS
from tenancy.rules.values import broad_subject, foreign_subject
from tenancy.spec.base import Flag, Form, Mail, Mistake, PartName, Positive, Spec, broken

RoleArn = Annotated[
    str,
    Form(
        r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+$",
        "ARN of an IAM role",
        "write it like arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/<region>/<name>",
        600,
    ),
]
_Principal = Annotated[
    str,
    Form(
        r"^arn:aws[a-z-]*:iam::[0-9]{12}:(user|role)/[\w+=,.@/-]+$",
        "ARN of an IAM user or role",
        "write it like arn:aws:iam::111122223333:user/jane",
        600,
    ),
]
_Host = Annotated[
    str,
    Form(
        r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$",
        "a full host name in lower case, without scheme or port",
        "write it like gitlab.bank.example",
        253,
    ),
]
Group = Annotated[
    str,
    Form(
        r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$",
        "a group's name as the tenants' files have it",
        "drop spaces around it and control characters",
        253,
    ),
]
_Issuer = Annotated[
    str,
    Form(
        r"^oidc\.eks\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/id/[A-Z0-9]+$",
        "the cluster's OIDC issuer without https://",
        "see `aws eks describe-cluster --query cluster.identity.oidc.issuer`",
        200,
    ),
]
_Organisation = Annotated[
    str, Form(r"^o-[a-z0-9]{10,32}$", "id of an AWS organisation", "write it like o-a1b2c3d4e5", 34)
]

GITHUB = "token.actions.githubusercontent.com"
GITHUB_COM = "github.com"
GITLAB = "gitlab.com"
CI_AUDIENCE = "sts.amazonaws.com"


class PodIdentity(StrEnum):
    POD_IDENTITY = "pod-identity"  # a role for each part with grants, by EKS Pod Identity
    IRSA = "irsa"  # the same roles by the cluster's OIDC provider; its issuer is known when the cluster is there
    SHARED = "shared"  # a role for each shape of grants, told apart by session tags: one lock where the others have two


class BreakGlass(Spec):
    """The way in for an emergency: a role that asks for MFA, lasts an hour and raises an alarm."""

    trusted: tuple[_Principal, ...] = Field(
        min_length=1, description="IAM users or roles that may take it. Their sessions need MFA that AWS itself saw."
    )
    mail: Mail = Field(description="Who is told when it is taken.")


_Text = Annotated[str, Form(r"^[\x21-\x7e]+$", "a name without spaces", "write it as the forge does", 255)]


class Ci(Spec):
    """A pipeline: one repository on GitHub or GitLab, and there one branch or one environment."""

    github: _Text | None = Field(None, description="Repository on github.com, such as bank/fraud-models.")
    gitlab: _Text | None = Field(None, description="Project on GitLab, such as bank/risk/fraud-models.")
    host: _Host | None = Field(None, description="Host of a GitLab of your own; absent: gitlab.com.")
    branch: _Text | None = Field(None, description="The one branch. Either this or environment.")
    environment: _Text | None = Field(None, description="The one environment of GitHub. Either this or branch.")
    role: Annotated[str, Form(r"^(viewer|developer|operator)$", "viewer, developer or operator", "use developer")] = (
        Field("developer", description="What it may do in the tenant's namespaces.")
    )
    namespaces: tuple[PartName, ...] = Field((), min_length=1, description="Parts that the role holds in; absent: all.")

    def mistakes(self) -> Iterator[Mistake]:
        if (self.github is None) == (self.gitlab is None):
            given = "both github and gitlab" if self.github else "neither github nor gitlab"
            yield Mistake((), given, "a pipeline is of one forge", "write exactly one of github and gitlab")
            return
        if (self.branch is None) == (self.environment is None):
            given = "both branch and environment" if self.branch else "neither branch nor environment"
            yield broken((), "aws-05", given, "write exactly one of branch and environment")
        if self.gitlab and self.environment:
            yield Mistake(("environment",), "environment with gitlab", "GitLab's subject names a branch", "use branch")
        if self.github and self.host:
            yield Mistake(("host",), "host with github", "pipelines of github.com have one issuer", "drop host")
        elif self.host in {GITHUB, GITHUB_COM}:
            given, rule = f"{self.host} with gitlab", "GitHub's pipelines are named by their repository"
            yield Mistake(("host",), given, rule, "write github instead of gitlab, or the host of a GitLab")
        for field in ("github", "gitlab", "branch", "environment"):
            text = getattr(self, field)
            if text and (given := broad_subject(text, path=field in {"github", "gitlab"})):
                yield broken((field,), "aws-05", given)
        if self.branch and self.branch.startswith("refs/"):
            change = f"write {self.branch.removeprefix('refs/heads/')}" if "refs/heads/" in self.branch else None
            yield broken(("branch",), "aws-05", f"{self.branch!r}, a ref and not a branch's name", change)
        if self.github and self.github.count("/") != 1:
            yield broken(("github",), "aws-05", repr(self.github), "write it like bank/fraud-models")

    @property
    def forge(self) -> str:
        return GITHUB_COM if self.github else self.host or GITLAB

    @property
    def issuer(self) -> str:
        return GITHUB if self.github else self.forge

    @property
    def subject(self) -> str:
        """The one `sub` claim that the forge gives such a run."""
        if self.github:
            where = f"ref:refs/heads/{self.branch}" if self.branch else f"environment:{self.environment}"
            return f"repo:{self.github}:{where}"
        return f"project_path:{self.gitlab}:ref_type:branch:ref:{self.branch}"


class Identities(Spec):
    """Part of `aws`: who is who."""

    identity: PodIdentity = Field(PodIdentity.POD_IDENTITY, description="How tenants' pods become a role.")
    oidc_issuer: _Issuer | None = Field(None, description="Issuer of the cluster; identity: irsa needs it.")
    organization: _Organisation | None = Field(
        None, description="AWS organisation that all principals must be of, to reach buckets; absent: not asked for."
    )
    people: dict[Group, RoleArn] = Field(
        default_factory=dict,
        description="IAM role, of IAM Identity Center for instance, by the group of the tenants' files that it is. "
        "A group without one gets in through other means, or not at all.",
    )
    break_glass: BreakGlass | None = Field(None, description="The way in for an emergency; absent: none.")
    forges: tuple[_Host, ...] = Field(
        (GITHUB_COM, GITLAB),
        description="Hosts of the forges whose pipelines tenants may have: github.com, and those of GitLabs. Absent: "
        "github.com and gitlab.com.",
    )
    existing_providers: tuple[_Host, ...] = Field(
        (), description="Hosts of forges whose OIDC provider the account has already: those are used, not made."
    )
    payer: Flag = Field(
        False, description="Whether the account pays for its organisation: only then can it activate cost tags."
    )
    quotas: dict[str, Positive] = Field(
        default_factory=dict, description=f"Quotas that AWS has raised, of: {', '.join(QUOTAS)}."
    )

    def people_mistakes(self, platform_group: str, platform_role: str) -> Iterator[Mistake]:
        first: dict[str, str] = {}
        for group, role in self.people.items():
            where = ("people", group)
            if given := foreign_subject("Group", group, platform_group, person=True):
                yield broken(where, "rbac-05", given)
            if role == platform_role:
                given = f"{role}, which is the platform's"
                yield broken(where, "aws-06", given, "name the role of the group's own people")
            if (other := first.setdefault(role, group)) != group:
                yield broken(where, "aws-06", f"{role} for {other} and {group}")
        for name, raised in self.quotas.items():
            known = QUOTAS.get(name)
            if known is None:
                yield Mistake(("quotas", name), repr(name), f"a quota of {', '.join(QUOTAS)}", "use one of them")
            elif known.most is not None and raised > (known.most or known.default):
                rule = f"AWS gives {known.most or known.default} {known.title} at most"
                yield Mistake(("quotas", name), str(raised), rule, "write what the account really has")
