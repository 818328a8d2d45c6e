from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.planning import Plan, make_plan
from tenancy.planning.render import HEADER, ForeignFiles, file_texts, files, reference_files, write
from tests.conftest import documents


def _tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_a_whole_tenant_is_as_it_was_read(plan: Plan, golden: Any) -> None:
    golden.check(
        "fraud.yaml", "".join(text for path, text in file_texts(plan).items() if path.startswith("tenants/fraud/"))
    )


def test_every_object_is_in_exactly_one_file(plan: Plan) -> None:
    def key(item: dict[str, Any]) -> tuple[str, str, str]:
        return item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]

    rendered = sorted(key(item) for _, objects in files(plan) for item in objects)
    assert rendered == sorted(key(item) for item in plan.objects())


def test_what_is_written_reads_as_what_was_planned(plan: Plan, tmp_path: Path) -> None:
    write(plan, tmp_path / "out")
    read = [item for path in sorted((tmp_path / "out").rglob("*.yaml")) for item in documents(path.read_text("utf-8"))]
    planned = [*plan.objects(), *(item for _, items in reference_files(plan) for item in items)]
    assert sorted(map(str, (sorted(o.items(), key=str) for o in read))) == sorted(
        map(str, (sorted(o.items(), key=str) for o in documents(yaml.safe_dump_all(planned))))
    )


def test_kueues_values_are_there_for_who_installs_it(plan: Plan) -> None:
    (chart,) = yaml.safe_load_all(file_texts(plan)["charts/00-kueue.yaml"])
    configuration = yaml.safe_load(chart["values"]["managerConfig"]["controllerManagerConfigYaml"])
    assert (chart["name"], configuration["kind"]) == ("kueue", "Configuration")


@pytest.mark.parametrize("seed", ["0", "1", "4711"])
def test_the_bytes_do_not_depend_on_the_hash_seed(spec: Any, plan: Plan, tmp_path: Path, seed: str) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "tenancy", "render", str(spec.path), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    write(plan, tmp_path / "here")
    assert _tree(out) == _tree(tmp_path / "here")


def test_a_second_run_changes_nothing(plan: Plan, tmp_path: Path) -> None:
    write(plan, tmp_path)
    before = _tree(tmp_path)
    write(plan, tmp_path)
    assert _tree(tmp_path) == before


def test_files_of_a_tenant_that_left_are_removed(plan: Plan, spec: Any, tmp_path: Path) -> None:
    write(plan, tmp_path / "out")
    (spec.path / "tenants/fraud.yaml").unlink()
    loaded = spec.load()
    write(make_plan(loaded, loaded.day), tmp_path / "out")
    assert not (tmp_path / "out/tenants/fraud").exists()
    assert (tmp_path / "out/tenants/research").is_dir()


def test_a_folder_with_a_foreign_file_is_refused_untouched(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    with pytest.raises(ForeignFiles, match=r"notes\.txt"):
        write(plan, tmp_path)
    assert _tree(tmp_path) == {"notes.txt": b"mine"}


def test_a_folder_with_rendered_files_alone_is_taken(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "old.yaml").write_text(HEADER + "---\n", "utf-8")
    write(plan, tmp_path)
    assert not (tmp_path / "old.yaml").exists()


def test_a_hidden_foreign_folder_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "config").write_text("[core]", "utf-8")
    with pytest.raises(ForeignFiles):
        write(plan, tmp_path)


def test_a_link_counts_as_a_foreign_file(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "precious.yaml").write_text(HEADER, "utf-8")
    out = tmp_path / "out"
    out.mkdir()
    (out / "link.yaml").symlink_to(tmp_path / "precious.yaml")
    with pytest.raises(ForeignFiles):
        write(plan, out)


def test_an_empty_foreign_folder_stays(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    write(plan, tmp_path)
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize("remnant", ["", HEADER[:10], HEADER + "kind: x"])
def test_what_a_killed_run_left_is_cleared_away(plan: Plan, tmp_path: Path, remnant: str) -> None:
    (tmp_path / "platform").mkdir()
    (tmp_path / "platform" / "99-old.yaml.part").write_text(remnant, "utf-8")
    write(plan, tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_nothing_is_left_half_written(plan: Plan, tmp_path: Path) -> None:
    write(plan, tmp_path)
    assert not list(tmp_path.rglob("*.part"))


def test_the_files_are_numbered_in_the_order_in_which_they_are_safe_to_apply(plan: Plan) -> None:
    by_file = {path: {o["kind"] for o in objects} for path, objects in files(plan)}
    assert by_file["tenants/fraud/05-namespaces.yaml"] == {"Namespace"}
    assert by_file["tenants/fraud/20-access.yaml"] == {"RoleBinding", "ServiceAccount"}
    (queues,) = (kinds for path, kinds in by_file.items() if path.startswith("tenants/fraud/") and "queues" in path)
    assert queues == {"Cohort", "ClusterQueue"}
    assert list(by_file) == sorted(by_file)
