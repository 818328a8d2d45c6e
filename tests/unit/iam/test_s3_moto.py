"""The client library from end to end: moto keeps the objects, and before it the evaluator says who may.

moto itself allows every request. Each request is judged as it would go over the wire, by the policies that the
bank's plan has for role, boundary, bucket and key; a refused one is answered as S3 does, and moto never sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import boto3
import moto
import pytest
import requests
from botocore.awsrequest import AWSRequest
from botocore.exceptions import ClientError

from gpu_tenancy_s3 import Datasets, Denied, Exists, Models, NotFound, Prefix, Refused, UnsafeKey
from tenancy.iam.account import AccountIdentity, AccountModel, Answer
from tenancy.planning import make_plan
from tenancy.spec.loader import load
from tests.waiting import PATIENCE

BANK = Path(__file__).parents[3] / "stacks" / "bank"
DATA, MODELS, CHECKPOINTS = "bank-datasets", "bank-models", "bank-checkpoints"
MIB = 2**20
PASSED_ON = {
    "x-amz-server-side-encryption": "s3:x-amz-server-side-encryption",
    "if-none-match": "s3:if-none-match",
    "if-match": "s3:if-match",
}
"""Headers that are condition keys as well."""

S3Permission = tuple[str, str, dict[str, str]]
"""Action, resource, and what the request adds to the context."""


def permissions_needed(method: str, url: str, headers: dict[str, str]) -> list[S3Permission]:
    """The permissions that one request needs ("Required permissions for Amazon S3 API operations")."""
    parts = urlsplit(url)
    bucket, key = parts.netloc.partition(".s3.")[0], unquote(parts.path).removeprefix("/")
    query = {name: values[0] for name, values in parse_qs(parts.query, keep_blank_values=True).items()}
    bucket_arn, resource = f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/{key}"
    context = {PASSED_ON[name]: value for name, value in headers.items() if name in PASSED_ON}
    context |= {} if parts.scheme == "https" else {"aws:SecureTransport": "false"}
    if not key:
        assert method == "GET"
        condition_keys = {f"s3:{name}": query[name] for name in ("prefix", "delimiter", "max-keys") if name in query}
        if "uploads" in query:
            return [("s3:ListBucketMultipartUploads", bucket_arn, context | condition_keys)]
        return [
            ("s3:ListBucketVersions" if "versions" in query else "s3:ListBucket", bucket_arn, context | condition_keys)
        ]
    if method == "DELETE":
        action = "s3:DeleteObjectVersion" if "versionId" in query else "s3:DeleteObject"
        return [("s3:AbortMultipartUpload" if "uploadId" in query else action, resource, context)]
    if method in {"GET", "HEAD"}:
        action = "s3:GetObjectVersion" if "versionId" in query else "s3:GetObject"
        return [("s3:ListMultipartUploadParts" if "uploadId" in query else action, resource, context)]
    # "s3:ObjectCreationOperation": false of what only prepares an upload in parts.
    prepares = "uploads" in query or "partNumber" in query
    writes = ("s3:PutObject", resource, context | {"s3:ObjectCreationOperation": str(not prepares).lower()})
    source = headers.get("x-amz-copy-source")
    return [("s3:GetObject", f"arn:aws:s3:::{unquote(source).removeprefix('/')}", {}), writes] if source else [writes]


@dataclass
class Gate:
    """Access check in front of S3 for one identity."""

    account: AccountModel
    who: AccountIdentity
    answers: list[Answer] = field(default_factory=list)

    def judge(self, params: dict[str, Any], **_: Any) -> tuple[Any, dict[str, Any]] | None:
        """botocore's `before-call`: what it gives back is the answer, None lets the request go on."""
        url = AWSRequest(params["method"], params["url"], params=params["query_string"]).prepare().url
        if self.lets(params["method"], url, {name.lower(): value for name, value in params["headers"].items()}):
            return None
        error = {"Code": "AccessDenied", "Message": "Access Denied"}
        return SimpleNamespace(status_code=403), {"Error": error, "ResponseMetadata": {"HTTPStatusCode": 403}}

    def lets(self, method: str, url: str, headers: dict[str, str]) -> bool:
        for action, resource, more in permissions_needed(method, url, headers):
            self.answers.append(self.account.ask(self.who, action, resource, {**self.account.ambient, **more}))
            if not self.answers[-1].allowed:
                return False
        return True

    def reasons(self) -> str:
        return "; ".join(self.answers[-1].reasons())


@pytest.fixture(scope="module")
def account() -> AccountModel:
    loaded = load(BANK)
    return AccountModel(loaded.environment, loaded.tenants, make_plan(loaded, loaded.day))


