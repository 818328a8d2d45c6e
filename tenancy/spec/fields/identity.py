"""Identities of pods, pipelines and people on AWS and in the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tenancy.catalog.account import QUOTAS
from tenancy.rules.values import broad_subject, foreign_subject
from tenancy.spec.fields.base import Flag, Mail, Positive, ShortName, Spec, TextForm
from tenancy.spec.reading.mistakes import Mistake, rule_mistake

RoleArn = Annotated[
    str,
    TextForm(
        r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[\w+=,.@/-]+$",
        "ARN of an IAM role",
        "write it like arn:aws:iam::111122223333:role/aws-reserved/sso.amazonaws.com/<region>/<name>",
        600,
    ),
]
_Principal = Annotated[
    str,
    TextForm(
        r"^arn:aws[a-z-]*:iam::[0-9]{12}:(user|role)/[\w+=,.@/-]+$",
        "ARN of an IAM user or role",
        "write it like arn:aws:iam::111122223333:user/jane",
        600,
    ),
]
_Host = Annotated[
    str,
    TextForm(
        r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?\.)+[a-z]{2,}$",
        "a full host name in lower case, without scheme or port",
        "write it like gitlab.bank.example",
        253,
    ),
]
Group = Annotated[
    str,
    TextForm(
        r"^[^\s\x00-\x1f\x7f]([^\x00-\x1f\x7f]*[^\s\x00-\x1f\x7f])?$",
        "a group's name as the tenants' files have it",
        "drop spaces around it and control characters",
        253,
    ),
]
_Issuer = Annotated[
    str,
    TextForm(
        r"^oidc\.eks\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/id/[A-Z0-9]+$",
        "the cluster's OIDC issuer without https://",
        "see `aws eks describe-cluster --query cluster.identity.oidc.issuer`",
        200,
    ),
]
_Organisation = Annotated[
    str,
    TextForm(
        r"^o-[a-z0-9]{10,32}$",
        "an id of an AWS organisation is 'o-', letters and digits",
        "write it like o-a1b2c3d4e5",
        34,
    ),
]

GITHUB = "token.actions.githubusercontent.com"
GITHUB_COM = "github.com"
GITLAB = "gitlab.com"
CI_AUDIENCE = "sts.amazonaws.com"


class PodIdentity(StrEnum):
    """Way in which pods get AWS credentials."""

    POD_IDENTITY = "pod-identity"  # a role for each namespace with grants, by EKS Pod Identity
    IRSA = "irsa"  # the same roles by the cluster's OIDC provider, whose issuer is known once the cluster exists
    SHARED = "shared"  # a role per kind of grants, separated by session tags: one check where the others have two


class BreakGlass(Spec):
    """Emergency access: a role that requires MFA, lasts one hour and raises an alarm."""

    trusted_principals: tuple[_Principal, ...] = Field(
        min_length=1,
        description="ARNs of IAM users or roles that may take the emergency role. Their sessions need MFA that AWS "
        "itself has checked. Required.",
    )
    mail: Mail = Field(description="Mail address that is alerted when the role is taken. Required.")


_Text = Annotated[str, TextForm(r"^[\x21-\x7e]+$", "a name without spaces", "write it as the forge does", 255)]


class Ci(Spec):
    """A pipeline: one repository on GitHub or GitLab, and one branch or environment of it."""

    github: _Text | None = Field(
        default=None,
        description="Repository on github.com, such as bank/fraud-models. Either github or gitlab. Default: none.",
    )
    gitlab: _Text | None = Field(
        default=None,
        description="Project on GitLab, such as bank/risk/fraud-models. Either github or gitlab. Default: none.",
    )
    host: _Host | None = Field(default=None, description="Host name of a self-managed GitLab. Default: gitlab.com.")
    branch: _Text | None = Field(
        default=None, description="Branch whose runs are trusted. Either branch or environment. Default: none."
    )
    environment: _Text | None = Field(
        default=None,
        description="GitHub environment whose runs are trusted. Either branch or environment. Default: none.",
    )
    role: Annotated[
        str, TextForm(r"^(viewer|developer|operator)$", "viewer, developer or operator", "use developer")
    ] = Field(default="developer", description="Role of the pipeline in the tenant's namespaces. Default: developer.")
    namespaces: tuple[ShortName, ...] = Field(
        default=(),
        min_length=1,
        description="Namespaces of the tenant in which the role applies. Default: all namespaces.",
    )

    def mistakes(self) -> Iterator[Mistake]:
        if (self.github is None) == (self.gitlab is None):
            fault = "both github and gitlab" if self.github else "neither github nor gitlab"
            yield Mistake((), fault, "a pipeline belongs to one forge", "write exactly one of github and gitlab")
            return
        if (self.branch is None) == (self.environment is None):
            fault = "both branch and environment" if self.branch else "neither branch nor environment"
            yield rule_mistake((), "aws-05", fault, "write exactly one of branch and environment")
        if self.gitlab and self.environment:
            yield Mistake(("environment",), "environment with gitlab", "GitLab's subject names a branch", "use branch")
        if self.github and self.host:
            yield Mistake(("host",), "host with github", "pipelines of github.com have one issuer", "drop host")
        elif self.host in {GITHUB, GITHUB_COM}:
            fault, rule = f"{self.host} with gitlab", "GitHub's pipelines are named by their repository"
            yield Mistake(("host",), fault, rule, "write github instead of gitlab, or the host of a GitLab")
        for field in ("github", "gitlab", "branch", "environment"):
            text = getattr(self, field)
            if text and (fault := broad_subject(text, path=field in {"github", "gitlab"})):
                yield rule_mistake((field,), "aws-05", fault)
        if self.branch and self.branch.startswith("refs/"):
            change = f"write {self.branch.removeprefix('refs/heads/')}" if "refs/heads/" in self.branch else None
            yield rule_mistake(("branch",), "aws-05", f"{self.branch!r}, a ref and not a branch's name", change)
        if self.github and self.github.count("/") != 1:
            yield rule_mistake(("github",), "aws-05", repr(self.github), "write it like bank/fraud-models")

    @property
    def forge(self) -> str:
        """Host name of the forge, without a scheme."""
        return GITHUB_COM if self.github else self.host or GITLAB

    @property
    def issuer(self) -> str:
        """Host name of the issuer of the pipeline's OIDC tokens, without a scheme."""
        return GITHUB if self.github else self.forge

    @property
    def subject(self) -> str:
        """The `sub` claim of the forge's tokens for such a run."""
        if self.github:
            location = f"ref:refs/heads/{self.branch}" if self.branch else f"environment:{self.environment}"
            return f"repo:{self.github}:{location}"
        return f"project_path:{self.gitlab}:ref_type:branch:ref:{self.branch}"


