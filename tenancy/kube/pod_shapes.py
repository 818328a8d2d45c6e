"""Pods in objects of operators, found by their shape at any depth.

A mapping with a list of containers is a pod, for any name of the field that contains it. A mapping with fields of a
pod or a container alone is a part of one: its operator adds the rest. Read as sources: KServe v0.16 (`PredictorSpec`,
`WorkerSpec`), NIM operator v3 (`NIMServiceSpec`, `NIMContainerSpec`, `NGCSource`), Argo Workflows v4 (`Template`,
`ApplyPodSpecPatch`), Tekton Pipelines v1 (`TaskSpec`, `Template`), Dynamo v1alpha1 and v1beta1 (`ExtraPodSpec`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from tenancy.kube.documents import documents
from tenancy.kube.objects import UNKNOWN, as_list, get_path

LISTS = ("containers", "initContainers", "ephemeralContainers")
"""Fields of a pod that list its containers."""
MAX_DEPTH = 100
"""Levels of an object that are searched."""
MAX_VALUES = 1_000_000
"""Values of an object that are searched; what etcd stores has fewer."""
_HOST = ("hostNetwork", "hostPID", "hostIPC")
_OF_CONTAINERS = frozenset(
    "args command computeResources env envFrom envs imagePullPolicy lifecycle livenessProbe ports readinessProbe "
    "resources script securityContext startupProbe volumeDevices volumeMounts workingDir".split()
)
_OF_PODS = frozenset(
    "affinity automountServiceAccountToken dnsConfig dnsPolicy hostAliases hostUsers nodeName nodeSelector os "
    "priorityClassName resourceClaims runtimeClassName schedulerName securityContext serviceAccountName "
    "terminationGracePeriodSeconds tolerations volumes".split()
) | {*_HOST}
"""Fields of a pod that a kind may have besides a single container, or without one."""
_NOT_SEARCHED = _OF_PODS | {*LISTS}
_TELLING: Mapping[str, type] = {"nodeName": str, "runtimeClassName": str, "tolerations": list}
"""Fields by which a mapping without a container is known as a part of a pod."""
_NIM = "apps.nvidia.com"
_COMPLETED = frozenset({_NIM, "argoproj.io", "nvidia.com", "tekton.dev"})
"""Groups whose controllers complete also pods with a list of containers: from fields around the list, and defaults."""
_PATCH, _MANIFEST, _PULLER = "podSpecPatch", "manifest", "modelPuller"
_PARAMETERS = re.compile(r"\{\{[^{}]*\}\}|\$\((?:params|tasks|context|workspaces|steps|results|inputs)\.[^()$]*\)")
"""Placeholders of Argo and Tekton."""
_MERGED_BY = ("name", "containerPort", "devicePath", "mountPath", "topologyKey", "ip")
"""Keys by which entries of a pod's lists are merged."""


@dataclass(frozen=True, slots=True)
class PodTemplate:
    """A pod, or a pod template."""

    path: str
    """Path of the pod's spec in the object, such as `spec.template.spec`."""
    metadata: Any
    spec: Any
    containers: tuple[tuple[str, Any], ...]
    """Every container with its path in the object."""
    whole: bool = True
    """False if a controller adds further fields: an absent field may then get a value."""


@dataclass(frozen=True, slots=True)
class Shapes:
    """Result of the search of an object."""

    templates: tuple[PodTemplate, ...]
    unread: tuple[str, ...]
    """Fields that may contain a pod and cannot be read, with the reason."""


@dataclass(frozen=True, slots=True)
class _Place:
    value: Any
    path: str
    around: Any
    """The mapping that contains the value."""
    depth: int
    patches: tuple[Any, ...] = ()
    """Patches that overwrite parts of every pod here."""


def pods_in(item: Mapping[str, Any], group: str) -> Shapes:
    """Every pod and part of a pod in an object of an operator, in the order of the object."""
    templates: list[PodTemplate] = []
    unread: dict[str, None] = {}
    top = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    places, values = [_Place(top, "", {}, 0)], 0
    while places:
        place = places.pop()
        values += 1
        if place.depth > MAX_DEPTH or values > MAX_VALUES:
            limit = f"{MAX_DEPTH} levels" if place.depth > MAX_DEPTH else f"{MAX_VALUES:,} values"
            unread[f"it has more than {limit}"] = None
            if values > MAX_VALUES:
                break
            continue
        children: list[_Place] = []
        if isinstance(place.value, Mapping):
            patches, texts = _texts(place, unread)
            place = _Place(place.value, place.path, place.around, place.depth, (*place.patches, *patches))
            pods = list(_pods(place, group))
            templates += pods
            # Of a pod only what is no field of pods: KServe has a pod of workers inside of another.
            pod_fields = (
                _NOT_SEARCHED
                if any(child.path == place.path and get_path(child.spec, "containers") for child in pods)
                else ()
            )
            children = [
                _child_of(place, str(key), value) for key, value in place.value.items() if key not in pod_fields
            ]
            children = [] if place.path.endswith(_PATCH) else [*children, *texts]
        elif isinstance(place.value, list):
            children = [_entry(place, number, value) for number, value in enumerate(place.value)]
        places += [child for child in reversed(children) if isinstance(child.value, Mapping | list)]
    return Shapes(tuple(templates), tuple(unread))


