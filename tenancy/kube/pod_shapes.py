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
from tenancy.kube.objects import UNKNOWN, at, many

LISTS = ("containers", "initContainers", "ephemeralContainers")
"""Fields of a pod that list its containers."""
DEEPEST = 100
"""Levels of an object that are searched."""
MOST_VALUES = 1_000_000
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
    """What the search of an object yields."""

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


def shapes_of(item: Mapping[str, Any], group: str) -> Shapes:
    """Every pod and part of a pod in an object of an operator, in the order of the object."""
    found: list[PodTemplate] = []
    unread: dict[str, None] = {}
    top = {key: value for key, value in item.items() if key not in ("metadata", "status")}
    places, values = [_Place(top, "", {}, 0)], 0
    while places:
        place = places.pop()
        values += 1
        if place.depth > DEEPEST or values > MOST_VALUES:
            most = f"{DEEPEST} levels" if place.depth > DEEPEST else f"{MOST_VALUES:,} values"
            unread[f"it has more than {most}"] = None
            if values > MOST_VALUES:
                break
            continue
        inside: list[_Place] = []
        if isinstance(place.value, Mapping):
            patches, texts = _texts(place, unread)
            place = _Place(place.value, place.path, place.around, place.depth, (*place.patches, *patches))
            pods = list(_pods(place, group))
            found += pods
            # Of a pod only what is no field of pods: KServe has a pod of workers inside of another.
            own = _NOT_SEARCHED if any(one.path == place.path and at(one.spec, "containers") for one in pods) else ()
            inside = [_below(place, str(key), value) for key, value in place.value.items() if key not in own]
            inside = [] if place.path.endswith(_PATCH) else [*inside, *texts]
        elif isinstance(place.value, list):
            inside = [_entry(place, number, value) for number, value in enumerate(place.value)]
        places += [one for one in reversed(inside) if isinstance(one.value, Mapping | list)]
    return Shapes(tuple(found), tuple(unread))


def _below(place: _Place, key: str, value: Any) -> _Place:
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
        where = f"{place.path}.{key}" if place.path else key
        try:
            values = [value for (value, _), _ in documents(_PARAMETERS.sub(UNKNOWN, text))]
        except (yaml.YAMLError, ValueError, RecursionError):
            unread[f"{where} is neither YAML nor JSON"] = None
            continue
        for value in values:
            if key == _MANIFEST and not at(value, "kind"):
                continue  # of another program
            if key == _PATCH:
                patches.append(value)
                # Found also if it has a field alone that would not tell of a pod elsewhere.
                value = {"containers": [], **value} if isinstance(value, Mapping) else value
            texts.append(_Place(value, where, {}, place.depth + 1))
    return patches, texts


def _pods(place: _Place, group: str) -> Iterator[PodTemplate]:
    value, path = place.value, place.path
    patched = path.endswith(_PATCH)
    if patched or _is_pod(value):
        listed = tuple((where, _container(one, "")) for where, one in listed_containers(value, path))
        complete = not patched and group not in _COMPLETED
        whole = complete and all(isinstance(at(one, "image"), str) for _, one in listed)
        # Besides the list, single containers such as KServe's model server.
        alone = () if patched else tuple(_alone(value, path))
        metadata = at(place.around, "metadata") if path.endswith("spec") else None
        spec = {
            **value,
            **{field: [_container(one, "") for one in many(value[field])] for field in LISTS if field in value},
        }
        yield _overwritten(PodTemplate(path, metadata, spec, (*listed, *alone), whole and not alone), place.patches)
        return
    alone = tuple(_alone(value, path))
    if alone or _tells(value):
        spec = {field: value[field] for field in value if field in _OF_PODS}
        metadata = value.get("metadata") if path else None
        yield _overwritten(PodTemplate(path, metadata, spec, alone, whole=False), place.patches)
    if group == _NIM and isinstance(folder := value.get("hostPath"), str):
        volume = {"name": "model-store", "hostPath": {"path": folder}}
        yield PodTemplate(path, None, {"volumes": [volume]}, (), whole=False)
    if group == _NIM and "userID" in value:
        yield PodTemplate(path, None, {"securityContext": {"runAsUser": value["userID"]}}, (), whole=False)


