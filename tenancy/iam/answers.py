"""Which identity has access to which resource: the plan's answer in plain words, with the statements that decide."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tenancy.iam.account import AccountIdentity, AccountModel, Answer
from tenancy.planning.aws import grants, kinds

S3 = "s3://"
NEW_OBJECT_KEYS = {"s3:if-none-match": "*", grants.OBJECT_CREATION: "true"}
"""Condition keys of a write that must not replace an object."""
OVERWRITE_KEYS = {grants.OBJECT_CREATION: "true"}
IF_NEW = "if nothing is there yet"


def requests_by_service() -> Mapping[str, Mapping[str, str]]:
    """By service: words for the uses of its resources, and the action that represents each."""
    objects = {"list": "s3:ListBucket", "read": "s3:GetObject", "write": "s3:PutObject", "delete": "s3:DeleteObject"}
    return {"s3": objects, **{kind.service: kind.requests for kind in kinds.KINDS}}


class Target(NamedTuple):
    """Subject of the question."""

    arn: str
    bucket: str = ""
    key: str = ""


def target(account: AccountModel, text: str) -> Target | None:
    """`s3://bucket/key` or an ARN, also that of a secret without its last six characters and of a whole log group.

    None: neither. Whether there is such a thing is another question.
    """
    if text.startswith(S3):
        bucket, _, key = text.removeprefix(S3).partition("/")
        bucket_arn = grants.bucket_arn(account.environment, bucket)
        return Target(f"{bucket_arn}/{key}" if key else bucket_arn, bucket, key) if bucket else None
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
    """Condition keys that the call must carry, if it is allowed only with them."""

    @property
    def word(self) -> str:
        """The verdict as text: no, yes, or yes with its condition."""
        return "no" if not self.answer.allowed else f"yes, {self.condition}" if self.condition else "yes"


def can(account: AccountModel, identity: AccountIdentity, action: str, target: Target) -> CallVerdict:
    """A list is asked with the target's key as its prefix; a write is asked also as a write of a new object."""
    arn, context = target.arn, dict(account.ambient)
    name = action.lower()
    if target.bucket and name.startswith("s3:listbucket"):
        arn = grants.bucket_arn(account.environment, target.bucket)
        context |= {"s3:prefix": target.key} if target.key else {}
    if name == "s3:putobject":
        overwrite = account.ask(identity, action, arn, {**context, **OVERWRITE_KEYS})
        new_write = account.ask(identity, action, arn, {**context, **NEW_OBJECT_KEYS})
        return CallVerdict(new_write, IF_NEW) if new_write.allowed and not overwrite.allowed else CallVerdict(overwrite)
    return CallVerdict(account.ask(identity, action, arn, context))


@dataclass(frozen=True, slots=True)
class Permission:
    """Access of one identity under one prefix, or to one resource."""

    identity: AccountIdentity
    prefix: str
    verdicts: Mapping[str, CallVerdict]
    """Those that are allowed, by the words of `requests_by_service`."""

    @property
    def what(self) -> str:
        """The allowed kinds of access, each with its condition."""
        return ", ".join(
            f"{word} {verdict.condition}" if verdict.condition else word for word, verdict in self.verdicts.items()
        )

    def statements(self) -> str:
        """Sids that allow it, by their documents."""
        sids_by_document: dict[str, dict[str, None]] = {}
        for verdict in self.verdicts.values():
            for document, sid in verdict.answer.allowing():
                sids_by_document.setdefault(document, {})[sid] = None
        return "; ".join(f"{document}: {', '.join(sids)}" for document, sids in sids_by_document.items())

    def as_dict(self) -> dict[str, Any]:
        """The permission as plain values, for JSON."""
        return {
            "tenant": self.identity.tenant,
            "namespace": self.identity.namespace,
            "role": self.identity.role.arn,
            "under": self.prefix,
            "may": {
                word: {"condition": verdict.condition or None, "because": list(verdict.answer.reasons())}
                for word, verdict in self.verdicts.items()
            },
        }


def who_can(account: AccountModel, target: Target) -> Iterator[Permission]:
    """Every identity with a right on the target. For a folder also its rights on parts of it."""
    service = target.arn.split(":")[2]
    for identity in account.identities:
        for prefix in _places(account, identity, target):
            place = _object_below(account, target, prefix)
            verdicts = {
                word: can(account, identity, action, place) for word, action in requests_by_service()[service].items()
            }
            allowed = {word: verdict for word, verdict in verdicts.items() if verdict.answer.allowed}
            if allowed:
                yield Permission(identity, prefix, allowed)


def _places(account: AccountModel, identity: AccountIdentity, target: Target) -> list[str]:
    """Prefixes to look at: what is asked for, and in a folder those that a role's own policies name in it."""
    if not target.bucket:
        return [""]
    if target.key and not target.key.endswith("/"):
        return [target.key]
    places_inside = [place for place in account.places(identity, target.bucket) if place.startswith(target.key)]
    is_inside_place = any(target.key.startswith(place) for place in account.places(identity, target.bucket))
    return sorted({*places_inside, *([target.key] if is_inside_place else [])})


def _object_below(account: AccountModel, target: Target, prefix: str) -> Target:
    """For a folder, an object in it: the answer for one is the answer for all."""
    if not target.bucket:
        return target
    key = f"{prefix}any" if not prefix or prefix.endswith("/") else prefix
    return Target(f"{grants.bucket_arn(account.environment, target.bucket)}/{key}", target.bucket, key)
