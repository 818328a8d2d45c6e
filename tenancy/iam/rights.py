"""Rights that policies give, as places and words, and the rights that a change gives and takes, by documents alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from tenancy.catalog.vocabulary import SEPARATOR
from tenancy.iam.conditions import texts

WORDS = {
    "s3:ListBucket": "list",
    "s3:GetObject": "read",
    "s3:PutObject": "write",
    "s3:DeleteObject": "delete",
    "secretsmanager:GetSecretValue": "read",
    "logs:PutLogEvents": "write",
    "sqs:ReceiveMessage": "receive",
    "sqs:SendMessage": "send",
    "ecr:BatchGetImage": "pull",
    "ecr:PutImage": "push",
    "elasticfilesystem:ClientMount": "mount",
    "elasticfilesystem:ClientWrite": "write",
}
"""Action -> word. One action represents others that are always granted with it."""
ORDER = list(dict.fromkeys(WORDS.values()))
WRITE_IF_NEW = "write if nothing is there yet"
_ORDER = {word: at for at, word in enumerate([*ORDER[:3], WRITE_IF_NEW, *ORDER[3:]])}


class ChangedRights(NamedTuple):
    """A place of which a role has other rights than before."""

    tenant: str
    namespace: str
    place: str
    before: str
    after: str


def rights(document: Mapping[str, Any]) -> dict[str, set[str]]:
    """Words by place, of what a role's policy allows."""
    words_by_place: dict[str, set[str]] = {}
    for statement in document["Statement"]:
        if statement["Effect"] != "Allow":
            continue
        words = {WORDS[action] for action in texts(statement["Action"]) if action in WORDS}
        condition = statement.get("Condition", {})
        if "write" in words and "s3:PutObject" in texts(statement["Action"]) and condition:
            # Pieces of an upload are part of the write that ends it.
            words = {WRITE_IF_NEW} if "Null" in condition else words - {"write"}
        for place in _places(statement):
            if words:
                words_by_place.setdefault(place, set()).update(words)
    return words_by_place


def _places(statement: Mapping[str, Any]) -> Iterator[str]:
    listed_prefixes = statement.get("Condition", {}).get("StringLike", {}).get("s3:prefix")
    for resource in texts(statement["Resource"]):
        if ":accesspoint/" in resource:
            continue  # the bucket's own ARN is listed too
        service, name = resource.split(":", 5)[2::3] if resource.count(":") >= 5 else ("", resource)
        if service != "s3":
            yield f"{service} {name.removesuffix('-??????').removesuffix(':log-stream:*')}".strip()
        elif listed_prefixes:
            yield from (f"s3://{name}/{prefix.removesuffix('*')}" for prefix in texts(listed_prefixes))
        else:
            yield f"s3://{name.removesuffix('*')}"


def changed_rights(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None, role: str
) -> Iterator[ChangedRights]:
    """Row by row what one policy of a role gives and takes."""
    old_rights, new_rights = (rights(document) if document else {} for document in (before, after))
    tenant, namespace = _owner(role)
    for place in sorted({*old_rights, *new_rights}):
        old_words, new_words = old_rights.get(place, set()), new_rights.get(place, set())
        if old_words != new_words:
            yield ChangedRights(tenant, namespace, place, _rights_text(old_words), _rights_text(new_words))


def _rights_text(words: Iterable[str]) -> str:
    return ", ".join(sorted(words, key=_ORDER.__getitem__)) or "nothing"


def _owner(role: str) -> tuple[str, str]:
    """Tenant and namespace by a role's name; of one that is cut or shared the name itself."""
    parts = role.split(SEPARATOR)
    if len(parts) == 3 and "." not in role:
        return parts[1], parts[2]
    if len(parts) == 2 and parts[1].endswith(".ci"):
        return parts[1].removesuffix(".ci"), "its pipeline"
    return role, ""
