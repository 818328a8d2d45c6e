"""Opening of a file that a user names, or that a pull request brings: regular files of a bounded size alone.

A link to /dev/zero never ends, a named pipe without a writer never answers, and the kernel's own files grow while they
are read. Each is refused before it is opened, so that a command ends in bounded time and memory.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Collection
from pathlib import Path

MIB = 1 << 20
SETTINGS = 4 * MIB
"""Most bytes of what people write by hand: exceptions, attacks, keys, tokens."""
RESULTS = 64 * MIB
"""Most bytes of manifests, and of what tools write: previews, reports, statements."""
TRACES = 512 * MIB
"""Most bytes of a trace of jobs, of a table or of a log."""

_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)
_OF_KERNEL = ("/proc/", "/sys/")
"""Folders whose files are regular by their mode, without a size, and made while they are read."""


class UnusableInput(OSError):
    """A path that leads to no regular file, to one that is too large, or out of its folder; `strerror` says why."""

    def __init__(self, path: str | os.PathLike[str], reason: str) -> None:
        super().__init__(errno.EINVAL, reason, os.fspath(path))

    def __str__(self) -> str:
        return str(self.strerror)


class LinkedFile(UnusableInput):
    """A symbolic link, or one that leads out of its folder."""


class IrregularFile(UnusableInput):
    """A folder, a pipe, a socket, a device or a file of the kernel."""


class LargeFile(UnusableInput):
    """A file with more bytes than its reader takes."""


def read_file(
    path: str | os.PathLike[str], max_bytes: int = RESULTS, *, inside: Collection[Path] = (), links: bool = True
) -> bytes:
    """The bytes of a regular file. Raises OSError: UnusableInput if it is another kind of file, is larger than
    `max_bytes`, is a link although `links` is false, or leads out of the folders `inside`, if there are any."""
    if not links and os.path.islink(path):  # noqa: PTH114 - this takes less time than a Path
        raise LinkedFile(path, "a link")
    real = regular_file(path, max_bytes, inside)
    # The file that was judged: a link that is put in its place meanwhile is not followed, a pipe does not block.
    handle = os.open(real, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(handle)
        if not stat.S_ISREG(status.st_mode):
            raise IrregularFile(path, "no regular file")
        # A buffer for the most that is read would take longer than the file. The rest of one that grows follows.
        content = file.read(status.st_size + 1)
        if len(content) > status.st_size:
            content += file.read(max(0, max_bytes + 1 - len(content)))
    if len(content) > max_bytes:
        raise _too_large(path, max_bytes)
    return content


def read_text_file(path: str | os.PathLike[str], max_bytes: int = RESULTS) -> str:
    """The text of a regular file in UTF-8. Raises OSError as `read_file` does, and UnicodeDecodeError."""
    return read_file(path, max_bytes).decode("utf-8")


def regular_file(path: str | os.PathLike[str], max_bytes: int | None = None, inside: Collection[Path] = ()) -> Path:
    """The real path of a regular file, for programs that open it themselves. Raises OSError as `read_file` does."""
    real = Path(os.path.realpath(path))
    if inside and not any(real.is_relative_to(os.path.realpath(folder)) for folder in inside):
        raise LinkedFile(path, "a link that leads out of its folder")
    status = real.stat()
    if not stat.S_ISREG(status.st_mode):
        kind = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "no regular file")
        raise IrregularFile(path, f"{kind}, no regular file")
    if str(real).startswith(_OF_KERNEL):
        raise IrregularFile(path, "a file of the kernel, no regular file")
    if max_bytes is not None and status.st_size > max_bytes:
        raise _too_large(path, max_bytes)
    return real


def read_input(max_bytes: int = RESULTS) -> bytes:
    """The bytes of the standard input. Raises UnusableInput if there are more than `max_bytes`."""
    content = sys.stdin.buffer.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise _too_large("-", max_bytes)
    return content


def _too_large(path: str | os.PathLike[str], max_bytes: int) -> LargeFile:
    return LargeFile(path, f"more than {max_bytes // MIB} MiB")
