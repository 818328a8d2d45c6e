"""Datasets and models: versions that are whole or not there, whatever other writers do in between."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest

from gpu_tenancy_s3 import (
    BadName,
    Corrupt,
    Datasets,
    Exists,
    Models,
    NotFound,
    Prefix,
    Refused,
    S3Error,
    UnsafeKey,
    WriteConflict,
)

BUCKET = "bank-datasets"
ROOT = "teams/fraud/datasets/tx/"


@pytest.fixture(scope="module")
def s3() -> Iterator[Any]:
    with moto.mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket=BUCKET)
        yield client


@pytest.fixture
def fraud(s3: Any) -> Iterator[Prefix]:
    yield Prefix(BUCKET, "teams/fraud/", s3, workers=2)
    for entry in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ()):
        s3.delete_object(Bucket=BUCKET, Key=entry["Key"])


@pytest.fixture
def data(fraud: Prefix) -> Datasets:
    return Datasets(fraud)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "features"
    (folder / "part").mkdir(parents=True)
    (folder / "a.csv").write_bytes(b"amount\n1\n")
    (folder / "part" / "b.csv").write_bytes(b"amount\n2\n")
    return folder


def _keys(s3: Any) -> set[str]:
    return {entry["Key"] for entry in s3.list_objects_v2(Bucket=BUCKET).get("Contents", ())}


class Meanwhile:
    """Another writer acts once, just before a request on a key is sent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __call__(self, method: str, ending: str, act: Callable[[], Any]) -> None:
        real, pending_acts = Prefix._ask, [act]

        def ask(prefix: Prefix, requested_method: str, full: str | None, **more: Any) -> Any:
            if requested_method == method and (full or more["Prefix"]).endswith(ending) and pending_acts:
                pending_acts.pop()()
            return real(prefix, requested_method, full, **more)

        self._monkeypatch.setattr(Prefix, "_ask", ask)


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Meanwhile:
    return Meanwhile(monkeypatch)


def test_a_folder_comes_back_as_it_was(data: Datasets, folder: Path, tmp_path: Path) -> None:
    manifest = data.upload("tx", folder)
    assert (manifest.version, manifest.size) == ("v1", 18)
    assert [file.path for file in manifest.files] == ["a.csv", "part/b.csv"]
    assert data.download("tx", to=tmp_path / "deep" / "out") == manifest
    assert (tmp_path / "deep/out/part/b.csv").read_bytes() == b"amount\n2\n"
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["out"], "nothing temporary is left"


def test_the_layout_is_the_documented_one(data: Datasets, folder: Path, s3: Any) -> None:
    data.upload("tx", folder)
    data.promote("tx", "v1")
    endings = ["v1/a.csv", "v1/part/b.csv", ".claims/v1", ".manifests/v1", ".aliases/production"]
    assert _keys(s3) == {ROOT + ending for ending in endings}


def test_one_file_is_a_version_too_and_models_are_beside_datasets(fraud: Prefix, folder: Path, tmp_path: Path) -> None:
    models = Models(fraud)
    models.upload("scorer", folder / "a.csv")
    models.download("scorer", to=tmp_path / "out")
    assert (tmp_path / "out" / "a.csv").is_file()
    assert models.names() == ["scorer"]
    assert Datasets(fraud).names() == []


def test_a_prefix_may_be_called_as_the_folder_of_the_kind(s3: Any, fraud: Prefix, folder: Path) -> None:  # noqa: ARG001
    data = Datasets(Prefix(BUCKET, "datasets/fraud/", s3))
    data.upload("datasets", folder)
    assert data.latest("datasets") == "v1"


def test_versions_are_numbered_and_ordered_as_numbers(data: Datasets, folder: Path) -> None:
    for version in ("v9", None, "v2"):
        data.upload("tx", folder, version)
    assert data.versions("tx") == ["v2", "v9", "v10"]
    assert data.latest("tx") == "v10"


