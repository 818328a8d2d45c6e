"""Contents that a bundle must not have: mail addresses of people, and secrets."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

PSEUDONYM = 12
"""Hexadecimal digits of the digest that stand for a mail address."""

_MAIL = re.compile(r"[A-Za-z0-9._%+'-]+@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.[A-Za-z]{2,}")
_SECRETS: Mapping[str, re.Pattern[str]] = {
    "an AWS access key": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "a private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"),
    "a token of a forge": re.compile(r"\b(?:gh[oprsu]_[A-Za-z0-9]{36}|github_pat_\w{22,}|glpat-[\w-]{20,})"),
    "a JSON web token": re.compile(r"\beyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
    "a password in a URL": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@"),
    "a bearer token": re.compile(r"\b[Bb]earer [A-Za-z0-9._~+/-]{16,}"),
}


def pseudonym(mail: str) -> str:
    """Stand-in for a mail address: a reader who has the address can compute it, and it names no person by itself."""
    digest = hashlib.sha256(mail.lower().encode()).hexdigest()
    return f"person-{digest[:PSEUDONYM]}"


def without_mail(value: Any) -> Any:
    """The same JSON value with a pseudonym for every mail address, in keys too."""
    if isinstance(value, str):
        return _MAIL.sub(lambda match: pseudonym(match.group()), value)
    if isinstance(value, Mapping):
        return {without_mail(key): without_mail(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [without_mail(item) for item in value]
    return value


def secrets_in(text: str) -> Iterator[str]:
    """The kinds of secrets in a text. Ask before mail addresses are replaced: a URL's password looks like one."""
    return (kind for kind, pattern in _SECRETS.items() if pattern.search(text))


def has_mail(text: str) -> bool:
    """Whether the text contains a mail address."""
    return _MAIL.search(text) is not None
