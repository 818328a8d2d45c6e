"""Licences of the packages that the product installs, and whether Apache-2.0 software may depend on them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement

PRODUCT, EXTRAS = "gpu-tenancy", ("lab", "evidence", "cost")
"""The product, and its extras for users; those for its own tests are not shipped."""

COMPATIBLE = (
    "Apache",
    "MIT",
    "BSD",
    "ISC",
    "PSF",
    "Python Software Foundation",
    "Unlicense",
    "MPL-2.0",
    "Mozilla Public License 2.0",
    "0BSD",
    "CC0",
    "ZPL",
)
"""Licences that allow use by a program under Apache-2.0 without conditions on that program. MPL-2.0 has conditions on
changed files of the package alone, and none is changed."""


def shipped() -> dict[str, Distribution]:
    """Installed packages that the product and its extras need on this platform, by name, without itself."""
    packages: dict[str, Distribution] = {}
    pending = [(PRODUCT, extra) for extra in ("", *EXTRAS)]
    seen_requirements = set()
    while pending:
        name, extra = pending.pop()
        if (name, extra) in seen_requirements:
            continue
        seen_requirements.add((name, extra))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            continue  # a marker that holds on another platform
        if name != PRODUCT:
            packages[name] = package
        for text in package.requires or ():
            need = Requirement(text)
            if need.marker is None or need.marker.evaluate({"extra": extra}):
                pending += [(plain(need.name), extra_name) for extra_name in ("", *need.extras)]
    return dict(sorted(packages.items()))


def plain(name: str) -> str:
    """A package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(package: Distribution) -> str:
    """Licence by a package's metadata: an SPDX expression, classifiers, or a short text; empty if nothing."""
    metadata = package.metadata
    if metadata["License-Expression"]:
        return metadata["License-Expression"]
    classifiers = [
        classifier.rpartition(" :: ")[2]
        for classifier in metadata.get_all("Classifier") or ()
        if classifier.startswith("License ::")
    ]
    return "; ".join(classifiers) or _first_line(metadata["License"])


def _first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0][:80]


def incompatible() -> Iterator[str]:
    """Packages without a known compatible licence, with what they say."""
    for name, package in shipped().items():
        licence_text = licence(package)
        if not any(accepted.lower() in licence_text.lower() for accepted in COMPATIBLE):
            yield f"{name}: {licence_text or 'no licence'}"
