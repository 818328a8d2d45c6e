from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

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
    writing,
)

if TYPE_CHECKING:
    from tenancy.evidence.collect import Attacks
    from tenancy.planning import Plan
    from tenancy.validation import Loaded

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
        "  tenancy evidence bank --out evidence-2026-11 --attacks attacks.json --key signing.pem"
    )
)
@environment_argument
@lab_option
@click.option("--out", type=_FILE, required=True, metavar="FOLDER", help="Write the bundle into this new folder.")
@click.option("--key", type=_FILE, metavar="FILE", help="Sign with the private key in this PEM file.")
@click.option("--kms", metavar="KEY", help="Sign with this asymmetric key of AWS KMS: its id, ARN or alias.")
@click.option(
    "--attacks",
    type=_FILE,
    metavar="FILE",
    help="Use the results in this file, the output of `tenancy verify ENV --format json`, instead of attacking the "
    "cluster now.",
)
@click.option(
    "--judge",
    "judges",
    type=_FILE,
    multiple=True,
    metavar="FILE",
    help="Add the result of another tool from this SARIF file; repeatable.",
)
def make(
    environment: str, lab: bool, out: Path, key: Path | None, kms: str | None, attacks: Path | None, judges: tuple[Path]
) -> None:
    """Write a signed folder of evidence about ENV: what the files say, which rules hold, and what was attacked.

    The folder has digests of the spec files, rendered objects and lock files, versions, rules, the attacks with their
    results, results of other tools, exceptions, the access review, the commits that changed the files, and a page that
    shows all of it. It has no secret and no mail address: an address is replaced by a digest of it. One statement
    (in-toto, in a DSSE envelope) names the digest of every file and is signed.

    Exit codes: 0 the bundle was written, 1 an attack has a gap (the bundle says so) or the cluster did not answer,
    2 bad input; nothing is written.
    """
    if (key is None) == (kms is None):
        given = "both --key and --kms" if key else "neither --key nor --kms"
        fail(f"given {given}; rule: one key signs the bundle; change: name one of the two", BAD_INPUT)
    from tenancy.evidence import bundle, keys
    from tenancy.evidence.collect import Measured, files, read_attacks, read_judge, summary
    from tenancy.planning import make_plan

    loaded = load_or_exit(environment, lab=lab)
    plan = make_plan(loaded.environment, loaded.tenants)
    try:
        signer = keys.signer_of_file(key) if key else keys.signer_of_kms(kms or "")
        told = [judge for path in judges for judge in read_judge(path)]
        results = read_attacks(attacks) if attacks else _attack(loaded, plan)
        measured = Measured(recorded_time(), results, told)
        made = files(loaded, plan, measured)
        envelope = bundle.envelope(bundle.statement(made, summary(loaded, measured)), signer)
        with writing():
            bundle.write(out, made, envelope)
    except bundle.Unusable as error:
        fail(str(error), BAD_INPUT)
    counts = results.counts
    click.echo(
        f"{out}: {len(made)} files and a signed statement; {counts['refused']} of {counts['attacks']} attacks refused, "
        f"{counts['twins admitted']} twins admitted, audit log: {results.audit_log}"
    )
    if counts["gaps"]:
        sys.exit(FAILED)


@command.command(epilog=example("tenancy evidence verify evidence-2026-11 --key signing.pub.pem"))
@click.argument("folder", type=_FILE, metavar="FOLDER")
@click.option(
    "--key",
    "trusted",
    type=_FILE,
    multiple=True,
    required=True,
    metavar="FILE",
    help="Trust the public key in this PEM file; repeatable, and one signature by one of them is enough.",
)
def verify(folder: Path, trusted: tuple[Path, ...]) -> None:
    """Verify a folder of evidence: who signed it, and that no file of it was changed, added or removed since.

    It needs neither network nor the files of the environment.

    Exit codes: 0 the folder is as it was signed, 1 a file deviates (each is named), 2 bad input, or no statement that a
    trusted key has signed.
    """
    from tenancy.evidence import bundle, keys

    try:
        about, deviations = bundle.verified(folder, [keys.public_key(path) for path in trusted])
    except bundle.Unusable as error:
        fail(str(error), BAD_INPUT)
    for deviation in deviations:
        click.echo(f"{folder}/{deviation}", err=True)
    if deviations:
        fail(f"{folder}: {len(deviations)} deviation{'s' * (len(deviations) > 1)} from the signed statement")
    click.echo(f"{folder}: as signed; environment {about['environment']}, made {about['made']}")


def _attack(loaded: Loaded, plan: Plan) -> Attacks:
    """Attack the cluster now, as `tenancy verify` does."""
    from tenancy.cli.verify import lab_log
    from tenancy.evidence.collect import Attacks
    from tenancy.lab.layout import enter_lab
    from tenancy.live.api import Api, ApiUnreachable
    from tenancy.live.denial import AuditLog, ForeignLogError
    from tenancy.prove.attacks import all_attacks
    from tenancy.prove.verify import NotDeployedError, run, scene_of

    enter_lab(plan.context)
    try:
        api = Api(plan.context)
        log = lab_log(api)
        results = run(api, all_attacks(scene_of(api, loaded, plan)), AuditLog(log) if log else None)
    except (ForeignLogError, NotDeployedError, ApiUnreachable) as error:
        fail(str(error))
    problem = any(result.problem for result in results)
    agreement = "not compared" if log is None else "contradicts" if problem else "agrees"
    return Attacks([result.as_dict() for result in results], agreement, "cluster")
