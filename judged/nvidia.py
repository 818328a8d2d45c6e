"""NVIDIA's validation suite for AI clouds (ai-cloud-validation) from a clone: checks that need an API server alone.

checklists/nvidia.yaml has a row for each check of the suite `k8s`. One with `run` is run, with the suite's own
parameters, those of its row over them, and what the spec files expect (`expected`). One with `ends` starts pods in a
namespace of its own, which guards leave alone as one of `platform.temporary-namespaces`; the text is what it says where
it first needs a container. Another end is another finding: a guard that refused its pods is not covered by the waiver
of a missing container.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from judged import homes, live, parse
from judged.checklists import FOLDER
from judged.model import SkippedJudge, Verdict
from tenancy.catalog.days import today
from tenancy.planning.common.pools import extended_resources
from tenancy.spec.fields.environment import Environment
from tenancy.spec.loader import load, on_lab

JUDGE = "nvidia"
VARIABLE = "JUDGED_NVIDIA"
REPOSITORY = "https://github.com/NVIDIA/ai-cloud-validation"
SUITE = Path("isvctl") / "configs" / "suites" / "k8s.yaml"
NAMESPACES = "isvtest-*"
"""Names of the namespaces that its checks make."""
PROGRAM = """
import json, sys
from pathlib import Path
import pytest
from isvtest.tests import test_validations as suite
file = Path(suite.__file__)
words = ["-p", "no:cacheprovider", "--quiet", "--tb=no", "--config", sys.argv[1]]
pytest.main([str(file), f"--rootdir={file.parent}", *words])
Path(sys.argv[2]).write_text(json.dumps(suite.get_validation_results()), "utf-8")
"""
"""Code that runs a suite's checks as `isvctl test run` does, without its steps, which make a cluster."""


def verdict(lab: live.LabOfJudges) -> Verdict:
    """One check for each row with `run`, and for GPUs one for each resource."""
    table = yaml.safe_load((FOLDER / f"{JUDGE}.yaml").read_text("utf-8"))
    place = clone(os.environ)
    program = homes.environment(JUDGE) / "python"
    suite = checks(yaml.safe_load((place / SUITE).read_text("utf-8")))
    suite_version = version(commit(place), table["version"], suite, table["items"])
    environment = on_lab(load(homes.ROOT / "stacks" / live.ENVIRONMENT)).environment
    selected_checks = selected(suite, table["items"], expected(environment))
    lab.leave_alone(NAMESPACES, today() + dt.timedelta(1), "NVIDIA's validation suite makes namespaces of its own")
    lab.wait_for_samples()
    folder = lab.home / JUDGE
    folder.mkdir()
    config, answer = folder / "config.yaml", folder / "answer.json"
    config.write_text(yaml.safe_dump({"validations": {"kubernetes": selected_checks}}, sort_keys=False), "utf-8")
    homes.output(
        *("env", f"KUBECONFIG={lab.kubeconfig()}", f"KUBECTL={homes.lab_tool('kubectl')}", "PYTHONDONTWRITEBYTECODE=1"),
        f"PYTHONPATH={place / 'isvtest' / 'src'}:{place / 'isvreporter' / 'src'}",
        *(program, "-c", PROGRAM, config, answer),
        cwd=folder,
    )
    if not answer.exists():
        raise SkippedJudge("it wrote no result")
    results = json.loads(answer.read_text("utf-8"))
    return parse.nvidia(results, list(selected_checks), ends(table["items"]), suite_version, live.ON)


def clone(environ: Mapping[str, str]) -> Path:
    """The clone that the environment variable names. Raises SkippedJudge without one."""
    path_text = environ.get(VARIABLE, "")
    if not path_text:
        raise SkippedJudge(f"in no package index: `git clone {REPOSITORY}`, and {VARIABLE}=PATH of the clone")
    place = Path(path_text).resolve()
    if not (place / SUITE).is_file():
        raise SkippedJudge(f"{VARIABLE} is {path_text}, where {SUITE} is missing: no clone of {REPOSITORY}")
    return place


def commit(place: Path) -> str:
    """The commit that is checked out; empty in a copy without git."""
    words = ("git", "-C", str(place), "rev-parse", "--verify", "HEAD")
    process = subprocess.run(words, capture_output=True, text=True, check=False)
    return process.stdout.strip() if not process.returncode else ""


def checks(suite: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """The parameters of each check of a suite's file, by name. A group is a list, or has `checks`."""
    parameters_by_check: dict[str, Mapping[str, Any]] = {}
    for group in suite["tests"]["validations"].values():
        for item in group if isinstance(group, list) else [group["checks"]]:
            parameters_by_check.update({name: parameters or {} for name, parameters in item.items()})
    return parameters_by_check


def expected(environment: Environment) -> Mapping[str, Mapping[str, Mapping[str, Any]]]:
    """Expected resources of an environment's pools at their minimum: parameters by check and variant of it."""
    totals: dict[str, int] = {}
    for name, pool in environment.pools.items():
        for resource, count in extended_resources(environment, name).items():
            totals[resource] = totals.get(resource, 0) + count * pool.nodes.min
    capacity = {
        f"K8sGpuCapacityCheck-{resource.partition('/')[2]}": {
            "resource_name": resource,
            "expected_total": total,
            "expected_per_node": None,
            # Without it the suite knows no variant of a check.
            "_category": "kubernetes",
        }
        for resource, total in sorted(totals.items())
    }
    count = sum(pool.nodes.min for pool in environment.pools.values())
    return {"K8sNodeCountCheck": {"K8sNodeCountCheck": {"count": count}}, "K8sGpuCapacityCheck": capacity}


def selected(
    suite: Mapping[str, Mapping[str, Any]],
    rows: Sequence[Mapping[str, Any]],
    expectations: Mapping[str, Mapping[str, Mapping[str, Any]]],
) -> Mapping[str, Mapping[str, Any]]:
    """Parameters of the checks to run, by name or variant. A row whose check the suite does not have is left out."""
    return {
        variant: {**suite[row["id"]], **row["run"], **more}
        for row in rows
        if "run" in row and row["id"] in suite
        for variant, more in expectations.get(row["id"], {row["id"]: {}}).items()
    }


def ends(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, str]:
    """Text of a check where it first needs a container, by check."""
    return {row["id"]: row["ends"] for row in rows if "ends" in row}


def version(checked_out: str, pinned: str, suite: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """The commit; for another than the pinned one also that, and the checks in which the suite differs from the rows.

    Raises ValueError if the rows differ from the suite at the pinned commit.
    """
    known_ids = {row["id"] for row in rows}
    added_ids, removed_ids = sorted(suite.keys() - known_ids), sorted(known_ids - suite.keys())
    words = [*(f"not run: {name}" for name in added_ids), *(f"gone: {name}" for name in removed_ids)]
    if checked_out == pinned:
        if words:
            raise ValueError(f"checklists/{JUDGE}.yaml is not the suite's at {pinned[:8]}: {', '.join(words)}")
        return pinned[:8]
    return "; ".join([f"{checked_out[:8] or 'of an unknown commit'}, not the pinned {pinned[:8]}", *words])
