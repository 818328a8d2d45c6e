"""A volume of a pod, as kubelet lays it out and replaces its content (`pkg/volume/util/atomic_writer.go`)."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Mapping
from pathlib import Path

from tenancy.catalog import vocabulary
from tenancy.kube.objects import Object
from tenancy.planning import make_plan
from tenancy.spec.loader import Loaded


class Volume:
    """The content is in a folder of its own. The link `..data` leads to it, and one link for each first part of a path
    leads to what is below `..data`."""

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.path = path
        self._folders = (f"..2026_11_27_16_00_00.{number}" for number in itertools.count(1))

    def write(self, files: Mapping[str, str]) -> None:
        """Replace the content, in the order of kubelet."""
        data = self.path / "..data"
        before = self.path / data.readlink() if data.is_symlink() else None
        new = self.path / next(self._folders)
        for name, text in files.items():
            place = new / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text, "utf-8")
        exchanged = self.path / "..data_tmp"
        exchanged.symlink_to(new.name)
        exchanged.rename(data)
        names = {Path(name).parts[0] for name in files}
        for name in names:
            if not (link := self.path / name).is_symlink():
                link.symlink_to(f"..data/{name}")
        for path in self.path.iterdir():
            if path.is_symlink() and not path.name.startswith("..") and path.name not in names:
                path.unlink()
        if before:
            shutil.rmtree(before)

    def read(self) -> dict[str, str]:
        """The content by path."""
        home = self.path / (self.path / "..data").readlink()
        return {str(path.relative_to(home)): path.read_text("utf-8") for path in home.rglob("*") if path.is_file()}


def clock_objects(loaded: Loaded) -> dict[tuple[str, str], Object]:
    """Objects of the clock's Deployment, by kind and name."""
    plan = make_plan(loaded, loaded.day)
    return {(o["kind"], o["metadata"]["name"]): o for o in plan.objects() if vocabulary.CLOCK in o["metadata"]["name"]}


def clock_container(objects: Mapping[tuple[str, str], Object]) -> Object:
    """The container of the clock's Deployment."""
    return objects["Deployment", vocabulary.CLOCK]["spec"]["template"]["spec"]["containers"][0]


def clock_volume(objects: Mapping[tuple[str, str], Object], folder: Path) -> Volume:
    """The spec files as a pod of the clock's Deployment has them, below `folder`."""
    volume = Volume(folder / Path(clock_container(objects)["volumeMounts"][0]["mountPath"]).name)
    files: dict[str, str] = {}
    pod = objects["Deployment", vocabulary.CLOCK]["spec"]["template"]["spec"]
    for source in pod["volumes"][0]["projected"]["sources"]:
        data = objects["ConfigMap", source["configMap"]["name"]]["data"]
        files |= {item["path"]: data[item["key"]] for item in source["configMap"]["items"]}
    volume.write(files)
    return volume
