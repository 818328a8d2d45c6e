"""The bills of materials of the product's environment and of its image, as CycloneDX 1.6: `make sbom`."""

from __future__ import annotations

import json
import subprocess
import sys

from judged import homes, image, licences
from judged.homes import ROOT

OUT = ROOT / "build" / "sbom.json"


def main() -> int:
    """Write the SBOM of the packages that the product needs, without those of its tests. Exit code 1 if a licence is
    not known to be compatible."""
    program = homes.environment("tools") / "cyclonedx-py"
    words = ["environment", "--spec-version", "1.6", "--output-reproducible", "--pyproject", ROOT / "pyproject.toml"]
    process = subprocess.run([program, *words, sys.executable], capture_output=True, text=True, check=True)
    bill_of_materials = json.loads(process.stdout)
    shipped_packages = licences.shipped()
    bill_of_materials["components"] = [
        component
        for component in bill_of_materials["components"]
        if licences.plain(component["name"]) in shipped_packages
    ]
    refs = {
        component["bom-ref"]
        for component in (*bill_of_materials["components"], bill_of_materials["metadata"]["component"])
    }
    bill_of_materials["dependencies"] = [
        {**component, "dependsOn": [ref for ref in component.get("dependsOn", ()) if ref in refs]}
        for component in bill_of_materials.get("dependencies", ())
        if component["ref"] in refs
    ]
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps(bill_of_materials, indent=1, sort_keys=True) + "\n", "utf-8")
    count = image.write()
    print(f"{image.OUT.relative_to(ROOT)}: {count} components; packages inside the base images are not listed")
    problems = list(licences.incompatible())
    print(
        f"{OUT.relative_to(ROOT)}: {len(bill_of_materials['components'])} packages, {len(problems)} licences to judge"
    )
    for problem in problems:
        print(problem, file=sys.stderr)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
