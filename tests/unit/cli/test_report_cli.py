"""`tenancy report` and `tenancy catalog`: what is printed, and how they end."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from bench.generate import generate
from tenancy.catalog import instances
from tenancy.catalog.boards import BOARDS
from tenancy.catalog.instances import INSTANCES
from tenancy.catalog.text import in_markdown
from tenancy.cli import catalog, main, report
from tenancy.cli.tables import cores, gib
from tenancy.output import tables
from tenancy.planning.queueing.capacity import RACK
from tests.conftest import SpecFolder, every, in_days, nonempty

ENV = "environment.yaml"
TRAIN = "train: {instance-type: p4d.24xlarge, nodes: 4}"
REPORTS = (("capacity",), ("pools",), ("failures",))
SHORT = ("failures", "--nodes-per-rack", "2")


def run(*words: object) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is typed"
    return result


def _report(spec: SpecFolder, name: str, *options: object) -> str:
    result = run("report", name, spec.path, *options)
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def _json_report(spec: SpecFolder, name: str, *options: object) -> Any:
    return json.loads(_report(spec, name, *options, "--format", "json"))


def _tables(text: str) -> list[list[dict[str, str]]]:
    """The tables of a Markdown report, row by row."""
    tables = []
    for part in text.split("## ")[1:]:
        header, _, *rows = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("|")]
        tables.append([dict(zip(header, row, strict=True)) for row in rows])
    return tables


@pytest.mark.parametrize(
    "text",
    [
        "all-contractors | Group | viewer | 2026-01-05 | 12 | fraud--serve | x",
        "bob |<details open><img src=https://evil.example/p.png>[sign in](https://evil.example)",
        "</td><script>alert(2)</script> `x` @bank/admins",
        "one\ntwo",
        "__bold__ _em_ ~~gone~~ &lt;b&gt;",
        "http://evil.example/a www.evil.example HTTPS://EVIL.example (Www.evil.example) ftp://evil.example",
    ],
)
def test_what_others_wrote_is_text_in_markdown(text: str) -> None:
    table = tables.Table("T", ("who", "may"), [(text, "owner")])
    (row,) = [line for line in tables.as_markdown(table).splitlines() if line.endswith("| owner |")]
    cells = re.split(r"(?<!\\)\|", row)
    assert len(cells) == 4, "one cell for each column"
    assert not re.search(r"<|(?<!\\)[`\[\]*_~]|(?<!\\)&(?!lt;|gt;)|@(?!\u200b)", cells[1])
    assert not re.search(r"://|www\.", cells[1], re.IGNORECASE), "an address becomes no link"


def test_what_is_no_address_is_left_as_it_is_in_markdown() -> None:
    text = "team: ml // notes, wwwroot.example 10:30"
    assert in_markdown(text) == text


def _table_rows(spec: SpecFolder, name: str, *options: object) -> list[list[dict[str, str]]]:
    return _tables(_report(spec, name, *options, "--format", "markdown"))


def _numbers(row: dict[str, str]) -> list[float]:
    return [float(cell) for cell in row.values() if re.fullmatch(r"[0-9.]+", cell)]


# Reports


@pytest.mark.parametrize("name", report.command.commands)
def test_every_report_shows_an_example_that_can_be_pasted(name: str) -> None:
    assert f"tenancy report {name}" in run("report", name, "--help").stdout.partition("Example")[2]


def test_capacity_says_the_same_in_every_form(spec: SpecFolder) -> None:
    flavors = _json_report(spec, "capacity")["flavors"]
    total, by_pool, by_tenant, storage = _table_rows(spec, "capacity")
    storage_entries = _json_report(spec, "capacity")["api_storage"]["tenants"]
    assert [(row["tenant"], row["objects"]) for row in storage] == [
        (t["tenant"], str(t["objects"])) for t in storage_entries
    ]
    keys = ("always_on", "maximum", "guaranteed", "free", "lendable", "upgrading")
    assert [_numbers(row) for row in total] == [[flavor[key] for key in keys] for flavor in flavors]
    keys = ("node", "always_on", "maximum", "upgrading")
    assert [_numbers(row) for row in by_pool] == [[p[key] for key in keys] for f in flavors for p in f["pools"]]
    keys = ("guaranteed", "lends", "borrows", "borrowable")
    assert [_numbers(row) for row in by_tenant] == [[t[key] for key in keys] for f in flavors for t in f["tenants"]]


def test_what_may_be_borrowed_of_nodes_that_may_not_come_is_not_surely_there(spec: SpecFolder) -> None:
    """The organisation's Cohort counts them: the queue gives what they bring, once they are there."""
    spot = "nodes: {min: 0, max: 2}, purchase: spot, tiers: [batch]"
    spec.edit(ENV, TRAIN, f"{TRAIN}\n  spot: {{instance-type: g6.12xlarge, {spot}}}")
    spec.edit(ENV, "flavors:\n", "flavors:\n  l4: {gpu: l4}\n")
    spec.edit(
        "tenants/research.yaml",
        "{guaranteed: 8}",
        "{guaranteed: 8}\n  l4: {guaranteed: 0, sharing: lend-and-borrow, borrowing-limit: 8}",
    )
    *_, by_tenant, _ = _table_rows(spec, "capacity")
    (row,) = [row for row in by_tenant if row["flavor"] == "l4"]
    assert (row["may borrow"], row["always on"]) == ("8", "0")


