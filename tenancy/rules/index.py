"""The index of all objects that rules on objects together look into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from tenancy.catalog import vocabulary
from tenancy.kube.objects import UNKNOWN, get_path, labels_of
from tenancy.kube.pod_templates import PodTemplate, templates_of
from tenancy.kube.selectors import has_labels, matches, namespace_labels
from tenancy.rules import queues
from tenancy.rules.findings import Object


class Index:
    """Index of all objects for the rules."""

    def __init__(self, items: Iterable[Object]) -> None:
        self.by_kind: dict[str, list[Object]] = {}
        self.inside: dict[str, list[Object]] = {}
        self.blurred: set[str] = set()
        """Kinds with an object of unknown name, namespace or labels: none of their objects counts as missing."""
        for item in items:
            self.by_kind.setdefault(str(item.get("kind")), []).append(item)
            if UNKNOWN in (
                item.get("metadata"),
                *(get_path(item, "metadata", key) for key in ("name", "namespace", "labels")),
            ):
                self.blurred.add(str(item.get("kind")))
            if namespace := get_path(item, "metadata", "namespace"):
                self.inside.setdefault(str(namespace), []).append(item)
        self.spaces = {own_name(item): item for item in self.kinds("Namespace") if tenant_label(item)}
        """Namespaces of tenants that are among the objects."""
        self.tenant_of = {name: str(tenant_label(item)) for name, item in self.spaces.items()}
        self.queues = {own_name(item): item for item in self.kinds("ClusterQueue")}
        self._templates: dict[int, tuple[PodTemplate, ...]] = {}
        self.kueue = list(_configurations(self))
        """Kueue's configurations, from all places."""

    def kinds(self, *kinds: str) -> list[Object]:
        """Objects of these kinds, in this order."""
        return [item for kind in kinds for item in self.by_kind.get(kind, ())]

    def within(self, namespace: str, kind: str) -> list[Object]:
        """Objects of a kind in a namespace."""
        return [item for item in self.inside.get(namespace, ()) if item.get("kind") == kind]

    def templates(self, items: Iterable[Object] | None = None) -> Iterator[tuple[Object, PodTemplate]]:
        """Pods and pod templates of all objects, or of these."""
        for item in (
            (item for items_of_kind in self.by_kind.values() for item in items_of_kind) if items is None else items
        ):
            if id(item) not in self._templates:
                self._templates[id(item)] = templates_of(item)
            yield from ((item, template) for template in self._templates[id(item)])

    def taken_by(self, queue: Object) -> dict[str, str]:
        """Namespaces of tenants that a ClusterQueue admits work of, with their tenants."""
        selector = get_path(queue, "spec", "namespaceSelector")
        if selector is None:
            return {}
        return {name: self.tenant_of[name] for name, space in self.spaces.items() if selects(selector, space)}


# Queues


def _configurations(index: Index) -> Iterator[tuple[Object, Any]]:
    for item in index.kinds("ConfigMap", "Release"):
        chart = str(item.get("chart") or "").rstrip("/").rpartition("/")[2]
        text: Any = None
        if item.get("kind") == "ConfigMap" and own_name(item) == queues.CONFIGURATION:
            text = get_path(item, "data", "controller_manager_config.yaml")
        elif chart == queues.CHART:
            text = get_path(item, "values", "managerConfig", "controllerManagerConfigYaml")
        try:
            yield item, yaml.safe_load(text) if isinstance(text, str) else text
        except yaml.YAMLError:
            continue  # reported as kueue-14


# Reading objects


def own_name(item: Object) -> str:
    """Name of the object."""
    return str(get_path(item, "metadata", "name"))


def tenant_label(item: Object) -> str | None:
    """Value of the tenant's label; None if it is absent or unknown."""
    tenant = get_path(item, "metadata", "labels", vocabulary.TENANT)
    return None if tenant == UNKNOWN else tenant


def pairs_of(value: Any) -> Mapping[str, Any]:
    """A mapping; a missing or unknown one is empty."""
    return value if isinstance(value, Mapping) else {}


def has_pairs(labels: Mapping[str, str], selector: Any) -> bool:
    """Whether labels contain every wanted pair, or may (unknown values)."""
    return has_labels(selector, labels, UNKNOWN)


def selects(selector: Any, space: Object) -> bool:
    """Whether a label selector matches a namespace; the API server labels each with its name."""
    labels = labels_of(space)
    return matches(selector, labels if labels == UNKNOWN else namespace_labels(own_name(space), labels), UNKNOWN)
