"""Chargeback of a month: 200 tenants and ten million samples, in a process of its own."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench import child
from bench.generate import generate

TENANTS = 200
SAMPLES = 10_000_000
STEP = 300
START, END = "2026-10-01", "2026-11-01"


def measure() -> str:
    """The table, as Markdown."""
    with tempfile.TemporaryDirectory() as name:
        folder = generate(Path(name) / f"n{TENANTS}", TENANTS)
        data = Path(name) / "month"
        rows = samples(folder, data)
        size = sum(path.stat().st_size for path in data.iterdir()) / 2**20
        base = (str(folder), "--from", START, "--to", END, "--tables", str(data))
        runs = {
            "`--format table`": child.tenancy("chargeback", *base),
            "`--format csv --period day`, 31 periods": child.tenancy(
                "chargeback", *base, "--format", "csv", "--period", "day"
            ),
            "`--format json --events`": child.tenancy(
                "chargeback", *base, "--format", "json", "--events", str(Path(name) / "events.jsonl")
            ),
        }
    lines = [
        f"A month of {TENANTS} tenants: {rows:,} samples, one every {STEP} s of each pod, half of its GPUs and "
        f"half of their use, {size:.0f} MiB of Parquet. The whole process:",
        "",
        "| command | wall | CPU | peak memory |",
        "|---|---|---|---|",
    ]
    lines += [f"| {what} | {r.wall:.1f} s | {r.cpu:.1f} s | {r.peak / 1024:.0f} MiB |" for what, r in runs.items()]
    return "\n".join(lines)


def samples(folder: Path, data: Path) -> int:
    """Write a generated month as samples; return their number."""
    import polars as pl

    from tenancy.chargeback.example import frames, month
    from tenancy.chargeback.periods import moment, zone_of
    from tenancy.spec.loader import load

    start, end = (moment(text, zone_of("UTC")) for text in (START, END))
    tables = frames(month(load(folder), start, end, 1))
    data.mkdir()
    total = 0
    for name in ("allocations", "used"):
        # Pods from all of the month, until there are enough.
        sampled = tables[name].sample(fraction=1.0, shuffle=True, seed=1)
        lengths = (sampled["end"] - sampled["start"] // STEP * STEP + STEP - 1) // STEP
        sampled = sampled.filter(lengths.cum_sum() - lengths < SAMPLES // 2)
        long_rows = (
            sampled.lazy()
            .with_columns(time=pl.int_ranges(pl.col("start") // STEP * STEP, pl.col("end"), STEP))
            .drop("start", "end")
            .explode("time")
            .sort("time")
            .collect()
        )
        total += long_rows.height
        long_rows.write_parquet(data / f"{name}.parquet")
    for name in ("nodes", "lines", "gaps"):
        tables[name].write_parquet(data / f"{name}.parquet")
    return total
