"""A bundle of evidence: signed, verifiable without network or repository, without secrets and mail addresses."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest
from securesystemslib.dsse import Envelope

from tenancy.verify.evidence.bundle import ENVELOPE, PAYLOAD_TYPE, PREDICATE_TYPE, SIGNATURE, STATEMENT_TYPE
from tenancy.verify.evidence.privacy import has_mail, pseudonym, without_mail
from tests.conftest import nonempty
from tests.evidence_maker import KINDS, REFUSED, Maker, run


@pytest.fixture
def maker(tmp_path: Path, spec: Any) -> Maker:
    return Maker(tmp_path, spec.path)


@pytest.mark.parametrize("kind", KINDS)
def test_a_bundle_is_verified_by_the_public_key_alone(tmp_path: Path, spec: Any, kind: str) -> None:
    maker = Maker(tmp_path, spec.path, kind)
    assert maker.make().exit_code == 0
    result = maker.verify()
    assert (result.exit_code, "as signed" in result.output) == (0, True)


def test_a_key_of_another_maker_verifies_nothing(maker: Maker, tmp_path: Path) -> None:
    maker.make()
    (tmp_path / "other").mkdir()
    other_maker = Maker(tmp_path / "other", maker.spec)
    result = maker.verify(key=other_maker.public)
    assert result.exit_code == 2
    assert "none of the keys has signed" in result.output
    assert maker.verify().exit_code == 0


def test_one_changed_byte_in_any_file_fails_and_names_the_file(maker: Maker) -> None:
    maker.make()
    names = [s["name"] for s in statement_of(maker)["subject"]]
    assert len(names) == 13
    for name in names:
        path = maker.folder / "bundle" / name
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        result = maker.verify()
        assert (result.exit_code, f"{name}: changed after it was signed" in result.output) == (1, True), name
        path.write_bytes(content)
    assert maker.verify().exit_code == 0


def test_a_changed_statement_is_no_statement(maker: Maker) -> None:
    maker.make()
    path = maker.folder / "bundle" / ENVELOPE
    envelope = json.loads(path.read_text("utf-8"))
    good = envelope["payload"]
    envelope["payload"] = good[:40] + ("A" if good[40] != "A" else "B") + good[41:]
    path.write_text(json.dumps(envelope), "utf-8")
    assert maker.verify().exit_code == 2
    envelope["payload"] = good
    path.write_text(json.dumps(envelope), "utf-8")
    assert maker.verify().exit_code == 0


def damaged_missing(bundle: Path) -> None:
    (bundle / "rules.json").unlink()


def damaged_added(bundle: Path) -> None:
    (bundle / "more.json").write_text("{}", "utf-8")


def damaged_linked(bundle: Path) -> None:
    content = (bundle / "rules.json").read_bytes()
    (bundle.parent / "elsewhere").write_bytes(content)
    (bundle / "rules.json").unlink()
    (bundle / "rules.json").symlink_to(bundle.parent / "elsewhere")


def damaged_folder_link(bundle: Path) -> None:
    (bundle / "folder").symlink_to(bundle.parent)


@pytest.mark.parametrize(
    ("damage", "message_part"),
    [
        (damaged_missing, "rules.json: missing"),
        (damaged_added, "more.json: not in the statement"),
        (damaged_linked, "rules.json: a link"),
        (damaged_folder_link, "folder: not in the statement"),
    ],
)
def test_a_file_that_is_missing_added_or_linked_is_named(
    maker: Maker, damage: Callable[[Path], None], message_part: str
) -> None:
    maker.make()
    assert maker.verify().exit_code == 0
    damage(maker.folder / "bundle")
    result = maker.verify()
    assert (result.exit_code, message_part in result.output) == (1, True)


def test_a_folder_is_compared_with_a_statement_that_another_tool_signed(maker: Maker) -> None:
    bundle = maker.folder / "bundle"
    assert maker.make("bundle", "--unsigned", key=False).exit_code == 0
    (bundle / SIGNATURE).write_text("{}", "utf-8")
    result = run("verify", str(bundle), "--signature-verified")
    assert (result.exit_code, "as its statement says" in result.output) == (0, True)
    assert maker.verify().exit_code == 2, "no key has signed it"
    (bundle / "rules.json").write_text("[]", "utf-8")
    result = run("verify", str(bundle), "--signature-verified")
    assert (result.exit_code, "rules.json: changed" in result.output) == (1, True)


def test_one_kind_of_signature_is_made_and_verified(maker: Maker) -> None:
    for words in (("--unsigned",), ("--kms", "alias/evidence")):
        result = maker.make("bundle", *words)
        assert (result.exit_code, "rule: one signature is made" in result.output) == (2, True)
    assert "given none of --key, --kms and --unsigned" in maker.make(key=False).output
    assert not (maker.folder / "bundle").exists()
    assert maker.make().exit_code == 0
    for words in ((), ("--key", str(maker.public), "--signature-verified")):
        result = run("verify", str(maker.folder / "bundle"), *words)
        assert (result.exit_code, "rule: one kind of signature is verified" in result.output) == (2, True)


def statement_of(maker: Maker) -> Any:
    import base64

    envelope = maker.read(ENVELOPE)
    assert envelope["payloadType"] == PAYLOAD_TYPE
    return json.loads(base64.b64decode(envelope["payload"]))


def test_the_statement_is_an_in_toto_statement_about_every_file(maker: Maker) -> None:
    maker.make()
    body = statement_of(maker)
    assert (body["_type"], body["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    present = {path.name for path in (maker.folder / "bundle").iterdir()} - {ENVELOPE}
    assert {subject["name"] for subject in body["subject"]} == present
    assert body["predicate"]["attacks"] == {"attacks": 1, "refused": 1, "twins admitted": 1, "gaps": 0, "skipped": 0}


def test_the_same_facts_at_the_same_time_give_the_same_files(maker: Maker) -> None:
    maker.make("bundle")
    maker.make("again")
    first_files, second_files = (
        {p.name: p.read_bytes() for p in (maker.folder / n).iterdir()} for n in ("bundle", "again")
    )
    assert first_files == second_files


def test_a_mail_address_is_replaced_by_its_digest_everywhere(maker: Maker) -> None:
    assert maker.make().exit_code == 0
    mails = re.findall(r"[\w.-]+@[\w.-]+", "".join(p.read_text("utf-8") for p in maker.spec.rglob("*.yaml")))
    assert mails, "the files have addresses"
    for path in (maker.folder / "bundle").iterdir():
        assert not [mail for mail in mails if mail in path.read_text("utf-8")], path.name
    people = [row["who"] for row in maker.read("access.json") if row["kind"] == "User"]
    assert pseudonym("jane@bank.example") in people


@pytest.mark.parametrize(
    "secret",
    [
        "AKIAIOSFODNN7EXAMPLE",
        "-----BEGIN PRIVATE KEY-----",
        "ghp_" + "a" * 36,
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "https://user:hunter2@prometheus.example",
        "Authorization: Bearer abcdefghijklmnop",
    ],
)
def test_a_bundle_with_a_secret_is_not_written(maker: Maker, secret: str) -> None:
    maker.attacks.write_text(json.dumps([{**REFUSED, "message": secret}]), "utf-8")
    result = maker.make()
    assert result.exit_code == 2
    assert "in attacks.json; rule: a bundle has no secret" in result.output
    assert secret not in result.output
    assert not (maker.folder / "bundle").exists()
    maker.attacks.write_text(json.dumps([{**REFUSED, "message": "denied"}]), "utf-8")
    assert maker.make().exit_code == 0


def test_no_address_is_left_in_any_form_of_value() -> None:
    value = {"a@b.example": ["x <c@d.example>", {"k": ("e@f.example",)}], "n": 1, "none": None}
    assert has_mail(json.dumps(value))
    assert not has_mail(json.dumps(without_mail(value)))


def test_a_gap_is_in_the_bundle_and_in_the_exit_code(maker: Maker) -> None:
    maker.attacks.write_text(json.dumps([REFUSED, {**REFUSED, "id": "other", "refused": False}]), "utf-8")
    result = maker.make()
    assert (result.exit_code, "1 of 2 attacks refused" in result.output) == (1, True)
    assert maker.read("about.json")["attacks"]["gaps"] == 1
    assert maker.verify().exit_code == 0


def test_results_of_other_tools_are_counted_by_level(maker: Maker, tmp_path: Path) -> None:
    sarif = tmp_path / "judge.sarif"
    results = [{"level": "error"}, {}, {"level": "warning"}]
    tool = {"driver": {"name": "checkov", "version": "3.2"}}
    sarif.write_text(json.dumps({"version": "2.1.0", "runs": [{"tool": tool, "results": results}]}), "utf-8")
    assert maker.make("bundle", "--sarif", str(sarif)).exit_code == 0
    (judge,) = maker.read("judges.json")
    assert (judge["name"], judge["levels"]) == ("checkov", {"error": 1, "warning": 2})


@pytest.mark.parametrize(
    ("more", "message_part"),
    [
        (("--sarif", "attacks.json"), "a SARIF 2.1.0 file"),
        (("--sarif", "nowhere.sarif"), "No such file"),
        (("--kms", "alias/sign"), "given --key and --kms; rule: one signature is made"),
    ],
)
def test_bad_input_ends_before_anything_is_written(
    maker: Maker, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...], message_part: str
) -> None:
    monkeypatch.chdir(maker.folder)
    result = maker.make("bundle", *more)
    assert (result.exit_code, message_part in result.output) == (2, True)
    assert not (maker.folder / "bundle").exists()


def test_a_bundle_without_a_key_or_over_other_files_is_refused(maker: Maker) -> None:
    assert maker.make(key=False).exit_code == 2
    (maker.folder / "full").mkdir()
    (maker.folder / "full" / "mine.txt").write_text("x", "utf-8")
    result = maker.make("full")
    assert (result.exit_code, "which is not empty" in result.output) == (2, True)
    assert [path.name for path in (maker.folder / "full").iterdir()] == ["mine.txt"]


@pytest.mark.parametrize("text", ["{}", "[]", "[1]", '[{"id": "x"}]', "no json"])
def test_what_is_no_result_of_attacks_is_refused(maker: Maker, text: str) -> None:
    maker.attacks.write_text(text, "utf-8")
    result = maker.make()
    assert (result.exit_code, "`tenancy verify ENV --format json`" in result.output) == (2, True)


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"payload": "", "payloadType": "x", "signatures": []}', '{"payload": 1}']
)
def test_an_envelope_that_is_none_ends_with_a_sentence(maker: Maker, text: str) -> None:
    maker.make()
    (maker.folder / "bundle" / ENVELOPE).write_text(text, "utf-8")
    result = maker.verify()
    assert (result.exit_code, "rule:" in result.output, "Traceback" in result.output) == (2, True, False)


def test_commits_that_changed_the_files_are_listed_with_reviewers(maker: Maker) -> None:
    def git(*words: str) -> None:
        identity = {"GIT_AUTHOR_NAME": "Ann", "GIT_AUTHOR_EMAIL": "ann@bank.example"}
        identity |= {"GIT_COMMITTER_NAME": "Forge", "GIT_COMMITTER_EMAIL": "forge@bank.example"}
        subprocess.run(
            ["git", "-C", str(maker.spec), *words], check=True, capture_output=True, env={**os.environ, **identity}
        )

    git("init", "-q")
    git("add", ".")
    git("commit", "-q", "-m", "First tenants\n\nReviewed-by: Bob <bob@bank.example>")
    assert maker.make().exit_code == 0
    (commit,) = maker.read("approvals.json")
    assert (commit["author"], commit["committer"], commit["subject"]) == ("Ann", "Forge", "First tenants")
    assert commit["reviewed by"] == [f"Bob <{pseudonym('bob@bank.example')}>"]
    assert "environment.yaml" in commit["files"]


def test_without_the_extra_a_command_says_what_to_install(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    assert maker.make().exit_code == 0
    monkeypatch.setattr("tenancy.cli.evidence.find_spec", lambda _: None)
    for result in (maker.make("more"), maker.verify()):
        assert (result.exit_code, "without securesystemslib; rule:" in result.output) == (2, True)
        assert 'pip install "gpu-tenancy[evidence]"' in result.output
    monkeypatch.undo()
    assert maker.verify().exit_code == 0


def test_verification_imports_neither_models_nor_the_kubernetes_client(maker: Maker) -> None:
    maker.make()
    code = (
        "import sys; from tenancy.cli import main; main(sys.argv[1:], standalone_mode=False); "
        "print(sorted({m.partition('.')[0] for m in sys.modules} & {'pulumi', 'kubernetes', 'polars'}))"
    )
    words = ["evidence", "verify", str(maker.folder / "bundle"), "--key", str(maker.public)]
    completed = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=False)
    assert completed.stdout.splitlines()[-1] == "[]", completed.stderr
    assert "as signed" in completed.stdout


def test_the_page_shows_every_rule_and_escapes_what_others_wrote(maker: Maker) -> None:
    hostile = {**REFUSED, "rule": "<script>alert(1)</script>"}
    maker.attacks.write_text(json.dumps([REFUSED, hostile]), "utf-8")
    maker.make()
    page = (maker.folder / "bundle" / "page.html").read_text("utf-8")
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    for rule in nonempty(maker.read("rules.json")):
        assert f"<td>{rule['id']}</td>" in page


def test_a_key_of_kms_signs_the_statement(maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto signs a digest as if it were the message, which KMS does not, so its own answer is the judge here."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    with moto.mock_aws():
        client = boto3.client("kms")
        key = client.create_key(KeyUsage="SIGN_VERIFY", KeySpec="ECC_NIST_P256")["KeyMetadata"]["KeyId"]
        result = maker.make("bundle", "--kms", key, key=False)
        assert (result.exit_code, result.output) == (0, result.output)
        signed = Envelope.from_dict(maker.read(ENVELOPE))
        (signature,) = signed.signatures.values()
        arguments = {
            "MessageType": "DIGEST",
            "SigningAlgorithm": "ECDSA_SHA_256",
            "Signature": bytes.fromhex(signature.signature),
        }
        answer = client.verify(KeyId=key, Message=hashlib.sha256(signed.pae()).digest(), **arguments)
        assert answer["SignatureValid"]
        missing = maker.make("other", "--kms", "alias/missing", key=False)
        assert (missing.exit_code, "an asymmetric key of KMS" in missing.output) == (2, True)
    assert maker.verify().exit_code == 2, "the key file has not signed it"
