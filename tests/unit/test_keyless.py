"""Bundles of evidence signed without a key file, by a real Sigstore instance, and verified without network."""

from __future__ import annotations

import base64
import datetime as dt
import json
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import Result
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from tenancy.evidence.bundle import ENVELOPE
from tenancy.evidence.keyless import BUNDLE, KeylessSigner
from tests.conftest import examples
from tests.damage import cut_up, damaged
from tests.evidence_maker import Maker, run
from tests.sigstore_instance import CI_IDENTITY, LONG_AGO, Sigstore, other_key

# The name of the authority that Fulcio makes for itself has a country of three letters.
pytestmark = pytest.mark.filterwarnings("ignore:Attribute's length must be")
ROOT = Path(__file__).parents[2]
ANN, BOB = "ann@bank.example", "bob@bank.example"
DAY, NOW = dt.timedelta(days=1), dt.datetime.now(dt.UTC)
BEFORE = {"start": LONG_AGO, "end": (NOW - DAY).isoformat()}
AFTER = {"start": (NOW + DAY).isoformat()}


@pytest.fixture(scope="module")
def sigstore(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sigstore]:
    with Sigstore(tmp_path_factory.mktemp("sigstore")) as instance:
        yield instance


class Keyless(Maker):
    """Makes and verifies bundles by an instance."""

    def __init__(self, folder: Path, sigstore: Sigstore) -> None:
        super().__init__(folder, ROOT / "stacks/local")
        self.sigstore, self.token = sigstore, folder / "token"

    def sign(self, name: str = "bundle", token: str | None = None, trust_config: Path | None = None) -> Result:
        self.token.write_text((token or self.sigstore.people.of_person(ANN)) + "\n", "utf-8")
        config = str(trust_config or self.sigstore.trust_config)
        return self.make(name, "--keyless", "--identity-token", str(self.token), "--trust-config", config, key=False)

    def check(
        self,
        name: str = "bundle",
        identity: str = ANN,
        issuer: str | None = None,
        root: Path | None = None,
    ) -> Result:
        issuer = self.sigstore.people.url if issuer is None else issuer
        trust_options = (
            "--identity",
            identity,
            "--issuer",
            issuer,
            "--trusted-root",
            str(root or self.sigstore.trusted_root),
        )
        return run("verify", str(self.folder / name), *trust_options)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory, sigstore: Sigstore) -> Keyless:
    """Two bundles of the same facts: `bundle` by Ann, and `other` by Bob."""
    keyless = Keyless(tmp_path_factory.mktemp("signed"), sigstore)
    for name, token in (("bundle", None), ("other", sigstore.people.of_person(BOB))):
        result = keyless.sign(name, token)
        assert result.exit_code == 0, result.output
    return keyless


@pytest.fixture
def signed(once: Keyless, tmp_path: Path) -> Keyless:
    """Copies of the two bundles, which a test may damage."""
    keyless = Keyless(tmp_path, once.sigstore)
    for name in ("bundle", "other"):
        shutil.copytree(once.folder / name, tmp_path / name)
    return keyless


def envelope(maker: Keyless, name: str = "bundle") -> dict[str, Any]:
    return json.loads((maker.folder / name / BUNDLE).read_text("utf-8"))


def rewrite(maker: Keyless, value: Any) -> None:
    (maker.folder / "bundle" / BUNDLE).write_text(json.dumps(value), "utf-8")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise ConnectionError("a test without network")

    monkeypatch.setattr(socket.socket, "connect", refused)


@pytest.mark.usefixtures("offline")
def test_a_bundle_is_verified_by_identity_and_issuer_without_network(signed: Keyless) -> None:
    result = signed.check()
    assert (result.exit_code, f"as signed by {ANN}, known to {signed.sigstore.people.url}" in result.output) == (
        0,
        True,
    )


@pytest.mark.usefixtures("offline")
def test_without_network_nothing_is_signed(signed: Keyless) -> None:
    result = signed.sign("more")
    assert (result.exit_code, "signed nothing that can be verified" in result.output) == (2, True)
    assert not (signed.folder / "more").exists()


def test_the_statement_names_every_file_and_is_the_only_one(signed: Keyless) -> None:
    assert not (signed.folder / "bundle" / ENVELOPE).exists()
    body = json.loads(base64.b64decode(envelope(signed)["dsseEnvelope"]["payload"]))
    present = {path.name for path in (signed.folder / "bundle").iterdir()} - {BUNDLE}
    assert {subject["name"] for subject in body["subject"]} == present


