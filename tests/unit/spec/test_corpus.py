"""Files on which a reader once failed are read or refused with the reader's own error; `make fuzz` finds new ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tenancy.spec.loader import Loaded
from tests.foreign import CORPUS, readers

CORPUS_FILES = sorted(path for path in CORPUS.rglob("*") if path.is_file())
READ = {"bill/tag-without-a-pair.parquet", "preview/diagnostics-are-a-number.json"}
"""Files that are damaged where the reader needs nothing."""


def _name(path: Path) -> str:
    return path.relative_to(CORPUS).as_posix()


@pytest.mark.parametrize("path", CORPUS_FILES, ids=_name)
def test_a_file_on_which_a_reader_once_failed_is_refused_by_it(path: Path, loaded: Loaded) -> None:
    read, refusals = readers(loaded)[path.parent.name]
    if _name(path) in READ:
        read(path)
    else:
        with pytest.raises(refusals):
            read(path)


def test_files_are_kept_of_each_reader_that_once_failed() -> None:
    assert {path.parent.name for path in CORPUS_FILES} == {"bill", "kubeconfig", "preview"}
    assert {_name(path) for path in CORPUS_FILES} >= READ
    assert sum(path.stat().st_size for path in CORPUS_FILES) < 50_000, "small files, as they stay in the repository"