def test_capacity_says_nothing_of_a_queue_that_is_missing_where_there_is_one(spec: SpecFolder) -> None:
    *_, by_tenant, _ = _table_rows(spec, "capacity")
    assert any(int(row["may borrow"]) for row in by_tenant)
    assert "until there is one" not in _report(spec, "capacity")


def test_pools_say_the_same_in_every_form(spec: SpecFolder) -> None:
    pools = _json_report(spec, "pools")["pools"]
    _, units = _table_rows(spec, "pools")
    keys = ("vcpu", "memory_gib", "disk_gib")
    expected = [[unit["count"], *(unit["each"][key] for key in keys)] for pool in pools for unit in pool["units"]]
    assert [_numbers(row) for row in units] == expected


def test_a_node_says_the_same_in_every_form(spec: SpecFolder) -> None:
    (pool,) = _json_report(spec, "pools", "serve")["pools"]
    *_, node = _table_rows(spec, "pools", "serve")
    keys = ("vcpu", "memory_gib", "disk_gib", "pods")
    expected = [[pool["vcpu"], pool["memory_gib"]]]
    expected += [[pool[part][key] for key in keys] for part in ("allocatable", "daemonsets", "left")]
    expected += [[sum(unit["count"] for unit in pool["units"])], [pool["pods_left"]]]
    assert [_numbers(row) for row in node] == expected


def test_failures_say_the_same_in_every_form(spec: SpecFolder) -> None:
    losses = _json_report(spec, *SHORT)["losses"]
    loss_rows, unmet, hit = _table_rows(spec, *SHORT)
    assert [_numbers(row) for row in loss_rows] == [[loss["nodes"], loss["gpus"]] for loss in losses]
    units = [", ".join(f"{count} {flavor}" for flavor, count in loss["units"].items()) for loss in losses]
    assert [row["by flavor"] for row in loss_rows] == units
    keys = ("there", "guaranteed", "missing")
    assert [_numbers(row) for row in unmet] == [
        [unmet_loss[key] for key in keys] for loss in losses for unmet_loss in loss["unmet"]
    ]
    assert {row["of"]: int(row["tenants"]) for row in hit} == {loss["where"]: len(loss["tenants"]) for loss in losses}


def test_text_and_markdown_hold_the_same_cells(spec: SpecFolder) -> None:
    text = re.sub(r"\s+", " ", _report(spec, *SHORT))
    for row in nonempty(row for table in _table_rows(spec, *SHORT) for row in table):
        assert " ".join(row.values()) in text


