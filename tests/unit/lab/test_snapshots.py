"""Which snapshots of etcd a lab takes, and which it does not."""

from __future__ import annotations

import json
import os
from contextlib import ExitStack
from pathlib import Path

import pytest

from tenancy.lab import snapshots
from tenancy.lab.layout import Lab


@pytest.fixture
def snapshot_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(snapshots, "folder", lambda: tmp_path / "kept")
    return tmp_path / "kept"


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    (tmp_path / "lab").mkdir()
    return Lab(tmp_path, tmp_path / "lab")


def write_snapshot(snapshot_folder: Path, name: str, data: bytes = b"data") -> Path:
    file = snapshot_folder / name / "member" / "snap" / "db"
    file.parent.mkdir(parents=True)
    file.write_bytes(data)
    (snapshot_folder / name / snapshots.CONTENT).write_text(json.dumps({"member/snap/db": snapshots.digest(data)}))
    return file


def test_a_snapshot_becomes_etcds_data_readable_by_its_owner_alone(snapshot_folder: Path, lab: Lab) -> None:
    write_snapshot(snapshot_folder, "one")
    assert snapshots.restore(lab, "one")
    data = lab.folder / "etcd" / "member" / "snap" / "db"
    assert data.read_bytes() == b"data"
    assert [path.stat().st_mode & 0o077 for path in (lab.folder / "etcd", *(lab.folder / "etcd").rglob("*"))] == [0] * 4
    assert [path.name for path in lab.folder.iterdir()] == ["etcd"], "nothing else is left"


@pytest.mark.parametrize("damage", ["changed", "gone", "no list"])
def test_a_damaged_snapshot_is_not_taken_and_not_kept(snapshot_folder: Path, lab: Lab, damage: str) -> None:
    file = write_snapshot(snapshot_folder, "one")
    if damage == "changed":
        file.write_bytes(b"other")
    elif damage == "gone":
        file.unlink()
    else:
        (snapshot_folder / "one" / snapshots.CONTENT).write_text("[]")
    assert not snapshots.restore(lab, "one")
    assert not (lab.folder / "etcd").exists()
    assert not (snapshot_folder / "one").exists()


def test_a_lab_without_a_snapshot_starts_from_nothing(snapshot_folder: Path, lab: Lab) -> None:
    write_snapshot(snapshot_folder, "one")
    assert not snapshots.restore(lab, "two")
    assert (snapshot_folder / "one").exists()


def test_other_programs_and_other_kinds_have_other_snapshots() -> None:
    etcd, server, kind = Path("/etcd/3.6"), Path("/kube-apiserver/1.36"), {"metadata": {"name": "queues"}}
    first_name = snapshots.name([etcd, server], [kind])
    assert first_name == snapshots.name([etcd, server], [kind])
    others = (snapshots.name([etcd, Path("/kube-apiserver/1.37")], [kind]), snapshots.name([etcd, server], []))
    assert len({first_name, *others}) == 3


@pytest.mark.usefixtures("snapshot_folder")
def test_two_labs_that_start_at_once_get_two_ports() -> None:
    with ExitStack() as first_stack, ExitStack() as second_stack:
        first, second = next(snapshots.webhook_ports(first_stack)), next(snapshots.webhook_ports(second_stack))
        assert first != second
        first_stack.close()
        with ExitStack() as third:
            assert next(snapshots.webhook_ports(third)) == first, "a lab that has started claims none"


def test_the_longest_unused_snapshots_go(snapshot_folder: Path) -> None:
    names = [f"{number:02}" for number in range(snapshots.MAX_SNAPSHOTS + 2)]
    for age, name in enumerate(reversed(names)):
        write_snapshot(snapshot_folder, name)
        os.utime(snapshot_folder / name, (1000 - age, 1000 - age))
    snapshots.prune()
    assert sorted(path.name for path in snapshot_folder.iterdir()) == names[2:]
