"""Which identity has access to which resource: the plan's answer in plain words, with the statements that decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenancy.iam.account import AccountIdentity, AccountModel, Answer
from tenancy.planning.aws import grants

S3 = "s3://"
NEW = {"s3:if-none-match": "*", grants.OBJECT_CREATION: "true"}
"""Condition keys of a write that must not replace an object."""
OVER = {grants.OBJECT_CREATION: "true"}
IF_NEW = "if nothing is there yet"

SERVICES: Mapping[str, Mapping[str, str]] = {
    "s3": {"list": "s3:ListBucket", "read": "s3:GetObject", "write": "s3:PutObject", "delete": "s3:DeleteObject"},
    "secretsmanager": {"read": "secretsmanager:GetSecretValue"},
    "logs": {"write": "logs:PutLogEvents"},
    "sqs": {"send": "sqs:SendMessage", "receive": "sqs:ReceiveMessage"},
    "ecr": {"pull": "ecr:BatchGetImage", "push": "ecr:PutImage"},
}
"""By service: words for the uses of its resources, and the action that represents each."""


class Target(NamedTuple):
    """What is asked about."""

    arn: str
    bucket: str = ""
    key: str = ""


def target(account: AccountModel, text: str) -> Target | None:
    """`s3://bucket/key` or an ARN, also that of a secret without its last six characters and of a whole log group.

    None: neither. Whether there is such a thing is another question.
    """
    if text.startswith(S3):
        bucket, _, key = text.removeprefix(S3).partition("/")
        whole = grants.bucket_arn(account.environment, bucket)
        return Target(f"{whole}/{key}" if key else whole, bucket, key) if bucket else None
    if not re.fullmatch(r"arn:[^:]+:[^:]+:[^:]*:[^:]*:.+", text):
        return None
    service = text.split(":")[2]
    if service == "s3" and ":s3:::" in text:
        bucket, _, key = text.partition(":::")[2].partition("/")
        return Target(text, bucket, key)
    if service == "secretsmanager" and account.thing(f"{text}-000000").policy:
        return Target(f"{text}-000000")
    if service == "logs" and ":log-stream:" not in text:
        return Target(f"{text.removesuffix(':*')}:log-stream:any")
    return Target(text)


@dataclass(frozen=True, slots=True)
class CallVerdict:
    """The answer to one call of one identity."""

    answer: Answer
    condition: str = ""
    """What the call must say for it, if it is allowed only so."""

    @property
    def word(self) -> str:
        """The verdict as text: no, yes, or yes with its condition."""
        return "no" if not self.answer.allowed else f"yes, {self.condition}" if self.condition else "yes"


def can(account: AccountModel, who: AccountIdentity, action: str, about: Target) -> CallVerdict:
    """A list is asked with the target's key as its prefix; a write is asked also as a write of a new object."""
    arn, context = about.arn, dict(account.ambient)
    name = action.lower()
    if about.bucket and name.startswith("s3:listbucket"):
        arn = grants.bucket_arn(account.environment, about.bucket)
        context |= {"s3:prefix": about.key} if about.key else {}
    if name == "s3:putobject":
        over = account.ask(who, action, arn, {**context, **OVER})
        new = account.ask(who, action, arn, {**context, **NEW})
        return CallVerdict(new, IF_NEW) if new.allowed and not over.allowed else CallVerdict(over)
    return CallVerdict(account.ask(who, action, arn, context))


@dataclass(frozen=True, slots=True)
class Permission:
    """What one identity may do under one prefix, or with one thing."""

    who: AccountIdentity
    under: str
    verdicts: Mapping[str, CallVerdict]
    """Those that are allowed, by the words of `SERVICES`."""

    @property
    def what(self) -> str:
        """The allowed kinds of access, each with its condition."""
        return ", ".join(f"{word} {v.condition}" if v.condition else word for word, v in self.verdicts.items())

    def statements(self) -> str:
        """Sids that allow it, by their documents."""
        found: dict[str, dict[str, None]] = {}
        for verdict in self.verdicts.values():
            for document, sid in verdict.answer.allowing():
                found.setdefault(document, {})[sid] = None
        return "; ".join(f"{document}: {', '.join(sids)}" for document, sids in found.items())

    def as_dict(self) -> dict[str, Any]:
        """The permission as plain values, for JSON."""
        return {
            "tenant": self.who.tenant,
            "namespace": self.who.namespace,
            "role": self.who.role.arn,
            "under": self.under,
            "may": {
                word: {"condition": verdict.condition or None, "because": list(verdict.answer.reasons())}
                for word, verdict in self.verdicts.items()
            },
        }


def who_can(account: AccountModel, about: Target) -> Iterator[Permission]:
    """Every identity with a right on the target. For a folder also its rights on parts of it."""
    service = about.arn.split(":")[2]
    for who in account.identities:
        for under in _places(account, who, about):
            place = _placed(account, about, under)
            verdicts = {word: can(account, who, action, place) for word, action in SERVICES[service].items()}
            allowed = {word: verdict for word, verdict in verdicts.items() if verdict.answer.allowed}
            if allowed:
                yield Permission(who, under, allowed)


def _places(account: AccountModel, who: AccountIdentity, about: Target) -> list[str]:
    """Prefixes to look at: what is asked for, and in a folder those that a role's own policies name in it."""
    if not about.bucket:
        return [""]
    if about.key and not about.key.endswith("/"):
        return [about.key]
    inside = [place for place in account.places(who, about.bucket) if place.startswith(about.key)]
    around = any(about.key.startswith(place) for place in account.places(who, about.bucket))
    return sorted({*inside, *([about.key] if around else [])})


def _placed(account: AccountModel, about: Target, under: str) -> Target:
    """For a folder, an object in it: the answer for one is the answer for all."""
    if not about.bucket:
        return about
    key = f"{under}any" if not under or under.endswith("/") else under
    return Target(f"{grants.bucket_arn(account.environment, about.bucket)}/{key}", about.bucket, key)