def test_the_page_names_the_command_that_verifies_it(signed: Keyless) -> None:
    page = (signed.folder / "bundle" / "page.html").read_text("utf-8")
    assert BUNDLE in page
    assert "--identity MAIL-OR-URI --issuer URL" in page
    assert "--key PUBLIC-KEY" not in page


def test_a_ci_job_signs_with_its_uri(signed: Keyless) -> None:
    jobs = signed.sigstore.jobs
    result = signed.sign("by-job", jobs.of_ci_job())
    assert (result.exit_code, f"signed by {CI_IDENTITY}, known to {jobs.url}" in result.output) == (0, True), (
        result.output
    )
    assert signed.check("by-job", CI_IDENTITY, jobs.url).exit_code == 0
    assert signed.check("by-job").exit_code == 2


def test_a_token_in_a_variable_is_as_good_as_one_in_a_file(signed: Keyless, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("--keyless", "--trust-config", str(signed.sigstore.trust_config), "--identity-token", "env:TOKEN")
    unset = signed.make("more", *words, key=False)
    assert (unset.exit_code, "the variable TOKEN is empty or not set" in unset.output) == (2, True)
    monkeypatch.setenv("TOKEN", signed.sigstore.people.of_person(ANN))
    assert signed.make("more", *words, key=False).exit_code == 0
    assert signed.check("more").exit_code == 0


def test_the_token_of_a_ci_job_is_found_by_itself(signed: Keyless, monkeypatch: pytest.MonkeyPatch) -> None:
    """GitLab gives a job its token in this variable, and sigstore-python reads it there."""
    monkeypatch.setenv("GITLAB_CI", "true")
    monkeypatch.setenv("SIGSTORE_ID_TOKEN", signed.sigstore.jobs.of_ci_job())
    result = signed.make("more", "--keyless", "--trust-config", str(signed.sigstore.trust_config), key=False)
    assert (result.exit_code, CI_IDENTITY in result.output) == (0, True), result.output


def test_the_log_has_the_certificate_and_nothing_of_the_statement(signed: Keyless) -> None:
    log_content = b"".join(
        path.read_bytes() for path in (signed.sigstore.folder / "rekor").rglob("*") if path.is_file()
    )
    signed_envelope = envelope(signed)
    assert signed_envelope["verificationMaterial"]["certificate"]["rawBytes"].encode() in log_content
    assert signed_envelope["dsseEnvelope"]["payload"].encode() not in log_content
    assert base64.b64decode(signed_envelope["dsseEnvelope"]["payload"]) not in log_content


@pytest.mark.parametrize(
    ("options", "message_part"),
    [
        ({"identity": BOB}, f"Certificate's SANs do not match {BOB}"),
        ({"identity": ANN.upper()}, "SANs do not match"),
        ({"issuer": "https://accounts.google.com"}, "OIDCIssuer does not match"),
        ({"name": "other"}, f"SANs do not match {ANN}"),
    ],
)
def test_another_identity_or_issuer_is_refused(signed: Keyless, options: dict[str, str], message_part: str) -> None:
    result = signed.check(**options)
    assert (result.exit_code, message_part in result.output) == (2, True), result.output
    assert signed.check().exit_code == 0


def test_an_identity_without_an_issuer_is_no_identity(signed: Keyless) -> None:
    folder = str(signed.folder / "bundle")
    for words in (("--identity", ANN), ("--identity", ANN, "--issuer", "")):
        result = run("verify", folder, *words, "--trusted-root", str(signed.sigstore.trusted_root))
        assert (result.exit_code, "given --identity without --issuer" in result.output) == (2, True)


def other_authority(root: dict[str, Any]) -> None:
    """An authority of the same name with a key of its own."""
    (authority,) = root["certificateAuthorities"]
    (certificate_entry,) = authority["certChain"]["certificates"]
    original = x509.load_der_x509_certificate(base64.b64decode(certificate_entry["rawBytes"]))
    key = ec.generate_private_key(ec.SECP384R1())
    builder = (
        x509.CertificateBuilder(original.issuer, original.subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(original.not_valid_before_utc)
        .not_valid_after(original.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(True, 1), True)
        .add_extension(x509.KeyUsage(False, False, False, False, False, True, True, False, False), True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )
    new_certificate = builder.sign(key, SHA256())
    certificate_entry["rawBytes"] = base64.b64encode(new_certificate.public_bytes(Encoding.DER)).decode()


def without_timestamp_authority(root: dict[str, Any]) -> None:
    root["timestampAuthorities"] = []


def used(period: dict[str, str], list_name: str, key: str = "") -> Callable[[dict[str, Any]], None]:
    """A change of a trusted root after which this kind of authority or log was in use for another period."""

    def change(root: dict[str, Any]) -> None:
        for entry in root[list_name]:
            (entry[key] if key else entry)["validFor"] = period

    return change


ROOTS: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "certificate of another authority": (other_authority, "failed to build timestamp certificate chain"),
    "entry of another log": (lambda root: other_key(root["tlogs"][0]), "invalid log entry"),
    "certificate in another log": (lambda root: other_key(root["ctlogs"][0]), "failed to verify SCT"),
    "timestamp of another authority": (without_timestamp_authority, "no Timestamp Authorities"),
    "timestamp authority that has ended": (used(BEFORE, "timestampAuthorities"), "not enough sources of verified time"),
}
for when, period in (("has ended", BEFORE), ("had not begun", AFTER)):
    ROOTS |= {
        f"authority that {when}": (used(period, "certificateAuthorities"), "no certificate authority of the trusted"),
        f"certificate log that {when}": (used(period, "ctlogs", "publicKey"), "no certificate log of the trusted root"),
        f"log that {when}": (used(period, "tlogs", "publicKey"), "no transparency log of the trusted root was in use"),
    }


@pytest.mark.parametrize("case", ROOTS)
def test_by_another_trusted_root_nothing_is_signed(signed: Keyless, case: str) -> None:
    change, message_part = ROOTS[case]
    result = signed.check(root=signed.sigstore.root(f"{case}.json", change))
    assert (result.exit_code, message_part in result.output, "Traceback" in result.output) == (2, True, False), (
        result.output
    )
    assert signed.check(root=signed.sigstore.root(f"{case}, unchanged.json")).exit_code == 0


def test_an_authority_that_was_replaced_after_the_signature_is_still_trusted(signed: Keyless) -> None:
    def change(root: dict[str, Any]) -> None:
        for entry in (root["certificateAuthorities"][0], root["tlogs"][0]["publicKey"], root["ctlogs"][0]["publicKey"]):
            entry["validFor"]["end"] = (NOW + DAY).isoformat()

    assert signed.check(root=signed.sigstore.root("replaced.json", change)).exit_code == 0


def test_one_changed_byte_in_any_file_fails_and_names_the_file(signed: Keyless) -> None:
    names = sorted(path.name for path in (signed.folder / "bundle").iterdir() if path.name != BUNDLE)
    assert len(names) == 13
    for name in names:
        path = signed.folder / "bundle" / name
        content = path.read_bytes()
        path.write_bytes(content[:-2] + bytes([content[-2] ^ 1]) + content[-1:])
        result = signed.check()
        assert (result.exit_code, f"{name}: changed after it was signed" in result.output) == (1, True), name
        path.write_bytes(content)
    assert signed.check().exit_code == 0


def test_a_second_statement_in_the_folder_is_a_file_that_was_added(signed: Keyless) -> None:
    (signed.folder / "bundle" / ENVELOPE).write_text("{}", "utf-8")
    result = signed.check()
    assert (result.exit_code, f"{ENVELOPE}: not in the statement" in result.output) == (1, True)


def payload(value: dict[str, Any], _: dict[str, Any]) -> None:
    text = base64.b64decode(value["dsseEnvelope"]["payload"])
    changed_text = text.replace(b'"environment":"local"', b'"environment":"bank "')
    assert changed_text != text
    value["dsseEnvelope"]["payload"] = base64.b64encode(changed_text).decode()


def of_other(*path: str) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    """Put a part of the other bundle, which the same instance made, in the place of ours."""

    def change(value: dict[str, Any], other_value: dict[str, Any]) -> None:
        for name in path[:-1]:
            value, other_value = value[name], other_value[name]
        value[path[-1]] = other_value[path[-1]]

    return change


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(payload, id="changed statement"),
        pytest.param(of_other("dsseEnvelope", "signatures"), id="signature of another"),
        pytest.param(of_other("verificationMaterial", "certificate"), id="certificate of another"),
        pytest.param(of_other("verificationMaterial", "tlogEntries"), id="log entry of another"),
        pytest.param(of_other("verificationMaterial", "timestampVerificationData"), id="timestamp of another"),
    ],
)
def test_a_part_that_belongs_to_another_statement_is_refused(
    signed: Keyless, change: Callable[[dict[str, Any], dict[str, Any]], None]
) -> None:
    good = envelope(signed)
    bad = json.loads(json.dumps(good))
    change(bad, envelope(signed, "other"))
    assert bad != good
    rewrite(signed, bad)
    result = signed.check()
    assert (result.exit_code, "given a statement without a valid signature" in result.output) == (2, True), (
        result.output
    )
    rewrite(signed, good)
    assert signed.check().exit_code == 0


