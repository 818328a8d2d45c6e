from __future__ import annotations

from pathlib import Path

import click

from tenancy.cli.common import environment_argument, example, fail, load_or_exit


@click.command("render", epilog=example("tenancy render local --out build/local"))
@environment_argument
@click.option(
    "--out", required=True, type=click.Path(file_okay=False, path_type=Path), help="Folder; made if it is not there."
)
def command(environment: str, out: Path) -> None:
    """Write the objects of ENV as YAML: the folder platform/ and one folder per tenant.

    The same objects as the engine makes, byte for byte the same at every run. Files are numbered in the
    order in which they are safe to apply. With `aws.enabled` also charts/, each chart with its values, and
    cluster/, what AWS is asked for: to read and compare, not for kubectl. Files of a former run that are no
    longer needed are removed; a folder that holds anything else is refused.
    """
    from tenancy.plan import make_plan
    from tenancy.plan.render import ForeignFiles, write

    loaded = load_or_exit(environment)
    try:
        count = write(make_plan(loaded.environment, loaded.tenants), out)
    except ForeignFiles as error:
        fail(str(error), 2)
    click.echo(f"{count} objects in {out}")
