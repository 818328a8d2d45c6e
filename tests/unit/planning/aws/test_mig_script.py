"""The program that cuts a node's GPUs, installed and run for real on GPUs that are not."""

from __future__ import annotations

import configparser
import email
import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tenancy.catalog.boards import BOARDS, maximal_layouts
from tenancy.catalog.instances import INSTANCES
from tenancy.planning.aws.node_config import PROGRAM, UNIT, user_data
from tenancy.spec.fields.environment import Environment
from tests.conftest import ENVIRONMENT, every
from tests.waiting import PATIENCE

LAYOUT = "{1g.5gb: 4, 3g.20gb: 1}"
ON_GPU = ["3g.20gb:4", "1g.5gb:3", "1g.5gb:2", "1g.5gb:1", "1g.5gb:0"]
PARTS = "{per-gpu: [{gpus: 2, slices: %s}, {gpus: 1, slices: {1g.5gb+me: 1, 2g.10gb: 2}}]}" % LAYOUT  # noqa: UP031

# Slices are gone after a boot; the mode stays, as on Ampere. `reset` says whether a new mode needs no reboot.
NVIDIA_SMI = """\
import json, os, sys
path = os.environ["GPUS"]
state = json.load(open(path))
words = sys.argv[1:]
def done(code=0, change=False):
    if change:
        json.dump(state, open(path, "w"))
        print("nvidia-smi", *words, file=open(os.environ["CALLS"], "a"))
    sys.exit(code)
if state["loading"]:
    state["loading"] -= 1
    json.dump(state, open(path, "w"))
    sys.exit("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.")
if words == ["-L"]:
    for i, gpu in enumerate(state["gpus"]):
        print(f"GPU {i}: NVIDIA A100-SXM4-40GB (UUID: GPU-{i}0000000)")
        for j, name in enumerate(gpu["slices"]):
            print(f"  MIG {name:<11} Device {j:>2}: (UUID: MIG-{i}{j}000000)")
    done()
gpu = state["gpus"][int(words[words.index("-i") + 1])]
if "--query-gpu=mig.mode.current" in words:
    print(gpu["mode"])
    done()
if "-mig" in words:
    gpu["pending"] = "Enabled" if words[-1] == "1" else "Disabled"
    if state["reset"]:
        gpu["mode"] = gpu["pending"]
        done(change=True)
    print("Warning: MIG mode is in pending enable state for GPU 00000000:10:1C.0:In use by another client")
    done(255, change=True)
if gpu["mode"] != "Enabled":
    done(6, change=True)
if "-dci" in words or "-dgi" in words:
    if not gpu["slices"]:
        print("No GPU instances found: Not Found")
        done(6, change=True)
    if "-dgi" in words:
        gpu["slices"] = []
    done(change=True)
asked = words[words.index("-cgi") + 1].split(",")
if gpu["slices"] or (state["refuses_places"] and ":" in asked[0]):
    print("Unable to create a GPU instance: Insufficient Resources")
    done(19, change=True)
gpu["slices"] = [name.split(":")[0] for name in asked][state["loses"]:]
done(change=True)
"""
SYSTEMCTL = """\
#!/bin/bash
echo systemctl "$@" >> "$CALLS"
# A reboot ends the process that asks for it.
if [[ $1 == reboot ]]; then kill -TERM $PPID; fi
if [[ $1 == start ]]; then exit 5; fi
"""


def environment_with(mig: str, instance: str = "p4d.24xlarge") -> Environment:
    head = ENVIRONMENT[: ENVIRONMENT.index("flavors:\n")]
    board = INSTANCES[instance].gpu
    flavors = {"whole": {"gpu": board}}
    flavors |= {f"f{i}": {"gpu": board, "mig": profile} for i, profile in enumerate(BOARDS[board].profiles)}
    pools = {"cut": {"instance-type": instance, "nodes": {"min": 0, "max": 2}, "mig": yaml.safe_load(mig)}}
    return Environment.model_validate({**yaml.safe_load(head), "flavors": flavors, "pools": pools})


def script(mig: str, instance: str = "p4d.24xlarge") -> str:
    message = email.message_from_string(user_data(environment_with(mig, instance), "cut", base=False))
    (script_part,) = (part for part in message.walk() if part.get_content_type() == "text/x-shellscript")
    return str(script_part.get_payload())


