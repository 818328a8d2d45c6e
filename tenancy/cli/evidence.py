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
    from tenancy.planning import Plan
    from tenancy.spec.loader import Loaded
    from tenancy.verify.evidence.collect import Attacks

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
    "--unsigned",
    is_flag=True,
    help="Write the statement without a signature, as statement.json, for another tool to sign, such as sigstore.",
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
    unsigned: bool,
    attacks: Path | None,
    judges: tuple[Path],
) -> None:
    """Write a signed folder of evidence about ENV: what the files say, which rules hold, and what was attacked.

    The folder has digests of the spec files, rendered objects and lock files, versions, rules, the attacks with their
    results, results of other tools, exceptions, the access review, the commits that changed the files, and a page that
    shows all of it. It has no secret and no mail address: an address is replaced by a digest of it. One statement
    (in-toto, in a DSSE envelope) names the digest of every file and is signed by a key; `--unsigned` leaves the
    signature to another tool.

    Exit codes: 0 the bundle was written, 1 an attack has a gap (the bundle says so) or the cluster did not answer,
    2 bad input; nothing is written.
    """
    signature_options = [
        name for name, input_text in (("--key", key), ("--kms", kms), ("--unsigned", unsigned)) if input_text
    ]
    if len(signature_options) != 1:
        input_text = " and ".join(signature_options) if signature_options else "none of --key, --kms and --unsigned"
        fail(f"given {input_text}; rule: one signature is made; change: name one of the three", BAD_INPUT)
    _require_extra()
    from tenancy.planning import make_plan
    from tenancy.verify.evidence import bundle, keys
    from tenancy.verify.evidence.collect import Measurements, files, read_attacks, read_judge, summary

    loaded = load_or_exit(environment, lab=lab)
    plan = make_plan(loaded, loaded.day)
    try:
        statement_file = bundle.STATEMENT if unsigned else bundle.ENVELOPE
        signer = keys.signer_of_file(key) if key else keys.signer_of_kms(kms) if kms else None
        judge_results = [judge for path in judges for judge in read_judge(path)]
        results = read_attacks(attacks) if attacks else _attack(loaded, plan)
        measurements = Measurements(recorded_time(), results, judge_results, statement_file)
        bundle_files = files(loaded, plan, measurements)
        statement = bundle.statement(bundle_files, summary(loaded, measurements))
        with report_write_errors():
            bundle.write(
                out, {**bundle_files, statement_file: bundle.envelope(statement, signer) if signer else statement}
            )
    except bundle.Unusable as error:
        fail(str(error), BAD_INPUT)
    counts = results.counts
    click.echo(
        f"{out}: {len(bundle_files)} files and a statement {'signed by the key' if signer else 'without a signature'}; "
        f"{counts['refused']} of "
        f"{counts['attacks']} attacks "
        f"refused, {counts['twins admitted']} twins admitted, audit log: {results.audit_log}"
    )
    if counts["gaps"]:
        sys.exit(FAILED)


@command.command(
    epilog=example(
        "tenancy evidence verify evidence-2026-11 --key signing.pub.pem\n"
        "  tenancy evidence verify evidence-2026-11 --signature-verified"
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
    "--signature-verified",
    is_flag=True,
    help="Compare the folder with its statement.json, whose signature you have verified with the tool that signed it.",
)
def verify(folder: Path, trusted: tuple[Path, ...], signature_verified: bool) -> None:
    """Verify a folder of evidence: who signed it, and that no file of it was changed, added or removed since.

    It needs neither network nor the files of the environment.

    Exit codes: 0 the folder is as it was signed, 1 a file deviates (each is named), 2 bad input, or no statement that a
    trusted key has signed.
    """
    if bool(trusted) == signature_verified:
        input_text = "both --key and --signature-verified" if trusted else "neither --key nor --signature-verified"
        fail(f"given {input_text}; rule: one kind of signature is verified; change: name one of the two", BAD_INPUT)
    _require_extra()
    from tenancy.verify.evidence import bundle, keys

    try:
        if signature_verified:
            statement_file, kind, payload = bundle.STATEMENT, bundle.PAYLOAD_TYPE, bundle.unsigned_statement(folder)
        else:
            statement_file = bundle.ENVELOPE
            kind, payload = bundle.verified_statement(folder, [keys.public_key(path) for path in trusted])
        summary, deviations = bundle.deviations_of_folder(folder, statement_file, kind, payload)
    except bundle.Unusable as error:
        fail(str(error), BAD_INPUT)
    for deviation in deviations:
        say(escape_invisible(f"{folder}/{deviation}"), err=True)
    if deviations:
        fail(f"{folder}: {len(deviations)} deviation{'s' * (len(deviations) > 1)} from the statement")
    words = "as its statement says" if signature_verified else "as signed"
    click.echo(f"{folder}: {words}; environment {summary['environment']}, made {summary['made']}")


def _require_extra() -> None:
    """End with a message if the package of the extra is not there."""
    if find_spec("securesystemslib") is None:
        fail(
            "given an installation without securesystemslib; rule: signatures need it; change: pip install "
            '"gpu-tenancy[evidence]"',
            BAD_INPUT,
        )


def _attack(loaded: Loaded, plan: Plan) -> Attacks:
    """Attack the cluster now, as `tenancy verify` does."""
    from tenancy.cli.verify import lab_log
    from tenancy.cluster.api import Api, ApiUnreachable
    from tenancy.cluster.denial import AuditLog, ForeignLogError
    from tenancy.lab.layout import enter_lab
    from tenancy.verify.attacks import all_attacks
    from tenancy.verify.evidence.collect import Attacks
    from tenancy.verify.verification import NotDeployedError, find_scene, run

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
