"""Whatever is done to a file, it is read or refused with places inside it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tenancy.spec.loader import load
from tenancy.spec.reading.problems import SpecError
from tenancy.spec.reading.source import UnusableFile, compose, values
from tests.conftest import examples

SOUP = st.text("ab01: -[]{},&*#|>'\"!?%@`\n\t~<.\x00é\ufeff", max_size=40)
SETTINGS = settings(
    max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def _judge(spec: Any, name: str, content: bytes) -> None:
    before = (spec.path / name).read_bytes()
    spec.write(name, content)
    try:
        load(spec.path)
    except SpecError as error:
        lines = content.count(b"\n") + content.count(b"\r") + 1
        for problem in error.problems:
            assert problem.given
            assert problem.rule
            assert problem.change
            assert problem.column >= 1
            if problem.file.endswith(name) and "more problems" not in problem.given:
                assert 1 <= problem.line <= lines + 1
            assert "\n" not in str(problem)
    finally:
        spec.write(name, before)


@SETTINGS
@given(data=st.data())
def test_a_file_with_something_cut_out_and_put_in(spec: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(["environment.yaml", "tenants/fraud.yaml"]))
    text = (spec.path / name).read_text("utf-8")
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, min(len(text), start + 30)))
    _judge(spec, name, (text[:start] + data.draw(SOUP) + text[end:]).encode())


@SETTINGS
@given(content=st.binary(max_size=80))
def test_a_file_of_any_bytes(spec: Any, content: bytes) -> None:
    _judge(spec, "tenants/fraud.yaml", content)


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@SETTINGS
@given(data=st.data(), tree=TREES)
def test_any_value_in_place_of_any_value(spec: Any, data: st.DataObject, tree: Any) -> None:
    name = data.draw(st.sampled_from(["environment.yaml", "tenants/fraud.yaml"]))
    document = yaml.safe_load((spec.path / name).read_text("utf-8"))
    node: Any = document
    while True:
        key = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        child = node[key]
        if not isinstance(child, dict | list) or not child or data.draw(st.booleans()):
            node[key] = tree
            break
        node = child
    _judge(spec, name, yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "replace"))


@settings(max_examples=examples(300))
@given(
    st.recursive(
        st.one_of(st.text("abc 1", max_size=5), st.integers(-99, 99), st.booleans(), st.none()),
        lambda i: st.lists(i, max_size=3) | st.dictionaries(st.text("abcxyz", min_size=1, max_size=3), i, max_size=3),
        max_leaves=12,
    )
)
def test_plain_values_are_read_back_as_they_were_dumped(tree: Any) -> None:
    text = yaml.safe_dump(tree)
    assert values(compose(text)) == (tree, [])


@settings(max_examples=examples(300))
@given(SOUP)
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(UnusableFile):
        values(compose(text))
