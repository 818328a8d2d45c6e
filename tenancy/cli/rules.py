from __future__ import annotations

from collections.abc import Collection, Mapping

import click

from tenancy.cli.common import example, format_option, print_json
from tenancy.rules.catalogue import RULES, Rule

FACES = ("file", "preview", "API server", "attack")


@click.command("rules", epilog=example("tenancy rules"))
@format_option
@click.option("--markdown", is_flag=True, help="Print the page docs/rules.md.")
def command(form: str, markdown: bool) -> None:
    """List the rules, and for each where it is enforced.

    The faces are read off the code: `file` when a spec file is read, `preview` in the policy pack, `API server`
    in the guards, `attack` in `tenancy verify`.
    """
    faces = _faces()
    if markdown:
        click.echo(_page(faces), nl=False)
    elif form == "json":
        print_json(
            [
                {
                    "id": r.id,
                    "title": r.title,
                    "why": r.why,
                    "fix": r.fix,
                    "severity": r.severity,
                    "faces": _of(r, faces),
                }
                for r in RULES.values()
            ]
        )
    else:
        for rule in RULES.values():
            click.echo(f"{rule.id:<10}{', '.join(_of(rule, faces)):<36}{rule.title}")


def _faces() -> Mapping[str, Collection[str]]:
    from tenancy.check.judge import JUDGED
    from tenancy.live.attacks import RULES_ATTACKED
    from tenancy.plan.guards import GUARDED
    from tenancy.spec import SPEC_RULES

    return dict(zip(FACES, (SPEC_RULES, JUDGED, GUARDED, RULES_ATTACKED), strict=True))


def _of(rule: Rule, faces: Mapping[str, Collection[str]]) -> list[str]:
    return [face for face, ids in faces.items() if rule.id in ids]


def _page(faces: Mapping[str, Collection[str]]) -> str:
    lines = [
        "# Rules",
        "",
        "Every rule, why it is there, and where it is enforced. Made by `tenancy rules --markdown`.",
        "",
        "| rule | refused when read | refused in a preview | refused by the API server | attacked |",
        "|---|---|---|---|---|",
    ]
    for rule in RULES.values():
        cells = ["yes" if rule.id in ids else "–" for ids in faces.values()]
        lines.append(f"| [{rule.id}](#{rule.id}) | {' | '.join(cells)} |")
    for rule in RULES.values():
        lines += ["", f"## {rule.id}", "", f"{rule.title[0].upper()}{rule.title[1:]}.", ""]
        lines += [f"- Why: {rule.why}.", f"- What to do: {rule.fix}.", f"- Severity: {rule.severity}."]
        if rule.advises:
            lines.append("- The policy pack advises: it refuses only where its configuration says mandatory.")
        if rule.waivable:
            lines.append("- An exception in the tenant file, with an end date, waives it.")
    return "\n".join(lines) + "\n"
