"""Names are nouns and verbs of the field: the share of bare participles, pronouns and prepositions only falls."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
RIDDLES = frozenset(
    """
    found made given said there mine held most each of told asked wanted left whole taken known ours theirs own rest
    some one other every kept named written shown marks standing beside behind below above closing early later ready
    shut released noted listed charged changed unchanged chosen meant torn many among here away anew fitted cut shared
    done gone lost settled stated looked seen spent over under
    """.split()
)
"""Names that do not say what they name: a participle without its noun, a pronoun, a preposition."""
CEILINGS = {"tenancy": 0.2, "tests": 0.1, "tools": 0.2}
"""Percent of names that may be riddles. A change that lowers a share lowers its ceiling too."""
FOLDERS = {"tenancy": ("tenancy",), "tests": ("tests",), "tools": ("bench", "judged", "policy", "s3-client", "scripts")}
OPENINGS = ("What", "Of", "Whose", "Who", "Whom", "Where", "How", "That")
"""First words of a docstring that is no noun phrase and has no verb at its start."""
OPENING_CEILINGS = {"tenancy": 0}
SLACK = 0.3
"""Percentage points that a ceiling may lie above its share."""


def python_files(part: str) -> list[Path]:
    """All Python files of a part of the repository."""
    paths = [path for folder in FOLDERS[part] for path in sorted((ROOT / folder).rglob("*.py"))]
    assert len(paths) > 10
    return paths


def names(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Names that code assigns or defines, parameters too, with their lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name, node.lineno


def is_riddle(name: str) -> bool:
    """Whether a name without its leading underscores is one of the words."""
    return name.strip("_").lower() in RIDDLES


def docstring_openings(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """First words of docstrings, those of attributes too, with their lines."""
    for node in ast.walk(tree):
        for statement in getattr(node, "body", ()) if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            match statement:
                case ast.Expr(ast.Constant(str(text))) if text.split():
                    yield text.split()[0].rstrip(",:"), statement.lineno


@pytest.mark.parametrize("part", FOLDERS)
def test_names_are_nouns_and_verbs_of_the_field(part: str) -> None:
    total, riddles = 0, []
    for path in python_files(part):
        for name, line in names(ast.parse(path.read_text("utf-8"))):
            total += 1
            if is_riddle(name):
                riddles.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    share = 100 * len(riddles) / total
    assert share <= CEILINGS[part], "name what it is, for example findings instead of found:\n" + "\n".join(riddles)
    assert share > CEILINGS[part] - SLACK, f"{share:.2f} %: lower the ceiling of {part}"


@pytest.mark.parametrize("part", OPENING_CEILINGS)
def test_docstrings_begin_with_a_noun_phrase_or_a_verb(part: str) -> None:
    openings = [
        f"{path.relative_to(ROOT)}:{line}: {word}"
        for path in python_files(part)
        for word, line in docstring_openings(ast.parse(path.read_text("utf-8")))
        if word in OPENINGS
    ]
    assert len(openings) <= OPENING_CEILINGS[part], "begin with a noun or a verb:\n" + "\n".join(openings)


def test_a_riddle_is_counted_and_the_noun_in_its_place_is_not() -> None:
    tree = ast.parse("def told(mine, findings):\n    found = 1\n    def _said(): ...\n    active_tenants = findings")
    assert [name for name, _ in names(tree) if is_riddle(name)] == ["told", "_said", "mine", "found"]
    opening = ast.parse('class A:\n    """Of a node."""\n    size: int\n    """What it holds."""\n    """Size."""')
    assert [word for word, _ in docstring_openings(opening)] == ["Of", "What", "Size."]
