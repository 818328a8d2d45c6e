from __future__ import annotations

from collections.abc import Iterator

import pytest
from engine_project import Project, end, make_project


@pytest.fixture(scope="session")
def _copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        project = make_project(tmp_path_factory.mktemp("engine") / "project")
        try:
            yield project
        finally:
            end(project)


@pytest.fixture(scope="module")
def project(_copy: Project) -> Iterator[Project]:
    """The project on an empty cluster; the tests of a module build on one another, in their order."""
    _copy.fresh()
    yield _copy
    end(_copy)
