"""Whatever is done to a file of others, a parser reads it or refuses it with its own error; `make fuzz` takes longer.

Spec files and manifests have files of their own beside this one.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import os
from pathlib import Path
from random import Random
from typing import Any

import polars as pl
import pytest
import yaml
from click.testing import CliRunner
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tenancy.chargeback import bill
from tenancy.cli import main
from tenancy.spec.loader import Loaded
from tenancy.verify.evidence import bundle
from tests.conftest import examples
from tests.damage import cut_up, damaged
from tests.foreign import CORPUS, readers

RUNS = int(os.environ.get("FUZZ_RUNS", "0"))
"""Damaged files of a kind; 0: as many as the profile of Hypothesis says. Every number seeds one file."""
STEP = {
    "op": "create",
    "urn": "urn:pulumi:small--fraud::gpu-tenancy::kubernetes:core/v1:ResourceQuota::x",
    "newState": {
        "type": "kubernetes:core/v1:ResourceQuota",
        "inputs": {
            "metadata": {"name": "q", "namespace": "fraud--train", "labels": {"tenancy.gpu/tenant": "fraud"}},
            "spec": {"hard": {"requests.nvidia.com/gpu": "8", "pods": "10"}},
        },
    },
}
PREVIEW = {"steps": [STEP, {**STEP, "op": "delete", "oldState": STEP["newState"]}], "diagnostics": []}
KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u", "namespace": "n"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {"token": "t"}}],
}
SARIF = {
    "runs": [
        {
            "tool": {"driver": {"name": "a", "version": "1"}},
            "properties": {"checks": 3},
            "results": [
                {"ruleId": "A", "level": "error"},
                {"ruleId": "B", "suppressions": [{"status": "accepted", "justification": "known"}]},
            ],
        }
    ]
}
ATTACKS = [
    {"id": "a", "rule": "gpu-02", "refused": True, "twin_admitted": True, "denier": "RBAC", "expected_denier": "RBAC"}
]
TRACE = "submit,tenant,gpus,duration\n0,fraud,1,60\n3600,research,2,120\n"
HOUR = dt.datetime(2026, 10, 1, 1, tzinfo=dt.UTC)
ROW = {
    "line_item_line_item_type": "Usage",
    "line_item_product_code": "AmazonEC2",
    "line_item_usage_type": "EUC1-BoxUsage:p4d.24xlarge",
    "line_item_usage_start_date": HOUR,
    "line_item_usage_end_date": HOUR + dt.timedelta(hours=1),
    "line_item_unblended_cost": 1.5,
    "line_item_currency_code": "USD",
    "resource_tags": [
        {"key": "user_tenancy_environment", "value": "small"},
        {"key": "user_tenancy_pool", "value": "a"},
    ],
    **dict.fromkeys(bill.SUM_COLUMNS, 0.0),
}


def _storable(kind: pl.DataType) -> bool:
    """Whether Parquet has the type: not Python's objects, and no structure without a field."""
    if isinstance(kind, pl.List):
        return _storable(kind.inner)  # ty: ignore[invalid-argument-type]
    if isinstance(kind, pl.Struct):
        return bool(kind.fields) and all(_storable(field.dtype) for field in kind.fields)  # ty: ignore[invalid-argument-type]
    return kind != pl.Object


def damaged_bill(random: Random) -> bytes:
    """A Parquet file with a wrong value, a wrong column, or wrong bytes."""
    row = damaged(ROW, random) if random.random() < 0.7 else dict(ROW)
    if random.random() < 0.2:
        del row[random.choice([*row])]
    buffer = io.BytesIO()
    try:
        frame = pl.DataFrame([row], infer_schema_length=None, strict=False)
    except TypeError:  # tags of two types, which Parquet cannot have
        frame = pl.DataFrame([{**row, "resource_tags": None}], infer_schema_length=None, strict=False)
    frame.select(name for name, kind in frame.schema.items() if _storable(kind)).write_parquet(buffer)
    content = bytearray(buffer.getvalue())
    if random.random() < 0.4:
        for _ in range(random.choice([1, 4, 40])):
            content[random.randrange(len(content))] = random.randrange(256)
        content = content[: random.choice([len(content), random.randrange(len(content))])]
    return bytes(content)


SEEDS: dict[str, Any] = {"preview": PREVIEW, "kubeconfig": KUBECONFIG, "sarif": SARIF, "attacks": ATTACKS}
NAMES = {
    "preview": "p.json",
    "kubeconfig": "k",
    "sarif": "s.json",
    "attacks": "a.json",
    "trace": "t.csv",
    "bill": "b.csv",
}


@pytest.mark.parametrize("kind", NAMES)
def test_what_is_not_damaged_is_read(kind: str, loaded: Loaded, tmp_path: Path) -> None:
    path = tmp_path / NAMES[kind]
    if kind == "bill":
        pl.DataFrame([ROW]).write_parquet(path)
    else:
        path.write_text(original(kind), "utf-8")
    assert readers(loaded)[kind][0](path) is not None


@pytest.mark.parametrize("kind", NAMES)
def test_damage_is_read_or_refused_with_the_parsers_own_error(kind: str, loaded: Loaded, tmp_path: Path) -> None:
    path, (read, refusals) = tmp_path / NAMES[kind], readers(loaded)[kind]
    refused = 0
    for seed in range(RUNS or examples(150)):
        random = Random(seed)
        if kind == "bill":
            path.write_bytes(damaged_bill(random))
        elif kind in SEEDS and random.random() < 0.7:
            path.write_text(json.dumps(damaged(SEEDS[kind], random)), "utf-8")
        else:
            path.write_bytes(cut_up(original(kind), random))
        try:
            read(path)
        except refusals:
            refused += 1
        except BaseException as error:  # a panic of polars is no Exception
            corpus_file = CORPUS / kind / f"seed-{seed}{path.suffix}"
            corpus_file.parent.mkdir(exist_ok=True)
            corpus_file.write_bytes(path.read_bytes())
            raise AssertionError(
                f"{corpus_file} ends the reader: mend it, give the file a name and commit it"
            ) from error
    assert refused, "no damage was noticed"


def original(kind: str) -> str:
    if kind == "kubeconfig":
        return yaml.safe_dump(KUBECONFIG)
    return TRACE if kind == "trace" else json.dumps(SEEDS[kind])


def test_a_damaged_statement_is_no_statement(tmp_path: Path) -> None:
    key = tmp_path / "key.pem"
    public = ed25519.Ed25519PrivateKey.generate().public_key()
    key.write_bytes(public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    statement = {
        "payload": "e30=",
        "payloadType": "application/vnd.in-toto+json",
        "signatures": [{"keyid": "a", "sig": "YQ=="}],
    }
    for seed in range(RUNS or examples(150)):
        random = Random(seed)
        text = json.dumps(damaged(statement, random)).encode() if seed % 2 else cut_up(json.dumps(statement), random)
        (tmp_path / bundle.ENVELOPE).write_bytes(text)
        completed = CliRunner().invoke(main, ["evidence", "verify", str(tmp_path), "--key", str(key)])
        assert (completed.exit_code, isinstance(completed.exception, SystemExit)) == (2, True), (
            seed,
            text,
            completed.exception,
        )