def test_what_an_upgrade_breaks_stands_below_the_table(spec: SpecFolder) -> None:
    reserved = "purchase: {reservation: cr-0123abcd}, zones: [eu-central-1a], upgrade: {max-unavailable: 2}"
    spec.edit(ENV, TRAIN, TRAIN.replace("4}", f"4, {reserved}}}"))
    text = re.sub(r"\s+", " ", _report(spec, "capacity"))
    assert "during an upgrade: 8 of 24 a100 guaranteed are missing in train: fraud 16, research 8" in text


@pytest.mark.parametrize("name", [*REPORTS, ("pools", "serve"), SHORT])
def test_a_report_is_readable_at_100_columns(spec: SpecFolder, name: tuple[str, ...]) -> None:
    block = f"purchase: {{capacity-block: cr-0123456789abcdef0, ends: {in_days(99)}}}, zones: [eu-central-1a]"
    spec.edit(ENV, TRAIN, TRAIN.replace("4}", f"4, {block}}}"))
    spec.edit(ENV, "      layout: {1g.5gb: 7}", "      per-gpu: [{gpus: 4, slices: {1g.5gb: 4, 3g.20gb: 1}}]")
    assert max(map(len, _report(spec, *name).splitlines())) <= tables.WIDTH


@pytest.mark.parametrize("name", REPORTS)
def test_a_thousand_names_stay_on_few_lines(tmp_path: Path, name: tuple[str]) -> None:
    result = run("report", *name, generate(tmp_path / "bench", 40), "--format", "text")
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= tables.WIDTH


def test_many_tenants_are_counted_and_the_first_named(tmp_path: Path) -> None:
    result = run("report", "failures", generate(tmp_path / "bench", 40))
    assert "and 35 more" in result.stdout


def test_one_pool_alone_is_reported(spec: SpecFolder) -> None:
    assert [pool["pool"] for pool in _json_report(spec, "pools", "train")["pools"]] == ["train"]


@pytest.mark.parametrize("form", ["text", "json", "markdown"])
def test_an_unknown_pool_ends_with_2_and_the_nearest(spec: SpecFolder, form: str) -> None:
    result = run("report", "pools", spec.path, "trian", "--format", form)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "given pool 'trian'; rule: a pool of small; change: use train" in result.stderr