class Node:
    """A machine below a folder: its disk, its GPUs, and the tools that the program calls."""

    def __init__(self, root: Path, mig: str = PARTS) -> None:
        self.root = root
        self.mig = mig
        self.calls_file = root / "calls"
        self.gpus_file = root / "gpus.json"
        self.state_folder = root / "var"
        self.program = root / PROGRAM.strip("/")
        for folder in ("bin", "var", "usr/local/sbin", "etc/systemd/system"):
            (root / folder).mkdir(parents=True)
        self._tool("nvidia-smi", f"#!{sys.executable} -SIE\n{NVIDIA_SMI}")
        self._tool("systemctl", SYSTEMCTL)
        self._tool("sleep", "#!/bin/bash\n")
        self.calls_file.touch()
        gpu: dict[str, Any] = {"mode": "Disabled", "pending": "Disabled", "slices": []}
        self.set(gpus=[gpu] * 8, loading=0, reset=True, refuses_places=False, loses=0)

    def _tool(self, name: str, text: str) -> None:
        path = self.root / "bin" / name
        path.write_text(text, "utf-8")
        path.chmod(0o755)

    def set(self, **changes: Any) -> None:
        """Set the state of the node's GPUs."""
        before = json.loads(self.gpus_file.read_text("utf-8")) if self.gpus_file.exists() else {}
        self.gpus_file.write_text(json.dumps({**before, **changes}), "utf-8")

    @property
    def gpus(self) -> list[dict[str, Any]]:
        return json.loads(self.gpus_file.read_text("utf-8"))["gpus"]

    def boot(self) -> None:
        self.set(gpus=[{**gpu, "mode": gpu["pending"], "slices": []} for gpu in self.gpus])

    def install(self) -> int:
        """As cloud-init does, at the first boot."""
        text = script(self.mig)
        for folder in ("/usr/local/sbin/", "/etc/systemd/system/"):
            text = text.replace(f" {folder}", f" {self.root}{folder}")
        return self._run(["bash", "-c", text])

    def run_service(self) -> int:
        """As the service does, at every boot."""
        return self._run([str(self.program)])

    def _run(self, command: list[str]) -> int:
        env = {
            "PATH": f"{self.root / 'bin'}:{os.environ['PATH']}",
            "GPUS": str(self.gpus_file),
            "CALLS": str(self.calls_file),
            "STATE_DIRECTORY": str(self.state_folder),
        }
        process = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.output = process.stdout + process.stderr
        return process.returncode

    def calls(self) -> list[str]:
        """Calls since the last look that change something."""
        call_lines = self.calls_file.read_text("utf-8").splitlines()
        self.calls_file.write_text("")
        return call_lines

    def unit(self, name: str) -> configparser.ConfigParser:
        parsed = configparser.ConfigParser()
        parsed.optionxform = str  # ty: ignore[invalid-assignment]
        parsed.read(self.root / "etc/systemd/system" / name)
        return parsed


@pytest.fixture
def node(tmp_path: Path) -> Node:
    fresh_node = Node(tmp_path)
    assert fresh_node.install() == 0, fresh_node.output
    assert fresh_node.calls() == ["systemctl daemon-reload"]
    return fresh_node


def slices(node: Node) -> list[list[str]]:
    return [gpu["slices"] for gpu in node.gpus]


EXPECTED_SLICES = [["3g.20gb", *["1g.5gb"] * 4]] * 2 + [["2g.10gb", "2g.10gb", "1g.5gb+me"]] + [[]] * 5


def test_the_gpus_are_cut_one_by_one_as_the_pool_says(node: Node) -> None:
    assert node.run_service() == 0, node.output
    assert slices(node) == EXPECTED_SLICES
    assert [gpu["mode"] for gpu in node.gpus] == ["Enabled"] * 3 + ["Disabled"] * 5
    creations = [call for call in node.calls() if "-cgi" in call]
    assert creations[0] == f"nvidia-smi mig -i 0 -cgi {','.join(ON_GPU)} -C"
    assert len(creations) == 3


def test_a_second_run_changes_nothing(node: Node) -> None:
    assert node.run_service() == 0
    node.calls()
    assert node.run_service() == 0
    assert [call for call in node.calls() if call.startswith("nvidia-smi")] == []


def test_the_slices_are_made_anew_after_a_boot(node: Node) -> None:
    assert node.run_service() == 0
    node.boot()
    assert slices(node) == [[]] * 8
    assert node.run_service() == 0
    assert slices(node) == EXPECTED_SLICES


def test_other_slices_than_asked_are_replaced(node: Node) -> None:
    assert node.run_service() == 0
    gpus = node.gpus
    gpus[1]["slices"] = ["7g.40gb"]
    node.set(gpus=gpus)
    node.calls()
    assert node.run_service() == 0
    assert slices(node) == EXPECTED_SLICES
    assert [call.split(" -")[0:2] for call in node.calls() if "-cgi" in call] == [["nvidia-smi mig", "i 1"]]


def test_the_driver_may_take_its_time(node: Node) -> None:
    node.set(loading=3)
    assert node.run_service() == 0, node.output
    assert node.output.count("waiting for the driver") == 3


def test_without_a_driver_it_fails(node: Node) -> None:
    node.set(loading=10_000)
    assert node.run_service() != 0
    assert node.calls() == [], "a reboot is for a mode that waits for one"