@pytest.fixture(scope="module")
def s3(account: AccountModel) -> Iterator[Any]:
    """S3 without the evaluator: it makes what is there beforehand, and looks at what came of it."""
    with moto.mock_aws():
        client = boto3.client("s3", region_name="eu-central-1")
        for name in account.environment.buckets:
            client.create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": "eu-central-1"})
        for bucket, key in ((DATA, "teams/aml/x"), (DATA, "teams/nlp/x"), (DATA, "reference/x"), (MODELS, "fraud/x")):
            client.put_object(Bucket=bucket, Key=key, Body=b"hello")
        yield client


@dataclass
class Tenant:
    """Identity and prefixes of a pod of a namespace."""

    gate: Gate
    client: Any

    def prefix(self, bucket: str, prefix: str) -> Prefix:
        return Prefix(bucket, prefix, self.client, part_size=5 * MIB)


@pytest.fixture
def pod(account: AccountModel, s3: Any) -> Callable[[str, str], Tenant]:
    assert s3

    def tenant_client(tenant: str, part: str) -> Tenant:
        (who,) = [association for association in account.of_tenant(tenant) if association.namespace == part]
        gate, client = Gate(account, who), boto3.client("s3", region_name="eu-central-1")
        client.meta.events.register_first("before-call.s3", gate.judge)
        return Tenant(gate, client)

    return tenant_client


@pytest.fixture
def nlp(pod: Callable[[str, str], Tenant]) -> Tenant:
    return pod("nlp", "train")


# ── in its own prefix everything works ──────────────────────────────────────────────────────────────────────────────


def test_a_list_goes_to_its_last_page(nlp: Tenant, s3: Any) -> None:
    for number in range(1_001):
        s3.put_object(Bucket=DATA, Key=f"teams/nlp/many/{number:04}", Body=b"")
    keys = [entry.key for entry in nlp.prefix(DATA, "teams/nlp/").list("many/")]
    assert keys == [f"many/{number:04}" for number in range(1_001)]
    assert [step.request.action for answer in nlp.gate.answers for step, _ in answer.steps] == ["s3:ListBucket"] * 2


def test_objects_are_put_found_read_copied_and_deleted(nlp: Tenant, tmp_path: Path) -> None:
    work_prefix = nlp.prefix(DATA, "teams/nlp/work/")
    work_prefix.put("a", b"hello")
    assert work_prefix.stat("a").size == 5
    assert work_prefix.read("a") == b"hello"
    work_prefix.get("a", tmp_path / "a")
    work_prefix.copy("a", "b")
    work_prefix.copy("x", "c", origin=nlp.prefix(DATA, "teams/nlp/"))
    assert [entry.key for entry in work_prefix.list()] == ["a", "b", "c"]
    assert [entry.key for entry in nlp.prefix(DATA, "teams/nlp/").list(recursive=False) if entry.is_folder][
        -1
    ] == "work/"
    work_prefix.delete("a")
    with pytest.raises(NotFound):
        work_prefix.read("a")


def test_an_upload_in_parts_is_made_and_a_broken_one_taken_back(nlp: Tenant, s3: Any) -> None:
    checkpoint_prefix = nlp.prefix(CHECKPOINTS, "nlp/")
    assert checkpoint_prefix.put("big", bytes(11 * MIB)).etag.endswith('-3"')
    # One more of the same key is refused when it is completed, and leaves no parts behind.
    with pytest.raises(Exists):
        checkpoint_prefix.put("big", bytes(11 * MIB), if_absent=True)
    assert "Uploads" not in s3.list_multipart_uploads(Bucket=CHECKPOINTS)


def test_a_url_does_what_its_signer_may(nlp: Tenant) -> None:
    lent_prefix = nlp.prefix(DATA, "teams/nlp/lent/")
    for method, body in (("PUT", b"lent"), ("GET", None)):
        url = lent_prefix.presign("x", method)
        assert nlp.gate.lets(method, url, {})
        assert requests.request(method, url, data=body, timeout=PATIENCE).content == (b"" if body else b"lent")


@pytest.mark.parametrize("kind", [Datasets, Models])
def test_versions_are_uploaded_found_promoted_fetched_and_deleted(
    nlp: Tenant, tmp_path: Path, kind: type[Datasets | Models]
) -> None:
    store = kind(nlp.prefix(MODELS, "nlp/"))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "weights").write_bytes(b"1")
    for version in ("v1", "v2"):
        assert store.upload("ner", tmp_path / "in").version == version
    assert (store.names(), store.versions("ner"), store.latest("ner")) == (["ner"], ["v1", "v2"], "v2")
    assert store.promote("ner", "v1") is None
    assert store.promote("ner", "v2") == "v1"
    assert store.download("ner", "production", to=tmp_path / "out").version == "v2"
    assert (tmp_path / "out" / "weights").read_bytes() == b"1"
    store.delete_version("ner", "v1")
    assert store.versions("ner") == ["v2"]


