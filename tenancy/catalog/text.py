"""What a text shows of itself: characters that nobody sees, or takes for a space."""

from __future__ import annotations

import re
import unicodedata

_IGNORABLE = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff0-\ufff8\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
"""Default_Ignorable_Code_Point, which fonts draw as nothing: Unicode 17.0, DerivedCoreProperties.txt (2026-11-22)."""
_BLANKS = "\xa0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000"
"""Category Zs but for U+0020, and the Braille pattern without a dot: UnicodeData.txt of the same version."""
_UNSEEN = re.compile(f"[{_IGNORABLE}{_BLANKS}]")


def unseen(text: str) -> int | None:
    """Where the first character stands that nobody sees or takes for a space; controls are left to who knows which are
    meant."""
    if text.isascii():
        return None
    found = _UNSEEN.search(text)
    places = [found.start()] if found else []
    places += [text.index(character) for character in set(text) if unicodedata.category(character) == "Cf"]
    return min(places, default=None)


def is_shown(text: str) -> bool:
    """Whether all of a line can be seen."""
    return text.isprintable() and unseen(text) is None


def shown(text: str) -> str:
    """The text on one line, with what nobody sees as its number."""
    if is_shown(text):
        return text
    return "".join(one if is_shown(one) else one.encode("unicode_escape").decode() for one in text)