def test_without_one_of_its_gpus_it_fails(node: Node) -> None:
    node.set(gpus=node.gpus[:7])
    assert node.run_service() != 0
    assert "systemctl reboot" not in node.calls()


def test_where_places_are_refused_the_driver_chooses_them(node: Node) -> None:
    node.set(refuses_places=True)
    assert node.run_service() == 0, node.output
    assert slices(node) == EXPECTED_SLICES


def test_a_wrong_result_is_a_failure_after_three_attempts(node: Node) -> None:
    node.set(loses=1)
    assert node.run_service() == 1
    assert "instead of" in node.output
    assert len([call for call in node.calls() if "-i 0 -cgi" in call]) == 3


def test_the_kubelet_starts_only_after_a_cut_that_succeeded(node: Node) -> None:
    assert dict(node.unit("kubelet.service.d/50-partition-gpus.conf")["Unit"]) == {"Requires": UNIT, "After": UNIT}


def test_a_machine_that_cannot_be_cut_makes_way_for_another(node: Node) -> None:
    unit = node.unit(UNIT)
    assert unit["Unit"]["FailureAction"] == "poweroff"
    assert unit["Service"]["Type"] == "oneshot", "by which the kubelet waits for its end"
    assert unit["Service"]["RemainAfterExit"] == "yes", "or a restart of the kubelet would cut again"
    assert unit["Service"]["ExecStart"].endswith(PROGRAM)


def test_the_cut_waits_for_the_driver_and_the_switches_of_every_image(node: Node) -> None:
    after = node.unit(UNIT)["Unit"]["After"].split()
    assert {"nvidia-kmod-load.service", "nvidia-setup.service", "nvidia-fabricmanager.service"} <= set(after)
    assert not {"nodeadm-run.service", "cloud-final.service"} & set(after), "which end only when the kubelet runs"


def test_a_mode_that_needs_a_reboot_gets_one(node: Node) -> None:
    node.set(reset=False)
    assert node.run_service() == 0, "neither failed, which would power it off, nor done: the reboot ended it"
    assert node.calls()[-1] == "systemctl reboot"
    assert "are cut" not in node.output
    assert slices(node) == [[]] * 8
    node.boot()
    assert node.run_service() == 0, node.output
    assert slices(node) == EXPECTED_SLICES
    assert "systemctl reboot" not in node.calls()


def test_a_machine_reboots_once_and_no_more(node: Node) -> None:
    node.set(reset=False)
    node.run_service()
    assert node.run_service() == 1
    assert "even after a reboot" in node.output
    assert node.calls().count("systemctl reboot") == 1


def test_a_gpu_that_is_to_be_whole_loses_its_mig_mode(node: Node) -> None:
    node.set(gpus=[{"mode": "Enabled", "pending": "Enabled", "slices": []}] * 8)
    assert node.run_service() == 0
    assert [gpu["mode"] for gpu in node.gpus] == ["Enabled"] * 3 + ["Disabled"] * 5


def test_a_service_that_cannot_be_installed_ends_the_machine(tmp_path: Path) -> None:
    node = Node(tmp_path)
    (tmp_path / "etc/systemd/system").rmdir()
    assert node.install() != 0
    assert node.calls() == ["systemctl poweroff"]


def test_the_scripts_are_sound(node: Node) -> None:
    for text in (script(PARTS), node.program.read_text("utf-8")):
        assert subprocess.run(["bash", "-n"], input=text, text=True, check=False).returncode == 0
        assert text.startswith("#!/bin/bash\n")
        assert "\nset -euo pipefail\n" in text
        assert not re.search("@[A-Z]+@", text), "a placeholder is left"


def _layouts() -> list[tuple[str, dict[str, int]]]:
    layout_lines = []
    for instance in ("p4d.24xlarge", "p5.48xlarge", "g7e.48xlarge"):
        board = INSTANCES[instance].gpu
        names = BOARDS[board].profiles
        layout_lines += [
            (instance, {n: c for n, c in zip(names, counts, strict=True) if c}) for counts in maximal_layouts(board)
        ]
    return layout_lines


@pytest.mark.parametrize(("instance", "layout"), _layouts())
def test_every_slice_has_a_place_of_its_own(instance: str, layout: dict[str, int]) -> None:
    (line, *others) = re.findall(r'^    "\d+ (.+)"$', script(json.dumps({"layout": layout}), instance), re.MULTILINE)
    assert set(others) == {line}
    assert len(others) == INSTANCES[instance].gpus - 1
    profiles = BOARDS[INSTANCES[instance].gpu].profiles
    placed = [word.split(":") for word in line.split(",")]
    assert Counter(name for name, _ in placed) == layout
    assert every(int(start) in profiles[name].starts for name, start in placed)
    units = Counter(unit for name, start in placed for unit in range(int(start), int(start) + profiles[name].memory))
    assert max(units.values()) == 1