HINTS = {"logIndex", "keyId"}
"""Fields that only help to find a log or an entry: no decision depends on them."""


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
        return
    for key in value if isinstance(value, dict) else range(len(value)):
        yield from leaves(value[key], (*path, key))


def test_a_change_of_any_field_of_the_signed_statement_is_refused(signed: Keyless) -> None:
    good = envelope(signed)
    checked_paths = [path for path in leaves(good) if path[-1] not in HINTS]
    assert len(checked_paths) >= 12
    for path in checked_paths:
        bad = json.loads(json.dumps(good))
        place = bad
        for key in path[:-1]:
            place = place[key]
        text = place[path[-1]]
        middle = len(text) // 2
        place[path[-1]] = text[:middle] + ("A" if text[middle] != "A" else "B") + text[middle + 1 :]
        rewrite(signed, bad)
        result = signed.check()
        assert (result.exit_code, "rule:" in result.output, "Traceback" in result.output) == (2, True, False), path
    rewrite(signed, good)
    assert signed.check().exit_code == 0


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"mediaType": "x"}', '{"dsseEnvelope": 1}'])
def test_what_is_no_sigstore_bundle_ends_with_a_sentence(signed: Keyless, text: str) -> None:
    (signed.folder / "bundle" / BUNDLE).write_text(text, "utf-8")
    result = signed.check()
    assert (result.exit_code, "given no Sigstore bundle" in result.output, "Traceback" in result.output) == (
        2,
        True,
        False,
    )