def test_a_grant_to_write_once_uploads_versions_and_promotes_the_first_for_good(
    pod: Callable[[str, str], Tenant], tmp_path: Path
) -> None:
    (tmp_path / "weights").write_bytes(b"1")
    models = Models(pod("fraud", "train").prefix(MODELS, "fraud/"))
    assert models.upload("cards", tmp_path / "weights").version == "v1"
    models.promote("cards", "v1")
    assert models.upload("cards", tmp_path / "weights").version == "v2"
    with pytest.raises(Denied):
        models.promote("cards", "v2")


def test_what_is_written_once_is_written_with_if_absent_alone(pod: Callable[[str, str], Tenant], s3: Any) -> None:
    train = pod("fraud", "train")
    model_prefix = train.prefix(MODELS, "fraud/")
    for body in (b"new", bytes(6 * MIB)):
        with pytest.raises(Denied) as denied:
            model_prefix.put("once", body)
        assert "PutObject" in denied.value.action
        model_prefix.put("once", body, if_absent=True)
        with pytest.raises(Exists):
            model_prefix.put("once", body, if_absent=True)
        s3.delete_object(Bucket=MODELS, Key="fraud/once")


def test_a_namespace_that_only_serves_reads_what_its_tenants_training_writes(pod: Callable[[str, str], Tenant]) -> None:
    serve = pod("fraud", "serve").prefix(MODELS, "fraud/")
    assert serve.read("x") == b"hello"
    with pytest.raises(Denied):
        serve.put("y", b"hello", if_absent=True)


# ── and nothing in the neighbour's ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("key", ["../aml/x", "/teams/aml/x", "a/../../aml/x", "s3://bank-datasets/teams/aml/x", ""])
@pytest.mark.parametrize("method", ["read", "stat", "delete", "presign"])
def test_a_key_that_leads_out_is_refused_before_any_request(nlp: Tenant, key: str, method: str) -> None:
    nlp_prefix = nlp.prefix(DATA, "teams/nlp/")
    with pytest.raises(UnsafeKey):
        getattr(nlp_prefix, method)(key)
    assert nlp.gate.answers == []


@pytest.mark.parametrize("key", ["../aml/x", "/teams/aml/x"])
def test_a_write_or_copy_that_leads_out_is_refused_before_any_request(nlp: Tenant, key: str) -> None:
    nlp_prefix = nlp.prefix(DATA, "teams/nlp/")
    for act in (lambda: nlp_prefix.put(key, b""), lambda: nlp_prefix.copy("x", key), lambda: nlp_prefix.list(key)):
        with pytest.raises(Refused):
            act()
    assert nlp.gate.answers == []


ON_OBJECTS: dict[str, Callable[[Prefix, Path], Any]] = {
    "list": lambda place, _: list(place.list()),
    "stat": lambda place, _: place.stat("x"),
    "read": lambda place, _: place.read("x"),
    "get": lambda place, folder: place.get("x", folder / "x"),
    "put": lambda place, _: place.put("new", b"hello"),
    "put in parts": lambda place, _: place.put("new", bytes(6 * MIB)),
    "copy": lambda place, _: place.copy("x", "new"),
    "delete": lambda place, _: place.delete("new"),
    "upload": lambda place, folder: Datasets(place).upload("cards", _file(folder)),
    "names": lambda place, _: Datasets(place).names(),
}


def _file(folder: Path) -> Path:
    (folder / "file").write_bytes(b"hello")
    return folder / "file"


@pytest.mark.parametrize("what", ON_OBJECTS)
@pytest.mark.parametrize("is_own_prefix", [True, False], ids=["its own prefix", "a neighbour's"])
def test_with_a_neighbours_prefix_in_its_hand_the_client_gets_a_typed_refusal(
    nlp: Tenant, s3: Any, tmp_path: Path, what: str, is_own_prefix: bool
) -> None:
    place = nlp.prefix(DATA, "teams/nlp/" if is_own_prefix else "teams/aml/")
    if is_own_prefix:
        ON_OBJECTS[what](place, tmp_path)
        return
    before = _all(s3)
    with pytest.raises(Denied):
        ON_OBJECTS[what](place, tmp_path)
    assert not nlp.gate.answers[-1].allowed
    assert _all(s3) == before, "S3 never heard of it"


