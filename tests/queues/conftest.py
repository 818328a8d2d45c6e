"""One lab, and on it one module's environment after the other: its `FILES`, or the folder of `stacks/` that it names.

A lab for each would cost a quarter of a minute each.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from scene import ROOT, Scene, on_stage

from tenancy.lab import control_plane
from tests.conftest import OfFolder

FOLDER = Path(__file__).parent


@pytest.fixture(scope="module")
def home(of_folder: OfFolder, tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make() -> Path:
        folder = tmp_path_factory.mktemp("scenes")
        (folder / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
        of_folder.at_end(FOLDER, lambda: end(folder))
        return folder

    return of_folder.once(FOLDER, make)


def end(folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GPU_TENANCY_LAB", raising=False)
        control_plane.down(root=folder)


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, home: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    stack = getattr(request.module, "STACK", None)
    folder = tmp_path_factory.mktemp("files") / (stack or "town")
    if stack:
        shutil.copytree(ROOT / "stacks" / stack, folder)
    else:
        (folder / "tenants").mkdir(parents=True)
        for name, text in request.module.FILES.items():
            (folder / name).write_text(text, "utf-8")
    crds = request.module.CRDS() if hasattr(request.module, "CRDS") else ()
    with on_stage(home, folder, crds, **getattr(request.module, "SETTINGS", {})) as staged:
        yield staged