def test_a_folder_without_a_sigstore_bundle_says_which_option_verifies_it(signed: Keyless) -> None:
    assert signed.make("by-key").exit_code == 0
    for result in (signed.check("by-key"), signed.verify("bundle")):
        assert (result.exit_code, "verified with --identity and --issuer" in result.output) == (2, True)
    assert (signed.check().exit_code, signed.verify("by-key").exit_code) == (0, 0)


@pytest.mark.parametrize("text", [None, "", "{}", "no json"])
def test_a_trusted_root_or_trust_config_that_is_none_ends_with_a_sentence(signed: Keyless, text: str | None) -> None:
    path = signed.folder / "wrong.json"
    if text is not None:
        path.write_text(text, "utf-8")
    verified, signing = signed.check(root=path), signed.sign("more", trust_config=path)
    for result, option in ((verified, "--trusted-root"), (signing, "--trust-config")):
        assert (result.exit_code, f"given {option} {path}" in result.output, "rule:" in result.output) == (
            2,
            True,
            True,
        )
    assert not (signed.folder / "more").exists()


def test_a_token_that_says_nothing_valid_is_refused_before_a_cluster_is_attacked(signed: Keyless) -> None:
    people = signed.sigstore.people
    signed.attacks.unlink()
    tokens = {
        "no token": "malformed",
        people.of_person(ANN, age=700): "malformed",
        people.of_person(ANN, audience="another"): "malformed",
    }
    for token, message_part in tokens.items():
        result = signed.sign("more", token)
        assert (result.exit_code, message_part in result.output) == (2, True), result.output
        assert token not in result.output


def test_without_a_token_and_a_terminal_nothing_is_asked(signed: Keyless) -> None:
    result = signed.make("more", "--keyless", "--trust-config", str(signed.sigstore.trust_config), key=False)
    assert (result.exit_code, "there is no terminal to ask on" in result.output) == (2, True)


def test_a_token_that_ends_during_the_attacks_is_asked_again(signed: Keyless, monkeypatch: pytest.MonkeyPatch) -> None:
    signed.token.write_text(signed.sigstore.people.of_person(ANN), "utf-8")
    signer = KeylessSigner(signed.sigstore.trust_config, str(signed.token))
    monkeypatch.setattr(signer._token, "_exp", 0)
    statement = base64.b64decode(envelope(signed)["dsseEnvelope"]["payload"])
    _, signature = signer.sign(statement)
    assert (signature.identity, signature.issuer) == (ANN, signed.sigstore.people.url)
    assert signature.begin <= dt.datetime.now(dt.UTC) <= signature.end


def test_an_identity_that_the_instance_does_not_know_signs_nothing(signed: Keyless) -> None:
    result = signed.sign("more", signed.sigstore.people.of_person(ANN, email_verified=False))
    assert (result.exit_code, "signed nothing that can be verified" in result.output) == (2, True)
    assert "There was an error processing the identity token" in result.output
    assert not (signed.folder / "more").exists()