def _child_of(place: _Place, key: str, value: Any) -> _Place:
    return _Place(value, f"{place.path}.{key}" if place.path else key, place.value, place.depth + 1, place.patches)


def _entry(place: _Place, number: int, value: Any) -> _Place:
    return _Place(value, f"{place.path}[{number}]", place.value, place.depth + 1, place.patches)


def _texts(place: _Place, unread: dict[str, None]) -> tuple[list[Any], list[_Place]]:
    """Patches of pods in a mapping, which overwrite what is around them, and what stands in a mapping as text."""
    patches: list[Any] = []
    texts: list[_Place] = []
    for key in (_PATCH, _MANIFEST):
        if not isinstance(text := place.value.get(key), str) or not text.strip():
            continue
        path = f"{place.path}.{key}" if place.path else key
        try:
            values = [value for (value, _), _ in documents(_PARAMETERS.sub(UNKNOWN, text))]
        except (yaml.YAMLError, ValueError, RecursionError):
            unread[f"{path} is neither YAML nor JSON"] = None
            continue
        for value in values:
            if key == _MANIFEST and not get_path(value, "kind"):
                continue  # of another program
            if key == _PATCH and not isinstance(value, Mapping):
                unread[f"{path} is written when it runs"] = None
                continue
            if key == _PATCH:
                patches.append(value)
                # Found also if it has a field alone that would not tell of a pod elsewhere.
                value = {"containers": [], **value}
            texts.append(_Place(value, path, {}, place.depth + 1))
    return patches, texts


def _pods(place: _Place, group: str) -> Iterator[PodTemplate]:
    value, path = place.value, place.path
    is_patch = path.endswith(_PATCH)
    if is_patch or _is_pod(value):
        list_containers = tuple(
            (container_path, _container(container, "")) for container_path, container in listed_containers(value, path)
        )
        complete = not is_patch and group not in _COMPLETED
        is_whole = complete and all(isinstance(get_path(container, "image"), str) for _, container in list_containers)
        # Besides the list, single containers such as KServe's model server.
        single_containers = () if is_patch else tuple(_single_containers(value, path))
        metadata = get_path(place.around, "metadata") if path.endswith("spec") else None
        spec = {
            **value,
            **{
                field: [_container(container, "") for container in as_list(value[field])]
                for field in LISTS
                if field in value
            },
        }
        yield _without_patched(
            PodTemplate(
                path, metadata, spec, (*list_containers, *single_containers), is_whole and not single_containers
            ),
            place.patches,
        )
        return
    single_containers = tuple(_single_containers(value, path))
    if single_containers or _tells(value):
        spec = {field: value[field] for field in value if field in _OF_PODS}
        metadata = value.get("metadata") if path else None
        yield _without_patched(PodTemplate(path, metadata, spec, single_containers, whole=False), place.patches)
    if group == _NIM and isinstance(folder := value.get("hostPath"), str):
        volume = {"name": "model-store", "hostPath": {"path": folder}}
        yield PodTemplate(path, None, {"volumes": [volume]}, (), whole=False)
    if group == _NIM and "userID" in value:
        yield PodTemplate(path, None, {"securityContext": {"runAsUser": value["userID"]}}, (), whole=False)


def _tells(value: Mapping[Any, Any]) -> bool:
    if any(value.get(field) is True for field in _HOST):
        return True
    return any(value.get(field) and isinstance(value[field], value_type) for field, value_type in _TELLING.items())


