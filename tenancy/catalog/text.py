"""Texts that others wrote, as they are shown: without characters that are invisible, look like a space or move a
cursor, and without words that a CI system obeys."""

from __future__ import annotations

import re
import unicodedata


def pluralize(count: int, noun: str) -> str:
    """A number and its noun, in the plural where it is not 1."""
    return f"{count} {noun}{'s' * (count != 1)}"


_IGNORABLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Default_Ignorable_Code_Point, which fonts draw as nothing: Unicode 17.0, DerivedCoreProperties.txt (2026-11-22)."""
_BLANKS = "\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
"""Category Zs but for U+0020, and the Braille pattern without a dot: UnicodeData.txt of the same version."""
_UNSEEN = re.compile(f"[{_IGNORABLE}{_BLANKS}]")


def unseen(text: str) -> int | None:
    """Place of the first character that is invisible or looks like a space; control characters are left to the caller,
    which knows which of them are valid."""
    if text.isascii():
        return None
    match = _UNSEEN.search(text)
    places = [match.start()] if match else []
    places += [text.index(character) for character in set(text) if unicodedata.category(character) == "Cf"]
    return min(places, default=None)


def is_shown(text: str) -> bool:
    """Whether all characters of a line are visible."""
    return text.isprintable() and unseen(text) is None


_MARKUP = {character: "\\" + character for character in "\\`*_~[]|&"} | {"<": "&lt;", ">": "&gt;", "@": "@\u200b"}
"""Characters of Markdown inside of a line, and what stands for them."""
_LINK = re.compile(r"(?<=[a-z]:)(?=//)|(?<=www)(?=\.)", re.IGNORECASE)
"""Places inside of addresses that GitHub's Markdown turns into links without any markup."""


def in_markdown(text: str, markup: str = "") -> str:
    """The text escaped for Markdown: it makes no cell, no emphasis, no link and no HTML, and notifies no user.
    Characters of `markup` stay markup."""
    line = _LINK.sub("\u200b", escape_invisible(" ".join(text.splitlines())))
    return "".join(character if character in markup else _MARKUP.get(character, character) for character in line)


def escape_invisible(text: str) -> str:
    """The text on one line, with invisible characters as their numbers."""
    if is_shown(text):
        return text
    return "".join(
        character if is_shown(character) else character.encode("unicode_escape").decode() for character in text
    )


_COMMANDS = re.compile(r"::(?=[A-Za-z-]+(?:\s[^\n]*?)?::)|##(?=\[|vso\[|teamcity\[)")
"""Commands in a log: GitHub's `::name ...::` at the begin of a line and `##[name]` anywhere (actions/runner,
ActionCommand.cs), Azure's `##vso[`, TeamCity's `##teamcity[`. GitLab's begin with an escape character."""


def escape_output(text: str) -> str:
    """The output of a command as a terminal and a log may have it: its lines stay, commands and invisible characters
    are shown as numbers."""
    lines = ["\t".join(map(escape_invisible, line.split("\t"))) for line in text.split("\n")]
    return _COMMANDS.sub(lambda match: f"{match[0][0]}\\x{ord(match[0][1]):02x}", "\n".join(lines))


def printed_json(text: str) -> str:
    """The same of JSON, in which only strings hold two number signs, and line feeds of strings are escaped."""
    return text.replace("##", "#\\u0023")
