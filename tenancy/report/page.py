"""A page for an environment, and one for a tenant: no network, no script, light and dark mode, printable.

A tenant's page has that tenant's numbers and no other tenant's name: facts about other tenants are only counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape

from tenancy.plan import make_plan
from tenancy.plan.access_review import BREAK_GLASS, Entry, not_made, review
from tenancy.plan.aws.prices import MICRO
from tenancy.report.facts import Bar, Facts, Member, dollars, facts, number, pools_monthly, some
from tenancy.report.given import Budgeted, Charged, Course
from tenancy.report.planes import Cell, Kind, Plane, Planes, counts
from tenancy.report.style import STYLE, tabs
from tenancy.rules.catalogue import RULES
from tenancy.schema.tenant import Tenant
from tenancy.simulation import drawing
from tenancy.simulation.page import STYLE as SHARED_STYLE
from tenancy.validation import Environment, Loaded

MOST = 40
"""Max tenants for which all pairs fit on a page; with more tenants, only pairs that are not closed are listed."""
PLATFORM = "the platform"
POLICY = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
"""Makes the browser block all network requests and scripts of a page."""
SAID: Mapping[Kind, str] = {
    Kind.CLOSED: "closed",
    Kind.SHARED: "shared, and isolated within",
    Kind.GIVEN: "given: granted by the files",
    Kind.OPEN: "open",
}
PROVEN = (
    "“Closed” is computed from the generated objects, not from the intent of the files. `tenancy rules` lists the "
    "rules; attacks run against a live cluster, and count as refused only if the named control refuses them."
)


class Pages:
    """All pages of one environment; shared facts are computed once."""

    def __init__(self, loaded: Loaded, course: Course | None = None, charged: Charged | None = None) -> None:
        self.loaded, self.plan = loaded, make_plan(loaded.environment, loaded.tenants)
        self.facts: Facts = facts(loaded)
        self.planes = Planes(loaded, self.plan).all()
        self.charged = charged
        self.course = course or (charged.course if charged else None)
        self.entries = review(loaded.environment, loaded.tenants, self.plan)
        self.not_made = not_made(loaded.environment, loaded.tenants, self.plan)
        """Grants on AWS in files with aws.enabled: false."""

    def environment(self) -> str:
        """The page of the whole environment."""
        name = self.loaded.environment.environment
        return _page(f"Tenancy of {name}", _environment(self), len(self.planes))

    def tenant(self, name: str) -> str:
        """The page of one tenant."""
        member = self.facts.member(name)
        return _page(f"{member.spec.title or name}: GPUs of {name}", _tenant(self, member), len(self.planes))


def _page(title: str, body: Iterable[str], planes: int) -> str:
    inside = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8">{POLICY}'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{SHARED_STYLE}{STYLE}{tabs(planes)}</style></head>\n"
        f"<body>\n{inside}\n</body>\n</html>\n"
    )


# The environment


def _environment(of: Pages) -> Iterator[str]:
    facts, environment = of.facts, of.loaded.environment
    aws = f", {environment.aws.region}" if environment.aws.enabled else ""
    about = f"cluster {environment.cluster.name}, Kubernetes {environment.cluster.kubernetes}{aws}"
    yield _header(f"Tenancy of {environment.environment}", about)
    sections = ("Tenants", "Capacity", "Isolation", "Over time", "Cost", "Access")
    yield _nav(sections)
    yield _environment_tiles(of)
    yield _title(sections[0])
    yield _who_has_what(facts)
    yield _title(sections[1])
    yield from _capacity(facts.bars)
    yield from _without_gpus(of.loaded.environment)
    yield _title(sections[2])
    yield from _isolation(of.planes, [member.name for member in facts.members])
    yield _title(sections[3])
    yield from _over_time(of.course, None)
    yield _title(sections[4])
    yield from _environment_cost(of)
    yield _title(sections[5])
    yield from _access(of, None)
    yield _footer(f"tenancy report {environment.environment}")


def _environment_tiles(of: Pages) -> str:
    facts, environment = of.facts, of.loaded.environment
    pools = environment.pools.values()
    sure, most = sum(p.nodes.min for p in pools), sum(p.nodes.max for p in pools)
    gpus = [sum(p.machine.gpus * getattr(p.nodes, end) for p in pools) for end in ("min", "max")]
    promised = sum((member.gpus for member in facts.members), start=0)
    found = counts(of.planes)
    spaces = sum(len(member.spec.namespaces) for member in facts.members)
    closed = found[Kind.CLOSED]
    whole, unpriced = pools_monthly(environment)
    return _tiles(
        [
            ("tenants", str(len(facts.members)), _several(spaces, "namespace")),
            ("GPUs always on", str(gpus[0]), _range(sure, most, "node", gpus[1])),
            ("guaranteed", number(promised), f"{_share(float(promised), gpus[0])} of those always on"),
            ("paths between tenants", f"{closed:,} closed", _ways(found)),
            (
                "guaranteed nodes",
                dollars(whole),
                "a month" + (f", without {some(unpriced)}: no price" if unpriced else ""),
            ),
        ]
    )


def _range(sure: int, most: int, what: str, gpus: int) -> str:
    return _several(sure, what) if sure == most else f"on {sure} {what}s; max {gpus} on {most}"


def _several(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"


def _share(part: float, whole: float) -> str:
    return f"{part / whole:.0%}" if whole else "–"


def _ways(found: Mapping[Kind, int]) -> str:
    some = [f"{found[kind]:,} {word}" for kind, word in ((Kind.SHARED, "shared"), (Kind.GIVEN, "given")) if found[kind]]
    return ", ".join([*some, f"{found[Kind.OPEN]:,} open"])


def _who_has_what(facts: Facts) -> str:
    largest = max([member.gpus for member in facts.members if member.gpus], default=1)
    rows = []
    for member in facts.members:
        spec = member.spec
        parts = "".join(
            f'<span class="chip" title="tier {escape(spec.tier_of(part))}">{escape(part.name)}'
            f"{'' if spec.tier_of(part) == spec.tier else f' · {escape(spec.tier_of(part))}'}</span>"
            for part in spec.namespaces
        )
        held = [each for each in member.held if each.guaranteed or each.borrows]
        lines = [[f"{each.guaranteed} {each.flavor}" for each in held]]
        lines += [[str(getattr(each, name) or "–") for each in held] for name in ("lends", "borrows")]
        width = f"{100 * float(member.gpus / largest):.1f}"
        rows.append(
            f"<tr><td><b>{escape(member.name)}</b><br><small>{escape(spec.title or spec.team)}</small></td>"
            f"<td>{escape(spec.department)}<br><small>{escape(spec.tier)}</small></td><td>{parts}</td>"
            + "".join(f'<td class="n">{"<br>".join(map(escape, line)) or "–"}</td>' for line in lines)
            + f'<td><div class="bar" role="img" aria-label="{number(member.gpus)} GPUs">'
            f'<i class="kept" style="width:{width}%"></i></div></td><td class="n">{number(member.gpus)}</td></tr>'
        )
    head = _head(
        ("tenant", ""),
        ("department, tier", ""),
        ("namespaces", ""),
        ("guaranteed", "n"),
        ("lends", "n"),
        ("may borrow", "n"),
        ("", ""),
        ("GPUs", "n"),
    )
    return (
        f'<div class="scroll"><table>{head}<tbody>{"".join(rows)}</tbody></table></div>'
        '<p class="soft">Lends: max number that others may use while it is idle. May borrow: the limit in its file; '
        "the available number depends on idle GPUs. GPUs: the guarantee in whole GPUs; a slice is its part of one.</p>"
    )


def _capacity(bars: Sequence[Bar]) -> Iterator[str]:
    if not bars:
        yield '<p class="missing">The environment declares no pools with flavors.</p>'
        return
    yield (
        '<div class="legend"><span><i class="kept"></i>guaranteed and kept</span><span><i class="lent"></i>guaranteed, '
        'lent while idle</span><span><i class="free"></i>unallocated</span><span><i class="luck"></i>'
        "autoscaled, not guaranteed</span></div>"
    )
    rows = []
    for bar in bars:
        whole = max(bar.at_most, bar.kept + bar.lent, 1)
        parts = "".join(
            f'<i class="{name}" style="width:{100 * value / whole:.2f}%" title="{title}: {value}"></i>'
            for name, value, title in (
                ("kept", bar.kept, "guaranteed and kept"),
                ("lent", bar.lent, "guaranteed, lent while idle"),
                ("free", bar.free, "unallocated"),
                ("luck", max(0, bar.luck), "autoscaled, not guaranteed"),
            )
            if value > 0
        )
        said = f"{bar.kept + bar.lent} of {bar.surely} always on are guaranteed"
        rows.append(
            f"<tr><td><b>{escape(bar.pool)}</b></td><td>{escape(bar.flavor)}</td>"
            f'<td class="grow"><div class="bar" role="img" aria-label="{said}">{parts}</div></td>'
            + "".join(
                f'<td class="n">{value}</td>' for value in (bar.kept + bar.lent, bar.lent, bar.surely, bar.at_most)
            )
            + "</tr>"
        )
    head = _head(
        ("pool", ""),
        ("flavor", ""),
        ("", ""),
        ("guaranteed", "n"),
        ("lent", "n"),
        ("always on", "n"),
        ("max", "n"),
    )
    yield f'<div class="scroll"><table class="wide">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _without_gpus(environment: Environment) -> Iterator[str]:
    """Pools without GPUs."""
    found = [
        f"{name}, {pool.nodes.min} to {pool.nodes.max} {pool.instance}"
        for name, pool in sorted(environment.pools.items())
        if not pool.machine.gpus
    ]
    if found:
        yield f'<p class="soft">Without GPUs: {escape("; ".join(found))}.</p>'


# Isolation


def _isolation(planes: Sequence[Plane], names: Sequence[str]) -> Iterator[str]:
    if len(names) < 2:
        yield '<p class="missing">The environment has one tenant only.</p>'
        return
    axes = "Row: the tenant that attempts access. Column: the tenant whose resources it attempts to reach."
    yield f'<p class="soft">{axes} {_code(PROVEN)}</p>'
    chips = "".join(f'<span><i class="{kind}"></i>{SAID[kind]}</span>' for kind in Kind)
    yield f'<div class="legend">{chips}</div>'
    parts = []
    for at, plane in enumerate(planes):
        matrix = _matrix(plane, names) if len(names) <= MOST else _listed(plane, len(names))
        parts.append(
            f'<section class="plane" id="part-{at}"><h3>{escape(plane.name.capitalize())}: {escape(plane.asks)}</h3>'
            f'<div class="scroll">{matrix}</div>{_key(plane.cells.values())}</section>'
        )
    yield _tabbed(planes, parts)


def _tabbed(planes: Sequence[Plane], parts: Sequence[str]) -> str:
    boxes = "".join(
        f'<input type="radio" name="plane" id="plane-{at}"{" checked" if not at else ""}>' for at in range(len(planes))
    )
    labels = "".join(f'<label for="plane-{at}">{escape(plane.name)}</label>' for at, plane in enumerate(planes))
    return f'<div class="tabs">{boxes}<div class="names">{labels}</div>{"".join(parts)}</div>'


def _matrix(plane: Plane, names: Sequence[str]) -> str:
    head = "".join(f'<th scope="col"><span>{escape(name)}</span></th>' for name in names)
    rows = []
    for one in names:
        cells = []
        for other in names:
            if one == other:
                cells.append('<td class="self">·</td>')
                continue
            cell = plane.cells[one, other]
            said = f"{one} → {other}: {cell.said}. {cell.holds}; rules {', '.join(cell.rules)}; {cell.proof}"
            cells.append(f'<td class="{cell.kind}" title="{escape(said)}">{escape(cell.word)}</td>')
        rows.append(f'<tr><th scope="row">{escape(one)}</th>{"".join(cells)}</tr>')
    return f'<table class="mx"><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'


def _listed(plane: Plane, tenants: int) -> str:
    """The list for many tenants: pairs that are not closed, and the number of closed pairs."""
    told = [(pair, cell) for pair, cell in plane.cells.items() if cell.kind in {Kind.GIVEN, Kind.OPEN}]
    closed = len(plane.cells) - len(told)
    rows = "".join(
        f'<tr><td>{escape(one)}</td><td>{escape(other)}</td><td class="{cell.kind}">{escape(cell.word)}</td></tr>'
        for (one, other), cell in told[: MOST * MOST]
    )
    left = f"; {len(told) - MOST * MOST:,} more are not shown" if len(told) > MOST * MOST else ""
    note = (
        f'<p class="soft">{tenants} tenants: {closed:,} of {len(plane.cells):,} pairs are closed or shared{left}.</p>'
    )
    head = _head(("one", ""), ("of the other", ""), ("may", ""))
    return note + (f"<table>{head}<tbody>{rows}</tbody></table>" if rows else "")


def _key(cells: Iterable[Cell], of: str = "pairs") -> str:
    """Each distinct answer once, with its rules, the control that enforces it and a command that tests it."""
    found: dict[tuple[Kind, str, tuple[str, ...], str], list[Cell]] = {}
    for cell in cells:
        found.setdefault((cell.kind, cell.said, cell.rules, cell.holds), []).append(cell)
    order = list(Kind)[::-1]
    rows = []
    for (kind, said, rules, holds), same in sorted(
        found.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
    ):
        proofs = list(dict.fromkeys(cell.proof for cell in sorted(same, key=lambda cell: _of_pair(cell.proof))))
        shown = proofs[0] + (
            f"; {len(proofs) - 1} more like it in the cells"
            if len(proofs) > 2
            else f"; {proofs[1]}"
            if proofs[1:]
            else ""
        )
        word = max((cell.word for cell in same), key=lambda word: (len(word), word))  # of limits the largest
        count = f" <small>{len(same):,} {of}</small>" if of else ""
        rows.append(
            f'<li><span class="word {kind}">{escape(word)}</span><div>'
            f"<p>{escape(said[0].upper() + said[1:])}.{count}</p>"
            f"<p><small>enforced by {escape(holds)} · {_rules(rules)} · {escape(shown)}</small></p></div></li>"
        )
    return f'<ul class="key">{"".join(rows)}</ul>'


def _of_pair(proof: str) -> tuple[bool, str]:
    return "of neighbouring" in proof, proof


def _rules(ids: Sequence[str]) -> str:
    return "".join(f'<code class="rule" title="{escape(RULES[id].title)}">{id}</code>' for id in ids)


# Over time


def _over_time(course: Course | None, only: str | None) -> Iterator[str]:
    if course is None or (only is not None and only not in course.held):
        how = (
            "`--simulation` with a result of `tenancy simulate`, or `--chargeback` with one of several periods, adds it"
        )
        what = "GPUs in use over time are not shown: no result was given" if course is None else "No GPU was in use"
        yield f'<p class="missing">{_code(f"{what}. {how}.")}</p>'
        return
    held = {only: course.held[only]} if only is not None else dict(course.held)
    lent = {only: course.borrowed.get(only, [0.0])} if only is not None else dict(course.borrowed)
    colours = _colours(held)
    yield f'<p class="soft">{escape(course.source)}</p>'
    yield drawing.legend(colours) if only is None else ""
    limit = course.capacity if only is None else None
    most = max([limit or 0.0, *map(sum, zip(*held.values(), strict=True)), 1.0])
    width = len(next(iter(held.values())))
    layers = drawing.layers(held, colours, width)
    yield '<div class="pair">'
    used = drawing.stacked(layers, colours, most, course.hours, limit, "GPUs in use by tenant")
    yield f"<figure><h3>GPUs in use</h3>{used}</figure>"
    sums = [sum(values[at] if at < len(values) else 0.0 for values in lent.values()) for at in range(width)]
    above = drawing.layers(
        {name: list(values) for name, values in lent.items() if len(values) == width}, colours, width
    )
    chart = drawing.stacked(above, colours, max([1.0, *sums]), course.hours, None, "GPUs borrowed by tenant")
    yield f"<figure><h3>of these, borrowed</h3>{chart}</figure>"
    yield "</div>"
    if limit:
        yield '<p class="soft">The dashed line is the total number of GPUs.</p>'
    if only is None and any(value is not None for value in course.fairness):
        chart = drawing.line(course.fairness, course.hours, "var(--accent)", "Jain's index over time")
        yield f'<figure class="one"><h3>Fairness of borrowing</h3>{chart}</figure>'
        yield (
            '<p class="soft">Jain’s index of borrowed GPUs divided by weight, among tenants that borrow or wait to: 1 '
            "is even, and 1/n means that one of n tenants has all of them.</p>"
        )


def _colours(held: Mapping[str, Sequence[float]]) -> dict[str, str]:
    order = sorted(held, key=lambda name: (-sum(held[name]), name))
    found = dict(zip(order, drawing.COLOURS, strict=False))
    return found | ({drawing.OTHERS: drawing.REST} if len(order) > len(found) else {})


# Cost


def _environment_cost(of: Pages) -> Iterator[str]:
    if of.charged:
        yield from _charged(of.charged)
        return
    yield _no_chargeback()
    facts = of.facts
    whole, unpriced = pools_monthly(of.loaded.environment)
    for name in unpriced:
        yield f'<p class="missing">Pool {escape(name)} has no known price: its cost is not included.</p>'
    members = [member for member in facts.members if member.places]
    paid = [(member.name, member.monthly / MICRO, "") for member in members]
    left = whole / MICRO - sum(amount for _, amount, _ in paid)
    yield _amounts(
        sorted(paid, key=lambda row: (-row[1], row[0])),
        [("unallocated", max(0.0, left))],
        "guarantees at the price of the nodes that are always on, a month",
    )


def _no_chargeback() -> str:
    return (
        f'<p class="missing">{_code("Actual costs are not shown: no result was given. `--chargeback` adds them.")} '
        "Below is the min cost of the guarantees by the prices of the files: guaranteed × part of a node × price of a "
        "node-hour × 730 hours.</p>"
    )


def _amounts(rows: Sequence[tuple[str, float, str]], more: Sequence[tuple[str, float]], caption: str) -> str:
    """A table of names with bars; rows of `more` are below, with the sum."""
    whole = sum(amount for _, amount, _ in rows) + sum(amount for _, amount in more)
    largest = max([amount for _, amount, _ in rows] + [amount for _, amount in more], default=0) or 1
    lines = [(name, amount, note, False) for name, amount, note in rows]
    lines += [(name, amount, "", True) for name, amount in more if amount]
    body = "".join(
        f"<tr><td>{f'<i>{escape(name)}</i>' if extra else f'<b>{escape(name)}</b>'}</td>"
        f'<td class="grow"><div class="bar"><i class="{"free" if extra else "thin"}" '
        f'style="width:{max(0.0, 100 * amount / largest):.2f}%"></i></div></td>'
        f'<td class="n">${amount:,.0f}</td><td class="n">{_share(amount, whole)}</td><td><small>{escape(note)}</small>'
        "</td></tr>"
        for name, amount, note, extra in lines
    )
    foot = f'<tfoot><tr><td>all</td><td></td><td class="n">${whole:,.0f}</td><td></td><td></td></tr></tfoot>'
    head = _head(("", ""), ("", ""), ("dollars", "n"), ("share", "n"), ("", ""))
    return (
        f'<div class="scroll"><table class="wide">{head}'
        f'<tbody>{body}</tbody>{foot}</table></div><p class="soft">{escape(caption)}</p>'
    )


def _charged(charged: Charged) -> Iterator[str]:
    yield f'<p class="soft">{_span(charged)}</p>'
    for lack in charged.named:
        yield f'<p class="missing">{escape(lack)}</p>'
    own = [(name, amount, _note(charged, name)) for name, amount in charged.paid.items() if not name.startswith("(")]
    rest = [(name, amount) for name, amount in charged.paid.items() if name.startswith("(")]
    yield _amounts(sorted(own, key=lambda row: (-row[1], row[0])), rest, "the lines add up to the bill")
    if charged.budgets:
        yield "<h3>Budgets</h3>"
        yield _budgets(dict(sorted(charged.budgets.items())))
    yield from _efficiency(charged, sorted(charged.used))


def _span(charged: Charged) -> str:
    return f"{escape(charged.start[:10])} to {escape(charged.end[:10])}, as charged back"


def _note(charged: Charged, name: str) -> str:
    parts = charged.parts.get(name, {})
    told = [
        f"{category} ${amount:,.0f}" for category, amount in sorted(parts.items(), key=lambda p: -p[1]) if round(amount)
    ]
    return ", ".join(told[:3])


def _budgets(found: Mapping[str, Sequence[Budgeted]]) -> str:
    rows = []
    for name, months in found.items():
        for month in months:
            part = month.so_far / month.budget if month.budget else 0.0
            state = (
                f"{month.reached} % reached"
                if month.reached
                else f"{month.expected} % expected"
                if month.expected
                else ""
            )
            colour = "over" if part >= 1 else "thin"
            rows.append(
                f"<tr><td><b>{escape(name)}</b></td><td>{escape(month.period)}</td>"
                f'<td class="grow"><div class="bar" role="img" aria-label="{part:.0%}"><i class="{colour}" '
                f'style="width:{100 * min(1.0, part):.2f}%"></i></div></td><td class="n">${month.so_far:,.0f}</td>'
                f'<td class="n">{part:.0%}</td><td class="n">${month.budget:,.0f}</td>'
                f'<td class="n">${month.forecast:,.0f}</td><td>{escape(state)}</td></tr>'
            )
    head = _head(
        ("", ""), ("month", ""), ("", ""), ("so far", "n"), ("", "n"), ("budget", "n"), ("forecast", "n"), ("alert", "")
    )
    return f'<div class="scroll"><table class="wide">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _efficiency(charged: Charged, names: Sequence[str]) -> Iterator[str]:
    told = [(name, charged.used[name]) for name in names if name in charged.used]
    if not told:
        return
    yield "<h3>Held and used, GPU-hours</h3>"
    rows = "".join(
        f'<tr><td><b>{escape(name)}</b></td><td class="n">{used.held:,.0f}</td>'
        f'<td class="n">{"–" if used.used is None else f"{used.used:,.0f}"}</td>'
        f'<td class="n">{"–" if used.efficiency is None else f"{used.efficiency:.0f} %"}</td>'
        f'<td class="n">{used.idle:,.0f}</td><td class="n">${used.idle_dollars:,.0f}</td></tr>'
        for name, used in told
    )
    head = _head(
        ("", ""), ("held", "n"), ("used", "n"), ("used of held", "n"), ("idle, paid for", "n"), ("idle $", "n")
    )
    yield f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'
    if blind := [name for name, used in told if used.used is None]:
        yield f'<p class="missing">Nothing was measured of {escape(some(blind))}: what they used is not known.</p>'


# Access


def _access(of: Pages, only: str | None) -> Iterator[str]:
    everywhere = {"Group", BREAK_GLASS}  # the platform group has access everywhere
    shown: list[Entry] = [
        entry
        for entry in of.entries
        if only is None or entry.tenant == only or (not entry.tenant and entry.kind in everywhere)
    ]
    rows = "".join(
        f"<tr>{'' if only else f'<td>{escape(entry.tenant or PLATFORM)}</td>'}"
        f"<td>{escape(entry.kind)}</td><td>{escape(entry.who)}</td><td>{escape(entry.role)}</td>"
        f"<td>{escape(', '.join(entry.where))}</td></tr>"
        for entry in shown
    )
    columns = [("tenant", "")] if only is None else []
    head = _head(*columns, ("kind", ""), ("who", ""), ("role or access", ""), ("where", ""))
    yield '<p class="soft">Access by the files. Group membership is decided by your identity provider.</p>'
    if missing := sum(only in (None, entry.tenant) for entry in of.not_made):
        said = f"{_several(missing, 'grant')} on AWS in the files: not created, because aws.enabled is false."
        yield f'<p class="missing">{said}</p>'
    table = f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'
    opened = " open" if only is not None or len(shown) <= MOST else ""
    yield f"<details{opened}><summary>{_several(len(shown), 'line')}</summary>{table}</details>"


# A tenant


def _tenant(of: Pages, member: Member) -> Iterator[str]:
    spec, environment = member.spec, of.loaded.environment
    about = f"{spec.team}, {spec.cost_center}; in {environment.environment}"
    yield _header(spec.title or member.name, about)
    sections = ("Share", "Isolation", "Over time", "Cost", "Access")
    yield _nav(sections)
    yield _tenant_tiles(of, member)
    yield _title(sections[0])
    yield _parts(member)
    yield _flavors(member)
    yield _title(sections[1])
    yield from _around(of, member)
    yield _title(sections[2])
    yield from _over_time(of.course, member.name)
    yield _title(sections[3])
    yield from _tenant_cost(of, member)
    yield _title(sections[4])
    yield from _access(of, member.name)
    yield _footer(f"tenancy report {environment.environment} --tenant {member.name}")


def _tenant_tiles(of: Pages, member: Member) -> str:
    borrows = [f"{each.borrows} {each.flavor}" for each in member.held if each.borrows]
    lends = [f"{each.lends} {each.flavor}" for each in member.held if each.lends]
    budget = member.spec.budget
    most = f"of a budget of ${budget.monthly_usd:,}" if budget else "no budget is set, so no alert is sent"
    charged = of.charged.paid.get(member.name) if of.charged else None
    cost = (
        ("paid", f"${charged:,.0f}", f"{_span(of.charged)}")
        if charged is not None and of.charged
        else ("guarantee, a month", dollars(member.monthly), most)
    )
    return _tiles(
        [
            ("guaranteed", number(member.gpus), "GPUs; a slice counts as its part"),
            ("may borrow", borrows[0] if borrows else "nothing", ", ".join(borrows[1:]) or "of idle GPUs"),
            ("lends", lends[0] if lends else "nothing", ", ".join(lends[1:]) or "while it is idle"),
            cost,
        ]
    )


def _parts(member: Member) -> str:
    spec = member.spec
    rows = "".join(
        f"<tr><td><b>{escape(spec.namespace_name(part))}</b></td><td>{escape(part.purpose)}</td>"
        f"<td>{escape(spec.tier_of(part))}</td>"
        f'<td class="n">{escape(_held(spec.held_in(part)))}</td></tr>'
        for part in spec.namespaces
    )
    head = _head(("namespace", ""), ("purpose", ""), ("tier", ""), ("guaranteed", "n"))
    return f'<div class="scroll"><table>{head}<tbody>{rows}</tbody></table></div>'


def _held(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {flavor}" for flavor, count in counts.items() if count) or "–"


def _flavors(member: Member) -> str:
    held = [each for each in member.held if each.guaranteed or each.borrows]
    if not held:
        return '<p class="missing">No GPUs: the file has no flavor.</p>'
    rows = []
    for each in held:
        whole = max(each.guaranteed + each.borrows, 1)
        parts = (
            ("kept", each.guaranteed - each.lends, "guaranteed and kept"),
            ("lent", each.lends, "guaranteed, lent while idle"),
            ("luck", each.borrows, "may be borrowed"),
        )
        bar = "".join(
            f'<i class="{name}" style="width:{100 * value / whole:.2f}%" title="{title}: {value}"></i>'
            for name, value, title in parts
            if value
        )
        rows.append(
            f'<tr><td><b>{escape(each.flavor)}</b></td><td class="grow"><div class="bar">{bar}</div></td>'
            + "".join(f'<td class="n">{value or "–"}</td>' for value in (each.guaranteed, each.lends, each.borrows))
            + "</tr>"
        )
    legend = (
        '<div class="legend"><span><i class="kept"></i>guaranteed and kept</span><span><i class="lent"></i>guaranteed, '
        'lent while idle</span><span><i class="luck"></i>may be borrowed</span></div>'
    )
    head = _head(("flavor", ""), ("", ""), ("guaranteed", "n"), ("lends", "n"), ("may borrow", "n"))
    return f'{legend}<div class="scroll"><table class="wide">{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _around(of: Pages, member: Member) -> Iterator[str]:
    """Access between this tenant and others, counted, and its connections to the outside."""
    others = len(of.facts.members) - 1
    yield f'<p class="soft">{_code(PROVEN)}</p>'
    if not others:
        yield '<p class="missing">The environment has one tenant only.</p>'
        return
    chips = "".join(f'<span><i class="{kind}"></i>{SAID[kind]}</span>' for kind in Kind)
    yield f'<div class="legend">{chips}</div>'
    parts = []
    for at, plane in enumerate(of.planes):
        sides = []
        for title, side in (("other tenants to this tenant", 1), ("this tenant to other tenants", 0)):
            names = (other.name for other in of.facts.members)
            pairs = ((other, member.name) if side else (member.name, other) for other in names)
            cells = [_nameless(plane.cells[pair]) for pair in pairs if pair in plane.cells]
            sides.append(f"<div><h3>Access of {title}</h3>{_key(cells, f'of {others}')}</div>")
        parts.append(
            f'<section class="plane" id="part-{at}"><h3>{escape(plane.name.capitalize())}: {escape(plane.asks)}</h3>'
            f'<div class="pair">{"".join(sides)}</div></section>'
        )
    yield _tabbed(of.planes, parts)
    spec = member.spec
    said = ", ".join(way.place for way in spec.reach) or "nothing but cluster DNS"
    yield f"<p>Destinations outside of the cluster that its pods may connect to: {escape(said)}{_cloud(of, spec)}.</p>"
    enters = ", ".join(way.place for way in spec.accept) or "nothing"
    yield f"<p>Sources outside of the cluster that may connect to its pods: {escape(enters)}.</p>"
    if len(spec.namespaces) > 1:
        parts = "may connect to each other's pods" if spec.between_parts else "are closed to each other"
        yield f"<p>Its parts {parts}.</p>"


def _cloud(of: Pages, spec: Tenant) -> str:
    named = any(spec.has_identity(part) for part in spec.namespaces) and of.loaded.environment.aws.enabled
    return "; and AWS, for parts that have an identity there" if named else ""


def _nameless(cell: Cell) -> Cell:
    """The cell in a form for a tenant's page, without commands that name other tenants."""
    proof = cell.proof
    if "who-can" in proof:
        proof = "tenancy can shows the statements"
    if "of this pair" in proof or "of neighbouring" in proof:
        proof = "attacks: tenancy verify --only rbac-, of pairs of tenants"
    return cell._replace(proof=proof, holds=cell.holds if cell.kind is not Kind.OPEN else "nothing")


