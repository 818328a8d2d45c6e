"""Is there any request that policies allow within a region? A proof that there is none, or the shortest one.

Actions, resources and values of keys are words, patterns are languages over them, and a statement is a conjunction of
languages: one for each of these coordinates. What policies allow is: for some choice of one Allow from each layer that
must allow, all of them, and of every Deny at least one part not. Each coordinate is then solved by itself, by
breadth-first search through the product of its patterns' automata.

No library: for a pair of ARNs interegular 0.3.3 takes 5 to 7 ms and greenery 4.2.3 300 ms, where the hundred lines
under "Words" take 1.3 ms and give the shortest word; there is nothing but `*`, `?` and letters to know.

What cannot be decided is not left out: an Allow with such a condition is taken to hold where emptiness is to be proven,
and not to hold where a request is to be found. If the two differ, `CannotTell` says by which conditions.

Taken to be so: what is not known of a principal is not there; a key of `SINGLE` and a key under an operator without
qualifier has one value at most; a key under Bool is true, false or not there.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tenancy.iam import conditions, evaluator, requests
from tenancy.iam.conditions import FOR_ALL, FOR_ANY, Piece, Resolved, Variable, Wild, operator_name, texts
from tenancy.iam.evaluator import Document, Grant, Layer, Policies
from tenancy.iam.requests import Principal, PrincipalKind, ResourceClass

# Words


class Automaton:
    """A pattern as sets of places in it, each set a number of one bit for a place."""

    def __init__(self, pattern: Resolved) -> None:
        self.pattern = pattern
        self.end = 1 << len(pattern)
        self.start = self._with_empty_stars(1)
        endless = bool(pattern) and pattern[-1] is Wild.STAR
        self.forever = 1 << (len(pattern) - 1) if endless else 0
        """A place from which every word matches."""
        self._steps: dict[tuple[int, str], int] = {}

    def told_apart(self, places: int) -> set[str]:
        """Letters that from here are not as any other letter is."""
        return {piece for at, piece in enumerate(self.pattern) if places >> at & 1 and isinstance(piece, str)}

    def step(self, places: int, letter: str) -> int:
        known_places = self._steps.get((places, letter))
        if known_places is None:
            known_places = self._steps[places, letter] = self._step(places, letter)
        return known_places

    def _step(self, places: int, letter: str) -> int:
        reached = 0
        for at, piece in enumerate(self.pattern):
            if not places >> at & 1:
                continue
            if piece is Wild.STAR or (piece is Wild.SEGMENT_STAR and letter != ":"):
                reached |= 1 << at
            elif piece is Wild.ANY or (piece is Wild.SEGMENT_ANY and letter != ":") or piece == letter:
                reached |= 1 << (at + 1)
        return self._with_empty_stars(reached)

    def _with_empty_stars(self, places: int) -> int:
        """Places that are reached without a letter: a star may be nothing."""
        for at, piece in enumerate(self.pattern):
            if places >> at & 1 and piece in (Wild.STAR, Wild.SEGMENT_STAR):
                places |= 1 << (at + 1)
        return places


Clause = tuple[Resolved, ...]
"""Patterns of which a word matches one."""


@lru_cache(maxsize=50_000)
def shortest_word(clauses: tuple[Clause, ...], unwanted: Clause = ()) -> str | None:
    """Shortest word that matches one pattern of every clause and none of the unwanted; None: there is none."""
    machines = [Automaton(pattern) for clause in clauses for pattern in clause]
    bad = [Automaton(pattern) for pattern in unwanted]
    bounds = list(itertools.accumulate((len(clause) for clause in clauses), initial=0))
    spans = [slice(*pair) for pair in itertools.pairwise(bounds)]
    unnamed_letter = other_letter([*itertools.chain.from_iterable(clauses), *unwanted])

    def accepts(state: tuple[int, ...]) -> bool:
        required, others = state[: len(machines)], state[len(machines) :]
        ends = [bool(places & machine.end) for places, machine in zip(required, machines, strict=True)]
        return all(any(ends[span]) for span in spans) and not any(
            places & machine.end for places, machine in zip(others, bad, strict=True)
        )

    def dead(state: tuple[int, ...]) -> bool:
        return any(not any(state[span]) for span in spans) or any(
            places & machine.forever for places, machine in zip(state[len(machines) :], bad, strict=True)
        )

    both = [*machines, *bad]
    first = tuple(machine.start for machine in both)
    visited, waiting = {first}, deque([(first, "")])
    while waiting:
        state, word = waiting.popleft()
        if accepts(state):
            return word
        told_apart = set().union(*(machine.told_apart(places) for places, machine in zip(state, both, strict=True)))
        for letter in [unnamed_letter, *sorted({":"} | told_apart)]:
            following = tuple(machine.step(places, letter) for places, machine in zip(state, both, strict=True))
            if following not in visited and not dead(following):
                visited.add(following)
                waiting.append((following, word + letter))
    return None


def other_letter(patterns: Iterable[Resolved]) -> str:
    """One that no pattern names: it stands for all of those."""
    named_letters = {piece for pattern in patterns for piece in pattern if isinstance(piece, str)} | {":"}
    letters = map(chr, itertools.chain(range(ord("a"), ord("z") + 1), range(ord("0"), 1 << 16)))
    return next(letter for letter in letters if letter not in named_letters)


# Coordinates and parts of statements


@dataclass(frozen=True, slots=True)
class Part:
    """Constraint on one coordinate of a request: `action`, `resource` or the name of a key."""

    coordinate: str
    patterns: Clause
    matches: bool = True
    """One of the patterns; False: none."""
    absent: bool = False
    """Does it hold without the key?"""

    def negated(self) -> Part:
        return replace(self, matches=not self.matches, absent=not self.absent)


ABSENT = object()
Parts = tuple[Part, ...]


def solution(parts: Iterable[Part]) -> Any:
    """A word for one coordinate, or ABSENT, or None."""
    coordinate_parts = tuple(parts)
    if coordinate_parts[0].coordinate not in ("action", "resource") and all(part.absent for part in coordinate_parts):
        return ABSENT
    clauses = tuple(sorted({part.patterns for part in coordinate_parts if part.matches}, key=repr))
    unwanted = {pattern for part in coordinate_parts if not part.matches for pattern in part.patterns}
    if not all(clauses):
        return None  # a clause without a pattern matches no word
    return shortest_word(clauses, tuple(sorted(unwanted, key=repr)))


def words(parts: Parts) -> dict[str, Any] | None:
    """A word for every coordinate, if all have one."""
    by: dict[str, list[Part]] = {}
    for part in parts:
        by.setdefault(part.coordinate, []).append(part)
    solutions = {}
    for coordinate, its in by.items():
        solutions[coordinate] = solution(its)
        if solutions[coordinate] is None:
            return None
    return solutions


def literal(text: str) -> Resolved:
    return tuple(text)


def pattern(text: str) -> Resolved:
    return tuple(Wild(letter) if letter in "*?" else letter for letter in text)


def by_component(resolved: Resolved) -> Resolved:
    """An ARN's pattern for ArnLike: before the fifth colon no wildcard is one."""
    inner = {Wild.STAR: Wild.SEGMENT_STAR, Wild.ANY: Wild.SEGMENT_ANY}
    colons = itertools.accumulate(piece == ":" for piece in resolved)
    return tuple(
        inner[piece] if isinstance(piece, Wild) and before < 5 else piece
        for piece, before in zip(resolved, colons, strict=True)
    )


