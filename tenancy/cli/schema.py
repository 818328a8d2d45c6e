from __future__ import annotations

import json
from pathlib import Path

import click

from tenancy.cli.common import example, report_write_errors


@click.command("schema", epilog=example("tenancy schema tenant"))
@click.argument("kind", type=click.Choice(["environment", "tenant"]), required=False)
@click.option("--markdown", is_flag=True, help="Print the page docs/spec.md.")
@click.option("--python", is_flag=True, help="Print the module tenancy/spec/typed.py: the models as TypedDicts.")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write both schemas into this folder, as environment.json and tenant.json.",
)
def command(kind: str | None, markdown: bool, python: bool, out: Path | None) -> None:
    """Print the JSON Schema of environment or tenant files, by default of both, or write both into a folder."""
    from tenancy.spec.json_schema import MODELS, reference, schema

    if markdown:
        click.echo(reference(), nl=False)
        return
    if python:
        from tenancy.spec.typed_dicts import module

        click.echo(module(), nl=False)
        return
    if out:
        with report_write_errors():
            out.mkdir(parents=True, exist_ok=True)
            for name in MODELS:
                (out / f"{name}.json").write_text(json.dumps(schema(name), indent=1) + "\n", "utf-8")
    for name in [kind] if kind else [] if out else list(MODELS):
        click.echo(json.dumps(schema(name), indent=2))
