"""The spec at a git revision, read without changing the working tree."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from tenancy.diff.changes import SpecState
from tenancy.rules.catalogue import Violation
from tenancy.spec.loader import ENVIRONMENT_FILE, load
from tenancy.spec.reading.problems import SpecError

WORKTREE = "worktree"


def spec_in_folder(folder: Path, name: str) -> SpecState:
    """An environment as it is on disk; an empty side if the folder does not exist."""
    if not (folder / ENVIRONMENT_FILE).exists():
        return SpecState(name)
    try:
        return SpecState(name, load(folder.as_posix() if folder.is_absolute() else f"./{folder.as_posix()}"))
    except SpecError as error:
        home = os.path.relpath(folder)
        located_problems = [replace(p, file=f"{name}:{os.path.relpath(p.file, home)}") for p in error.problems]
        return SpecState(name, None, tuple(located_problems))


def spec_at_revision(folder: Path, revision: str) -> SpecState:
    """An environment at a git revision; an empty side if it does not exist there. Raises Violation if the revision is
    unknown."""
    top = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    inside = Path(os.path.relpath(folder.absolute(), top))
    if inside.parts[:1] == ("..",):
        raise Violation("ref-01", f"{folder}, outside of {top}", "name a folder of this repository")
    commit = _commit(top, revision)
    listing = _git(top, "ls-tree", "-r", "-z", commit, "--", f"{inside.as_posix()}/").decode("utf-8", "surrogateescape")
    entries = [line.split("\t", 1) for line in listing.split("\0") if line]
    if not entries:
        return SpecState(revision)
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch) / folder.absolute().name
        for meta, path in entries:
            mode, kind, blob = meta.split()
            if kind != "blob" or mode == "120000":
                continue  # the target of a link or submodule is not in this revision
            target = home / Path(path).relative_to(inside)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(_git(top, "cat-file", "blob", blob))
        return spec_in_folder(home, revision)


def merge_base(first_revision: str, second_revision: str) -> str:
    """The merge base of two revisions, which a pull request is compared with."""
    folder = Path.cwd()
    return (
        _git(folder, "merge-base", _commit(folder, first_revision), _commit(folder, second_revision)).decode().strip()
    )


def _commit(folder: Path, revision: str) -> str:
    return _git(folder, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()


def _git(folder: Path, *words: str) -> bytes:
    try:
        completed = subprocess.run(["git", *words], cwd=folder, capture_output=True, check=False)
    except FileNotFoundError:
        raise Violation("ref-01", "no git on this machine", "install git, or compare two folders") from None
    if completed.returncode:
        error_lines = completed.stderr.decode("utf-8", "replace").strip().splitlines()
        command_line = (
            f"git {words[0]} {words[-1].removesuffix('^{commit}')}: {error_lines[-1] if error_lines else 'no answer'}"
        )
        raise Violation(
            "ref-01", command_line, "name a revision that `git log` shows; in a shallow clone, fetch it first"
        )
    return completed.stdout
