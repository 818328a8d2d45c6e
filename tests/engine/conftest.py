from __future__ import annotations

from collections.abc import Iterator

import engine_project
import pytest
from engine_project import Project, copied, end


@pytest.fixture(scope="session")
def _copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Project]:
    with copied(tmp_path_factory.mktemp("engine") / "project") as project:
        yield project


@pytest.fixture(scope="module")
def every_step() -> Iterator[None]:
    """The engine writes its state at every step, as everywhere outside of these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_project, "STATE_AT_END", {})
        yield


@pytest.fixture(scope="module")
def project(_copy: Project) -> Iterator[Project]:
    """The project on an empty cluster; the tests of a module build on one another, in their order."""
    _copy.fresh()
    yield _copy
    end(_copy)
