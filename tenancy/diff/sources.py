"""The spec at a git revision, read without changing the working tree."""

from __future__ import annotations

import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

from tenancy.diff.changes import SpecState
from tenancy.rules.catalogue import Violation
from tenancy.schema.problems import SpecError
from tenancy.validation.loader import ENVIRONMENT_FILE, load

WORKTREE = "worktree"


def of_folder(folder: Path, name: str) -> SpecState:
    """An environment as it is on disk; an empty side if the folder does not exist."""
    if not (folder / ENVIRONMENT_FILE).exists():
        return SpecState(name)
    try:
        return SpecState(name, load(folder.as_posix() if folder.is_absolute() else f"./{folder.as_posix()}"))
    except SpecError as error:
        home = os.path.relpath(folder)
        shown = [replace(p, file=f"{name}:{os.path.relpath(p.file, home)}") for p in error.problems]
        return SpecState(name, None, tuple(shown))


def of_revision(folder: Path, revision: str) -> SpecState:
    """An environment at a git revision; an empty side if it does not exist there. Raises Violation if the revision is
    unknown."""
    top = Path(_git(Path.cwd(), "rev-parse", "--show-toplevel").decode().rstrip("\n"))
    inside = Path(os.path.relpath(folder.absolute(), top))
    if inside.parts[:1] == ("..",):
        raise Violation("ref-01", f"{folder}, outside of {top}", "name a folder of this repository")
    commit = _commit(top, revision)
    listed = _git(top, "ls-tree", "-r", "-z", commit, "--", f"{inside.as_posix()}/").decode("utf-8", "surrogateescape")
    entries = [line.split("\t", 1) for line in listed.split("\0") if line]
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
        return of_folder(home, revision)


def merge_base(one: str, other: str) -> str:
    """The merge base of two revisions, which a pull request is compared with."""
    here = Path.cwd()
    return _git(here, "merge-base", _commit(here, one), _commit(here, other)).decode().strip()


def _commit(where: Path, revision: str) -> str:
    return _git(where, "rev-parse", "--verify", "--end-of-options", f"{revision}^{{commit}}").decode().strip()


def _git(where: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(["git", *words], cwd=where, capture_output=True, check=False)
    except FileNotFoundError:
        raise Violation("ref-01", "no git on this machine", "install git, or compare two folders") from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        given = f"git {words[0]} {words[-1].removesuffix('^{commit}')}: {said[-1] if said else 'no answer'}"
        raise Violation("ref-01", given, "name a revision that `git log` shows; in a shallow clone, fetch it first")
    return done.stdout
