"""What a statement of an IAM policy comes to: which actions and resources its patterns take, whom its condition leaves.

As IAM reads them: `*` is any text, `/` and `:` in it too, `?` is one character, and `${…}` one value of the caller's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from tenancy.rules.found import UNKNOWN, at, many

_VARIABLE = re.compile(r"\$\{[^}]*\}")
_ALL_OF_S3 = ("s3:deletebucket", "s3:getobject", "s3:listallmybuckets", "s3:putbucketpolicy")
"""Actions so unlike that a pattern that takes them takes S3's all."""
_ALL_OF_IAM = ("iam:attachrolepolicy", "iam:createuser", "iam:passrole", "iam:updateassumerolepolicy")
"""The same of IAM's: who may do these has every right that there is."""
_OF_OBJECTS = tuple(
    f"s3:{name}"
    for name in (
        "abortmultipartupload bypassgovernanceretention deleteobject deleteobjecttagging deleteobjectversion getobject "
        "getobjectacl getobjectattributes getobjecttagging getobjectversion listmultipartuploadparts putobject "
        "putobjectacl putobjectlegalhold putobjectretention putobjecttagging putobjectversionacl restoreobject"
    ).split()
)
_LISTS = ("s3:listbucket", "s3:listbucketversions", "s3:listbucketmultipartuploads")
_KEYS = ("a/b", "Zeta/9-x.y")
"""Keys so unlike that a pattern that takes both takes a whole bucket."""
_ACCESS_POINT = "accesspoint/"


@functools.lru_cache(maxsize=4096)
def _pattern(text: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(sign, re.escape(sign)) for sign in text), re.DOTALL)


def takes(pattern: str, text: str) -> bool:
    return _pattern(pattern).fullmatch(text) is not None


def listed(value: Any) -> list[str]:
    return [] if value is None else [value] if isinstance(value, str) else [str(one) for one in many(value)]


def actions(statement: Any) -> list[str]:
    return [action if action == UNKNOWN else action.lower() for action in listed(at(statement, "Action"))]


def all_of_s3(action: str) -> bool:
    return action == UNKNOWN or all(takes(action, name) for name in _ALL_OF_S3)


def all_of_iam(action: str) -> bool:
    return action == UNKNOWN or all(takes(action, name) for name in _ALL_OF_IAM)


def any_role(resource: str) -> bool:
    """Whether a pattern takes roles whatever they are called."""
    fields = resource.split(":", 5)
    if len(fields) < 6:
        return resource == UNKNOWN or resource.endswith("*")
    return takes(fields[2], "iam") and all(takes(fields[5], f"role/{name}") for name in _KEYS)


def of_objects(action: str) -> bool:
    return any(takes(action, name) for name in _OF_OBJECTS)


def listing(action: str) -> str | None:
    """The action that lists keys, if a pattern takes one."""
    return next((name for name in _LISTS if takes(action, name)), None)


def _place(resource: str) -> tuple[str, str] | None:
    """Region and account, and the rest, of a pattern that may be S3's; None: another service's."""
    if resource in {"*", UNKNOWN}:
        return "", "*"
    fields = _VARIABLE.sub("v", resource).split(":", 5)
    if len(fields) < 6:  # the star of a short one stands for all that is missing
        of_s3 = "*" in "".join(fields[:3]) or takes("".join(fields[2:3]), "s3")
        return ("", "*") if of_s3 and "*" in resource else None
    return ("".join(fields[3:5]), fields[5]) if takes(fields[2], "s3") else None


def _access_points(where: str, rest: str) -> bool | None:
    """Whether it is more than one access point; None: it is about buckets."""
    if not where.strip("*") and not rest.startswith(_ACCESS_POINT):
        return None
    named = rest.removeprefix(_ACCESS_POINT).partition("/")[0] if rest.startswith(_ACCESS_POINT) else rest
    return "*" in named or "?" in named


def whole_bucket(resource: str) -> bool:
    """Whether a pattern is a bucket itself, or takes all its objects."""
    if (place := _place(resource)) is None:
        return False
    if (points := _access_points(*place)) is not None:
        return points
    bucket, below, _ = place[1].partition("/")
    some = re.sub(r"[*?]", "x", bucket)
    return not below or all(takes(place[1], f"{some}/{key}") for key in _KEYS)


def beyond_a_prefix(resource: str) -> bool:
    """Whether a pattern takes objects that are not all below one prefix of one bucket."""
    if (place := _place(resource)) is None:
        return False
    if (points := _access_points(*place)) is not None:
        return points
    literal = re.split(r"[*?]", place[1], maxsplit=1)[0]
    if literal == place[1]:
        return False  # one object, or the bucket without them
    _, _, key = literal.partition("/")
    return "/" not in key.lstrip("/")