def _tells(value: Mapping[Any, Any]) -> bool:
    if any(value.get(field) is True for field in _HOST):
        return True
    return any(value.get(field) and isinstance(value[field], of) for field, of in _TELLING.items())


def listed_containers(spec: Any, where: str) -> Iterator[tuple[str, Any]]:
    """Every container of a pod's lists, with its path."""
    for field in LISTS:
        for number, container in enumerate(many(at(spec, field))):
            yield f"{where}.{field}[{number}]", container


def _is_pod(value: Mapping[Any, Any]) -> bool:
    containers = value.get("containers")
    return isinstance(containers, list) and bool(containers) and all(isinstance(one, Mapping) for one in containers)


def _alone(value: Mapping[Any, Any], where: str) -> Iterator[tuple[str, Any]]:
    """Containers outside of a list of containers: Argo's `container`, KServe's `model`, Tekton's `steps`."""
    for key, item in value.items():
        path = f"{where}.{key}" if where else str(key)
        if key in LISTS and "containers" in value:
            continue
        if isinstance(item, Mapping) and _is_container(item, str(key)):
            yield path, _container(item, str(key))
        elif isinstance(item, list):
            yield from (
                (f"{path}[{number}]", _container(one, ""))
                for number, one in enumerate(item)
                if isinstance(one, Mapping) and _is_container(one, str(key))
            )
        elif key == _PULLER and isinstance(item, str):
            yield path, {"name": _PULLER, "image": item}


def _is_container(value: Mapping[Any, Any], key: str) -> bool:
    if "containers" in value:
        return False
    image = isinstance(value.get("image"), str) or _image_of(value.get("image")) is not None
    if key.lower().endswith(("container", "containers")) and image:
        return True
    said = image or isinstance(value.get("securityContext"), Mapping)
    if said and _OF_CONTAINERS & set(map(str, value)):
        return True
    variables = [one for field in ("env", "envs") for one in many(value.get(field)) if isinstance(value[field], list)]
    return bool(variables) and all(isinstance(one, Mapping) and "name" in one for one in variables)


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
    known = dict(value)
    if (image := _image_of(value.get("image"))) is not None:
        known["image"] = image
    for other, field in (("envs", "env"), ("computeResources", "resources")):
        if other in value and field not in value:
            known[field] = value[other]
    if key in ("container", "script"):
        known["name"] = "main"  # Argo's name of it, by which patches find it
    if isinstance(known.get("image"), str) and _PARAMETERS.search(known["image"]):
        known["image"] = UNKNOWN
    if isinstance(variables := known.get("env"), list):
        known["env"] = [
            {**one, "value": UNKNOWN}
            if isinstance(one, Mapping) and isinstance(one.get("value"), str) and _PARAMETERS.search(one["value"])
            else one
            for one in variables
        ]
    return known


# Patches


def _overwritten(template: PodTemplate, patches: tuple[Any, ...]) -> PodTemplate:
    """A template without what a patch writes in its place: the patch is read as a part of the pod by itself."""
    spec, containers = template.spec, template.containers
    for patch in patches:
        if not isinstance(patch, Mapping):
            continue
        entries = {
            str(at(one, "name")): one for field in LISTS for one in many(patch.get(field)) if isinstance(one, Mapping)
        }
        spec = without(spec, {key: value for key, value in patch.items() if key not in LISTS})
        containers = tuple(
            (path, without(one, {k: v for k, v in entries.get(str(at(one, "name")), {}).items() if k != "name"}))
            for path, one in containers
        )
    return (
        template
        if spec is template.spec
        else PodTemplate(template.path, template.metadata, spec, containers, template.whole and not patches)
    )


def without(value: Any, patch: Any) -> Any:
    """A value without the fields that a patch sets, by the rules of a strategic merge."""
    if not isinstance(value, Mapping) or not isinstance(patch, Mapping):
        return value
    left = dict(value)
    for key, new in patch.items():
        old = value.get(key)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            left[key] = without(old, new)
        elif isinstance(old, list) and isinstance(new, list):
            left[key] = [one for one in old if not any(_is_same(one, other) for other in new)]
        else:
            left.pop(key, None)
    return left


def _is_same(one: Any, other: Any) -> bool:
    return any(at(one, key) is not None and at(one, key) == at(other, key) for key in _MERGED_BY)
