"""Pulumi's engine for the project that contains the spec files, with the lab's variables if the cluster is the lab."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from tenancy.catalog import vocabulary

if TYPE_CHECKING:
    from tenancy.deploy.driver import Driver
    from tenancy.spec.loader import Loaded


def open_driver(loaded: Loaded, say: Callable[[str], None], removing: Collection[str] = ()) -> Driver:
    """A driver of the engine; LabError without a project, RunFailed without an engine."""
    from tenancy.deploy.driver import Driver
    from tenancy.lab.layout import enter_lab, find_root

    root = find_root(loaded.folder.resolve())
    context = loaded.environment.cluster.context
    enter_lab(context, root)
    return Driver.open(root, context, say, removing)


def expect_plugins(driver: Driver) -> None:
    """Raise MissingPluginError if the program uses an SDK whose plugin the lab can neither download nor build.
    Elsewhere the engine fetches plugins by itself."""
    from tenancy.lab import plugins

    if driver.context == vocabulary.LAB_CONTEXT:
        plugins.expect(driver.root, driver.say)
