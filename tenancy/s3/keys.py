"""Validation of keys; pure functions, without requests to S3.

To S3 a key is a literal string: '..' and '%2e' have no meaning, and no key leaves its prefix. They have a meaning to
software around S3: proxies, file systems, URL parsers, tools that join paths. So a key that any of these could resolve
to another place is refused, also if it would only after decoding '%xx' any number of times.

Not checked: characters that look alike ('․․' are two one-dot leaders, 'а' may be Cyrillic). They stay literal, inside
the prefix, everywhere.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import unquote

from tenancy.rules.values import unsafe_prefix
from tenancy.s3.errors import Refused, UnsafeKey

KEY_BYTES = 1024
"""UTF-8, with the prefix. https://docs.aws.amazon.com/AmazonS3/latest/userguide/object-keys.html"""

_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/|arn:", re.ASCII)
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")


def check_bucket(bucket: str) -> str:
    """The name of the bucket, if it is one; raises Refused."""
    if not _BUCKET.fullmatch(bucket) or bucket.endswith("--x-s3"):  # a directory bucket's ETags are no MD5
        change = "write the name alone, without s3:// and without a prefix"
        raise Refused(repr(bucket), "a bucket is a general purpose one's name or an access point's alias", change)
    return bucket


def check_prefix(prefix: str) -> str:
    """The prefix, if it follows rule stor-01 of the tenant's file; else UnsafeKey."""
    if given := unsafe_prefix(prefix):
        rule = "stor-01: a prefix is relative, of printable ASCII, ends with '/' and holds no wildcard, quote or '..'"
        raise UnsafeKey(given, rule, "write the prefix as the tenant's file has it, like 'teams/fraud/'")
    if flaw := _flaw(prefix[:-1]):
        raise UnsafeKey(repr(prefix), *flaw)
    return prefix


def safe_key(prefix: str, key: str) -> str:
    """The full key of `key`, which is relative to `prefix`. UnsafeKey if it could resolve to another place."""
    flaw = _flaw(key) or _foreign(prefix, key) or _too_long(prefix + key)
    if flaw:
        raise UnsafeKey(repr(key), *flaw)
    return prefix + key


def safe_folder(prefix: str, under: str) -> str:
    """The prefix to list for the folder `under`, with or without its last '/'; the whole prefix if empty."""
    return prefix if under == "" else safe_key(prefix, under.removesuffix("/")) + "/"


def _too_long(full: str) -> tuple[str, str] | None:
    if (length := len(full.encode())) > KEY_BYTES:
        return f"a key has at most {KEY_BYTES} bytes with its prefix, this one {length}", "shorten it"
    return None


def _foreign(prefix: str, key: str) -> tuple[str, str] | None:
    parent = prefix[: prefix[:-1].rfind("/") + 1]
    plain = _decoded(key)
    if plain.startswith(prefix):
        return "a key is relative to its prefix and does not repeat it", f"write {plain[len(prefix) :]!r}"
    if parent and plain.startswith(parent):
        change = f"open that prefix with Prefix(…); for a folder of this name use within({parent[:-1]!r})"
        return f"a key does not start with {parent!r}, where other prefixes are", change
    return None


def _flaw(key: str) -> tuple[str, str] | None:
    """The rule that a relative key breaks, and what to change."""
    if not key:
        return "a key is not empty", "name an object"
    try:
        key.encode()
        plain = _decoded(key)
    except UnicodeError:
        return "a key is valid UTF-8, also after decoding '%xx'", "rename the file"
    for text in (key, plain):
        if flaw := _flaw_of_text(text):
            rule, change = flaw
            return (rule, change) if text is key else (f"{rule}; it decodes to {text!r}", f"{change}, or drop the '%'")
    return None


def _flaw_of_text(text: str) -> tuple[str, str] | None:
    if _ADDRESS.match(text):
        return "a key is no address", "write only what comes after the prefix"
    if "\\" in text:
        return "a key holds no backslash: some tools read it as '/'", "use '/'"
    if any(unicodedata.category(character) in {"Cc", "Zl", "Zp"} for character in text):
        return "a key holds no control character or line separator", "rename the file"
    if text.startswith("/"):
        return "a key is relative", "drop the leading '/'"
    segments = text.split("/")
    if "" in segments:
        return "a key has no empty segment", "drop the double or last '/'"
    if "." in segments or ".." in segments:
        return "no segment of a key is '.' or '..'", "write the path without them"
    return None


def _decoded(text: str) -> str:
    """Decoded until nothing is left to decode, since several readers in a row may decode. UnicodeError if not UTF-8."""
    while (shorter := unquote(text, errors="strict")) != text:
        text = shorter
    return text
