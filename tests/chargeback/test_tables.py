"""Reading tables: four forms, one meaning; a row that cannot be read is refused with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from tenancy.chargeback.tables import NO_AMOUNT, Tables, read
from tenancy.rules.catalogue import Violation
from tests.chargeback.scene import HOUR, MICRO, NOVEMBER, OCTOBER, allocation, node, tables_of

NODES = [node("t1", "train", OCTOBER, NOVEMBER)]
ALLOCATIONS = [allocation("fraud--train", "t1", "a100", 4, OCTOBER, OCTOBER + HOUR, cpu=1.5, memory=2**30)]


def write(folder: Path, form: str, **tables: list[dict[str, Any]]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, rows in tables.items():
        frame, path = pl.DataFrame(rows), folder / f"{name}.{form}"
        match form:
            case "parquet":
                frame.write_parquet(path)
            case "arrow":
                frame.write_ipc(path)
            case "csv":
                frame.write_csv(path)
            case _:
                frame.write_ndjson(path)
    return folder


def plain(read_tables: Tables) -> list[dict[str, Any]]:
    return read_tables.allocations.with_columns(pl.col(pl.Categorical).cast(pl.String)).to_dicts()


@pytest.mark.parametrize("form", ["parquet", "arrow", "csv", "jsonl"])
def test_every_form_of_a_table_says_the_same(tmp_path: Path, form: str) -> None:
    read_tables = read(write(tmp_path / form, form, nodes=NODES, allocations=ALLOCATIONS), OCTOBER, NOVEMBER)
    assert plain(read_tables) == [{**ALLOCATIONS[0], "pod": "", "queue": "", "tenant": "", "cpu": 1500}]


@pytest.mark.parametrize(
    "text", ["2026-10-01T02:00:00Z", "2026-10-01T04:00:00+02:00", "2026-10-01 02:00:00", str(OCTOBER + 2 * HOUR)]
)
def test_times_are_read_as_they_are_written(tmp_path: Path, text: str) -> None:
    rows = [{**ALLOCATIONS[0], "start": text, "end": str(NOVEMBER)}]
    read_tables = read(write(tmp_path / "x", "csv", nodes=NODES, allocations=rows), OCTOBER, NOVEMBER)
    assert plain(read_tables)[0]["start"] == OCTOBER + 2 * HOUR


def test_what_has_no_end_is_there_until_the_range_ends(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(f"node,pool,start,end\nt1,train,{OCTOBER},\n", "utf-8")
    write(tmp_path, "csv", allocations=ALLOCATIONS)
    assert read(tmp_path, OCTOBER, NOVEMBER).nodes["end"].to_list() == [NOVEMBER]


def test_a_table_may_come_in_parts(tmp_path: Path) -> None:
    write(tmp_path, "csv", nodes=NODES)
    write(tmp_path, "parquet", **{"allocations-1": ALLOCATIONS, "allocations-2": ALLOCATIONS})
    assert read(tmp_path, OCTOBER, NOVEMBER).allocations.height == 2


@pytest.mark.parametrize(
    ("column", "value", "message_part"),
    [
        ("count", "1.5", "count: '1.5'"),
        ("count", "-1", "count: '-1'"),
        ("count", "many", "count: 'many'"),
        ("node", "", "node: ''"),
        ("start", "soon", "start: 'soon'"),
        ("end", "soon", "end: 'soon'"),
        ("end", str(OCTOBER - 1), f"end: '{OCTOBER - 1}'"),
        ("end", str(10**14), f"end: '{10**14}'"),
        ("start", "-1", "start: '-1'"),
        ("cpu", "-2", "cpu: '-2'"),
        ("cpu", "nan", "cpu: 'nan'"),
        ("cpu", "9e15", "cpu: '9e15'"),
        ("count", "9000000000000000000", "count: '9000000000000000000'"),
        ("memory", "9000000000000000000", "memory: '9000000000000000000'"),
    ],
)
def test_a_row_that_cannot_be_read_is_refused_with_its_place(
    tmp_path: Path, column: str, value: str, message_part: str
) -> None:
    rows = [
        {k: str(v) for k, v in ALLOCATIONS[0].items()},
        {k: str(v) for k, v in ALLOCATIONS[0].items()} | {column: value},
    ]
    write(tmp_path, "csv", nodes=NODES, allocations=rows)
    with pytest.raises(Violation, match="bill-07") as refused:
        read(tmp_path, OCTOBER, NOVEMBER)
    assert f"allocations.csv:3: {message_part}" in str(refused.value)


@pytest.mark.parametrize("form", ["parquet", "jsonl"])
@pytest.mark.parametrize(("column", "maximum"), [("count", 10_000), ("cpu", 100_000), ("memory", 2**50)])
def test_a_number_is_bounded_in_every_form_of_a_table(tmp_path: Path, form: str, column: str, maximum: int) -> None:
    rows = [{**ALLOCATIONS[0], "cpu": 1, column: maximum}]
    assert (
        read(write(tmp_path / "most", form, nodes=NODES, allocations=rows), OCTOBER, NOVEMBER).allocations.height == 1
    )
    for more in (maximum + 1, 2**63 - 1):
        write(tmp_path / "more", form, nodes=NODES, allocations=[{**rows[0], column: more}])
        with pytest.raises(Violation, match=f"{column}: {more}.*to {maximum:,}"):
            read(tmp_path / "more", OCTOBER, NOVEMBER)


def nodes_at(folder: Path, price: str) -> Path:
    rows = f"node,pool,price,start,end\nt1,train,{price},{OCTOBER},{NOVEMBER}\n"
    (folder / "nodes.csv").write_text(rows, "utf-8")
    return write(folder, "csv", allocations=ALLOCATIONS)


@pytest.mark.parametrize("price", ["-5", "-0.000001", "inf", "1000001"])
def test_a_price_below_nothing_or_beyond_all_is_refused(tmp_path: Path, price: str) -> None:
    with pytest.raises(Violation, match=rf"nodes\.csv:2: price: '{price}'"):
        read(nodes_at(tmp_path, price), OCTOBER, NOVEMBER)


@pytest.mark.parametrize(("price", "expected"), [("", NO_AMOUNT), ("0", 0), ("5", 5 * MICRO)])
def test_a_price_that_is_absent_is_not_one_of_nothing(tmp_path: Path, price: str, expected: int) -> None:
    assert read(nodes_at(tmp_path, price), OCTOBER, NOVEMBER).nodes["price"].to_list() == [expected]


def test_the_same_table_without_the_row_is_read(tmp_path: Path) -> None:
    write(tmp_path, "csv", nodes=NODES, allocations=[{k: str(v) for k, v in ALLOCATIONS[0].items()}] * 2)
    assert read(tmp_path, OCTOBER, NOVEMBER).allocations.height == 2


@pytest.mark.parametrize(
    ("columns", "message_part"),
    [
        ("node,start,end", "nodes.csv without column pool"),
        ("node,pool", "nodes.csv without times"),
        ("node,pool,start,end,colour", "nodes.csv with column colour"),
    ],
)
def test_a_table_with_the_wrong_columns_is_refused(tmp_path: Path, columns: str, message_part: str) -> None:
    (tmp_path / "nodes.csv").write_text(columns + "\n", "utf-8")
    write(tmp_path, "csv", allocations=ALLOCATIONS)
    with pytest.raises(Violation, match="bill-07") as refused:
        read(tmp_path, OCTOBER, NOVEMBER)
    assert message_part in str(refused.value)


def test_a_file_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nodes.parquet").write_text("node,pool\n", "utf-8")
    write(tmp_path, "csv", allocations=ALLOCATIONS)
    with pytest.raises(Violation, match=r"nodes\.parquet"):
        read(tmp_path, OCTOBER, NOVEMBER)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("nodes.csv", "node,pool,start,end\nt1,train,0,1,2,3\n"),
        ("nodes.csv", ""),
        ("nodes.jsonl", '{"node": "t1", "pool": "train", "start": 0, "end": 1}\nbroken\n'),
        ("nodes.arrow", "ARROW"),
    ],
)
def test_a_file_with_rows_that_are_none_is_refused(tmp_path: Path, name: str, content: str) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    write(tmp_path, "csv", allocations=ALLOCATIONS)
    with pytest.raises(Violation, match=name):
        read(tmp_path, OCTOBER, NOVEMBER)


@pytest.mark.parametrize("missing", ["nodes", "allocations"])
def test_without_nodes_or_holdings_there_is_no_bill(tmp_path: Path, missing: str) -> None:
    write(
        tmp_path,
        "csv",
        **{name: rows for name, rows in {"nodes": NODES, "allocations": ALLOCATIONS}.items() if name != missing},
    )
    with pytest.raises(Violation, match=f"without {missing}"):
        read(tmp_path, OCTOBER, NOVEMBER)


# Moments

STEP = 60


def sampled(*times: int) -> list[dict[str, Any]]:
    row = {
        key: value
        for key, value in allocation("fraud--train", "t1", "a100", 4, 0, 0).items()
        if key not in {"start", "end"}
    }
    return [{**row, "time": OCTOBER + at} for at in times]


def nodes(*times: int) -> list[dict[str, Any]]:
    return [{"node": "t1", "pool": "train", "time": OCTOBER + at} for at in times]


def spans(frame: pl.DataFrame) -> list[tuple[int, int]]:
    return sorted((row[0] - OCTOBER, row[1] - OCTOBER) for row in frame.select("start", "end").iter_rows())


def test_moments_one_step_after_the_other_are_one_stretch() -> None:
    read_tables = tables_of(OCTOBER, OCTOBER + 300, nodes=nodes(*range(0, 300, STEP)), allocations=sampled(60, 120))
    assert spans(read_tables.allocations) == [(60, 180)]
    assert read_tables.gaps == []


def test_a_scrape_in_which_the_pod_is_gone_ends_its_stretch() -> None:
    read_tables = tables_of(OCTOBER, OCTOBER + 300, nodes=nodes(*range(0, 300, STEP)), allocations=sampled(0, 120))
    assert spans(read_tables.allocations) == [(0, 60), (120, 180)]


def test_where_nothing_was_scraped_there_is_a_gap_and_the_node_goes_on() -> None:
    read_tables = tables_of(
        OCTOBER, OCTOBER + 600, nodes=nodes(0, 60, 120, 480, 540), allocations=sampled(0, 60, 120, 480)
    )
    assert [(a - OCTOBER, b - OCTOBER) for a, b in read_tables.gaps] == [(180, 480)]
    assert spans(read_tables.nodes) == [(0, 600)]


def test_half_a_range_without_samples_is_a_gap() -> None:
    read_tables = tables_of(OCTOBER, OCTOBER + 600, nodes=nodes(*range(0, 300, STEP)), allocations=sampled(0))
    assert [(a - OCTOBER, b - OCTOBER) for a, b in read_tables.gaps] == [(300, 600)]


def test_a_day_is_its_midnight(tmp_path: Path) -> None:
    rows = [{**ALLOCATIONS[0], "start": "2026-10-02", "end": "2026-10-03"}]
    read_tables = read(write(tmp_path / "x", "csv", nodes=NODES, allocations=rows), OCTOBER, NOVEMBER)
    assert plain(read_tables)[0]["start"] == OCTOBER + 24 * HOUR