# What is asked


@dataclass(frozen=True, slots=True)
class Region:
    """Requests that are asked about: by default every action on every ARN."""

    actions: tuple[str, ...] = ("?*:?*",)
    resources: tuple[str, ...] = ("arn:?*:?*:*:*:?*",)
    keys: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """Patterns of values; None: without the key."""

    def parts(self) -> Parts:
        region_parts = [
            Part("action", tuple(pattern(text.lower()) for text in self.actions)),
            Part("resource", tuple(pattern(text) for text in self.resources)),
        ]
        for name, values in self.keys.items():
            patterns = tuple(pattern(text) for text in values if text is not None)
            region_parts.append(Part(name.lower(), patterns, absent=None in values))
        return tuple(region_parts)


class CannotTell(Exception):
    """Neither is a request found nor is it proven that there is none."""


@dataclass(frozen=True, slots=True)
class Witness:
    """A request that is allowed."""

    request: requests.AwsRequest
    by: tuple[str, ...]
    context: Mapping[str, str]
    """Context keys that the search chose, in addition to the known ones."""

    @property
    def length(self) -> int:
        return len(self.request.action) + len(self.request.resource) + sum(map(len, self.context.values()))

    def __str__(self) -> str:
        request_text = f"{self.request.action} on {self.request.resource}"
        context_text = ", ".join(f"{name}={value}" for name, value in sorted(self.context.items()))
        return f"{request_text}{f' with {context_text}' if context_text else ''}: allowed by {', '.join(self.by)}"