def test_versions_may_be_dates_but_not_both(data: Datasets, folder: Path) -> None:
    for version in ("2026-01-31-10", "2026-01-31-2", "2026-01-31"):
        data.upload("tx", folder, version)
    assert data.versions("tx") == ["2026-01-31", "2026-01-31-2", "2026-01-31-10"]
    for version in ("v1", None):
        with pytest.raises(BadName, match="all numbers or all dates"):
            data.upload("tx", folder, version)
    data.upload("other", folder)
    with pytest.raises(BadName, match="all numbers or all dates"):
        data.upload("other", folder, "2026-01-31")


def test_a_version_is_written_once(data: Datasets, folder: Path) -> None:
    data.upload("tx", folder, "v3")
    (folder / "a.csv").write_bytes(b"other")
    with pytest.raises(Exists, match="none is written twice"):
        data.upload("tx", folder, "v3")
    assert data.manifest("tx", "v3").size == 18


def test_two_uploads_at_once_get_two_versions(data: Datasets, folder: Path, meanwhile: Meanwhile) -> None:
    meanwhile("put_object", ".claims/v1", lambda: data.upload("tx", folder))
    assert data.upload("tx", folder).version == "v2"
    assert data.versions("tx") == ["v1", "v2"]


def _stop() -> None:
    raise ConnectionError("killed")


@pytest.mark.parametrize("at", ["v2/a.csv", "v2/part/b.csv", ".manifests/v2"])
def test_a_half_upload_is_no_version(
    data: Datasets, folder: Path, meanwhile: Meanwhile, s3: Any, at: str, tmp_path: Path
) -> None:
    data.upload("tx", folder)
    meanwhile("put_object", at, _stop)
    with pytest.raises(ConnectionError):
        data.upload("tx", folder)
    assert data.latest("tx") == "v1"
    for act in (lambda: data.promote("tx", "v2"), lambda: data.download("tx", "v2", to=tmp_path / "x")):
        with pytest.raises(NotFound):
            act()
    data.delete_version("tx", "v2")
    assert not [key for key in _keys(s3) if key.startswith(ROOT + "v2/")]
    assert data.upload("tx", folder).version == "v3", "a number is not given again"


