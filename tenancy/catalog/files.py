"""Files of bounded size: nothing here follows a link unasked, waits on a pipe or fills the memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path


class UnfitFile(Exception):
    """A file that is not read. `reason` completes "given …"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LinkedFile(UnfitFile):
    """A symbolic link."""


class IrregularFile(UnfitFile):
    """A folder, a pipe, a socket or a device."""


class LargeFile(UnfitFile):
    """A file with more bytes than its reader takes."""


def read_regular(path: Path, most: int, *, links: bool = False) -> bytes:
    """The bytes of a regular file, at most `most` of them; with `links` the file may be a symbolic link to one.

    Raises UnfitFile for any other file, and OSError as the system does.
    """
    if not links and path.is_symlink():
        raise LinkedFile("a link")
    # Without O_NONBLOCK the opening of a pipe waits for a writer.
    extra = os.O_NONBLOCK | (0 if links else os.O_NOFOLLOW)
    try:
        with open(path, "rb", opener=lambda name, flags: os.open(name, flags | extra)) as stream:
            status = os.fstat(stream.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise IrregularFile("no regular file")
            # A file of /proc has no size, and another may grow.
            content = stream.read(most + 1)
    except IsADirectoryError:
        raise IrregularFile("no regular file") from None
    if len(content) > most:
        raise LargeFile(f"{max(status.st_size, len(content))} bytes")
    return content