CHOICES: Mapping[str, Sequence[str | None]] = {"aws:securetransport": ("true", "false")}
"""Keys that every request has, and their values."""
SINGLE = frozenset(
    {"s3:prefix", "s3:delimiter", "aws:sourcevpce", "aws:sourcevpc", "aws:sourceaccount", "aws:sourcearn"}
)
"""Keys of one value at most: of others a set operator may see several, which no word here is."""


def counterexample(
    policies: Policies,
    principal: Principal,
    region: Region,
    *,
    choices: Mapping[str, Sequence[str | None]] | None = None,
    resource_account: str | None = None,
) -> Witness | None:
    """The shortest request of the principal in the region that is allowed; None: proven that there is none.

    Keys of the principal are known, those in `choices` are split by case, all others are free.
    """
    account = resource_account or principal.account
    split = {**CHOICES, **{name.lower(): values for name, values in (choices or {}).items()}}
    split = {name: values for name, values in split.items() if name in _mentioned(policies, region)}
    witnesses: list[Witness] = []
    possible: list[str] = []
    for combination in itertools.product(*split.values()):
        known_keys = {
            **{name.lower(): value for name, value in principal.keys.items()},
            **dict(zip(split, combination, strict=True)),
        }
        pinned = {*split, *(name.lower() for name in region.keys)}
        certain = _search(_Reader(policies, principal, known_keys, pinned, wide=False), region, account)
        if certain:
            witnesses.append(certain)
            continue
        reader = _Reader(policies, principal, known_keys, pinned, wide=True)
        if doubtful := _search(reader, region, account):
            possible.append(f"{doubtful}, if what is not decided is so: {'; '.join(sorted(reader.undecided))}")
    if witnesses:
        return min(witnesses, key=lambda witness: witness.length)
    if possible:
        raise CannotTell(", or ".join(possible))
    return None


def _mentioned(policies: Policies, region: Region) -> set[str]:
    return {
        key.lower()
        for _, _, statement in _statements(policies)
        for tests in statement.get("Condition", {}).values()
        for key in tests
    } | {name.lower() for name in region.keys}


# Policies as parts


@dataclass(frozen=True, slots=True)
class Read:
    label: str
    parts: Parts


