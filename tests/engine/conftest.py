from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_project import Project, copied, end


@pytest.fixture(scope="session")
def _copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with copied(tmp_path_factory.mktemp("engine") / "project") as project:
        yield project


@pytest.fixture(scope="module")
def project(_copy: Project) -> Iterator[Project]:
    """The project on an empty cluster; the tests of a module build on one another, in their order."""
    _copy.fresh()
    yield _copy
    end(_copy)