def test_the_manifest_is_written_last(data: Datasets, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, written_keys = Prefix._ask, []

    def ask(prefix: Prefix, method: str, full: str | None, **more: Any) -> Any:
        if method == "put_object":
            written_keys.append(full)
        return real(prefix, method, full, **more)

    monkeypatch.setattr(Prefix, "_ask", ask)
    data.upload("tx", folder)
    assert (written_keys[0], written_keys[-1]) == (f"{ROOT}.claims/v1", f"{ROOT}.manifests/v1")
    assert len(written_keys) == 4


@pytest.mark.parametrize("change", ["content", "gone"])
def test_a_download_that_is_not_what_was_uploaded_leaves_nothing(
    data: Datasets, folder: Path, s3: Any, tmp_path: Path, change: str
) -> None:
    data.upload("tx", folder)
    if change == "content":
        s3.put_object(Bucket=BUCKET, Key=ROOT + "v1/part/b.csv", Body=b"amount\n3\n")
    else:
        s3.delete_object(Bucket=BUCKET, Key=ROOT + "v1/part/b.csv")
    with pytest.raises(Corrupt if change == "content" else NotFound, match="part/b"):
        data.download("tx", to=tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["features"]


DAMAGE: dict[str, Any] = {
    "leaves the folder": {"files": [{"path": "../x", "size": 1, "sha256": "0" * 64}]},
    "an absolute path": {"files": [{"path": "/etc/x", "size": 1, "sha256": "0" * 64}]},
    "no checksum": {"files": [{"path": "x", "size": 1, "sha256": ""}]},
    "no files": {"files": []},
    "another version's": {"version": "v7"},
    "another name's": {"name": "other"},
    "a later format": {"format": 2},
    "files are a text": {"files": "x"},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_changed_manifest_is_not_followed(
    data: Datasets, folder: Path, fraud: Prefix, tmp_path: Path, damage: str
) -> None:
    data.upload("tx", folder)
    key = "datasets/tx/.manifests/v1"
    fraud.put(key, json.dumps(json.loads(fraud.read(key)) | DAMAGE[damage]).encode())
    with pytest.raises(Corrupt, match="upload a new version"):
        data.download("tx", to=tmp_path / "out")
    fraud.put(key, b"{")
    with pytest.raises(Corrupt):
        data.manifest("tx")


def test_what_is_no_version_is_not_counted_as_one(data: Datasets, folder: Path, fraud: Prefix) -> None:
    data.upload("tx", folder)
    fraud.put("datasets/tx/.manifests/v99.bak", b"")
    fraud.put("datasets/tx/.claims/notes", b"")
    assert data.versions("tx") == ["v1"]
    assert data.upload("tx", folder).version == "v2"


def test_a_download_goes_into_a_new_folder_only(data: Datasets, folder: Path, tmp_path: Path) -> None:
    data.upload("tx", folder)
    with pytest.raises(Exists, match="name a new folder"):
        data.download("tx", to=tmp_path)


def test_an_alias_means_a_version_until_it_is_promoted_again(data: Datasets, folder: Path, tmp_path: Path) -> None:
    for _ in range(3):
        data.upload("tx", folder)
    with pytest.raises(NotFound):
        data.promoted("tx")
    assert data.promote("tx", "v1") is None
    assert data.promote("tx", "v2", instead_of="v1") == "v1"
    assert data.promote("tx", "v3", to="canary") is None
    assert (data.promoted("tx"), data.promoted("tx", "canary")) == ("v2", "v3")
    assert data.download("tx", "production", to=tmp_path / "out").version == "v2"
    with pytest.raises(WriteConflict, match="production of tx is v2, not v1"):
        data.promote("tx", "v3", instead_of="v1")


@pytest.mark.parametrize("first", [False, True])
def test_of_two_promoters_at_once_the_later_is_told(
    data: Datasets, folder: Path, meanwhile: Meanwhile, first: bool
) -> None:
    for _ in range(3):
        data.upload("tx", folder)
    if not first:
        data.promote("tx", "v1")
    meanwhile("put_object", ".aliases/production", lambda: data.promote("tx", "v2"))
    with pytest.raises(WriteConflict):
        data.promote("tx", "v3")
    assert data.promoted("tx") == "v2"


def test_a_promoted_version_is_not_deleted(data: Datasets, folder: Path, s3: Any) -> None:
    data.upload("tx", folder)
    data.promote("tx", "v1", to="canary")
    before = _keys(s3)
    with pytest.raises(Refused, match="promote another version to canary first"):
        data.delete_version("tx", "v1")
    assert _keys(s3) == before


def test_a_deleted_version_is_gone_for_good(data: Datasets, folder: Path, s3: Any) -> None:
    data.upload("tx", folder)
    data.delete_version("tx", "v1")
    data.delete_version("tx", "v1")  # finishes what an interrupted one left
    assert data.versions("tx") == []
    assert _keys(s3) == {f"{ROOT}.claims/v1"}
    for act in (lambda: data.latest("tx"), lambda: data.promote("tx", "v1"), lambda: data.delete_version("tx", "v5")):
        with pytest.raises(NotFound):
            act()


def test_a_version_promoted_while_it_is_deleted_stays(
    data: Datasets, folder: Path, meanwhile: Meanwhile, tmp_path: Path
) -> None:
    data.upload("tx", folder)
    meanwhile("put_object", ".claims/v1", lambda: data.promote("tx", "v1"))
    with pytest.raises(Refused, match="production points to it"):
        data.delete_version("tx", "v1")
    assert data.download("tx", "production", to=tmp_path / "out").version == "v1"
    data.upload("tx", folder)
    data.promote("tx", "v2")
    assert data.promote("tx", "v1") == "v2", "the mark of the deletion was taken back"


@pytest.mark.parametrize("before", [None, "v1"])
def test_a_version_deleted_while_it_is_promoted_is_not_what_the_alias_means(
    data: Datasets, folder: Path, meanwhile: Meanwhile, before: str | None
) -> None:
    data.upload("tx", folder)
    data.upload("tx", folder)
    if before:
        data.promote("tx", before)
    meanwhile("put_object", ".aliases/production", lambda: data.delete_version("tx", "v2"))
    with pytest.raises(WriteConflict, match="deleted while it was promoted"):
        data.promote("tx", "v2")
    if before:
        assert data.promoted("tx") == before
    else:
        with pytest.raises(NotFound):
            data.promoted("tx")


@pytest.mark.parametrize("method", ["put_object", "head_object", "get_object", "delete_object", "list_objects_v2"])
@pytest.mark.parametrize("ending", [".claims/v1", ".manifests/v1", ".aliases/", "tx/v1/"])
def test_whenever_a_promotion_cuts_into_a_deletion_an_alias_means_whole_data_or_nothing(
    data: Datasets, folder: Path, meanwhile: Meanwhile, tmp_path: Path, method: str, ending: str
) -> None:
    data.upload("tx", folder)
    outcomes: list[type] = []

    def promote() -> None:
        try:
            data.promote("tx", "v1")
        except S3Error as error:
            outcomes.append(type(error))

    meanwhile(method, ending, promote)
    try:
        data.delete_version("tx", "v1")
    except Refused:
        assert outcomes == []
        assert data.download("tx", "production", to=tmp_path / "out").size == 18
    else:
        with pytest.raises(NotFound):
            data.promoted("tx")


def test_a_version_deleted_while_it_is_uploaded_does_not_appear(
    data: Datasets, folder: Path, meanwhile: Meanwhile
) -> None:
    meanwhile("put_object", ".manifests/v1", lambda: data.delete_version("tx", "v1"))
    with pytest.raises(WriteConflict, match="upload it again as a new one"):
        data.upload("tx", folder)
    assert data.versions("tx") == []


class Wall:
    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} was asked for")


@pytest.fixture
def walled() -> Datasets:
    return Datasets(Prefix(BUCKET, "teams/fraud/", Wall()))


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../x", "A", "-a", "a-", ".claims", "a b", "ä", "a" * 64, "a%2f"]
)
def test_a_name_that_is_no_slug_is_refused_before_any_request(walled: Datasets, folder: Path, name: str) -> None:
    for act in (
        lambda: walled.upload(name, folder),
        lambda: walled.versions(name),
        lambda: walled.download(name, to=folder / "x"),
        lambda: walled.promote(name, "v1"),
        lambda: walled.delete_version(name, "v1"),
    ):
        with pytest.raises(BadName):
            act()


@pytest.mark.parametrize(
    "version", ["", "1", "v0", "v01", "v", "V1", "v1/", "2026-02-30", "2026-1-1", "latest", "..", "v1٣"]
)
def test_a_version_that_is_none_is_refused_before_any_request(walled: Datasets, folder: Path, version: str) -> None:
    for act in (
        lambda: walled.upload("tx", folder, version),
        lambda: walled.promote("tx", version),
        lambda: walled.delete_version("tx", version),
    ):
        with pytest.raises(BadName):
            act()


@pytest.mark.parametrize("alias", ["", "latest", "v3", "2026-01-31", "a/b", "..", "Production"])
def test_an_alias_that_could_be_a_version_is_refused(walled: Datasets, alias: str) -> None:
    with pytest.raises(BadName):
        walled.promoted("tx", alias)


def test_what_cannot_be_uploaded_is_refused_before_a_version_is_claimed(walled: Datasets, folder: Path) -> None:
    (folder / "odd\\name").write_bytes(b"")
    with pytest.raises(UnsafeKey, match="backslash"):
        walled.upload("tx", folder)
    (folder / "odd\\name").unlink()
    (folder / "token").symlink_to("/etc/hostname")
    with pytest.raises(Refused, match="only plain files"):
        walled.upload("tx", folder)
    (folder / "token").unlink()
    (folder / "all").symlink_to("/etc")
    with pytest.raises(Refused, match="only plain files"):
        walled.upload("tx", folder)
    for nothing in (folder / "none", folder / "empty"):
        (folder / "empty").mkdir(exist_ok=True)
        with pytest.raises(Refused, match="1 to 100000 files"):
            walled.upload("tx", nothing)


def test_the_example_in_the_docs_runs(
    fraud: Prefix, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fraud.bucket == BUCKET
    text = (Path(__file__).parents[3] / "docs" / "s3.md").read_text("utf-8")
    (example,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    exec(compile(example, "docs/s3.md", "exec"), {})
    assert capsys.readouterr().out == "[('raw/2026-01-31.csv', 18)]\n"
    assert (tmp_path / "work/transactions/part/b.csv").read_bytes() == (folder / "part/b.csv").read_bytes()
