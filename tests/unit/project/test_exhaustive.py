"""Each test that `make test` leaves out says why, and the page that lists them is generated from that."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import exhaustive


def test_the_page_has_the_reasons_of_the_markers() -> None:
    assert exhaustive.PAGE.read_text("utf-8") == exhaustive.page(), "run python -m scripts.exhaustive"


@pytest.mark.parametrize(
    ("marker", "has_reason"),
    [
        ('pytest.mark.exhaustive(reason="more seeds")', True),
        ("pytest.mark.exhaustive", False),
        ("pytest.mark.exhaustive()", False),
        ('pytest.mark.exhaustive(reason="")', False),
    ],
)
@pytest.mark.parametrize(
    "source", ["@{}\ndef test_a(): ...\n", "pytestmark = [{}]\n", "CASES = [pytest.param(1, marks={})]\n"]
)
def test_a_marker_without_a_reason_is_refused_with_its_line(
    source: str, marker: str, has_reason: bool, tmp_path: Path
) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_x.py").write_text(f"import pytest\n\n{source.format(marker)}", "utf-8")
    if has_reason:
        assert [entry.reason for entry in exhaustive.markers(tmp_path / "tests")] == ["more seeds"]
    else:
        with pytest.raises(exhaustive.NoReasonError, match=r"tests/test_x\.py:3: given .* without a reason"):
            exhaustive.markers(tmp_path / "tests")
