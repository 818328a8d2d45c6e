"""Mistakes of people in a file: always a list of problems with their places, never a traceback."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tenancy.spec import loader
from tenancy.spec.fields.queues import seconds
from tenancy.spec.loader import MAX_PROBLEMS, find_folder, load, spec_notes
from tenancy.spec.reading.problems import SpecError
from tenancy.spec.reading.source import MAX_FILE_BYTES
from tests import field_edits
from tests.conftest import FILES
from tests.mounted_volume import Volume

ENV, FRAUD, RESEARCH = "environment.yaml", "tenants/fraud.yaml", "tenants/research.yaml"


@pytest.mark.parametrize(
    ("file", "old", "new", "line", "column", "field"),
    [
        (FRAUD, "team: fraud-detection", "taem: fraud-detection", 3, 1, "taem"),
        (FRAUD, "tier: batch", "tier: 5", 7, 7, "tier"),
        (FRAUD, "tier: batch", "tier:   bach", 7, 9, "tier"),
        (FRAUD, "{name: train,", "{nam: train,", 9, 6, "namespaces[0].nam"),
        (FRAUD, "role: viewer", "role: boss", 14, 37, "people[2].role"),
        (FRAUD, "monthly-usd", "monthly_usd", 23, 10, "budget.monthly_usd"),
        (FRAUD, "port: 8443", "port: 84430", 22, 35, "egress[0].port"),
        (FRAUD, "title: Fraud Detection", "title: [a]", 2, 1, "title"),
        (ENV, "    priority: 100\n", "    priority: none\n", 24, 15, "tiers.batch.priority"),
        (ENV, "    priority: 100\n", "", 23, 3, "tiers.batch.priority"),
        (ENV, "    risk: {title", "    Risk: {title", 5, 5, "organisation.departments.Risk"),
        (ENV, "nodes: {min: 1, max: 3}", "nodes: {min: 4, max: 3}", 36, 18, "pools.serve.nodes.min"),
    ],
)
def test_a_problem_stands_at_its_line_and_column(
    spec: Any, file: str, old: str, new: str, line: int, column: int, field: str
) -> None:
    spec.edit(file, old, new)
    assert (line, column, field) in [(p.line, p.column, p.field) for p in spec.problems()]


@pytest.mark.parametrize(
    ("file", "old", "new", "field", "entry"),
    [
        (ENV, "tiers: [production]", "tiers: [%s]", "pools.serve.tiers", "production"),
        (ENV, "tenants: [research]", "tenants: [%s]", "pools.notebooks.tenants", "research"),
        (ENV, "nodes: 4}", "nodes: 4, zones: [%s]}", "pools.train.zones", "eu-central-1a"),
        (
            ENV,
            "  cni: vpc-cni\n",
            "  cni: vpc-cni\n  node-and-pod-cidrs: [%s]\n",
            "cluster.node-and-pod-cidrs",
            "10.64.0.0/16",
        ),
        (ENV, "buckets:", "aws: {zones: [%s]}\nbuckets:", "aws.zones", "eu-central-1a"),
        (FRAUD, "namespaces: [train]}", "namespaces: [%s]}", "people[1].namespaces", "train"),
        (FRAUD, "budget:", "gpu-users: [%s]\nbudget:", "gpu-users", "{group: fraud-engineers}"),
        (FRAUD, "shared/}", "shared/, namespaces: [%s]}", "storage[1].namespaces", "train"),
        (
            FRAUD,
            "budget:",
            "aws-resources: {log-groups: {a: {namespaces: [%s]}}}\nbudget:",
            "aws-resources.log-groups.a.namespaces",
            "train",
        ),
        (FRAUD, "budget:", "ci: {github: a/b, branch: c, namespaces: [%s]}\nbudget:", "ci.namespaces", "train"),
    ],
)
def test_a_list_that_limits_is_dropped_and_not_emptied(
    spec: Any, file: str, old: str, new: str, field: str, entry: str
) -> None:
    """Without the field it is all: who takes the last entry out means the opposite."""
    spec.edit(file, old, new % "")
    problem = spec.problem()
    assert (problem.field, problem.given) == (field, "an empty list")
    assert f"or drop {field.rpartition('.')[2]}, which means: " in problem.change
    spec.edit(file, new % "", new % entry)
    assert spec.problems() == ()


CILIUM = "  cni: cilium\n"


@pytest.mark.parametrize("name", ["api.search--main.svc.cluster.local", "kubernetes.default.svc", "svc.cluster.local"])
def test_a_reach_by_name_leads_out_of_the_cluster(spec: Any, name: str) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", CILIUM)
    spec.edit(FRAUD, "cidr: 198.51.100.0/24", f"dns: {name}")
    assert spec.problem().field == "egress[0].dns"
    spec.edit(FRAUD, f"dns: {name}", f"dns: {name}.example")
    assert spec.problems() == ()


@pytest.mark.parametrize(("ranges", "field"), [("10.64.0.0/16", "egress[0].cidr"), ("fd12:3456::/48", "")])
def test_a_reach_has_addresses_that_the_clusters_pods_have(spec: Any, ranges: str, field: str) -> None:
    spec.edit(ENV, "  cni: vpc-cni\n", f"  cni: vpc-cni\n  node-and-pod-cidrs: ['{ranges}']\n")
    spec.edit(FRAUD, "198.51.100.0/24", "'2001:db8::/64'")
    assert [problem.field for problem in spec.problems()] == ([field] if field else [])
    spec.edit(FRAUD, "'2001:db8::/64'", "198.51.100.0/24")
    assert spec.problems() == ()


@pytest.mark.parametrize(
    ("people", "refused"), [("user: ada, role: developer", True), ("group: all, role: operator", False)]
)
def test_a_user_of_gpus_may_be_of_a_group_whose_people_no_file_names(spec: Any, people: str, refused: bool) -> None:
    spec.edit(RESEARCH, "group: researchers, role: developer", people)
    spec.edit(RESEARCH, "people:", "gpu-users: [{user: joan}]\npeople:")
    problems = [(problem.id, problem.field) for problem in spec.problems()]
    assert problems == ([("ref-01", "gpu-users[0].user")] if refused else [])


TIER = "      max: {cpu: 32, memory: 128Gi}\n"
QUOTA, CLAIM = TIER + "    quota: {%s}\n", TIER + "    quota: {storage: 2Ti}\n    volume-claim: {%s}\n"
OF_A_PART = "cpu: 16, pods: 20"


@pytest.mark.parametrize(
    ("file", "old", "new", "field", "bad", "good"),
    [
        (ENV, TIER, QUOTA, "tiers.batch.quota.cpu", "cpu: 64Gi", "cpu: 64"),
        (ENV, TIER, QUOTA, "tiers.batch.quota.cpu", "cpu: 64M", "cpu: 64000m"),
        (ENV, TIER, QUOTA, "tiers.batch.quota.memory", "memory: 256", "memory: 256Gi"),
        (ENV, TIER, QUOTA, "tiers.batch.quota.memory", "memory: 256m", "memory: 262144Mi"),
        (ENV, TIER, QUOTA, "tiers.batch.quota.storage", "storage: 2", "storage: 2Ti"),
        (ENV, TIER, QUOTA, "tiers.batch.quota.storage", "storage: 1023Mi", "storage: 1024Mi"),
        (ENV, TIER, QUOTA, "tiers.batch.quota.cpu-limit", "cpu: 64, cpu-limit: 63", "cpu: 64, cpu-limit: 64"),
        (ENV, TIER, QUOTA, "tiers.batch.quota.memory-limit", "memory-limit: 255Gi", "memory-limit: 256Gi"),
        (ENV, TIER, CLAIM, "tiers.batch.volume-claim.max", "max: 10Ti", "max: 2Ti"),
        (ENV, TIER, CLAIM, "tiers.batch.volume-claim.min", "min: 1", "min: 1Gi"),
        (ENV, "cpu: 32,", "cpu: %s,", "tiers.batch.container.max.cpu", "32Gi", "32"),
        (ENV, "128Gi}", "%s}", "tiers.batch.container.max.memory", "128", "128Gi"),
        (FRAUD, OF_A_PART, OF_A_PART + ", %s", "namespaces[1].quota.storage", "storage: 1023Mi", "storage: 0"),
        (FRAUD, OF_A_PART, OF_A_PART + ", %s", "namespaces[1].quota.memory", "memory: 300", "memory: 300Gi"),
    ],
)
def test_an_amount_is_in_what_its_field_counts_and_leaves_something_to_use(
    spec: Any, file: str, old: str, new: str, field: str, bad: str, good: str
) -> None:
    spec.edit(file, old, new % bad)
    assert (spec.problem().field, spec.problem().id) == (field, "")
    spec.edit(file, new % bad, new % good)
    assert spec.problems() == ()


@pytest.mark.parametrize("namespaces", ["{name: main, quota: {%s}}", "{name: main}, {name: idle, quota: {%s}}"])
@pytest.mark.parametrize(("little", "field"), [("cpu: 2, cpu-limit: 1", "cpu-limit"), ("memory: 1Gi", "memory")])
def test_a_namespaces_quota_takes_one_default_container(spec: Any, namespaces: str, little: str, field: str) -> None:
    spec.edit(RESEARCH, "people:", f"namespaces: [{namespaces % little}]\npeople:")
    place = f"namespaces[{namespaces.count('name') - 1}].quota.{field}"
    assert place in [problem.field for problem in spec.problems()]


def test_a_field_is_called_and_placed_as_the_file_has_it(spec: Any) -> None:
    spec.edit(ENV, "buckets:", "metrics:\n  max-wait-p90:\n    batch: 1h\n    prod: 1h\nbuckets:")
    problem = spec.problem()
    assert (problem.field, problem.line) == ("metrics.max-wait-p90.prod", 21)


def test_a_problem_reads_as_one_sentence(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(spec.path.parent)
    spec.edit(FRAUD, "tier: batch", "tier: bach")
    assert str(spec.problem()) == (
        "small/tenants/fraud.yaml:7:7: tier: given tier 'bach'; rule ref-01: a file refers only to names that "
        "the environment declares or the product's catalogue lists; change: use batch or production, or declare it in "
        "environment.yaml"
    )


def test_all_files_are_reported_at_once_and_in_order(spec: Any) -> None:
    spec.edit(ENV, "kubernetes: ", "kubernets: ")
    spec.edit(FRAUD, "tier: batch", "tier: 5")
    spec.edit(FRAUD, "port: 8443", "port: 0")
    spec.edit(RESEARCH, "team: quant", "team: Quant")
    problem_lines = [(Path(p.file).name, p.line) for p in spec.problems()]
    assert problem_lines == [("environment.yaml", 13), ("fraud.yaml", 7), ("fraud.yaml", 22), ("research.yaml", 2)]


def test_all_that_is_wrong_with_one_tenant_as_a_whole_is_said_at_once(spec: Any) -> None:
    spec.edit(FRAUD, "namespaces: [train]", "namespaces: [trian]")
    spec.edit(FRAUD, "a100-1g.5gb: 14}, quota", "a100-1g.5gb: 99}, quota")
    assert [p.field for p in spec.problems()] == ["namespaces[1].gpus.a100-1g.5gb", "people[1].namespaces[0]"]


def test_a_broken_environment_makes_no_noise_about_tenants(spec: Any) -> None:
    spec.edit(ENV, "environment: small", "environment: 5")
    assert [p.field for p in spec.problems()] == ["environment"]


@pytest.mark.parametrize(
    ("section", "field", "value"), [("aws", "account", "1111"), ("aws", "region", 5), ("cluster", "kubernetes", "1.2")]
)
def test_a_mistake_about_aws_makes_no_noise_about_what_a_cluster_on_aws_has(
    section: str, field: str, value: Any, tmp_path: Path
) -> None:
    environment = field_edits.base()
    assert environment["metrics"] == {"collector": "install"}, "its volume is of a class that a built cluster has"
    environment[section][field] = value
    with pytest.raises(SpecError) as error:
        load(field_edits.write(tmp_path / "edits", environment))
    assert {problem.field for problem in error.value.problems} == {f"{section}.{field}"}


def test_a_name_in_place_of_a_person_is_answered_with_the_entry_that_has_it(spec: Any) -> None:
    spec.edit(FRAUD, "{group: fraud-engineers, role: developer}", "fraud-engineers")
    assert spec.problem().change == "write it as {group: fraud-engineers, role: …}"


def test_a_broken_environment_hides_no_quarrel_between_tenants(spec: Any) -> None:
    spec.edit(ENV, "environment: small", "environment: 5")
    spec.edit(RESEARCH, "group: researchers", "group: fraud-engineers")
    assert [p.field for p in spec.problems()] == ["environment", "people[0].group"]


@pytest.mark.parametrize(
    ("file", "old", "new", "right_key"),
    [
        (ENV, "buckets:", "bukets:", "buckets"),
        (ENV, "  group: gpu", "  groop: gpu", "group"),
        (ENV, "gpu: l4, gpu-sharing", "gpu: l4, gpu-shared", "gpu-sharing"),
        (ENV, "layout: {1g", "lay-out: {1g", "layout"),
        (ENV, "quota: {cpu: 128, memory", "quota: {cpu: 128, memori", "memory"),
        (FRAUD, "cost-center:", "cost_center:", "cost-center"),
        (FRAUD, "lending-limit: 8", "lendng-limit: 8", "lending-limit"),
        (FRAUD, "role: viewer", "roll: viewer", "role"),
        (FRAUD, "cpu: 16", "cpus: 16", "cpu"),
    ],
)
def test_a_misspelt_key_is_answered_once_with_the_key_that_was_meant(
    spec: Any, file: str, old: str, new: str, right_key: str
) -> None:
    spec.edit(file, old, new)
    assert f"did you mean '{right_key}'?" in [p.change for p in spec.problems()]
    assert not [p for p in spec.problems() if p.rule == f"'{right_key}' is required"], "it is there, misspelt"


@pytest.mark.parametrize(
    ("value", "given_text"),
    [("no", "no"), ("on", "on"), ("Yes", "Yes"), ("1.50", "1.50"), ("007", None), ("12", "12"), (".inf", ".inf")],
)
def test_a_text_that_yaml_reads_otherwise_is_shown_as_it_was_written(
    spec: Any, value: str, given_text: str | None
) -> None:
    spec.edit(FRAUD, "department: risk", f"department: {value}")
    if given_text:
        assert (spec.problem().given, spec.problem().change.split(" (")[0]) == (given_text, f'quote it: "{given_text}"')
    else:
        assert spec.problem().id == "ref-01", "007 is no number in YAML 1.2 and stays text"


@pytest.mark.parametrize("value", ["", "~", "null", "[]", "{}", "[risk]", "{risk: 1}"])
def test_what_is_no_text_is_refused_where_text_is_needed(spec: Any, value: str) -> None:
    spec.edit(FRAUD, "department: risk", f"department: {value}")
    assert (spec.problem().field, spec.problem().rule) == ("department", "a string is expected")


@pytest.mark.parametrize(
    "value", ["true", "'8443'", "8443.0", "8_443", "0644", "0x10", "12:30", "-1", "65536", "9" * 60, "~"]
)
def test_what_is_no_port_is_refused(spec: Any, value: str) -> None:
    spec.edit(FRAUD, "port: 8443", f"port: {value}")
    assert spec.problem().field == "egress[0].port"


@pytest.mark.parametrize("value", ["1", "'true'", "~", "maybe"])
def test_a_flag_is_true_or_false(spec: Any, value: str) -> None:
    spec.add(FRAUD, f"adopt: {value}\n")
    assert spec.problem().rule == "true or false is needed"


@pytest.mark.parametrize(
    "value", ["20", "20s", "0m", "20M", "1.5h", "-1d", "1w", "100000m", "1h30m", "' 20m'", "~", "[1d]"]
)
def test_a_length_of_time_is_minutes_hours_or_days(spec: Any, value: str) -> None:
    spec.add(ENV, f"queues: {{pods-ready-timeout: {value}}}\n")
    assert spec.problem().field == "queues.pods-ready-timeout"


@pytest.mark.parametrize(("value", "length"), [("1m", 60), ("36h", 129_600), ("99999d", 8_639_913_600)])
def test_a_length_of_time_that_is_one_is_read(spec: Any, value: str, length: int) -> None:
    spec.add(ENV, f"queues: {{pods-ready-timeout: {value}}}\n")
    assert seconds(spec.load().environment.queues.pods_ready_timeout) == length


PRICES = ["0", "-1", "100000.01", "0.0000001", ".nan", ".inf", "free", "'2,50'", "true", "~", "[1]", "{usd: 1}", "''"]


@pytest.mark.parametrize("value", PRICES)
def test_what_is_no_price_is_refused(spec: Any, value: str) -> None:
    spec.add(ENV, f"prices: {{l4: 0.8, a100-40gb: {value}}}\n")
    assert spec.problem().field == "prices.a100-40gb"


@pytest.mark.parametrize("value", ["2.50", "'2.50'", "2.5", "0.000001", "100000", "3", "1e2"])
def test_a_price_is_read_to_the_cent_and_beyond(spec: Any, value: str) -> None:
    spec.add(ENV, f"prices: {{l4: 0.8, a100-40gb: {value}}}\n")
    assert spec.load().environment.prices["a100-40gb"] == Decimal(value.strip("'"))


@pytest.mark.parametrize("value", ["0", "1001", "1.5", "'2'", "true", "-1", "~"])
@pytest.mark.parametrize("file", [ENV, FRAUD])
def test_a_weight_is_a_whole_number_up_to_a_thousand(spec: Any, file: str, value: str) -> None:
    if file == ENV:
        spec.edit(ENV, "    research: {}", f"    research: {{weight: {value}}}")
    else:
        spec.add(FRAUD, f"weight: {value}\n")
    assert spec.problem().field.endswith("weight")


@pytest.mark.parametrize("name", ["Batch", "batch--x", "-batch", "batch-", "b" * 32, "batch_x", "5", "''"])
def test_a_tiers_name_fits_into_a_queues_name(spec: Any, name: str) -> None:
    spec.edit(ENV, "  batch:\n", f"  extra: {{priority: 1}}\n  {name}:\n")
    assert [p for p in spec.problems() if p.field.startswith("tiers.")] or "5" in name


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("scheduler", "slurm"),
        ("provisioning-class", "Check Capacity"),
        ("provisioning-class", "'a_b'"),
        ("hold-before-capacity-block-end", "1"),
        ("kinds", "raycluster"),
        ("fair", "true"),
    ],
)
def test_what_is_no_setting_of_the_queues_is_refused(spec: Any, field: str, value: str) -> None:
    spec.add(ENV, f"queues: {{{field}: {value}}}\n")
    assert spec.problem().field.startswith(f"queues.{field}")


@pytest.mark.parametrize(
    ("file", "old", "new", "field"),
    [
        (FRAUD, "tier: batch\n", "tier: batch\nstop-policy: stop\n", "stop-policy"),
        (FRAUD, "sharing: lend-and-borrow", "sharing: borrow", "gpus.a100.sharing"),
        (ENV, "risk: {title", "risk: {sharing: all, title", "organisation.departments.risk.sharing"),
        (
            ENV,
            "    priority: 100\n",
            "    priority: 100\n    queueing-strategy: fifo\n",
            "tiers.batch.queueing-strategy",
        ),
        (ENV, "    priority: 100\n", "    priority: 100\n    allow-borrowing: often\n", "tiers.batch.allow-borrowing"),
        (ENV, "    priority: 100\n", "    priority: 100\n    max-run-time: 36\n", "tiers.batch.max-run-time"),
    ],
)
def test_a_word_that_sharing_does_not_know_is_refused(spec: Any, file: str, old: str, new: str, field: str) -> None:
    spec.edit(file, old, new)
    assert spec.problem().field == field


@pytest.mark.parametrize(
    "value", ["20991231", "2099-W05-1", "2099-13-01", "2099-12-31 10:00:00", "soon", "1e9", "4102444800"]
)
def test_the_end_of_an_exception_is_a_date(spec: Any, value: str) -> None:
    spec.add(
        FRAUD, "exceptions:\n  - {rule: ns-03, namespace: train, reason: needs a vendor image, owner: a@b.example, "
    )
    spec.add(FRAUD, f"until: {value}}}\n")
    assert spec.problem().rule == "a date is needed"


@pytest.mark.parametrize(
    ("value", "change"),
    [
        ("1e3", "one suffix of"),
        ("0.1", 'quote it: "0.1"'),
        ("-5Gi", "0 or more"),
        ("5GB", "5Gi in powers of two"),
        ("5 Gi", "one suffix of"),
        ("'5Gi\\n'", "one suffix of"),
        ("'0.0001'", "one suffix of"),
        ("yes", "such as 500m"),
        ("[5Gi]", "such as 500m"),
        ("99Ei", "a smaller one"),
        ("9" * 80, "one suffix of"),
    ],
)
def test_what_is_no_quantity_is_refused_with_a_way_out(spec: Any, value: str, change: str) -> None:
    spec.edit(ENV, "memory: 512Gi", f"memory: {value}")
    problem = next(p for p in spec.problems() if p.field == "tiers.production.quota.memory")
    assert change in problem.change


def test_a_quantity_may_be_a_plain_number(spec: Any) -> None:
    spec.edit(ENV, "memory: 512Gi", "memory: 549755813888")
    assert spec.load().environment.tiers["production"].quota.memory == "512Gi"


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ("5", "namespaces[0]"),
        ("Train", "namespaces[0]"),
        ("[train]", "namespaces[0]"),
        ("{name: train, name-: x}", "namespaces[0].name-"),
        ("{tier: batch}", "namespaces[0].name"),
    ],
)
def test_a_namespace_in_either_form_is_judged_by_that_form(spec: Any, value: str, field: str) -> None:
    spec.edit(FRAUD, "- {name: train, purpose: nightly retraining}", f"- {value}")
    assert field in [p.field for p in spec.problems()]
    assert not any("union" in str(p).lower() or "Namespace" in p.field for p in spec.problems())


@pytest.mark.parametrize("value", ["-2", "two", "[2]", "true", "2.5", "{min: -2, max: 2}", "{max: two}", "{min: 1}"])
def test_nodes_in_either_form_are_judged_once(spec: Any, value: str) -> None:
    spec.edit(ENV, "    nodes: 1\n", f"    nodes: {value}\n")
    assert len([p for p in spec.problems() if p.field.startswith("pools.notebooks.nodes")]) == 1


@pytest.mark.parametrize(
    ("file", "old", "new", "line"),
    [
        (FRAUD, "tier: batch\n", "tier: batch\ntier: production\n", 8),
        (FRAUD, "{monthly-usd: 180000}", "{monthly-usd: 1, monthly-usd: 2}", 23),
        (ENV, "      layout: {1g.5gb: 7}", "      layout: {1g.5gb: 7, 1g.5gb: 7}", 38),
        (ENV, "  batch:\n", "  batch: &batch\n    priority: 5\n", 25),
        (ENV, "pools:\n", "pools:\n  more: {<<: {nodes: 1, nodes: 2}, instance-type: p4d.24xlarge}\n", 33),
        (
            ENV,
            "pools:\n",
            "pools:\n  more: {<<: {nodes: 1}, instance-type: p4d.24xlarge, instance-type: g6.12xlarge}\n",
            33,
        ),
    ],
)
def test_a_key_given_twice_is_refused_at_the_second(spec: Any, file: str, old: str, new: str, line: int) -> None:
    spec.edit(file, old, new)
    assert [p.line for p in spec.problems() if p.rule == "a key is given once"] == [line]


def test_a_merged_key_may_be_overridden(spec: Any) -> None:
    spec.edit(ENV, "  batch:\n", "  batch: &batch\n")
    spec.edit(ENV, "flavors:\n", "  other: {<<: *batch, priority: 5}\nflavors:\n")
    tiers = spec.load().environment.tiers
    assert (tiers["other"].priority, tiers["other"].container) == (5, tiers["batch"].container)


def test_a_mistake_in_a_merged_mapping_is_found_in_the_mapping(spec: Any) -> None:
    spec.edit(ENV, "  batch:\n", "  batch: &batch\n")
    spec.edit(ENV, "priority: 100\n", "priority: high\n")
    spec.edit(ENV, "flavors:\n", "  other: {<<: *batch}\nflavors:\n")
    assert {(p.line, p.field) for p in spec.problems()} == {(24, "tiers.batch.priority"), (24, "tiers.other.priority")}


@pytest.mark.parametrize(
    ("text", "line", "column", "given_text"),
    [
        ("", 1, 1, "an empty file"),
        ("# only a remark\n", 1, 1, "an empty file"),
        ("- tenant: fraud\n", 1, 1, "a list"),
        ("fraud\n", 1, 1, "'fraud'"),
        ("tenant: fraud\nowner:\n\tname: x\n", 3, 1, "a tab"),
        ("tenant: fraud\nowner: {name: x\nteam: y\n", 2, 8, "a bracket that is not closed before line 3"),
        ("people: [{a: b}\nteam: y\n", 1, 9, "a bracket that is not closed before line 2"),
        ("tenant: 'fraud\nteam: x\n", 1, 9, "a quote that is not closed"),
        ("tenant: fraud\n---\ntenant: x\n", 2, 1, "a second document"),
        ("tenant: fraud: x\n", 1, 14, "a ':' where no key is allowed"),
        ("tenant: *fraud\n", 1, 9, "an alias without an anchor"),
        ("tenant: !!python/object:os.system x\n", 1, 9, "tag tag:yaml.org,2002:python/object:os.system"),
        ("? [a, b]\n: c\n", 1, 3, "a list or mapping as a key"),
        ("tenant: a\x07b\n", 1, 10, "character U+0007"),
        ("team: ü\ntenant: '\x9f'\n", 2, 10, "character U+009F"),
        ("\ufeff\ufefftenant: x\n", 1, 1, "character U+FEFF"),
    ],
)
def test_a_file_that_is_no_spec_is_refused_at_its_place(
    spec: Any, text: str, line: int, column: int, given_text: str
) -> None:
    spec.write(FRAUD, text)
    assert (line, column, given_text) in [(p.line, p.column, p.given) for p in spec.problems()]


# Line breaks of YAML 1.1 and of nothing else, characters of category Cf, what fonts draw as nothing, and blanks.
UNSEEN = (
    "\r\x85\u2028\u2029\xad\u061c\u200b\u200d\u200f\u202e\u2060\u2066\u2069\ufeff\U000e0041"
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u2065\u3164\ufe00\ufe0f\uffa0\ufff0\U000e0100\U000e01ef\U000e0fff"
    "\xa0\u1680\u2000\u200a\u202f\u205f\u2800\u3000"
)


@pytest.mark.parametrize("character", UNSEEN, ids=lambda c: f"U+{ord(c):04X}")
def test_what_hides_in_a_remark_is_refused(spec: Any, character: str) -> None:
    before = (spec.path / FRAUD).read_text("utf-8")
    spec.add(FRAUD, f"# for review: é{character}title: x\n")
    problem = spec.problem()
    assert (problem.given, problem.line) == (f"character U+{ord(character):04X}", before.count("\n") + 1)


@pytest.mark.parametrize("character", "é中\u2026 \t\u0350\u1161\u17b6\u180a\u2801\u3131\ufe10\uffa1\U0001f600")
def test_what_can_be_seen_in_a_remark_is_admitted(spec: Any, character: str) -> None:
    spec.add(FRAUD, f"# for review: é{character}title: x\n")
    assert spec.problems() == ()


@pytest.mark.parametrize(
    "escape", [r"\u200B", r"\u202E", r"\u2028", r"\u00A0", r"\U000E0041", r"\r", r"\u3164", r"\uFE0F", r"\u2800"]
)
@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("title: Fraud Detection", 'title: "Fraud%sTeam"', "title"),
        ("group: fraud-engineers", 'group: "fraud%s-engineers"', "people[0].group"),
        ("user: jane@bank.example", 'user: "ja%sne@bank.example"', "people[2].user"),
        ("purpose: nightly retraining", 'purpose: "night%s"', "namespaces[0].purpose"),
    ],
)
def test_what_hides_behind_an_escape_is_refused(spec: Any, old: str, new: str, field: str, escape: str) -> None:
    spec.edit(FRAUD, old, new % escape)
    assert spec.problem().field == field


def test_a_message_shows_what_is_hidden_in_a_key(spec: Any) -> None:
    spec.add(FRAUD, r'"ti\u3164tle": x' + "\n")
    assert spec.problem().field == r"ti\u3164tle"


def test_a_letter_behind_an_escape_is_admitted(spec: Any) -> None:
    spec.edit(FRAUD, "group: fraud-engineers", r'group: "fraud\u00E9-engineers"')
    assert spec.problems() == ()


@pytest.mark.parametrize(("part", "refused"), [("..", True), (".", True), (".x", True), ("-x", True), ("x..", False)])
def test_a_registrys_folder_leads_nowhere_else(spec: Any, part: str, refused: bool) -> None:
    spec.edit(ENV, "bank.example/teams/{tenant}/", f"bank.example/{part}/{{tenant}}/")
    assert [p.field for p in spec.problems()] == ["images.registries[1]"] * refused


@pytest.mark.parametrize(("part", "refused"), [("..", True), ("x", False)])
def test_an_image_of_virtual_clusters_is_below_its_registry(spec: Any, part: str, refused: bool) -> None:
    image = f"registry.bank.example/{part}/y:1@sha256:{'a' * 64}"
    names = ", ".join(f'{name}: "{image}"' for name in ("syncer", "kubernetes", "dns"))
    spec.add(ENV, f"virtual-clusters: {{{names}, resolver: 10.100.0.10, storage-class: gp3}}\n")
    fields = [f"virtual-clusters.{name}" for name in ("syncer", "kubernetes", "dns")] * refused
    assert [p.field for p in spec.problems()] == fields


def test_a_file_that_is_not_utf8_is_refused_at_the_byte(spec: Any) -> None:
    spec.write(FRAUD, b"tenant: fraud\r\nteam: \xc3\xbc\xfc\n")
    assert (spec.problem().line, spec.problem().column, spec.problem().given) == (2, 8, "byte 0xfc")


def test_a_byte_order_mark_moves_no_column(spec: Any) -> None:
    spec.write(FRAUD, b"\xef\xbb\xbf" + (spec.path / FRAUD).read_bytes().replace(b"tenant: fraud", b"tenant: Fraud"))
    assert (spec.problem().line, spec.problem().column) == (1, 9)


def test_line_ends_of_windows_are_read(spec: Any) -> None:
    spec.write(FRAUD, (spec.path / FRAUD).read_bytes().replace(b"\n", b"\r\n").replace(b"tier: batch", b"tier: bach"))
    assert (spec.problem().line, spec.problem().column) == (7, 7)


def test_line_ends_that_are_none_to_others_are_not_read(spec: Any) -> None:
    spec.write(FRAUD, (spec.path / FRAUD).read_bytes().replace(b"\n", b"\r"))
    assert (spec.problem().given, spec.problem().change) == ("character U+000D", "end lines with line feeds")


@pytest.mark.parametrize(
    ("namespaces_text", "fields"),
    [("[{name: Bad}]", ["namespaces[0].name"]), ("[]", ["namespaces"]), ("[{name: fine}]", [])],
)
def test_a_list_with_a_wrong_entry_is_not_too_short_as_well(spec: Any, namespaces_text: str, fields: list[str]) -> None:
    spec.edit("tenants/research.yaml", "people:", f"namespaces: {namespaces_text}\npeople:")
    assert [p.field for p in spec.problems()] == fields


@pytest.mark.parametrize(
    ("glass_text", "fields"),
    [
        ("[mars]", ["aws.break-glass.trusted-principals[0]"]),
        ("[]", ["aws.break-glass.trusted-principals"]),
        ("[%s]", []),
    ],
)
def test_who_breaks_the_glass_is_told_one_mistake_at_once(spec: Any, glass_text: str, fields: list[str]) -> None:
    trusted = glass_text.replace("%s", "arn:aws:iam::111122223333:user/jane")
    spec.add("environment.yaml", f"aws: {{break-glass: {{trusted-principals: {trusted}, mail: a@bank.example}}}}\n")
    assert [p.field for p in spec.problems()] == fields


def test_a_byte_order_mark_and_other_line_ends_change_nothing(spec: Any) -> None:
    before = spec.load().tenants
    spec.write(FRAUD, b"\xef\xbb\xbf" + (spec.path / FRAUD).read_bytes().replace(b"\n", b"\r\n"))
    assert spec.load().tenants == before


def test_a_file_above_the_limit_is_refused_unread(spec: Any) -> None:
    spec.add(FRAUD, "#" * MAX_FILE_BYTES)
    assert spec.problem().rule == f"a spec file has at most {MAX_FILE_BYTES} bytes"


def _laughs() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x]"]
    lines += [f"{c}: &{c} [{', '.join(['*' + p] * 9)}]" for p, c in zip("abcdefghijk", "bcdefghijkl", strict=True)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    "text",
    [
        _laughs(),
        _laughs().replace("[", "{<<: [").replace("]", "]}"),
        "a: &a [*a]",
        "a: &a {<<: *a}",
        "a: &a {b: &b {c: *a, d: *b}}",
        "[" * 500_000,
        "{a: " * 200_000,
        "- " * 500_000 + "x",
        "? " * 500_000 + "x",
        "a: " + "[" * 300 + "]" * 300,
        "\n".join(" " * i + f"k{i}:" for i in range(1200)),
    ],
    ids=["laughs", "merged", "ring", "merge ring", "rings", "[[[", "{{{", "---", "???", "closed", "indented"],
)
def test_a_bomb_goes_off_nowhere(spec: Any, text: str) -> None:
    spec.write(FRAUD, text)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert spec.problems()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300_000, "kilobytes"


def test_a_file_with_endless_problems_shows_the_first_and_counts_the_rest(spec: Any) -> None:
    spec.edit(FRAUD, "people:\n", "people:\n" + "  - {group: '', role: developer}\n" * 150)
    problems = spec.problems()
    assert (len(problems), problems[-1].given) == (MAX_PROBLEMS + 1, "50 more problems")


def test_control_characters_in_a_key_stay_on_one_line(spec: Any) -> None:
    spec.add(FRAUD, '"evil\\nkey\\e[31m": 1\n')
    assert spec.problem().field == "evil\\nkey\\x1b[31m"


def test_a_text_of_one_line_is_one_line(spec: Any) -> None:
    spec.edit(FRAUD, "title: Fraud Detection", 'title: "Fraud\\nDetection"')
    assert spec.problem().rule == "a text of one line"


# Folders


def test_a_name_is_looked_up_under_stacks_from_below(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stacks").mkdir()
    spec.path.rename(tmp_path / "stacks" / "small")
    (tmp_path / "deep" / "down").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "deep" / "down")
    assert load("small").environment.environment == "small"


@pytest.mark.parametrize("name", ["small/", "./small", "../here/small", "small//"])
def test_a_folder_is_named_in_any_spelling(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "here").mkdir()
    spec.path.rename(tmp_path / "here" / "small")
    monkeypatch.chdir(tmp_path / "here")
    assert load(name).environment.environment == "small"


@pytest.mark.parametrize("name", ["smal", "../x", "/nowhere", "", "x" * 5000, "a\nb", "small/environment.yaml", "."])
def test_a_name_that_is_no_environment_is_refused(spec: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(spec.path.parent)
    with pytest.raises(SpecError) as error:
        load(name)
    assert len(error.value.problems) == 1


def test_an_unknown_environment_is_answered_with_those_that_there_are(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stacks").mkdir()
    spec.path.rename(tmp_path / "stacks" / "small")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError, match="use small"):
        find_folder("smal")


def test_an_environment_file_of_another_suffix_is_to_be_renamed(spec: Any) -> None:
    (spec.path / ENV).rename(spec.path / "environment.yml")
    assert spec.problem().change == "rename environment.yml to environment.yaml"


def test_a_missing_environment_file_is_said(spec: Any) -> None:
    (spec.path / ENV).unlink()
    assert spec.problem().given == "no file"


def test_a_missing_tenants_folder_is_said_and_nothing_else(spec: Any) -> None:
    shutil.rmtree(spec.path / "tenants")
    assert spec.problem().rule == "tenants have their files in tenants/"


def test_an_environment_may_have_no_tenant_yet(spec: Any) -> None:
    spec.edit(ENV, "    tenants: [research]\n", "    tenants: [research]\n".replace("[research]", "[research]"))
    for name in (FRAUD, RESEARCH):
        (spec.path / name).unlink()
    spec.edit(ENV, "  l4-shared: {gpu: l4, gpu-sharing: time-slicing}\n", "")
    text = (spec.path / ENV).read_text("utf-8")
    spec.write(ENV, text[: text.index("  notebooks:")])
    assert spec.load().tenants == ()


def test_a_tenant_file_may_be_called_yml(spec: Any) -> None:
    (spec.path / FRAUD).rename(spec.path / "tenants/fraud.yml")
    assert [t.tenant for t in spec.load().tenants] == ["fraud", "research"]


@pytest.mark.parametrize("name", ["fraud.YAML", "fraud.json", "fraud.Yml"])
def test_a_tenant_file_that_would_be_passed_over_is_refused(spec: Any, name: str) -> None:
    (spec.path / FRAUD).rename(spec.path / "tenants" / name)
    assert spec.problem().change == "rename it to .yaml"


def test_a_folder_among_the_tenants_is_refused(spec: Any) -> None:
    (spec.path / "tenants" / "risk").mkdir()
    assert spec.problem().given == "a folder"


@pytest.mark.parametrize("name", [".gitkeep", ".#fraud.yaml", "README.md", "fraud.yaml~", ".fraud.yaml.swp"])
def test_files_of_editors_and_remarks_are_left_alone(spec: Any, name: str) -> None:
    spec.write(f"tenants/{name}", "not: [a, tenant")
    assert spec.problems() == ()


@pytest.mark.parametrize("target", ["link.yaml", "nowhere.yaml", "../../outside.yaml"])
def test_what_a_link_leads_to_is_not_read(spec: Any, target: str) -> None:
    (spec.path.parent / "outside.yaml").write_text("secret-of-the-runner\n")
    (spec.path / "tenants" / "link.yaml").symlink_to(target)
    problem = spec.problem()
    assert problem.given == "a link"
    assert "secret" not in str(problem)


def test_a_file_of_the_folders_own_is_read_where_a_link_is_not(spec: Any) -> None:
    (spec.path.parent / "outside.yaml").write_text("secret-of-the-runner\n")
    spec.write("tenants/link.yaml", (spec.path.parent / "outside.yaml").read_bytes())
    assert spec.problem().given == "'secret-of-the-runner'"


def test_a_link_in_place_of_the_tenants_folder_is_not_followed(spec: Any) -> None:
    (spec.path / "tenants").rename(spec.path.parent / "elsewhere")
    (spec.path / "tenants").symlink_to(spec.path.parent / "elsewhere")
    assert [p.given for p in spec.problems()] == ["a link"]


def test_a_link_in_place_of_an_environments_folder_is_not_followed(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stacks = tmp_path / "project" / "stacks"
    stacks.mkdir(parents=True)
    (stacks / spec.path.name).symlink_to(spec.path)
    monkeypatch.chdir(stacks.parent)
    for path in (
        spec.path.name,
        f"stacks/{spec.path.name}",
        f"stacks/{spec.path.name}/",
        str(stacks / spec.path.name),
    ):
        with pytest.raises(SpecError) as refused:
            load(path)
        assert [(p.file, p.given) for p in refused.value.problems] == [(f"stacks/{spec.path.name}", "a link")]


def test_a_project_below_a_link_is_read(spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stacks = tmp_path / "project" / "stacks"
    stacks.mkdir(parents=True)
    spec.path.rename(stacks / spec.path.name)
    (tmp_path / "link").symlink_to(stacks.parent)
    monkeypatch.chdir(tmp_path / "link")
    for path in (spec.path.name, f"stacks/{spec.path.name}", str(tmp_path / "link" / "stacks" / spec.path.name)):
        assert load(path).environment.environment == spec.path.name
    monkeypatch.chdir(tmp_path / "link" / "stacks" / spec.path.name)
    assert load(".").environment.environment == spec.path.name


@pytest.fixture
def mounted(spec: Any) -> Volume:
    """The environment's folder as kubelet mounts it."""
    files = {name: (spec.path / name).read_text("utf-8") for name in FILES}
    shutil.rmtree(spec.path)
    volume = Volume(spec.path)
    volume.write(files)
    return volume