def listed_containers(spec: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Every container of a pod's lists, with its path."""
    for field in LISTS:
        for number, container in enumerate(as_list(get_path(spec, field))):
            yield f"{path}.{field}[{number}]", container


def _is_pod(value: Mapping[Any, Any]) -> bool:
    containers = value.get("containers")
    return (
        isinstance(containers, list)
        and bool(containers)
        and all(isinstance(container, Mapping) for container in containers)
    )


def _single_containers(value: Mapping[Any, Any], parent_path: str) -> Iterator[tuple[str, Any]]:
    """Containers outside of a list of containers: Argo's `container`, KServe's `model`, Tekton's `steps`."""
    for key, item in value.items():
        path = f"{parent_path}.{key}" if parent_path else str(key)
        if key in LISTS and "containers" in value:
            continue
        if isinstance(item, Mapping) and _is_container(item, str(key)):
            yield path, _container(item, str(key))
        elif isinstance(item, list):
            yield from (
                (f"{path}[{number}]", _container(entry, ""))
                for number, entry in enumerate(item)
                if isinstance(entry, Mapping) and _is_container(entry, str(key))
            )
        elif key == _PULLER and isinstance(item, str):
            yield path, {"name": _PULLER, "image": item}


def _is_container(value: Mapping[Any, Any], key: str) -> bool:
    if "containers" in value:
        return False
    image = isinstance(value.get("image"), str) or _image_of(value.get("image")) is not None
    if key.lower().endswith(("container", "containers")) and image:
        return True
    has_container_fields = image or isinstance(value.get("securityContext"), Mapping)
    if has_container_fields and _OF_CONTAINERS & set(map(str, value)):
        return True
    amounts = [get_path(value, "resources", part) for part in ("limits", "requests")]
    if any("/" in str(resource) for amount in amounts if isinstance(amount, Mapping) for resource in amount):
        return True  # devices, which only a container asks for: KServe's model without a variable
    variables = [
        variable
        for field in ("env", "envs")
        for variable in as_list(value.get(field))
        if isinstance(value[field], list)
    ]
    return bool(variables) and all(isinstance(variable, Mapping) and "name" in variable for variable in variables)


def _image_of(image: Any) -> str | None:
    """An image that is written in parts, as in charts."""
    if not isinstance(image, Mapping) or not isinstance(repository := image.get("repository"), str):
        return None
    registry, digest, tag = (image.get(key) for key in ("registry", "digest", "tag"))
    name = f"{registry}/{repository}" if registry else repository
    return f"{name}@{digest}" if digest else f"{name}:{tag}" if tag else name


def _container(value: Any, key: str) -> Any:
    """The container in the API's own fields, with placeholders of a workflow as unknown values."""
    if not isinstance(value, Mapping):
        return value
    container = dict(value)
    if (image := _image_of(value.get("image"))) is not None:
        container["image"] = image
    for synonym, field in (("envs", "env"), ("computeResources", "resources")):
        if synonym in value and field not in value:
            container[field] = value[synonym]
    if key in ("container", "script"):
        container["name"] = "main"  # Argo's name of it, by which patches find it
    if isinstance(container.get("image"), str) and _PARAMETERS.search(container["image"]):
        container["image"] = UNKNOWN
    if isinstance(variables := container.get("env"), list):
        container["env"] = [
            {**variable, "value": UNKNOWN}
            if isinstance(variable, Mapping)
            and isinstance(variable.get("value"), str)
            and _PARAMETERS.search(variable["value"])
            else variable
            for variable in variables
        ]
    return container


# Patches


def _without_patched(template: PodTemplate, patches: tuple[Any, ...]) -> PodTemplate:
    """A template without what a patch writes in its place: the patch is read as a part of the pod by itself."""
    spec, containers = template.spec, template.containers
    for patch in patches:
        if not isinstance(patch, Mapping):
            continue
        entries = {
            str(get_path(entry, "name")): entry
            for field in LISTS
            for entry in as_list(patch.get(field))
            if isinstance(entry, Mapping)
        }
        spec = without_patched_fields(spec, {key: value for key, value in patch.items() if key not in LISTS})
        containers = tuple(
            (
                path,
                without_patched_fields(
                    entry, {k: v for k, v in entries.get(str(get_path(entry, "name")), {}).items() if k != "name"}
                ),
            )
            for path, entry in containers
        )
    return (
        template
        if spec is template.spec
        else PodTemplate(template.path, template.metadata, spec, containers, template.whole and not patches)
    )


def without_patched_fields(value: Any, patch: Any) -> Any:
    """A value without the fields that a patch sets, by the rules of a strategic merge."""
    if not isinstance(value, Mapping) or not isinstance(patch, Mapping):
        return value
    remaining = dict(value)
    for key, new in patch.items():
        old = value.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            remaining[key] = without_patched_fields(old, new)
        elif isinstance(old, list) and isinstance(new, list):
            remaining[key] = [entry for entry in old if not any(_is_same(entry, patch_entry) for patch_entry in new)]
        else:
            remaining.pop(key, None)
    return remaining


def _is_same(entry: Any, patch_entry: Any) -> bool:
    return any(
        get_path(entry, key) is not None and get_path(entry, key) == get_path(patch_entry, key) for key in _MERGED_BY
    )
