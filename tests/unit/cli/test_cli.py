from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from tenancy import __version__
from tenancy.cli import COMMANDS, SECTIONS, main
from tests.aws_cases import ON_AWS

FRAUD = "tenants/fraud.yaml"


def run(*words: str) -> Result:
    result = CliRunner().invoke(main, [str(word) for word in words])
    assert result.exception is None or isinstance(result.exception, SystemExit), "no traceback, whatever is typed"
    return result


@pytest.mark.parametrize(("bought", "is_noted"), [("spot", True), ("on-demand", False)])
def test_who_buys_spot_is_told_what_its_account_needs(spec: Any, bought: str, is_noted: bool) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    more = (
        "  cheap: "
        f"{{instance-type: m7i.4xlarge, nodes: {{min: 0, max: 3}}, tiers: [batch], purchase: {bought}}}\n  serve:\n"
    )
    spec.edit("environment.yaml", "  serve:\n", more)
    notes = json.loads(run("validate", spec.path, "--format", "json").stdout)["notes"]
    spot_notes = [note for note in notes if note["field"] == "pools.cheap.purchase"]
    assert len(spot_notes) == is_noted
    assert sum("AWSServiceRoleForEC2Spot" in note["rule"] for note in spot_notes) == is_noted
    command = "create-service-linked-role --aws-service-name spot.amazonaws.com"
    assert sum(command in note["change"] for note in spot_notes) == is_noted


def _is_group(name: str) -> bool:
    return isinstance(main.get_command(click.Context(main), name), click.Group)  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [name for name in COMMANDS if not _is_group(name)])
def test_the_help_of_a_command_shows_an_example_that_can_be_pasted(name: str) -> None:
    assert f"tenancy {name}" in run(name, "--help").stdout.partition("Example")[2]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_is_listed_is_there(name: str) -> None:
    assert run(name, "--help").exit_code == 0


def test_help_lists_every_command_in_its_section_with_a_sentence_on_one_line() -> None:
    lines = run("--help").stdout.splitlines()
    shown_lines = [line.strip() for line in lines[lines.index("Write:") :] if line]
    expected = []
    for section, commands in SECTIONS.items():
        expected += [f"{section}:", *(f"{name:<12}{sentence}" for name, sentence in commands.items())]
    assert shown_lines == expected


def test_each_command_is_in_one_section() -> None:
    assert sum(map(len, SECTIONS.values())) == len(COMMANDS)


def test_the_version_is_said() -> None:
    assert __version__ in run("--version").stdout


@pytest.mark.parametrize("words", [["nonsense"], ["validate"], ["validate", "x", "--nonsense"], ["sample", "cat", "x"]])
def test_what_is_typed_wrong_ends_with_2(words: list[str]) -> None:
    assert run(*words).exit_code == 2


def test_a_right_environment_ends_with_0(spec: Any) -> None:
    result = run("validate", spec.path)
    assert (result.exit_code, result.stdout) == (0, "small: 2 tenants, 3 namespaces, no problem\n")


def test_a_right_environment_is_said_to_machines(spec: Any) -> None:
    answer = json.loads(run("validate", spec.path, "--format", "json").stdout)
    idle = [note.pop("field") for note in answer.pop("notes")]
    assert answer == {"environment": "small", "tenants": 2, "namespaces": 3, "problems": []}
    assert idle == ["organisation.departments.risk", "buckets", "storage", "budget", "storage"], "AWS is off"