def _tenant_cost(of: Pages, member: Member) -> Iterator[str]:
    charged = of.charged
    if charged and member.name in charged.paid:
        yield f'<p class="soft">{_span(charged)}</p>'
        parts = sorted(charged.parts.get(member.name, {}).items(), key=lambda part: (-part[1], part[0]))
        yield _amounts([(category, amount, "") for category, amount in parts], [], "costs by category")
        if member.name in charged.budgets:
            yield "<h3>Budget</h3>"
            yield _budgets({member.name: charged.budgets[member.name]})
        elif member.spec.budget is None:
            yield '<p class="missing">No budget is set in the file, so no alert is sent.</p>'
        yield from _efficiency(charged, [member.name])
        return
    if charged:
        yield '<p class="missing">The given chargeback has no line for this tenant.</p>'
    else:
        yield _no_chargeback()
    for pool in member.unpriced:
        yield f'<p class="missing">Pool {escape(pool)} has no known price: its cost is not included.</p>'
    rows = [
        (f"{place.count} {place.flavor}", place.monthly / MICRO, f"in {place.pool}")
        for place in member.places
        if place.monthly is not None
    ]
    if rows:
        yield _amounts(sorted(rows, key=lambda row: (-row[1], row[0])), [], "a month")
    else:
        yield "<p>The tenant has no guarantees, so there is no min cost.</p>"