def _statements(policies: Policies) -> Iterator[tuple[Layer, tuple[int, ...], Mapping[str, Any]]]:
    """Every statement with its layer and place."""

    def of_documents(documents: Iterable[Document], layer: Layer, *place: int) -> Iterator[Any]:
        for at, document in enumerate(documents):
            statements = document["Statement"]
            for index, statement in enumerate(statements if isinstance(statements, list | tuple) else [statements]):
                yield layer, (*place, at, index), {**statement, "Version": document.get("Version")}

    for layer, levels in ((Layer.SCP, policies.scps), (Layer.RCP, policies.rcps)):
        for at, level in enumerate(levels):
            yield from of_documents(level, layer, at)
    yield from of_documents([policies.resource] if policies.resource is not None else [], Layer.RESOURCE)
    yield from of_documents(policies.identity, Layer.IDENTITY)
    yield from of_documents([policies.boundary] if policies.boundary is not None else [], Layer.BOUNDARY)
    yield from of_documents(policies.session, Layer.SESSION)


class _Reader:
    """Statements as parts: where one cannot be decided, to the wide or to the narrow side of what is allowed."""

    def __init__(
        self, policies: Policies, principal: Principal, known_keys: Mapping[str, Any], pinned: set[str], *, wide: bool
    ) -> None:
        self.policies, self.principal, self.known, self.wide = policies, principal, known_keys, wide
        self.principal_keys = {name.lower() for name in principal.keys}
        self.undecided: set[str] = set()
        self.domain: dict[str, Part] = {}
        """All values that a key may have."""
        self.allows: dict[tuple[Layer, int], list[Read]] = {}
        self.granted: dict[Grant, list[Read]] = {grant: [] for grant in Grant}
        self.denies: list[Read] = []
        for key in pinned:
            self._limit(key, "")
        for layer, place, statement in _statements(policies):
            self._read(layer, place, statement)

    def _read(self, layer: Layer, place: tuple[int, ...], statement: Mapping[str, Any]) -> None:
        allow = statement["Effect"] == "Allow"
        how = self._grant_of(statement, layer)
        if how is None or self._spared(layer):
            return
        where = "".join(f"[{index}]" for index in place[-2:])
        label = f"{layer.value} {statement.get('Sid') or where}"
        parts = self._parts(statement, layer, label, generous=allow == self.wide)
        if parts is None:
            return
        read = Read(label, parts)
        if not allow:
            self.denies.append(read)
        elif layer is Layer.RESOURCE:
            self.granted[how].append(read)
        else:
            self.allows.setdefault((layer, place[0] if len(place) == 3 else 0), []).append(read)

    def _spared(self, layer: Layer) -> bool:
        organisation = layer in (Layer.SCP, Layer.RCP)
        return organisation and (self.principal.service_linked or (layer is Layer.SCP and not self.principal.account))

    def _grant_of(self, statement: Mapping[str, Any], layer: Layer) -> Grant | None:
        if layer is not Layer.RESOURCE:
            return Grant.DIRECT
        negated = "NotPrincipal" in statement
        principals = statement["NotPrincipal" if negated else "Principal"]
        names = {"AWS": ("*",)} if principals == "*" else {kind: texts(value) for kind, value in principals.items()}
        if not negated:
            return evaluator.named_as(names, self.principal)
        if self.policies.boundary is not None:
            return Grant.DIRECT
        return None if evaluator.exempt(names, self.principal) else Grant.DIRECT

    def _parts(self, statement: Mapping[str, Any], layer: Layer, label: str, *, generous: bool) -> Parts | None:
        """None: the statement is never met, or is not to be counted on this side."""
        variables = statement["Version"] == "2012-10-17"
        statement_parts: list[Part] = []
        for name in ("Action", "Resource"):
            if layer is Layer.RESOURCE and self.policies.guard is ResourceClass.TRUST and name == "Resource":
                continue
            negated = name not in statement
            values = texts(statement[f"Not{name}" if negated else name])
            patterns = []
            for text in values:
                if name == "Action":
                    patterns.append(pattern(text.lower()))
                    continue
                resolved, is_known = self._resolved(conditions.resource_pieces(text, variables))
                if not is_known:
                    self.undecided.add(f"{label}: {text}")
                    if not generous:
                        return None
                    resolved = None if negated else pattern("*")
                if resolved is not None:
                    patterns.append(resolved)
            statement_parts.append(Part(name.lower(), tuple(patterns), matches=not negated))
        for operator, tests in statement.get("Condition", {}).items():
            for key, value in tests.items():
                parts = self._condition(operator, key.lower(), texts(value), variables, generous=generous)
                if parts is None:
                    self.undecided.add(f"{label}: {operator} {key}")
                    if not generous:
                        return None
                    continue
                statement_parts += parts
        return tuple(statement_parts)

    def _resolved(self, pieces: tuple[Piece, ...]) -> tuple[Resolved | None, bool]:
        """A pattern with its variables' values, None where one has none; and whether that is known."""
        for piece in pieces:
            if isinstance(piece, Variable) and not self._is_known(piece.key):
                return None, False
        return conditions.resolve(pieces, {key: value for key, value in self.known.items() if value is not None}), True

    def _is_known(self, key: str) -> bool:
        """Everything about the principal is, if only that there is nothing."""
        return key in self.known or key.startswith("aws:principal") or key == "aws:username"

    def _condition(
        self, operator: str, key: str, values: tuple[str, ...], variables: bool, *, generous: bool
    ) -> list[Part] | None:
        """Constraints of a condition on its key; None: undecided."""
        name = operator_name(operator)
        if self._is_known(key) and not isinstance(self.known.get(key), str | None):
            return None
        self._limit(key, name.base)
        if name.base == "Null":
            self.undecided.add(f"Null {key} of an empty value")
            return [self._null(key, {value.lower() for value in values}, generous=generous)]
        if name.base in ("StringEquals", "StringLike", "StringNotEquals", "StringNotLike"):
            patterns = []
            for value in values:
                pieces = conditions.pieces(value, variables=variables, wildcards=name.base.endswith("Like"))
                resolved, is_known = self._resolved(pieces)
                if not is_known:
                    return None
                if resolved is not None:
                    patterns.append(resolved)
        elif name.base.startswith("Arn"):
            patterns = []
            for value in values:
                resolved, is_known = self._resolved(conditions.pieces(value, variables=variables, wildcards=True))
                if not is_known:
                    return None
                if resolved is not None and resolved.count(":") >= 5:
                    patterns.append(by_component(resolved))
        elif name.base == "Bool":
            patterns = [literal(value.lower()) for value in values]
        elif self._is_known(key):
            return self._concrete(operator, key, values, variables)
        else:
            return None
        negated = conditions.OPERATORS[name.base].negated
        part = Part(key, tuple(patterns), matches=not negated, absent=negated or name.if_exists)
        return [part] if name.qualifier is None else self._of_set(name, part)

    @staticmethod
    def _of_set(name: conditions.Name, part: Part) -> list[Part] | None:
        """A set operator on a key of one value: an empty value is an empty set."""
        if part.coordinate not in SINGLE or (name.qualifier == FOR_ANY and name.if_exists):
            return None
        nothing = literal("")
        if name.qualifier == FOR_ALL:
            if part.matches:
                return [replace(part, patterns=(*part.patterns, nothing), absent=True)]
            if any(shortest_word(((resolved,), (nothing,))) is not None for resolved in part.patterns):
                return None
            return [replace(part, absent=True)]
        return [replace(part, absent=False), Part(part.coordinate, (nothing,), matches=False)]

    @staticmethod
    def _null(key: str, truth_values: set[str], *, generous: bool) -> Part:
        """Whether an empty value is null AWS does not say, so that it goes to the side that is asked for."""
        if truth_values == {"true", "false"}:
            return Part(key, (), matches=False, absent=True)
        if truth_values == {"true"}:
            return Part(key, (literal(""),) if generous else (), absent=True)
        return Part(key, () if generous else (literal(""),), matches=False)

    def _concrete(self, operator: str, key: str, values: tuple[str, ...], variables: bool) -> list[Part] | None:
        """Other operators on a key whose value is known: met or not, whatever is asked."""
        keys = {name: value for name, value in self.known.items() if value is not None}
        (condition,) = conditions.conditions({operator: {key: list(values)}}, variables)
        is_met = condition.holds(keys)
        return [] if is_met else [Part(key, ())]

    def _limit(self, key: str, base: str) -> None:
        if self._is_known(key):
            value = self.known.get(key)
            self.domain[key] = Part(key, () if value is None else (literal(value),), absent=value is None)
        elif base == "Bool":
            self.domain.setdefault(key, Part(key, (literal("true"), literal("false")), absent=True))
        elif base == "Null" and not self.wide:
            self.domain.setdefault(key, Part(key, (literal(""),), matches=False, absent=True))

    def ways(self, account: str) -> Iterator[list[list[Read]]]:
        """Every way to be allowed, as groups of statements of which one each must match."""
        organisation = [
            self.allows.get((layer, at), [])
            for layer, levels in ((Layer.SCP, self.policies.scps), (Layer.RCP, self.policies.rcps))
            for at in range(len(levels))
            if not self._spared(layer)
        ]
        direct = self.granted[Grant.DIRECT]
        if self.principal.kind not in (PrincipalKind.ROLE, PrincipalKind.USER):
            yield [*organisation, direct]
            return
        identity = self.allows.get((Layer.IDENTITY, 0), [])
        limits = [
            self.allows.get((layer, 0), [])
            for layer, documents in ((Layer.BOUNDARY, self.policies.boundary), (Layer.SESSION, self.policies.session))
            if (documents is not None if layer is Layer.BOUNDARY else documents)
        ]
        granted = [read for reads in self.granted.values() for read in reads]
        if account != self.principal.account:
            yield [*organisation, granted, identity, *limits]
            return
        yield [*organisation, direct]
        yield [*organisation, self.granted[Grant.ROLE], *limits]
        yield [*organisation, *([] if self.policies.guard is ResourceClass.ORDINARY else [granted]), identity, *limits]