_POSITIVE = re.compile(r"(ForAnyValue:)?(Arn|String)(Equals|Like|EqualsIgnoreCase)")
"""Operators that fail where the key is missing or says something else: none with IfExists, Not or ForAllValues."""
_ANYBODYS = frozenset(
    "aws:currenttime aws:epochtime aws:referer aws:requestedregion aws:securetransport aws:useragent".split()
)
"""Keys that say nothing of who asks or for what."""


def positive_tests(condition: Any) -> Iterator[tuple[str, str, list[str]]]:
    """(operator, key, values) of the tests that only a value of these meets."""
    for operator, tests in condition.items() if isinstance(condition, Mapping) else ():
        if _POSITIVE.fullmatch(str(operator)):
            for key, values in tests.items() if isinstance(tests, Mapping) else ():
                yield str(operator), str(key).lower(), listed(values)


def limits(condition: Any) -> bool:
    """Whether a condition is one at all: others hold for everybody."""
    if condition == UNKNOWN or (isinstance(condition, Mapping) and UNKNOWN in condition.values()):
        return True
    if not isinstance(condition, Mapping):
        return False
    empty = [
        not values or any(not value.strip("*") for value in values) or key in _ANYBODYS
        for _, key, values in positive_tests(condition)
    ]
    others = any(
        not _POSITIVE.fullmatch(str(operator))
        and "IfExists" not in str(operator)
        and not str(operator).startswith(("ForAllValues", "StringNot", "ArnNot", "Null"))
        and isinstance(tests, Mapping)
        and any(str(key).lower() not in _ANYBODYS for key in tests)
        for operator, tests in condition.items()
    )
    return others or not all(empty)


def by_prefix(condition: Any) -> bool:
    """Whether lists are held to keys below a prefix."""
    if condition == UNKNOWN or (isinstance(condition, Mapping) and UNKNOWN in condition.values()):
        return True
    return any(
        key == "s3:prefix" and bool(values) and all(map(_below, values)) for _, key, values in positive_tests(condition)
    )


def _below(prefix: str) -> bool:
    if prefix == UNKNOWN:
        return True
    literal = re.split(r"[*?]", _VARIABLE.sub("v", prefix), maxsplit=1)[0]
    return prefix.endswith(("/", "/*")) and "/" in literal.lstrip("/")


# Who may take a role

_WHO = frozenset(
    f"aws:{name.lower()}"
    for name in (
        "PrincipalAccount PrincipalArn PrincipalOrgID PrincipalOrgPaths SourceAccount SourceArn SourceOrgID "
        "SourceOrgPaths"
    ).split()
)
"""Keys that AWS itself fills with who asks, or with the resource of whoever has a service ask. Not among them: tags and
session names, which a stranger's account chooses; sts:ExternalId, which is no secret; networks and regions, which are
everybody's (IAM User Guide, Global condition context keys)."""


def everybody(statement: Any) -> str | None:
    """Why a trust is in everybody; None: it names who."""
    if (but := at(statement, "NotPrincipal")) is not None:
        return f"a trust in everybody but {but}"
    principal = at(statement, "Principal")
    named = principal.values() if isinstance(principal, Mapping) else [principal]
    if not any("*" in listed(one) for one in named):
        return None
    condition = at(statement, "Condition")
    if not condition:
        return "a trust in everybody, without a condition"
    tests = positive_tests(condition)
    if any(key in _WHO and values and all(_one_account(key, one) for one in values) for _, key, values in tests):
        return None
    if UNKNOWN in str(condition):
        return f"a trust in everybody under a condition {UNKNOWN}"
    keys = sorted({str(key) for tests in condition.values() if isinstance(tests, Mapping) for key in tests})
    return f"a trust in everybody under a condition on {', '.join(keys) or 'nothing'} that does not say who"


def _one_account(key: str, value: str) -> bool:
    """Whether a value leaves no account or organization open."""
    if key.endswith("arn"):
        fields = value.split(":", 5)
        whose = fields[4] if len(fields) == 6 else "*"
        # A bucket's ARN has no account, and its name is everybody's to take but for this one.
        return not re.search(r"[*?]", whose or fields[5].partition("/")[0])
    if key.endswith("orgpaths"):
        return not re.search(r"[*?]", value.partition("/")[0])
    return not re.search(r"[*?]", value)


def subjects(provider: str, condition: Any) -> list[str]:
    """Those of a provider's tokens that a condition takes; empty: everybody's."""
    key = f"{provider}:sub".lower()
    return [value for _, tested, values in positive_tests(condition) if tested == key for value in values]
