"""Isolation as rows: the matrix of tenants on a plane, the list of pairs, and the key of the cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tenancy.report.planes import Cell, CellKind, Plane
from tenancy.rules.catalogue import RULES

MAX_TENANTS = 40
"""Max tenants for which all pairs fit on a page; with more tenants, only pairs that are not closed are listed."""
MEANINGS: Mapping[str, str] = {
    CellKind.CLOSED: "closed",
    CellKind.SHARED_RESOURCE: "shared, and isolated within",
    CellKind.GRANTED: "given: granted by the files",
    CellKind.OPEN: "open",
}


@dataclass(frozen=True, slots=True)
class CellView:
    """A cell of the matrix: its kind is its colour, its title the whole answer."""

    kind: str
    word: str
    title: str


@dataclass(frozen=True, slots=True)
class MatrixRow:
    """The access of one tenant to each tenant; None to itself."""

    tenant: str
    cells: Sequence[CellView | None]


@dataclass(frozen=True, slots=True)
class PairRow:
    """Two tenants that share something, and what."""

    tenant: str
    other: str
    kind: str
    word: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """Pairs that are neither closed nor shared, and counts of pairs as text."""

    rows: Sequence[PairRow]
    closed: str
    all: str
    left_out: str


@dataclass(frozen=True, slots=True)
class RuleView:
    """Id and title of a rule."""

    id: str
    title: str


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One distinct answer, with its rules, the control that enforces it and a command that tests it."""

    kind: str
    word: str
    sentence: str
    count: str
    control: str
    rules: Sequence[RuleView]
    proof: str


@dataclass(frozen=True, slots=True)
class PlaneView:
    """A plane of an environment: the matrix, or the pairs if there are too many tenants for it."""

    name: str
    question: str
    matrix: Sequence[MatrixRow]
    pairs: Pairs
    key: Sequence[KeyEntry]


@dataclass(frozen=True, slots=True)
class TenantPlane:
    """A plane for one tenant: access of other tenants to it, and its access to them, without their names."""

    name: str
    question: str
    inward: Sequence[KeyEntry]
    outward: Sequence[KeyEntry]


def planes(isolation_planes: Iterable[Plane], names: Sequence[str]) -> list[PlaneView]:
    """The planes of an environment with these tenants."""
    return [
        PlaneView(
            name=plane.name,
            question=plane.question,
            matrix=_matrix(plane, names) if len(names) <= MAX_TENANTS else (),
            pairs=_pairs(plane),
            key=key(plane.cells.values(), "pairs"),
        )
        for plane in isolation_planes
    ]


def of_tenant(isolation_planes: Iterable[Plane], names: Sequence[str], tenant: str) -> list[TenantPlane]:
    """The planes for one of the tenants."""
    other_tenants = [name for name in names if name != tenant]
    return [
        TenantPlane(
            name=plane.name,
            question=plane.question,
            inward=_key_of_pairs(plane, [(other_tenant, tenant) for other_tenant in other_tenants]),
            outward=_key_of_pairs(plane, [(tenant, other_tenant) for other_tenant in other_tenants]),
        )
        for plane in isolation_planes
    ]


def _key_of_pairs(plane: Plane, pairs: Sequence[tuple[str, str]]) -> list[KeyEntry]:
    return key([_without_tenant_names(plane.cells[pair]) for pair in pairs if pair in plane.cells], f"of {len(pairs)}")


def _matrix(plane: Plane, names: Sequence[str]) -> list[MatrixRow]:
    return [
        MatrixRow(
            source,
            [None if source == target else _cell(source, target, plane.cells[source, target]) for target in names],
        )
        for source in names
    ]


def _cell(source: str, target: str, cell: Cell) -> CellView:
    answer = f"{source} → {target}: {cell.explanation}. {cell.enforced_by}; rules {', '.join(cell.rules)}; {cell.proof}"
    return CellView(cell.kind, cell.word, answer)


def _pairs(plane: Plane) -> Pairs:
    open_pairs = [(pair, cell) for pair, cell in plane.cells.items() if cell.kind in {CellKind.GRANTED, CellKind.OPEN}]
    shown_pairs, left_out = open_pairs[: MAX_TENANTS * MAX_TENANTS], open_pairs[MAX_TENANTS * MAX_TENANTS :]
    return Pairs(
        rows=[PairRow(source, target, cell.kind, cell.word) for (source, target), cell in shown_pairs],
        closed=f"{len(plane.cells) - len(open_pairs):,}",
        all=f"{len(plane.cells):,}",
        left_out=f"{len(left_out):,}" if left_out else "",
    )


def key(cells: Iterable[Cell], unit: str) -> list[KeyEntry]:
    """Each distinct answer once, the worst kind first, with the number of its cells in that unit."""
    cells_by_answer: dict[tuple[CellKind, str, tuple[str, ...], str], list[Cell]] = {}
    for cell in cells:
        cells_by_answer.setdefault((cell.kind, cell.explanation, cell.rules, cell.enforced_by), []).append(cell)
    order = list(CellKind)[::-1]
    return [
        KeyEntry(
            kind=kind,
            word=max((cell.word for cell in equal_cells), key=lambda word: (len(word), word)),  # of limits the largest
            sentence=explanation[0].upper() + explanation[1:],
            count=f"{len(equal_cells):,} {unit}",
            control=control,
            rules=[RuleView(id, RULES[id].title) for id in rules],
            proof=_proof(equal_cells),
        )
        for (kind, explanation, rules, control), equal_cells in sorted(
            cells_by_answer.items(), key=lambda item: (order.index(item[0][0]), item[0][1])
        )
    ]


def _proof(equal_cells: Sequence[Cell]) -> str:
    """The first command that tests these cells, and the second, or how many more there are."""
    first, *other_proofs = dict.fromkeys(
        cell.proof for cell in sorted(equal_cells, key=lambda cell: _of_pair(cell.proof))
    )
    if len(other_proofs) > 1:
        return f"{first}; {len(other_proofs)} more like it in the cells"
    return "; ".join([first, *other_proofs])


def _of_pair(proof: str) -> tuple[bool, str]:
    return "of neighbouring" in proof, proof


def _without_tenant_names(cell: Cell) -> Cell:
    """The cell in a form for a tenant's page, without commands that name other tenants."""
    proof = cell.proof
    if "who-can" in proof:
        proof = "tenancy can shows the statements"
    if "of this pair" in proof or "of neighbouring" in proof:
        proof = "attacks: tenancy verify --only rbac-, of pairs of tenants"
    return cell._replace(proof=proof, enforced_by=cell.enforced_by if cell.kind is not CellKind.OPEN else "nothing")