def notes_of(result: Any) -> list[str]:
    """Notes, but for those of fields that AWS alone would make."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    known_notes = (
        "a field without effect is reported",
        "made on AWS alone is reported",
        "alerts on budgets come from",
        "a strict department",
    )
    return [line for line in lines if not any(rule in line for rule in known_notes)]


TO_S3 = "egress:\n  - {cidr: 3.5.136.0/22, port: 443}\n"


@pytest.mark.parametrize(
    ("aws", "egress", "expected_tenants"),
    [
        (ON_AWS, "", ["fraud, research"]),
        (ON_AWS, TO_S3, ["fraud"]),
        (ON_AWS.replace("  service-quotas: {}", "  network: {aws-service-cidrs: [3.5.136.0/22]}"), "", []),
        (ON_AWS.replace("enabled: true", "enabled: false"), "", []),
    ],
)
def test_a_grant_of_a_bucket_without_a_way_to_s3_is_told(
    spec: Any, aws: str, egress: str, expected_tenants: list[str]
) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", aws)
    spec.add("tenants/research.yaml", egress)
    result = run("validate", spec.path)
    assert (result.exit_code, result.stdout) == (0, "small: 2 tenants, 3 namespaces, no problem\n")
    notes = notes_of(result)
    assert len(notes) == len(expected_tenants)
    for line, tenants in zip(notes, expected_tenants, strict=True):
        assert "environment.yaml:" in line
        assert f"aws.network.aws-service-cidrs: given none, and grants of buckets to {tenants}, who" in line


def test_a_note_is_told_to_machines(spec: Any) -> None:
    spec.edit("environment.yaml", "  cni: vpc-cni\n", ON_AWS)
    answer = json.loads(run("validate", spec.path, "--format", "json").stdout)
    assert answer["problems"] == []
    assert [note["field"] for note in answer["notes"]] == [
        "aws.network.aws-service-cidrs",
        "organisation.departments.risk",
    ]


@pytest.mark.parametrize(
    ("part", "pools", "is_noted"),
    [
        ("{name: nightly}", "", False),
        ("{name: nightly, tier: calm}", "", True),
        ("{name: nightly, tier: calm}", "  cpu: {instance-type: m7i.4xlarge, nodes: 1}\n", False),
        ("{name: nightly, tier: calm}", "  cpu: {instance-type: m7i.4xlarge, nodes: 1, tiers: [batch]}\n", True),
    ],
    ids=["may use its tenant's GPUs", "has nothing", "has machines", "has machines of another tier"],
)
def test_a_namespace_whose_queue_has_nothing_is_told(spec: Any, part: str, pools: str, is_noted: bool) -> None:
    """A queue's CPU comes with GPUs, or with pools without: its work would wait for ever."""
    spec.edit(
        "environment.yaml", "tiers:\n", "tiers:\n  calm: {priority: 5, allow-borrowing: false, interruptible: true}\n"
    )
    spec.edit("environment.yaml", "  serve:\n", f"{pools}  serve:\n")
    spec.add("tenants/research.yaml", f"namespaces: [main, {part}]\n")
    result = run("validate", spec.path)
    assert result.exit_code == 0
    sentence = (
        "pools: given research--nightly, which has no GPUs and which no CPU-only pool admits: nothing can run there"
    )
    assert (sentence in result.stderr) is is_noted
    assert len(notes_of(result)) == is_noted


@pytest.mark.parametrize(
    ("kubernetes", "spread", "expected_tiers"),
    [
        ("1.36", "", []),
        ("1.35", "", ["production", "batch"]),
        ("1.35", "    topology-spread: none\n", ["production"]),
        ("1.30", "    topology-spread: preferred\n", ["production", "batch"]),
    ],
)
def test_a_spread_that_an_older_api_server_does_not_write_is_told(
    spec: Any, kubernetes: str, spread: str, expected_tiers: list[str]
) -> None:
    spec.edit("environment.yaml", 'kubernetes: "1.36"', f'kubernetes: "{kubernetes}"')
    spec.edit("environment.yaml", "tiers:\n", "tiers:\n  unused: {priority: 5, topology-spread: preferred}\n")
    spec.edit(
        "environment.yaml", "    priority: 100\n    interruptible", f"    priority: 100\n{spread}    interruptible"
    )
    result = run("validate", spec.path)
    assert result.exit_code == 0
    notes = notes_of(result)
    assert len(notes) == bool(expected_tiers)
    for line in notes:
        assert (
            f"tiers.{expected_tiers[0]}.topology-spread: given topology-spread: preferred for "
            f"{', '.join(expected_tiers)} on Kubernetes" in line
        )
        assert "write topologySpreadConstraints with maxSkew 1" in line


@pytest.mark.parametrize(("replicas", "expected_requests"), [(24, []), (25, ["cpu, 500m", "memory, 2Gi"])])
def test_devices_for_which_a_node_has_no_room_by_default_are_told(
    spec: Any, replicas: int, expected_requests: list[str]
) -> None:
    """4 boards beside 48 vCPU and 192 GiB: the requests of the 97th to the 100th replica fit no node."""
    spec.edit("environment.yaml", "time-slicing: 4", f"time-slicing: {replicas}")
    result = run("validate", spec.path)
    assert result.exit_code == 0
    notes = notes_of(result)
    assert len(notes) == len(expected_requests)
    for line, request in zip(notes, expected_requests, strict=True):
        assert "pools.notebooks: given 100 devices on a node, where 96 pods fit onto a g6.12xlarge" in line
        assert f"default-request of {request}; rule" in line


def test_the_example_of_a_bank_has_a_way_to_its_buckets() -> None:
    assert run("validate", "bank").stderr == ""