# Pieces


def _header(title: str, about: str) -> str:
    return f'<header><h1>{escape(title)}</h1><p class="soft">{escape(about)}</p></header>'


def _footer(command: str) -> str:
    return f'<footer class="soft">Made by <code>{escape(command)}</code>; the same files give the same page.</footer>'


def _anchor(title: str) -> str:
    return title.lower().replace(" ", "-")


def _nav(sections: Sequence[str]) -> str:
    links = "".join(f'<a href="#{_anchor(title)}">{title}</a>' for title in sections)
    return f"<nav>{links}</nav>"


def _title(title: str) -> str:
    return f'<h2 id="{_anchor(title)}">{title}</h2>'


def _tiles(tiles: Sequence[tuple[str, str, str]]) -> str:
    inside = "".join(
        f'<div class="tile"><span class="soft">{escape(name)}</span><b>{escape(value)}</b><small>{escape(more)}</small>'
        "</div>"
        for name, value, more in tiles
    )
    return f'<div class="tiles">{inside}</div>'


def _head(*columns: tuple[str, str]) -> str:
    inside = "".join(f"<th{f' class={of}' if of else ''}>{escape(name)}</th>" for name, of in columns)
    return f"<thead><tr>{inside}</tr></thead>"


def _code(text: str) -> str:
    """Text as HTML; parts between backquotes are code."""
    parts = escape(text).split("`")
    return "".join(f"<code>{part}</code>" if at % 2 else part for at, part in enumerate(parts))