@pytest.mark.parametrize("name", REPORTS)
def test_no_report_is_made_of_wrong_files(spec: SpecFolder, name: tuple[str]) -> None:
    spec.edit("tenants/fraud.yaml", "tier: batch", "tier: bach")
    result = run("report", *name, spec.path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "given tier 'bach'" in result.stderr


@pytest.mark.parametrize("rack", ["0", "-1", "x", "1.5"])
def test_a_rack_has_a_number_of_nodes(spec: SpecFolder, rack: str) -> None:
    assert run("report", "failures", spec.path, "--nodes-per-rack", rack).exit_code == 2


def test_the_help_names_the_rack_that_is_taken(spec: SpecFolder) -> None:
    assert f"Default: {RACK}." in re.sub(r"\s+", " ", run("report", "failures", "--help").stdout)
    assert _json_report(spec, "failures")["rack"] == RACK


@pytest.mark.parametrize("name", REPORTS)
@pytest.mark.parametrize("form", ["text", "markdown"])
def test_an_environment_without_pools_has_an_empty_report(spec: SpecFolder, name: tuple[str], form: str) -> None:
    text = (spec.path / ENV).read_text("utf-8").partition("flavors:")[0]
    spec.write(ENV, text)
    for tenant in ("fraud", "research"):
        (spec.path / f"tenants/{tenant}.yaml").unlink()
    (spec.path / "tenants/.gitkeep").touch()
    assert _report(spec, *name, "--format", form) == "Nothing to report: the environment has no pools.\n"


@pytest.mark.parametrize(("gpus_in_use", "has_rows"), [(0, False), (3, True)])
def test_queues_where_nothing_is_held_say_so_and_keep_the_sums(
    spec: SpecFolder, monkeypatch: pytest.MonkeyPatch, gpus_in_use: int, has_rows: bool
) -> None:
    from tenancy.explain.usage import QueueUse

    empty = SimpleNamespace(paged_items=lambda *_, **__: iter(()), items=lambda *_, **__: [])
    monkeypatch.setattr("tenancy.cluster.api.Api", lambda _: empty)
    queue_use = QueueUse(
        "fraud", "batch", "train", "a100", 16, 16, gpus_in_use, 0, gpus_in_use, 0, "open", Decimal("2.5") * gpus_in_use
    )
    monkeypatch.setattr("tenancy.explain.usage.queue_use", lambda *_: [queue_use])
    monkeypatch.setattr("tenancy.cli.queues._bound_gpus", lambda *_: ({}, []))
    answer = run("queues", spec.path, "--brief")
    assert answer.exit_code == 0
    assert "has no pools" not in answer.stdout
    assert ("Queues of small: no GPU is in use and no work waits" in answer.stdout) is not has_rows
    assert (
        f"- 1 queue: {gpus_in_use} GPUs, slices and replicas in use, 0 of them borrowed; 0 workloads waiting"
        in answer.stdout
    )
    assert "- GPUs in use cost $" in answer.stdout


@pytest.mark.parametrize(("form", "screen"), [("json", {"rich"}), ("markdown", {"rich"}), ("text", set())])
def test_reporting_imports_no_engine_no_client_and_a_screen_for_text_only(
    spec: SpecFolder, form: str, screen: set[str]
) -> None:
    import subprocess
    import sys

    code = (
        "import sys; from tenancy.cli import main\n"
        f"try: main(['report', 'failures', {str(spec.path)!r}, '--format', {form!r}])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(*{name.split('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    process = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert ({"pulumi", "kubernetes", "requests", "difflib", "jinja2"} | screen).isdisjoint(process.stderr.split())


# Tables


def test_numbers_stand_on_the_right_and_words_on_the_left() -> None:
    table = tables.Table("t", ("name", "n", "what"), [("a", 7, "x"), ("bcdefg", 1000, "y")])
    assert tables.as_text(table).splitlines()[1:] == ["name       n  what", "a          7  x", "bcdefg  1000  y"]


def test_a_last_column_that_is_too_wide_wraps_below_itself() -> None:
    table = tables.Table("t", ("name", "what"), [("a" * 60, "word " * 20)])
    lines = tables.as_text(table).splitlines()[2:]
    assert len(lines) > 1
    assert every(len(line) <= tables.WIDTH for line in lines)
    assert every(line.startswith(" " * 62 + "word") for line in lines[1:])


def test_what_is_shown_is_never_more_than_is_there() -> None:
    assert (cores(11_939), gib(1023), gib(1024)) == (11.93, 0.99, 1.0)


# The catalogue


def _catalog(*words: object) -> Any:
    result = run("catalog", *words, "--format", "json")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_every_type_is_listed() -> None:
    text = run("catalog").stdout
    assert every(re.search(rf"^{re.escape(name)} ", text, re.MULTILINE) for name in INSTANCES)
    assert [entry["instance"] for entry in _catalog()["instances"]] == list(INSTANCES)


def test_the_list_is_readable_at_100_columns() -> None:
    assert max(map(len, run("catalog").stdout.splitlines())) <= tables.WIDTH


def test_a_type_that_no_pool_can_be_made_of_says_why() -> None:
    text = re.sub(r"\s+", " ", run("catalog").stdout)
    for instance in INSTANCES.values():
        assert instance.unsupported in text
    (row,) = (line for line in run("catalog").stdout.splitlines() if line.startswith("g6f.large"))
    assert row.endswith("no (2)")


def test_what_aws_does_not_publish_is_not_shown_as_none() -> None:
    (catalog_entry,) = (entry for entry in _catalog()["instances"] if entry["instance"] == "p6e-gb200.36xlarge")
    assert (
        catalog_entry["efa"],
        catalog_entry["nvme_gb"],
        catalog_entry["pods_managed"],
        catalog_entry["pods_karpenter"],
    ) == (None, None, None, None)


def test_the_sources_are_those_of_the_tables() -> None:
    assert instances.__doc__
    for fact in ("moto 5.2.5", "2026-10-27", "karpenter-provider-aws v1.14.1", "2026-05-18"):
        assert fact in instances.__doc__
        assert fact in " ".join(catalog.SOURCES)
    assert "2026-05-18" in run("catalog").stdout
    assert "2026-05-18" in run("catalog", "p4d.24xlarge").stdout


def test_a_type_shows_what_a_pool_of_it_yields() -> None:
    catalog_entry = _catalog("p4d.24xlarge")
    assert catalog_entry["yields"]["resources"] == {"nvidia.com/gpu": 8}
    assert {profile["profile"]: profile["most"] for profile in catalog_entry["profiles"]} == {
        name: profile.most for name, profile in BOARDS["a100-40gb"].profiles.items()
    }


def test_a_layout_is_shown_with_what_each_slice_gets() -> None:
    pool_yield = _catalog("p4d.24xlarge", "--mig", "1g.5gb=4,3g.20gb=1")["yields"]
    assert pool_yield["resources"] == {"nvidia.com/mig-1g.5gb": 32, "nvidia.com/mig-3g.20gb": 8}
    small, big = pool_yield["units"]
    assert big["each"]["vcpu"] == pytest.approx(3.5 * small["each"]["vcpu"], abs=0.05)


def test_the_catalogue_and_a_report_agree(spec: SpecFolder) -> None:
    spec.edit(ENV, "    nodes: {min: 1, max: 3}", "    nodes: 1")
    (reported,) = _json_report(spec, "pools", "serve")["pools"]
    pool_yield = _catalog("p4d.24xlarge", "--mig", "1g.5gb=7")["yields"]
    same = ("allocatable", "daemonsets", "left", "pods_left", "vcpu", "memory_gib", "resources", "layout")
    assert {key: pool_yield[key] for key in same} == {key: reported[key] for key in same}
    assert [unit["each"] for unit in pool_yield["units"]] == [unit["each"] for unit in reported["units"]]


def test_the_numbers_of_a_layout_are_the_same_in_text() -> None:
    (unit,) = _catalog("p5.48xlarge", "--mig", "1g.10gb=7")["yields"]["units"]
    text = run("catalog", "p5.48xlarge", "--mig", "1g.10gb=7").stdout
    (row,) = (line.split() for line in text.splitlines() if line.startswith("nvidia.com/mig-1g.10gb"))
    per_unit = unit["each"]
    assert row == [
        "nvidia.com/mig-1g.10gb",
        "56",
        "1/7",
        *(f"{per_unit[key]:.2f}" for key in ("vcpu", "memory_gib", "disk_gib")),
    ]


@pytest.mark.parametrize(("provisioner", "pods"), [("managed", 250), ("karpenter", 737)])
def test_who_makes_the_nodes_decides_how_many_pods_they_take(provisioner: str, pods: int) -> None:
    pool_yield = _catalog("p4d.24xlarge", "--provisioner", provisioner)["yields"]
    assert (pool_yield["allocatable"]["pods"], pool_yield["provisioner"]) == (pods, provisioner)


def test_a_layout_by_name_is_known() -> None:
    layout = _catalog("p4d.24xlarge", "--mig", "all-balanced")["yields"]["layout"]
    assert layout == "8 x [2 x 1g.5gb + 1 x 2g.10gb + 1 x 3g.20gb]"


@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_a_shared_type_yields_replicas(mode: str) -> None:
    pool_yield = _catalog("g6.12xlarge", "--gpu-sharing", f"{mode}=4")["yields"]
    assert pool_yield["resources"] == {"nvidia.com/gpu.shared": 16}
    assert pool_yield["units"][0]["share"] == "1/4"


def test_slices_are_shared_too() -> None:
    pool_yield = _catalog("p4d.24xlarge", "--mig", "3g.20gb=2", "--gpu-sharing", "time-slicing=2")["yields"]
    assert pool_yield["resources"] == {"nvidia.com/mig-3g.20gb.shared": 32}


def test_a_layout_that_does_not_fit_is_answered_with_the_sums_and_the_nearest() -> None:
    result = run("catalog", "p4d.24xlarge", "--mig", "1g.5gb=5,3g.20gb=1")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "memory 1 + 1 + 1 + 1 + 1 + 4 = 9 of 8 units on a100-40gb; rule mig-01" in result.stderr
    assert "change: the nearest that fit: 4 x 1g.5gb + 1 x 3g.20gb" in result.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("p4d.24xlarg",), "change: use p4d.24xlarge"),
        (("p4d.24xlarge", "--mig", "1g.10gb=9"), "mig-01"),
        (("p4d.24xlarge", "--mig", "1g.7gb=1"), "mig-01"),
        (("g6.xlarge", "--mig", "1g.5gb=1"), "mig-01"),
        (("g6.xlarge", "--mig", "all-balanced"), "all-balanced"),
        (("p4d.24xlarge", "--mig", "1g.5gb=0"), "--mig 1g.5gb=0"),
        (("p4d.24xlarge", "--mig", "1g.5gb=1,1g.5gb=1"), "--mig"),
        (("p4d.24xlarge", "--mig", "="), "--mig"),
        (("p4d.24xlarge", "--mig", "1g.5gb=²"), "--mig"),
        (("p4d.24xlarge", "--mig", "1g.5gb=7", "--gpu-sharing", "mps=2"), "pool-08"),
        (("g6.xlarge", "--gpu-sharing", "turns=2"), "--gpu-sharing turns=2"),
        (("g6.xlarge", "--gpu-sharing", "mps"), "--gpu-sharing mps"),
        (("g6.xlarge", "--gpu-sharing", "mps=1"), "from 2 to 48"),
        (("g4dn.xlarge", "--gpu-sharing", "time-slicing=48"), "pool-04"),
        (("g6f.large", "--gpu-sharing", "mps=2"), "pool-09"),
        (("--gpu-sharing", "mps=2"), "a pool has one instance type"),
    ],
)
def test_what_no_pool_can_be_ends_with_2(words: tuple[str, ...], message: str) -> None:
    result = run("catalog", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1, "one mistake, one message"


def _supported() -> Iterator[str]:
    return (name for name, instance in INSTANCES.items() if not instance.unsupported)


@pytest.mark.parametrize("provisioner", ["managed", "karpenter"])
def test_a_pool_can_be_made_of_every_type_that_says_so(provisioner: str) -> None:
    for name in nonempty(_supported()):
        pool_yield = _catalog(name, "--provisioner", provisioner)["yields"]
        assert pool_yield["left"]["vcpu"] > 0, name
        assert pool_yield["pods_left"] >= 0, name


@pytest.mark.parametrize("name", [name for name, instance in INSTANCES.items() if instance.unsupported])
def test_the_facts_of_a_type_without_pools_are_shown_with_the_reason(name: str) -> None:
    result = run("catalog", name)
    assert result.exit_code == 0
    assert INSTANCES[name].unsupported in re.sub(r"\s+", " ", result.stdout)
    assert _catalog(name)["yields"] is None


# The pages


def test_the_name_of_an_environment_writes_its_page(spec: SpecFolder, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    for words in (("report", spec.path, "--out", page), ("report", "--out", page, spec.path)):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (0, "")
        assert result.stderr.startswith(f"{page}: ")
        assert "Tenancy of small" in page.read_text("utf-8")
        page.unlink()


def test_a_page_of_one_tenant_is_that_tenants(spec: SpecFolder, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert run("report", spec.path, "--tenant", "fraud", "--out", page).exit_code == 0
    text = page.read_text("utf-8")
    assert "Fraud Detection" in text
    assert "quant-research" not in text


def test_a_folder_gets_the_environments_page_and_one_for_every_tenant(spec: SpecFolder, tmp_path: Path) -> None:
    out = tmp_path / "pages"
    assert run("report", spec.path, "--out", out).exit_code == 0
    names = ["small.html", "tenants/fraud.html", "tenants/research.html"]
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*.html")) == names
    before = {path: path.read_bytes() for path in out.rglob("*.html")}
    assert run("report", spec.path, "--out", out).exit_code == 0
    assert {path: path.read_bytes() for path in out.rglob("*.html")} == before, "the same files, the same bytes"


def test_a_report_keeps_its_name_whatever_an_environment_is_called(spec: SpecFolder) -> None:
    assert "Supply of small" in _report(spec, "capacity")
    assert "--out" in run("report", "--help").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--out", "page.html", "--tenant", "missing"), "given tenant 'missing'"),
        (("--out", "/dev/null/page.html"), "rule: a path that can be written"),
        ((), "Missing option '--out'"),
        (
            ("--out", "page.html", "--chargeback", "/not/there.json"),
            "given /not/there.json; rule: a file that can be read",
        ),
        (
            ("--out", "page.html", "--simulation", "/dev/null"),
            "given /dev/null; rule: a file that can be read (a device, no regular file)",
        ),
    ],
)
def test_what_a_page_cannot_be_made_of_ends_with_a_message(
    spec: SpecFolder, tmp_path: Path, words: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("report", spec.path, *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert not list(tmp_path.glob("*.html"))


def test_a_simulation_and_a_chargeback_come_from_their_commands(spec: SpecFolder, tmp_path: Path) -> None:
    spec.add(ENV, "prices: {l4: 0.80, a100-40gb: 2.50}\n")
    bill, page = tmp_path / "bill.json", tmp_path / "page.html"
    span = ("--from", "2026-10-01", "--to", "2026-10-03", "--period", "day", "--example", "1")
    assert run("chargeback", spec.path, *span, "--format", "json", "--out", bill).exit_code == 0
    assert run("report", spec.path, "--chargeback", bill, "--out", page).exit_code == 0
    text = page.read_text("utf-8")
    assert "2 periods of a chargeback" in text
    assert "as charged back" in text
    foreign_bill = json.loads(bill.read_text("utf-8")) | {"environment": "other"}
    bill.write_text(json.dumps(foreign_bill), "utf-8")
    assert run("report", spec.path, "--chargeback", bill, "--out", page).exit_code == 2


# Dashboards


def test_dashboards_are_written_as_json_and_as_config_maps(spec: SpecFolder, tmp_path: Path) -> None:
    out = tmp_path / "dashboards"
    assert run("report", "dashboards", spec.path, "--out", out).exit_code == 0
    names = {f"gpu-tenancy-small{whose}" for whose in ("", "--fraud", "--research")}
    assert {path.name for path in out.iterdir()} == {f"{n}{end}" for n in names for end in (".json", ".configmap.yaml")}
    item = yaml.safe_load((out / "gpu-tenancy-small--fraud.configmap.yaml").read_text("utf-8"))
    assert item["data"]["gpu-tenancy-small--fraud.json"] == (out / "gpu-tenancy-small--fraud.json").read_text("utf-8")
    before = {path: path.read_bytes() for path in out.iterdir()}
    assert run("report", "dashboards", spec.path, "--out", out).exit_code == 0
    assert {path: path.read_bytes() for path in out.iterdir()} == before, "the same files, the same bytes"
