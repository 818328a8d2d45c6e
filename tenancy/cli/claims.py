from __future__ import annotations

import click

from tenancy.cli.common import environment_argument, example, format_option, lab_option, load_or_exit, print_json


@click.command("claims", epilog=example("tenancy claims local"))
@environment_argument
@lab_option
@format_option
@click.option(
    "--markdown", is_flag=True, help="Print the page docs/claims.md: rules, controls with their cases, known gaps."
)
def command(environment: str, lab: bool, form: str, markdown: bool) -> None:
    """Show each control of ENV, and how many attacks succeed without it.

    The numbers are computed from the spec files; `tenancy verify` runs the attacks against a live cluster.
    """
    from tenancy.verify.claims import Claims, page

    loaded = load_or_exit(environment, form, lab)
    if markdown:
        click.echo(page(loaded), nl=False)
        return
    controls = Claims(loaded).controls()
    if form == "json":
        print_json(
            [
                {"control": control.name, "where": control.where, "cases": [attack.id for attack in control.attacks]}
                for control in controls
            ]
        )
        return
    for control in controls:
        first_attack = f"  {control.attacks[0].attack}" if control.attacks else ""
        click.echo(f"{control.name:<14}{control.where:<36}{len(control.attacks):>5}{first_attack}")