class Identities(Spec):
    """Part of `aws`: identities of pods, pipelines and people."""

    identity: PodIdentity = Field(
        default=PodIdentity.POD_IDENTITY, description="How tenants' pods get an IAM role. Default: pod-identity."
    )
    oidc_issuer: _Issuer | None = Field(
        default=None,
        description="OIDC issuer of the cluster, without https://. Required with identity: irsa. Default: none.",
    )
    organization_id: _Organisation | None = Field(
        default=None,
        description="Id of the AWS organisation that principals must belong to in order to reach buckets. Default: "
        "not checked.",
    )
    group_roles: dict[Group, RoleArn] = Field(
        default_factory=dict,
        description="ARN of the IAM role of each group of people in the tenants' files, such as a role of IAM "
        "Identity Center. A group without a role signs in by other means, or not at all. Default: none.",
    )
    break_glass: BreakGlass | None = Field(default=None, description="Emergency access to the cluster. Default: none.")
    ci_hosts: tuple[_Host, ...] = Field(
        default=(GITHUB_COM, GITLAB),
        description="Hosts of the forges whose pipelines tenants may have: github.com, and hosts of GitLab. Default: "
        "github.com and gitlab.com.",
    )
    existing_oidc_providers: tuple[_Host, ...] = Field(
        default=(),
        description="Hosts of forges whose OIDC provider already exists in the account: it is used, not made. "
        "Default: none.",
    )
    management_account: Flag = Field(
        default=False,
        description="Whether the account is the payer (management account) of its organisation: only then can it "
        "activate cost allocation tags. Default: false.",
    )
    service_quotas: dict[str, Positive] = Field(
        default_factory=dict,
        description=f"AWS quotas that were raised for the account, by name: {', '.join(QUOTAS)}. Default: AWS' "
        "default quotas.",
    )

    def people_mistakes(self, platform_group: str, platform_role: str) -> Iterator[Mistake]:
        """Mistakes in the mapping of groups to IAM roles."""
        first: dict[str, str] = {}
        for group, role in self.group_roles.items():
            location = ("group-roles", group)
            if fault := foreign_subject("Group", group, platform_group, person=True):
                yield rule_mistake(location, "rbac-05", fault)
            if role == platform_role:
                fault = f"{role}, which is the platform's"
                yield rule_mistake(location, "aws-06", fault, "name the role of the group's own people")
            if (first_group := first.setdefault(role, group)) != group:
                yield rule_mistake(location, "aws-06", f"{role} for {first_group} and {group}")
        for name, value in self.service_quotas.items():
            quota = QUOTAS.get(name)
            if quota is None:
                yield Mistake(
                    ("service-quotas", name), repr(name), f"a quota of {', '.join(QUOTAS)}", "use one of them"
                )
            elif quota.most is not None and value > (quota.most or quota.default):
                rule = f"AWS gives {quota.most or quota.default} {quota.title} at most"
                yield Mistake(("service-quotas", name), str(value), rule, "write what the account really has")