# Search


def _search(reader: _Reader, region: Region, account: str) -> Witness | None:
    start = (*region.parts(), *reader.domain.values())
    best: Witness | None = None
    for way in reader.ways(account):
        for parts, labels in _choices(start, way):
            for solutions in _past(parts, reader.denies):
                witness = _witness(reader, solutions, labels, account)
                if best is None or witness.length < best.length:
                    best = witness
    return best


def _choices(parts: Parts, groups: list[list[Read]], labels: tuple[str, ...] = ()) -> Iterator[tuple[Parts, Any]]:
    """One statement of each group, where all of them may match at once."""
    if not groups:
        if words(parts) is not None:
            yield parts, labels
        return
    for read in groups[0]:
        both = (*parts, *read.parts)
        if words(both) is not None:
            yield from _choices(both, groups[1:], (*labels, read.label))


def _past(parts: Parts, denies: list[Read]) -> Iterator[dict[str, Any]]:
    """Requests that no Deny meets: of each, one part does not hold."""
    solutions = words(parts)
    if solutions is None:
        return
    if not denies:
        yield solutions
        return
    first, later_denies = denies[0], denies[1:]
    if words((*parts, *first.parts)) is None:
        yield from _past(parts, later_denies)
        return
    for part in first.parts:
        yield from _past((*parts, part.negated()), later_denies)


def _witness(reader: _Reader, solutions: dict[str, Any], labels: tuple[str, ...], account: str) -> Witness:
    context = {key: word for key, word in solutions.items() if key not in ("action", "resource") and word is not ABSENT}
    free = {key: word for key, word in context.items() if key not in reader.principal_keys}
    aws_request = requests.request(
        reader.principal, solutions["action"], solutions["resource"], free, resource_account=account
    )
    return Witness(aws_request, labels, free)