def test_a_volume_that_kubelet_mounted_is_read_and_its_problems_name_the_visible_files(
    spec: Any, mounted: Volume
) -> None:
    assert [tenant.tenant for tenant in load(spec.path).tenants] == ["fraud", "research"]
    files = mounted.read()
    mounted.write({**files, FRAUD: files[FRAUD].replace("tier: batch", "tier: bach"), "tenants/x.json": "{}"})
    assert [Path(problem.file).parts[-2:] for problem in spec.problems()] == [
        ("tenants", "fraud.yaml"),
        ("tenants", "x.json"),
    ]
    mounted.write({**files, FRAUD: files[FRAUD].replace("when-spent: hold", "when-spent: alert")})
    assert [Path(note.file).name for note in spec_notes(load(spec.path))]


def test_a_volume_that_is_replaced_while_it_is_read_gives_files_of_one_moment(
    spec: Any, mounted: Volume, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = mounted.read()
    replaced = {ENV: files[ENV].replace("name: bank", "name: shop"), FRAUD: files[FRAUD]}
    monkeypatch.setattr("tests.mounted_volume.shutil.rmtree", lambda _: None)
    read = loader.read_text

    def replaced_after_the_first(path: Path) -> str:
        text = read(path)
        monkeypatch.setattr(loader, "read_text", read)
        mounted.write(replaced)
        return text

    monkeypatch.setattr(loader, "read_text", replaced_after_the_first)
    first, second = load(spec.path), load(spec.path)
    assert (first.environment.organisation.name, len(first.tenants)) == ("bank", 2)
    assert (second.environment.organisation.name, len(second.tenants)) == ("shop", 1)


LINKS = {
    "a link out of the folder": ("tenants", "../outside/tenants"),
    "a link to a file of the machine": (ENV, "/etc/passwd"),
    "the whole path of what kubelet links to": (ENV, "{folder}/..data/environment.yaml"),
    "a link to itself": (ENV, ENV),
    "a link to its folder": ("tenants", "."),
    "a link to another name of the volume": (ENV, "..data/kubeconfig"),
    "a link past the volume": ("tenants", "..data/../../outside/tenants"),
    "a link with a slash at its end": ("tenants", "..data/tenants/"),
    "a volume out of the folder": ("..data", "../outside"),
    "a volume by its whole path": ("..data", "{outside}"),
    "a volume that is the folder above": ("..data", ".."),
    "a volume that is itself": ("..data", "..data"),
    "a volume of another form": ("..data", "visible"),
    "a volume that is a link": ("..data", "..linked"),
    "a file of the volume": ("..data/environment.yaml", "/etc/passwd"),
    "a folder of the volume": ("..data/tenants", "../../outside/tenants"),
    "a tenant's file of the volume": ("..data/tenants/fraud.yaml", "research.yaml"),
}
"""The name that is made a link, and its target. Only links that kubelet makes are followed."""


@pytest.mark.parametrize("case", LINKS)
def test_no_other_link_than_those_of_kubelet_is_followed(case: str, spec: Any, mounted: Volume) -> None:
    outside = spec.path.parent / "outside"
    for name, text in mounted.read().items():
        for home in (outside, spec.path / "visible"):
            (home / name).parent.mkdir(parents=True, exist_ok=True)
            (home / name).write_text(text, "utf-8")
    (spec.path / "..linked").symlink_to("../outside")
    assert spec.problems() == ()
    name, target = LINKS[case]
    path = spec.path / name
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()
    path.symlink_to(target.format(folder=spec.path, outside=outside))
    problems = spec.problems()
    assert problems
    assert {problem.given for problem in problems} == {"a link"}


def test_a_folder_in_place_of_a_file_is_said(spec: Any) -> None:
    (spec.path / "tenants" / "x.yaml").mkdir()
    assert spec.problem().given == "a folder, no regular file"


def test_a_pipe_is_not_waited_for(spec: Any) -> None:
    os.mkfifo(spec.path / "tenants" / "x.yaml")
    assert spec.problem().given == "a named pipe, no regular file"


def test_a_file_without_permission_is_said(spec: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(*_: Any) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("tenancy.catalog.files.os.open", denied)
    assert "Permission denied" in spec.problems()[0].given


def test_a_problem_becomes_json(spec: Any) -> None:
    spec.edit(FRAUD, "tier: batch", "tier: bach")
    fields = {"file", "line", "column", "field", "given", "rule", "change", "id"}
    assert set(json.loads(json.dumps(spec.problem().as_dict()))) == fields


def test_a_broken_file_shows_its_mistakes_across_files_at_once(spec: Any) -> None:
    spec.edit(FRAUD, "department: risk", "department: rsik")
    spec.edit(FRAUD, "tier: batch", "teir: batch")
    spec.edit(FRAUD, "port: 8443", "port: 0")
    assert [p.field for p in spec.problems()] == ["department", "teir", "egress[0].port"]


def test_what_a_broken_file_lacks_makes_no_noise_across_files(spec: Any) -> None:
    spec.edit(FRAUD, "tier: batch", "tier: 5")
    assert [p.field for p in spec.problems()] == ["tier"]


@pytest.mark.parametrize(
    "mail",
    [
        "{{.CommonAnnotations}}@bank.example",
        "a@bank.example,b@bank.example",
        "<a@bank.example>",
        '"a"@bank.example',
        "a|b@c.example",
    ],
)
def test_a_mail_address_is_one_address_and_no_template(spec: Any, mail: str) -> None:
    """Alertmanager expands what stands in braces, and sends to each that a comma divides."""
    spec.edit("tenants/fraud.yaml", "mail: fraud-leads@bank.example", f"mail: {mail!r}")
    (problem,) = spec.problems()
    assert problem.field == "owner.mail"
    spec.edit("tenants/fraud.yaml", f"mail: {mail!r}", "mail: o'brien+gpu@bank.example")
    assert not spec.problems()


@pytest.mark.parametrize("name", ["a | b", "<img src=x>", "`x`"])
def test_a_subject_is_no_markup(spec: Any, name: str) -> None:
    spec.edit("tenants/fraud.yaml", "{group: fraud-engineers,", f"{{group: {name!r},")
    (problem,) = spec.problems()
    assert problem.field == "people[0].group"
    spec.edit("tenants/fraud.yaml", f"{{group: {name!r},", "{group: 'CN=GPU Users,OU=Bank (DE)',")
    assert not spec.problems()


@pytest.mark.parametrize("field", ["team", "department", "cost-center", "owner", "tier", "tenant"])
def test_a_missing_field_is_told_with_an_example_that_is_read(spec: Any, field: str) -> None:
    text = (spec.path / FRAUD).read_text("utf-8")
    spec.write(FRAUD, re.sub(rf"^{field}:.*\n", "", text, flags=re.MULTILINE))
    (problem,) = [candidate for candidate in spec.problems() if candidate.rule == f"'{field}' is required"]
    assert problem.given == f"no {field}"
    start = f"add {field}, such as "
    assert problem.change.startswith(start)
    spec.add(FRAUD, f"{field}: {problem.change.removeprefix(start)}\n")
    # A department or tier of that name is another matter.
    assert {problem.id for problem in spec.problems()} <= {"ref-01", "name-02", "name-07"}


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("department", "write a string, such as fraud-detection"),
        ("title", "write a string, or drop the key"),
    ],
)
def test_a_key_without_a_value_is_told_what_to_write(spec: Any, field: str, change: str) -> None:
    text = (spec.path / FRAUD).read_text("utf-8")
    spec.write(FRAUD, re.sub(rf"^{field}:.*\n", "", text, flags=re.MULTILINE) + f"{field}:\n")
    (problem,) = [candidate for candidate in spec.problems() if candidate.field == field]
    assert (problem.given, problem.change) == ("no value", change)
