from __future__ import annotations

import click

from tenancy.catalog.text import pluralize
from tenancy.cli.common import environment_argument, example, format_option, load_or_exit, print_json, print_notes
from tenancy.spec.loader import spec_notes


@click.command("validate", epilog=example("tenancy validate local"))
@environment_argument
@format_option
def command(environment: str, form: str) -> None:
    """Read the spec files of ENV and report every mistake in them.

    ENV is a name under stacks/ or a folder with an environment.yaml. Only files are read: no cluster and no Pulumi
    engine is needed. A note is not a mistake.

    Exit codes: 0 no mistake, 2 at least one.
    """
    loaded = load_or_exit(environment, form)
    notes = spec_notes(loaded)
    summary = {
        "environment": loaded.environment.environment,
        "tenants": len(loaded.tenants),
        "namespaces": sum(len(tenant.namespaces) for tenant in loaded.tenants),
        "problems": [],
        "notes": [note.as_dict() for note in notes],
    }
    if form == "json":
        print_json(summary)
    else:
        print_notes(notes)
        spaces = sum(len(tenant.namespaces) for tenant in loaded.tenants)
        counts = f"{pluralize(len(loaded.tenants), 'tenant')}, {pluralize(spaces, 'namespace')}"
        click.echo(f"{loaded.environment.environment}: {counts}, no problem")
