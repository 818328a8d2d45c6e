from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tenancy.catalog.text import escape_invisible
from tenancy.cli.common import (
    BAD_INPUT,
    FAILED,
    DefaultGroup,
    environment_argument,
    example,
    fail,
    lab_option,
    load_or_exit,
    recorded_time,
    report_write_errors,
    say,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tenancy.evidence.collect import Attacks
    from tenancy.planning import Plan
    from tenancy.validation import Loaded

    Sign = Callable[[bytes], tuple[bytes, object]]
    """Signs a statement: the content of its file, and by whom as a text."""

_FILE = click.Path(path_type=Path)


@click.group(
    cls=DefaultGroup,
    default="make",
    epilog=example("tenancy evidence bank --out evidence-2026-11 --key signing.pem"),
)
def command() -> None:
    """Write a signed folder of evidence about an environment, and verify one.

    `tenancy evidence ENV` is `tenancy evidence make ENV`.
    """


@command.command(
    epilog=example(
        "tenancy verify bank --format json > attacks.json\n"
        "  tenancy evidence bank --out evidence-2026-11 --attack-results attacks.json --key signing.pem"
    )
)
@environment_argument
@lab_option
@click.option("--out", type=_FILE, required=True, metavar="FOLDER", help="Write the bundle into this new folder.")
@click.option("--key", type=_FILE, metavar="FILE", help="Sign with the private key in this PEM file.")
@click.option("--kms", metavar="KEY", help="Sign with this asymmetric key of AWS KMS: its id, ARN or alias.")
@click.option(
    "--keyless",
    is_flag=True,
    help="Sign without a key, by Sigstore: with a certificate of ten minutes for a person's mail address or a CI job's "
    "URI, and an entry in a log. The log of the public instance shows that identity to everyone.",
)
@click.option(
    "--identity-token",
    "token",
    metavar="FILE|env:NAME",
    help="With --keyless: the OIDC token that says who signs, in a file or a variable. Default: the token of the CI "
    "job, or else a login in a browser.",
)
@click.option(
    "--oidc-client-id",
    "client_id",
    metavar="NAME",
    help="With --keyless: the audience of the OIDC token. Default: sigstore.",
)
@click.option(
    "--trust-config",
    type=_FILE,
    metavar="FILE",
    help="With --keyless: the ClientTrustConfig of your own Sigstore instance. Default: the public instance.",
)
@click.option(
    "--attack-results",
    "attacks",
    type=_FILE,
    metavar="FILE",
    help="Use the results in this file, the output of `tenancy verify ENV --format json`, instead of attacking the "
    "cluster now.",
)
@click.option(
    "--sarif",
    "judges",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="Add the result of another tool from this SARIF file; repeatable.",
)
def make(
    environment: str,
    lab: bool,
    out: Path,
    key: Path | None,
    kms: str | None,
    keyless: bool,
    token: str | None,
    client_id: str | None,
    trust_config: Path | None,
    attacks: Path | None,
    judges: tuple[Path],
) -> None:
    """Write a signed folder of evidence about ENV: what the files say, which rules hold, and what was attacked.

    The folder has digests of the spec files, rendered objects and lock files, versions, rules, the attacks with their
    results, results of other tools, exceptions, the access review, the commits that changed the files, and a page that
    shows all of it. It has no secret and no mail address: an address is replaced by a digest of it. One statement
    (in-toto, in a DSSE envelope) names the digest of every file and is signed: by a key, or without one by Sigstore.

    Exit codes: 0 the bundle was written, 1 an attack has a gap (the bundle says so) or the cluster did not answer,
    2 bad input; nothing is written.
    """
    signature_options = [
        name for name, input_text in (("--key", key), ("--kms", kms), ("--keyless", keyless)) if input_text
    ]
    if len(signature_options) != 1:
        input_text = " and ".join(signature_options) if signature_options else "none of --key, --kms and --keyless"
        fail(f"given {input_text}; rule: one signature is made; change: name one of the three", BAD_INPUT)
    _require_option(
        "--keyless",
        keyless,
        {"--identity-token": token, "--oidc-client-id": client_id, "--trust-config": trust_config},
    )
    _require_extra()
    from tenancy.evidence import bundle
    from tenancy.evidence.collect import Measurements, files, read_attacks, read_judge, summary
    from tenancy.planning import make_plan

    loaded = load_or_exit(environment, lab=lab)
    plan = make_plan(loaded.environment, loaded.tenants)
    try:
        statement_file, sign = _signer(key, kms) if not keyless else _keyless_signer(trust_config, token, client_id)
        judge_results = [judge for path in judges for judge in read_judge(path)]
        results = read_attacks(attacks) if attacks else _attack(loaded, plan)
        measurements = Measurements(recorded_time(), results, judge_results, statement_file)
        bundle_files = files(loaded, plan, measurements)
        signed_statement, signer = sign(bundle.statement(bundle_files, summary(loaded, measurements)))
        with report_write_errors():
            bundle.write(out, {**bundle_files, statement_file: signed_statement})
    except bundle.Unusable as error:
        fail(str(error), BAD_INPUT)
    counts = results.counts
    click.echo(
        f"{out}: {len(bundle_files)} files and a statement signed by {signer}; {counts['refused']} of "
        f"{counts['attacks']} attacks "
        f"refused, {counts['twins admitted']} twins admitted, audit log: {results.audit_log}"
    )
    if counts["gaps"]:
        sys.exit(FAILED)


@command.command(
    epilog=example(
        "tenancy evidence verify evidence-2026-11 --key signing.pub.pem\n"
        "  tenancy evidence verify evidence-2026-11 --identity ann@bank.example --issuer https://login.bank.example "
        "--trusted-root sigstore.json"
    )
)
@click.argument("folder", type=_FILE, metavar="FOLDER")
@click.option(
    "--key",
    "trusted",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="Trust the public key in this PEM file; repeatable, and one signature by one of them is enough.",
)
@click.option(
    "--identity",
    metavar="MAIL-OR-URI",
    help="Trust a signature without a key by this identity: a person's mail address, or the URI of a CI job.",
)
@click.option("--issuer", metavar="URL", help="With --identity: the OIDC issuer that knows the identity.")
@click.option(
    "--trusted-root",
    type=_FILE,
    metavar="FILE",
    help="With --identity: the TrustedRoot of the Sigstore instance that signed. Default: that of the public instance.",
)
def verify(
    folder: Path, trusted: tuple[Path, ...], identity: str | None, issuer: str | None, trusted_root: Path | None
) -> None:
    """Verify a folder of evidence: who signed it, and that no file of it was changed, added or removed since.

    It needs neither network nor the files of the environment. A signature by a key is verified with `--key`, one
    without a key with `--identity` and `--issuer`.

    Exit codes: 0 the folder is as it was signed, 1 a file deviates (each is named), 2 bad input, or no statement that a
    trusted key or the identity has signed.
    """
    if bool(trusted) == bool(identity):
        input_text = "both --key and --identity" if identity else "neither --key nor --identity"
        fail(f"given {input_text}; rule: one kind of signature is verified; change: name one of the two", BAD_INPUT)
    _require_option("--identity", bool(identity), {"--issuer": issuer, "--trusted-root": trusted_root})
    if identity and not issuer:
        fail(
            "given --identity without --issuer; rule: any issuer can name any identity, so both are verified; change: "
            "add --issuer with the URL of the issuer that the maker named",
            BAD_INPUT,
        )
    _require_extra()
    from tenancy.evidence import bundle

    try:
        if identity and issuer:
            from tenancy.evidence import keyless

            statement_file = keyless.BUNDLE
            kind, payload, signature = keyless.verified_keyless(folder, identity, issuer, trusted_root)
            signer = f" by {signature}"
        else:
            from tenancy.evidence import keys

            statement_file, signer = bundle.ENVELOPE, ""
            kind, payload = bundle.verified_statement(folder, [keys.public_key(path) for path in trusted])
        summary, deviations = bundle.deviations_of_folder(folder, statement_file, kind, payload)
    except bundle.Unusable as error:
        fail(str(error), BAD_INPUT)
    for deviation in deviations:
        say(escape_invisible(f"{folder}/{deviation}"), err=True)
    if deviations:
        fail(f"{folder}: {len(deviations)} deviation{'s' * (len(deviations) > 1)} from the signed statement")
    click.echo(f"{folder}: as signed{signer}; environment {summary['environment']}, made {summary['made']}")


def _require_extra() -> None:
    """End with a message if the packages of the extra are not there."""
    if missing := [name for name in ("securesystemslib", "sigstore") if find_spec(name) is None]:
        input_text = f"an installation without {' and '.join(missing)}"
        fail(f'given {input_text}; rule: signatures need it; change: pip install "gpu-tenancy[evidence]"', BAD_INPUT)


def _require_option(option: str, present: bool, others: Mapping[str, object]) -> None:
    """End with a message if an option is given that says nothing without another."""
    for name, value in others.items():
        if value is not None and not present:
            fail(
                f"given {name} without {option}; rule: it has a meaning with {option} alone; change: add {option}, or "
                f"leave {name} out",
                BAD_INPUT,
            )


def _signer(key: Path | None, kms: str | None) -> tuple[str, Sign]:
    """Name of the file with the signed statement, and what signs a statement and says by whom."""
    from tenancy.evidence import bundle, keys

    signer = keys.signer_of_file(key) if key else keys.signer_of_kms(kms or "")
    return bundle.ENVELOPE, lambda statement: (bundle.envelope(statement, signer), "the key")


def _keyless_signer(trust_config: Path | None, token: str | None, client_id: str | None) -> tuple[str, Sign]:
    """The same as `_signer`, without a key."""
    from tenancy.evidence.keyless import BUNDLE, CLIENT_ID, KeylessSigner

    return BUNDLE, KeylessSigner(trust_config, token, client_id or CLIENT_ID).sign


def _attack(loaded: Loaded, plan: Plan) -> Attacks:
    """Attack the cluster now, as `tenancy verify` does."""
    from tenancy.cli.verify import lab_log
    from tenancy.evidence.collect import Attacks
    from tenancy.lab.layout import enter_lab
    from tenancy.live.api import Api, ApiUnreachable
    from tenancy.live.denial import AuditLog, ForeignLogError
    from tenancy.prove.attacks import all_attacks
    from tenancy.prove.verify import NotDeployedError, find_scene, run

    enter_lab(plan.context)
    try:
        api = Api(plan.context)
        log = lab_log(api)
        results = run(api, all_attacks(find_scene(api, loaded, plan)), AuditLog(log) if log else None)
    except (ForeignLogError, NotDeployedError, ApiUnreachable) as error:
        fail(str(error))
    problem = any(result.problem for result in results)
    agreement = "not compared" if log is None else "contradicts" if problem else "agrees"
    return Attacks([result.as_dict() for result in results], agreement, "cluster")