def other_transparency_log(config: dict[str, Any]) -> None:
    other_key(config["trustedRoot"]["tlogs"][0])


def other_certificate_log(config: dict[str, Any]) -> None:
    other_key(config["trustedRoot"]["ctlogs"][0])


def no_timestamps(config: dict[str, Any]) -> None:
    config["signingConfig"]["tsaUrls"] = []


@pytest.mark.parametrize("change", [other_transparency_log, other_certificate_log, no_timestamps])
def test_what_no_auditor_could_verify_is_not_written(signed: Keyless, change: Callable[[dict[str, Any]], None]) -> None:
    config = signed.sigstore.config()
    change(config)
    path = signed.folder / "config.json"
    path.write_text(json.dumps(config), "utf-8")
    result = signed.sign("more", trust_config=path)
    assert (result.exit_code, "signed nothing that can be verified" in result.output) == (2, True), result.output
    assert not (signed.folder / "more").exists()
    path.write_text(json.dumps(signed.sigstore.config()), "utf-8")
    assert signed.sign("more", trust_config=path).exit_code == 0


@pytest.mark.parametrize(
    ("words", "message_part"),
    [
        (("--key", "k.pem", "--trust-config", "c.json"), "given --trust-config without --keyless"),
        (("--key", "k.pem", "--identity-token", "t"), "given --identity-token without --keyless"),
        (("--key", "k.pem", "--oidc-client-id", "c"), "given --oidc-client-id without --keyless"),
        (("--key", "k.pem", "--keyless"), "given --key and --keyless; rule: one signature is made"),
        (("--kms", "alias/sign", "--keyless"), "given --kms and --keyless; rule: one signature is made"),
        ((), "given none of --key, --kms and --keyless"),
    ],
)
def test_options_of_one_way_to_sign_are_not_mixed_with_another(
    tmp_path: Path, words: tuple[str, ...], message_part: str
) -> None:
    result = run("make", str(ROOT / "stacks/local"), "--out", str(tmp_path / "out"), *words)
    assert (result.exit_code, message_part in result.output) == (2, True)


@pytest.mark.parametrize(
    ("words", "message_part"),
    [
        (("--key", "k.pem", "--identity", ANN, "--issuer", "u"), "given both --key and --identity"),
        (("--key", "k.pem", "--issuer", "u"), "given --issuer without --identity"),
        (("--key", "k.pem", "--trusted-root", "r.json"), "given --trusted-root without --identity"),
        ((), "given neither --key nor --identity"),
        (("--identity", "", "--issuer", "u"), "given neither --key nor --identity"),
    ],
)
def test_options_of_one_way_to_verify_are_not_mixed_with_another(
    tmp_path: Path, words: tuple[str, ...], message_part: str
) -> None:
    result = run("verify", str(tmp_path), *words)
    assert (result.exit_code, message_part in result.output) == (2, True)


@pytest.mark.usefixtures("offline")
def test_the_root_of_the_public_instance_is_there_without_network(
    signed: Keyless, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(signed.folder / name))
    result = run("verify", str(signed.folder / "bundle"), "--identity", ANN, "--issuer", signed.sigstore.people.url)
    assert (result.exit_code, "not enough sources of verified time" in result.output) == (2, True), result.output


def decoded(value: dict[str, Any]) -> tuple[bytes, ...]:
    """Statement, signature and certificate."""
    signed, proof = value["dsseEnvelope"], value["verificationMaterial"]
    (signature,) = signed["signatures"]
    return tuple(map(base64.b64decode, (signed["payload"], signature["sig"], proof["certificate"]["rawBytes"])))


def test_a_damaged_signed_statement_is_refused_unless_all_that_is_signed_is_whole(signed: Keyless) -> None:
    """Damage may meet a hint, space between fields, or a character that Base64 leaves out."""
    good, refused = envelope(signed), 0
    for seed in range(examples(100)):
        random = Random(seed)
        bad = json.dumps(damaged(good, random)).encode() if seed % 2 else cut_up(json.dumps(good), random)
        (signed.folder / "bundle" / BUNDLE).write_bytes(bad)
        result = signed.check()
        if result.exit_code == 0:
            assert decoded(json.loads(bad)) == decoded(good), seed
        else:
            assert (result.exit_code, "rule:" in result.output) == (2, True), (seed, bad)
            refused += 1
    assert refused > examples(100) / 2
