from __future__ import annotations

from importlib.metadata import version

import click

from tenancy.cli.common import BAD_INPUT, example, fail, format_option, print_json, recorded_time
from tenancy.rules.catalogue import RULES, Rule
from tenancy.rules.faces import faces_of, names_of
from tenancy.rules.model import FACES


@click.command("rules", epilog=example("tenancy rules"))
@format_option
@click.option("--markdown", is_flag=True, help="Print the page docs/rules.md.")
@click.option("--controls", is_flag=True, help="Print the page docs/controls.md: rules and controls of frameworks.")
@click.option("--oscal", is_flag=True, help="Print the control map as an OSCAL component definition, in JSON.")
def command(form: str, markdown: bool, controls: bool, oscal: bool) -> None:
    """List the rules, and where each rule is enforced.

    The places are: `file`, when a spec file is read; `preview`, by the policy pack and `tenancy check`; `API server`,
    by an admission policy; `AWS`, by IAM or another AWS service; `attack`, tested by an attack of `tenancy verify`.
    `preview (partly)` finds fewer violations than the other places; --markdown and --format json say why.

    --controls and --oscal map the rules to controls of CIS, NSA/CISA, AWS, NIST, ISO, DORA, HIPAA, NVIDIA and CNCF.
    With SOURCE_DATE_EPOCH set to a time in seconds, --oscal writes that time.
    """
    if markdown + controls + oscal > 1:
        fail("given more than one page; rule: one output; change: one of --markdown, --controls, --oscal", BAD_INPUT)
    if controls:
        from tenancy.rules.controls import page

        click.echo(page(), nl=False)
    elif oscal:
        from tenancy.rules.oscal import component_definition

        print_json(component_definition(version("gpu-tenancy"), recorded_time().isoformat()))
    elif markdown:
        click.echo(_page(), nl=False)
    elif form == "json":
        print_json(
            [
                {
                    "id": rule.id,
                    "title": rule.title,
                    "why": rule.why,
                    "fix": rule.fix,
                    "severity": rule.severity,
                    "faces": names_of(faces_of(rule)),
                    "partial": {FACES[face]: why for face, why in rule.partial.items()},
                }
                for rule in RULES.values()
            ]
        )
    else:
        for rule in RULES.values():
            click.echo(f"{rule.id:<10}{', '.join(_places(rule)):<46}{rule.title}")


def _places(rule: Rule) -> list[str]:
    faces = faces_of(rule)
    return [f"{name} (partly)" if face in rule.partial else name for face, name in FACES.items() if face in faces]


def _page() -> str:
    lines = [
        "# Rules",
        "",
        "Every rule, why it is there, and where it is enforced. Made by `tenancy rules --markdown`.",
        "",
        "| rule | refused when read | refused in a preview | refused by the API server | refused by AWS | attacked |",
        "|---|---|---|---|---|---|",
    ]
    for rule in RULES.values():
        faces = faces_of(rule)
        cells = ["–" if face not in faces else "partly" if face in rule.partial else "yes" for face in FACES]
        lines.append(f"| [{rule.id}](#{rule.id}) | {' | '.join(cells)} |")
    for rule in RULES.values():
        lines += ["", f"## {rule.id}", "", f"{rule.title[0].upper()}{rule.title[1:]}.", ""]
        lines += [f"- Why: {rule.why}.", f"- What to do: {rule.fix}.", f"- Severity: {rule.severity}."]
        lines += [f"- Partly in the {FACES[face]}: {why}." for face, why in rule.partial.items()]
        if rule.advises:
            lines.append("- The policy pack advises: it refuses only where its configuration says mandatory.")
        if rule.waivable:
            lines.append("- An exception in the tenant file, with an end date, waives it.")
    return "\n".join(lines) + "\n"