def _all(s3: Any) -> list[tuple[str, str]]:
    return [(entry["Key"], entry["ETag"]) for entry in s3.list_objects_v2(Bucket=DATA, Prefix="teams/aml/")["Contents"]]


def test_nothing_is_copied_out_of_a_neighbours_prefix(nlp: Tenant) -> None:
    work_prefix = nlp.prefix(DATA, "teams/nlp/work/")
    with pytest.raises(Denied) as denied:
        work_prefix.copy("x", "stolen", origin=nlp.prefix(DATA, "teams/aml/"))
    assert denied.value.where == "s3://bank-datasets/teams/aml/x"
    work_prefix.copy("x", "kept", origin=nlp.prefix(DATA, "teams/nlp/"))


RAW: dict[str, tuple[str, Callable[[Any, str], Any]]] = {
    "list": ("s3:ListBucket", lambda s3, at: s3.list_objects_v2(Bucket=DATA, Prefix=at)),
    "list in the old way": ("s3:ListBucket", lambda s3, at: s3.list_objects(Bucket=DATA, Prefix=at)),
    "list versions": ("s3:ListBucketVersions", lambda s3, at: s3.list_object_versions(Bucket=DATA, Prefix=at)),
    "get": ("s3:GetObject", lambda s3, at: s3.get_object(Bucket=DATA, Key=f"{at}x")),
    "head": ("s3:GetObject", lambda s3, at: s3.head_object(Bucket=DATA, Key=f"{at}x")),
    "put": ("s3:PutObject", lambda s3, at: s3.put_object(Bucket=DATA, Key=f"{at}raw", Body=b"")),
    "begin an upload": ("s3:PutObject", lambda s3, at: s3.create_multipart_upload(Bucket=DATA, Key=f"{at}raw")),
    "delete": ("s3:DeleteObject", lambda s3, at: s3.delete_object(Bucket=DATA, Key=f"{at}raw")),
    "copy out": (
        "s3:GetObject",
        lambda s3, at: s3.copy_object(Bucket=DATA, Key="teams/nlp/raw", CopySource=f"{DATA}/{at}x"),
    ),
    "copy in": (
        "s3:PutObject",
        lambda s3, at: s3.copy_object(Bucket=DATA, Key=f"{at}raw", CopySource=f"{DATA}/teams/nlp/x"),
    ),
}


@pytest.mark.parametrize("what", RAW)
def test_past_the_client_the_neighbours_keys_are_refused_by_policy(nlp: Tenant, s3: Any, what: str) -> None:
    action, act = RAW[what]
    act(nlp.client, "teams/nlp/")
    before = _all(s3)
    with pytest.raises(ClientError) as refused:
        act(nlp.client, "teams/aml/")
    assert refused.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    assert nlp.gate.answers[-1].steps[-1][0].request.action == action
    assert nlp.gate.reasons().startswith(f"{action} on bucket {DATA} denied by the policy of bucket {DATA}, ")
    assert _all(s3) == before, "S3 never heard of it"


WIDE = {
    "a list of the whole bucket": lambda s3: s3.list_objects_v2(Bucket=DATA),
    "a list up to its own name": lambda s3: s3.list_objects_v2(Bucket=DATA, Prefix="teams/nl"),
    "the uploads of all tenants": lambda s3: s3.list_multipart_uploads(Bucket=DATA),
    "a version for good": lambda s3: s3.delete_object(Bucket=DATA, Key="teams/nlp/x", VersionId="1"),
}


@pytest.mark.parametrize("what", WIDE)
def test_what_is_wider_than_a_prefix_is_refused(nlp: Tenant, what: str) -> None:
    with pytest.raises(ClientError, match="AccessDenied"):
        WIDE[what](nlp.client)
    assert not nlp.gate.answers[-1].allowed


def test_a_url_for_a_neighbours_object_opens_nothing(nlp: Tenant) -> None:
    for prefix, allowed in (("teams/nlp/", True), ("teams/aml/", False)):
        url = nlp.prefix(DATA, prefix).presign("x")
        assert nlp.gate.lets("GET", url, {}) == allowed


def test_nothing_goes_over_a_line_that_can_be_read(nlp: Tenant) -> None:
    for scheme, allowed in (("https", True), ("http", False)):
        url = f"{scheme}://{DATA}.s3.eu-central-1.amazonaws.com/teams/nlp/x"
        assert nlp.gate.lets("GET", url, {}) == allowed