def test_a_wrong_environment_ends_with_2_and_says_so_on_stderr(spec: Any) -> None:
    spec.edit(FRAUD, "tier: batch", "tier: bach")
    result = run("validate", spec.path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "fraud.yaml:7:7: tier: given tier 'bach'" in result.stderr
    assert result.stderr.endswith("1 problem; nothing was changed\n")


def test_a_wrong_environment_is_said_to_machines(spec: Any) -> None:
    spec.edit(FRAUD, "tier: batch", "tier: bach")
    result = run("validate", spec.path, "--format", "json")
    (problem,) = json.loads(result.stdout)["problems"]
    assert result.exit_code == 2
    assert (problem["line"], problem["column"], problem["field"], problem["id"]) == (7, 7, "tier", "ref-01")


@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("name", ["nowhere", "", "../x", "x\ny", "y" * 5000])
def test_an_unknown_environment_ends_with_2(name: str, form: str) -> None:
    assert run("validate", name, "--format", form).exit_code == 2


@pytest.mark.parametrize("command", [("render", "--out", "{out}"), ("sample", "pod", "--tenant", "fraud")])
def test_no_command_works_on_a_wrong_environment(spec: Any, tmp_path: Path, command: tuple[str, ...]) -> None:
    spec.edit(FRAUD, "tier: batch", "tier: bach")
    name, *arguments = (word.format(out=tmp_path / "out") for word in command)
    words = (
        [name, *arguments, str(spec.path)] if name == "render" else [name, arguments[0], str(spec.path), *arguments[1:]]
    )
    assert run(*words).exit_code == 2
    assert not (tmp_path / "out").exists()


def test_rendering_says_how_many_objects_there_are(spec: Any, tmp_path: Path) -> None:
    result = run("render", spec.path, "--out", tmp_path / "out")
    assert result.exit_code == 0
    assert result.stdout.endswith(f"objects in {tmp_path / 'out'}\n")


def test_rendering_into_a_folder_with_foreign_files_ends_with_2(spec: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    assert run("render", spec.path, "--out", tmp_path).exit_code == 2


def test_rendering_onto_a_file_ends_with_2(spec: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine", "utf-8")
    assert run("render", spec.path, "--out", tmp_path / "file").exit_code == 2


def test_a_sample_is_an_object_as_json(spec: Any) -> None:
    result = run("sample", "pod", spec.path, "--tenant", "fraud", "--gpu", "a100=2")
    assert json.loads(result.stdout)["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "2"


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tenant", "frau"),
        ("--tenant", "fraud", "--namespace", "trian"),
        ("--tenant", "fraud", "--gpu", "a100=0"),
        ("--tenant", "fraud", "--gpu", "a100=x"),
        ("--tenant", "fraud", "--gpu", "a100=²"),
        ("--tenant", "fraud", "--gpu", "=1"),
        ("--tenant", "fraud", "--gpu", "l4-shared"),
        ("--tenant", "fraud", "--gpu", "a100=33"),
    ],
)
def test_a_sample_that_the_tenant_may_not_have_ends_with_2(spec: Any, arguments: tuple[str, ...]) -> None:
    result = run("sample", "pod", spec.path, *arguments)
    assert result.exit_code == 2
    assert "change:" in result.stderr


def test_the_schema_is_json() -> None:
    assert json.loads(run("schema", "tenant").stdout)["properties"]["tenant"]


def test_validating_imports_no_engine_no_client_and_no_screen(spec: Any) -> None:
    code = (
        "import sys; from tenancy.cli import main\n"
        f"try: main(['validate', {str(spec.path)!r}])\n"
        "except SystemExit as end: assert not end.code\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}), file=sys.stderr)"
    )
    completed = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    loaded = set(json.loads(completed.stderr.splitlines()[-1].replace("'", '"')))
    heavy = {"pulumi", "pulumi_kubernetes", "kubernetes", "rich", "jinja2", "difflib", "requests", "grpc"}
    assert loaded.isdisjoint(heavy)


def test_the_module_runs_as_the_command_does(spec: Any) -> None:
    completed = subprocess.run(
        [sys.executable, "-m", "tenancy", "validate", str(spec.path)], capture_output=True, check=False
    )
    assert completed.returncode == 0


@pytest.mark.parametrize("command", ["up", "down"])
def test_without_an_engine_a_sentence_says_where_it_comes_from(
    spec: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    (spec.path / "Pulumi.yaml").write_text("name: scratch\nruntime: python\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    result = run(command, spec.path, *(["--yes"] if command == "down" else []))
    assert result.exit_code == 1
    assert "given a PATH without `pulumi`; rule: stacks go through Pulumi's engine" in result.stderr
    assert "`tenancy lab up`" in result.stderr


@pytest.mark.parametrize("name", ["/proc/x", "a" * 300])
@pytest.mark.parametrize("words", [["render", "local"], ["schema"]])
def test_a_folder_that_cannot_be_made_is_bad_input(words: list[str], name: str, tmp_path: Path) -> None:
    result = run(*words, "--out", tmp_path / name)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "rule: a path that can be written" in result.stderr
    assert run(*words, "--out", tmp_path / "x").exit_code == 0


@pytest.mark.parametrize(("place", "code"), [("/dev/full", 2), ("/dev/null", 0)])
@pytest.mark.parametrize("words", [["rules"], ["rules", "--markdown"], ["schema"], ["validate", "local"]])
def test_an_output_without_room_is_said_and_is_bad_input(words: list[str], place: str, code: int) -> None:
    with Path(place).open("w") as full:
        completed = subprocess.run(
            [sys.executable, "-m", "tenancy", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert completed.returncode == code
    assert "Traceback" not in completed.stderr
    assert ("No space left on device" in completed.stderr) is bool(code)
