"""Previews of a program that uses the library, beside those of the environment's own program: the same objects."""

from __future__ import annotations

import statistics
from pathlib import Path

from bench.engine import NAME, ROUNDS, TENANTS, project, timed
from tenancy.lab.control_plane import environ

BAR = 1.1
_PROGRAM = """
import pulumi, pulumi_kubernetes
from tenancy import GpuPlatform, GpuTenant
cluster = pulumi_kubernetes.Provider("kubernetes", context="gpu-tenancy-lab", enable_config_map_mutable=True)
opts = pulumi.ResourceOptions(providers=[cluster])
platform = GpuPlatform("platform", {folder!r}, opts=opts)
for tenant in platform.tenants:
    GpuTenant(tenant.tenant, platform=platform, opts=opts)
"""


def measure() -> str:
    """The rows of the section, as Markdown."""
    with project() as (root, plan):
        env = environ(root)
        library_root = _library_project(root / "library", root)
        for where in (root, library_root):
            timed(where, env, "pulumi", "stack", "init", NAME)
        program, library = [], []
        for _ in range(ROUNDS):
            program.append(timed(root, env, "pulumi", "preview", "--stack", NAME))
            library.append(timed(library_root, env, "pulumi", "preview", "--stack", NAME))
        objects = sum(1 for _ in plan.objects())
    rows = [("program of `pulumi up`", program), ("`GpuPlatform` and `GpuTenant` in a program of one's own", library)]
    base = statistics.median(program)
    return "\n".join(
        [
            f"{TENANTS} tenants, {objects} objects, file backend. The bar: {BAR} times the program.",
            "",
            f"| preview from nothing, median of {ROUNDS}, one of each after another | seconds | ratio |",
            "|---|---|---|",
            *(
                f"| {name} | {statistics.median(times):.2f} | {statistics.median(times) / base:.2f} |"
                for name, times in rows
            ),
        ]
    )


def _library_project(folder: Path, root: Path) -> Path:
    folder.mkdir()
    (folder / ".venv").symlink_to(root / ".venv")
    (folder / "Pulumi.yaml").write_text(
        "name: library\nruntime: {name: python, options: {virtualenv: .venv}}\n", "utf-8"
    )
    (folder / "__main__.py").write_text(_PROGRAM.format(folder=str(root / "stacks" / NAME)), "utf-8")
    return folder
