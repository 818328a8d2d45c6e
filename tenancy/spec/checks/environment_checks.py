"""Checks of an environment as a whole: of its pools, versions, services and prices together."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tenancy.catalog import boards, gpus
from tenancy.catalog.text import pluralize
from tenancy.catalog.versions import incompatible
from tenancy.rules.values import (
    holds_pods,
    inside,
    is_service_cidr,
    moving_image,
)
from tenancy.spec.fields.cluster import DNS_NAME, DRIVER_DOMAIN, ClusterMode, Cni, Devices
from tenancy.spec.fields.environment import OPERATOR_PARTS, Environment
from tenancy.spec.fields.pools import (
    BALANCED,
    Flavor,
    GpuPartition,
    Pool,
    Provisioner,
    Strategy,
    layout_mistakes,
    layout_of,
)
from tenancy.spec.fields.services import Source
from tenancy.spec.fields.tiers import Spread
from tenancy.spec.reading.mistakes import Mistake, nearest, rule_mistake
from tenancy.spec.reading.source import Location


def undeclared_name(
    location: Location, kind: str, name: str, declared_names: Collection[str], declared_in: str = "environment.yaml"
) -> Mistake:
    """A mistake for an undeclared name, with the nearest declared names."""
    hint = f"use {' or '.join(nearest(name, declared_names, 2))}, or " if declared_names else ""
    return rule_mistake(location, "ref-01", f"{kind} {name!r}", f"{hint}declare it in {declared_in}")


def _reservation(pool: Pool) -> str:
    """The reservation that a pool's nodes come from, in words."""
    begins = f" from {pool.purchase.starts}" if pool.purchase.starts else ""
    kind = f"capacity block{begins} until {pool.purchase.ends}" if pool.purchase.ends else "on-demand reservation"
    return f"{kind} of {pool.instance_type} in {', '.join(pool.zones)}"


def environment_mistakes(environment: Environment) -> Iterator[Mistake]:
    """Mistakes of the environment as a whole, although each field is valid."""
    layouts_fit = True
    for name, pool in environment.pools.items():
        for i, tier in enumerate(pool.tiers):
            if tier not in environment.tiers:
                yield undeclared_name(("pools", name, "tiers", i), "tier", tier, environment.tiers)
        for mistake in _layout_name_mistakes(environment, name, pool):
            layouts_fit = False
            yield mistake
        yield from _pool_mistakes(environment, name, pool)
    yield from _range_mistakes(environment)
    yield from _reservation_mistakes(environment)
    yield from _version_mistakes(environment)
    yield from _price_mistakes(environment)
    yield from _collector_mistakes(environment)
    yield from _idle_rule_mistakes(environment)
    yield from _sandbox_mistakes(environment)
    yield from _service_mistakes(environment)
    virtual = environment.virtual_clusters
    if virtual and not virtual.storage_class and not environment.has_storage_class:
        fault = "virtual-clusters without storage-class, in an environment without one of its own"
        yield rule_mistake(("virtual-clusters",), "iso-03", fault, "name a class of the cluster's under storage-class")
    if misfit := incompatible(environment.cluster.kubernetes, "pod-defaults"):
        for name, tier in environment.tiers.items():
            if tier.topology_spread is Spread.REQUIRED:
                fault = f"topology-spread: required on Kubernetes {environment.cluster.kubernetes}"
                change = f"{misfit}; or leave it to the manifests"
                yield rule_mistake(("tiers", name, "topology-spread"), "ver-01", fault, change)
    strict = [name for name, tier in environment.tiers.items() if not tier.allow_image_tags]
    if strict and (fault := moving_image(environment.images.sample, tags=False)):
        yield rule_mistake(("images", "sample"), "img-02", f"{fault}, which tier {strict[0]} does not take")
    for name, service in environment.platform.services.items():
        if service.namespace not in environment.system_namespaces:
            location = ("platform", "services", name, "namespace")
            yield undeclared_name(
                location, "namespace", service.namespace, environment.system_namespaces, "platform.namespaces"
            )
    for i, name in enumerate(environment.platform.unmanaged_namespaces):
        if name in environment.system_namespaces:
            fault = f"namespace {name} under unmanaged, which is the platform's"
            yield rule_mistake(("platform", "unmanaged-namespaces", i), "name-02", fault, "keep one of the two entries")
    is_built = environment.builds_cluster
    built_mistakes = environment.aws.built_mistakes() if is_built else ()
    for mistake in (*environment.aws.identity_mistakes(environment.platform.group, built=is_built), *built_mistakes):
        yield Mistake(("aws", *mistake.location), mistake.given, mistake.rule, mistake.change, mistake.id)
    kinds: dict[tuple[object, ...], str] = {}
    for name, flavor in environment.flavors.items():
        yield from _device_class_mistakes(environment, name, flavor)
        twin = kinds.setdefault((flavor.gpu, flavor.mig, flavor.gpu_sharing), name)
        if twin != name:
            fault = f"flavors {twin} and {name}, which are identical"
            yield rule_mistake(("flavors", name), "name-02", fault, "keep one of the two")
    if layouts_fit:
        yield from _yield_mistakes(environment)


def _reservation_mistakes(environment: Environment) -> Iterator[Mistake]:
    """Pools that describe one reservation differently. If they describe it alike, their nodes add up."""
    first: dict[str, str] = {}
    for name, pool in environment.pools.items():
        if not (reservation := pool.purchase.reservation_id):
            continue
        first_pool = first.setdefault(reservation, name)
        reservation_text, first_text = _reservation(pool), _reservation(environment.pools[first_pool])
        if reservation_text != first_text:
            fault = f"{reservation} as {reservation_text}, and in pool {first_pool} as {first_text}"
            change = "name the reservation that this pool's nodes come from, or make the two pools alike"
            yield rule_mistake(("pools", name, "purchase", pool.purchase.option), "pool-07", fault, change)


def _sandbox_mistakes(environment: Environment) -> Iterator[Mistake]:
    if environment.sandbox is None:
        return
    location = ("sandbox", "pool")
    pool = environment.pools.get(environment.sandbox.pool)
    if pool is None:
        yield undeclared_name(location, "pool", environment.sandbox.pool, environment.pools, "pools")
    elif not pool.is_bare_metal:
        fault = f"pool {environment.sandbox.pool} of {pool.instance_type}, which is a virtual machine itself"
        yield rule_mistake(location, "iso-02", fault, "name a pool of bare metal, such as m7i.metal-24xl")


def _range_mistakes(environment: Environment) -> Iterator[Mistake]:
    """Ranges of AWS services that contain the cluster's own addresses, and a service range that EKS would refuse
    after the VPC is made."""
    makes_vpc = environment.builds_cluster and not environment.aws.network.vpc
    for i, text in enumerate(environment.aws.network.aws_service_cidrs):
        fault = holds_pods(text, environment.own_ranges, builds_vpc=makes_vpc)
        if fault := fault or inside(text, environment.service_cidrs, "services"):
            change = "name the addresses of endpoints, or the range of a subnet that has endpoints alone"
            yield rule_mistake(("aws", "network", "aws-service-cidrs", i), "net-05", fault, change)
    cidr, location = environment.cluster.service_cidr, ("cluster", "service-cidr")
    if cidr is None:
        return
    if fault := inside(cidr, environment.own_ranges):
        rule = "the range of services does not overlap that of nodes and pods"
        yield Mistake(location, fault, rule, f"write one beside {', '.join(environment.own_ranges)}")
    elif environment.builds_cluster and not is_service_cidr(cidr):
        rule = "EKS takes /12 to /24 within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
        yield Mistake(location, repr(cidr), rule, "write it like 172.20.0.0/16")


def _version_mistakes(environment: Environment) -> Iterator[Mistake]:
    """Components of the platform that do not run on the cluster's Kubernetes version."""
    if not environment.builds_cluster and not environment.aws.enabled and not environment.installs("gpu-operator"):
        return
    installed = ["guards", *(name for name in ("gpu-operator", "kueue") if environment.installs(name))]
    if environment.builds_cluster:
        installed += ["karpenter"] if any(pool.is_autoscaled for pool in environment.pools.values()) else []
        installed += ["cilium"] if environment.cluster.cni is Cni.CILIUM else []
    for component in installed:
        if change := incompatible(environment.cluster.kubernetes, component):
            fault = f"Kubernetes {environment.cluster.kubernetes} with {component}"
            yield rule_mistake(("cluster", "kubernetes"), "ver-01", fault, change)
    proxy = environment.aws.add_ons.versions.get("kube-proxy")
    if environment.builds_cluster and proxy and not proxy.startswith(f"v{environment.cluster.kubernetes}."):
        fault = f"kube-proxy {proxy} on Kubernetes {environment.cluster.kubernetes}"
        location = ("aws", "add-ons", "versions", "kube-proxy")
        change = f"write a version that begins with v{environment.cluster.kubernetes}, or drop it"
        yield rule_mistake(location, "ver-01", fault, change)


def _idle_rule_mistakes(environment: Environment) -> Iterator[Mistake]:
    for name, tier in environment.tiers.items():
        obstacle = (
            "queues.clock: false"
            if not environment.has_clock
            else "metrics.collector: none"
            if not environment.metrics.collected
            else "cluster.devices: dra"
            if environment.uses_device_claims
            else ""
        )
        if tier.idle and obstacle:
            yield rule_mistake(("tiers", name, "idle"), "time-05", f"idle with {obstacle}")


def _collector_mistakes(environment: Environment) -> Iterator[Mistake]:
    """A collector that is installed without the class of its volume."""
    if environment.metrics.installed and not environment.has_storage_class:
        fault = "collector: install without services.storage-class"
        rule = "an installed Prometheus keeps its series on a volume of the environment's storage class"
        change = "install kube-prometheus-stack with charts/values-kube-prometheus-stack.yaml of `tenancy render`, "
        yield Mistake(("metrics", "collector"), fault, rule, f"{change}and write existing")


def _service_mistakes(environment: Environment) -> Iterator[Mistake]:
    """A mode or service that the environment cannot have, or that a pool or the queue needs."""
    if environment.cluster.mode is ClusterMode.BUILD and not environment.aws.enabled:
        rule = "a cluster is built on AWS: aws has enabled: true, an account and a region"
        change = "write aws.enabled: true, or mode: existing"
        yield Mistake(("cluster", "mode"), "mode: build without aws.enabled", rule, change)
    if environment.makes_storage_class and not environment.aws.enabled:
        rule = "the storage class is of EBS volumes, which are AWS'"
        location = ("services", "storage-class")
        yield Mistake(location, "storage-class: install without aws.enabled", rule, "write none or present")
    needs: dict[str, str] = {}
    for name, pool in environment.pools.items():
        if pool.machine.gpus:
            # Nodes get the labels that the DRA driver's pods select from the operator's feature discovery.
            service = "gpu-operator" if environment.uses_device_claims else "device-plugin"
            needs.setdefault(service, f"pool {name} with GPUs")
            if environment.metrics.collected:
                needs.setdefault("dcgm-exporter", f"metrics.collector: {environment.metrics.collector}")
        if pool.efa:
            needs.setdefault("efa-device-plugin", f"pool {name} with efa")
    if environment.uses_device_claims:
        needs["dra-driver"] = "cluster.devices: dra"
    if environment.has_queues:
        needs["kueue"] = "queues.scheduler: kueue"
    for part in OPERATOR_PARTS:
        if environment.source_of(part) is Source.INSTALL and not environment.installs("gpu-operator"):
            rule = "the chart of the GPU operator installs its parts"
            change = "write gpu-operator: install, or present for what another tool installs"
            yield Mistake(("services", part), f"{part}: install without gpu-operator: install", rule, change)
    for service, reason in needs.items():
        source = environment.source_of(service)
        of_operator = service in OPERATOR_PARTS and getattr(environment.services, service.replace("-", "_")) is None
        name = "gpu-operator" if of_operator else service
        if source is Source.NONE:
            rule = "what a pool, the devices or the queue need is on the cluster"
            change = f"write install or present, or drop {reason}"
            yield Mistake(("services", name), f"{name}: none beside {reason}", rule, change)
        elif environment.builds_cluster and source is Source.PRESENT:
            rule = "a cluster that is built has what the environment installs"
            location, change = ("services", name), "write install, or cluster.mode: existing"
            yield Mistake(location, f"{name}: present with cluster.mode: build", rule, change)


def _price_mistakes(environment: Environment) -> Iterator[Mistake]:
    """Prices of undeclared boards, tiers and pools, and boards without a price while others have one."""
    used = {flavor.gpu for flavor in environment.flavors.values()}
    for board in environment.prices:
        if board not in boards.BOARDS:
            yield undeclared_name(("prices", board), "board", board, used, "flavors")
    if unpriced_boards := sorted(used - environment.prices.keys()) if environment.prices else []:
        yield rule_mistake(("prices",), "price-01", f"prices without {', '.join(unpriced_boards)}")
    for tier in environment.metrics.max_wait_p90:
        if tier not in environment.tiers:
            yield undeclared_name(("metrics", "max-wait-p90", tier), "tier", tier, environment.tiers, "tiers")
    for name in environment.costs.pools:
        if name not in environment.pools:
            yield undeclared_name(("costs", "pools", name), "pool", name, environment.pools, "pools")


def _device_class_mistakes(environment: Environment, name: str, flavor: Flavor) -> Iterator[Mistake]:
    """A flavor that cannot be a device class."""
    if not environment.uses_device_claims:
        return
    if flavor.gpu_sharing:
        change = "drop the flavor, or set cluster.devices to plugin"
        yield rule_mistake(("flavors", name), "dra-01", f"flavor {name} of GPUs shared by {flavor.gpu_sharing}", change)
    if name.endswith(DRIVER_DOMAIN) or not DNS_NAME.fullmatch(name):
        change = f"rename it: a class has a DNS name, and those that end with {DRIVER_DOMAIN} are the driver's"
        yield rule_mistake(("flavors", name), "dra-01", f"flavor {name!r} as a device class", change)


def _layout_name_mistakes(environment: Environment, name: str, pool: Pool) -> Iterator[Mistake]:
    """A named layout that is not declared, or that does not fit on the pool's board."""
    if not (pool.mig and pool.mig.layout_name):
        return
    location, board = ("pools", name, "mig", "layout-name"), pool.machine.gpu
    layout = layout_of(pool.mig.layout_name, board, environment.mig_layouts)
    if layout is None:
        yield undeclared_name(location, "layout", pool.mig.layout_name, [*environment.mig_layouts, BALANCED])
    else:
        yield from layout_mistakes(location, board, layout)


def _pool_mistakes(environment: Environment, name: str, pool: Pool) -> Iterator[Mistake]:
    for i, zone in enumerate(pool.zones):
        if environment.builds_cluster and zone not in environment.aws.every_zone:
            zones = environment.aws.every_zone
            yield undeclared_name(("pools", name, "zones", i), "zone", zone, zones, "aws.zones")
    uncertain = pool.interruption_cause
    for i, tier in enumerate(pool.tiers):
        if uncertain and tier in environment.tiers and not environment.tiers[tier].interruptible:
            yield rule_mistake(("pools", name, "tiers", i), "pool-05", f"tier {tier} on {uncertain}")
    uninterruptible_tiers = [name for name, tier in environment.tiers.items() if not tier.interruptible]
    if uncertain and not pool.is_restricted and uninterruptible_tiers:
        fault = f"{uncertain} for all tenants, tier {uninterruptible_tiers[0]} among them"
        yield rule_mistake(("pools", name), "pool-05", fault, "name interruptible tiers under tiers")
    unbuildable_provisioners = {Provisioner.SELF_MANAGED, Provisioner.AUTO_MODE}
    if pool.effective_provisioner in unbuildable_provisioners and environment.builds_cluster:
        fault = f"provisioner: {pool.effective_provisioner} with cluster.mode: build"
        change = "use managed or karpenter, or set cluster.mode to existing"
        yield rule_mistake(("pools", name, "provisioner"), "pool-10", fault, change)
    if pool.effective_provisioner is Provisioner.AUTO_MODE:
        for key, value in (("mig", pool.mig), ("gpu-sharing", pool.gpu_sharing)):
            if value:
                yield rule_mistake(("pools", name, key), "pool-10", f"{key} on nodes of Auto Mode")
        if environment.cluster.devices is Devices.DRA:
            change = "set cluster.devices to plugin, or use another provisioner"
            yield rule_mistake(("pools", name, "provisioner"), "pool-10", "devices: dra on nodes of Auto Mode", change)
    if environment.cluster.devices is Devices.DRA:
        if pool.machine.gpus and pool.machine.gpu not in boards.PRODUCTS:
            fault = f"{pool.instance_type} with devices: dra; the driver's name of {pool.machine.gpu} is not known"
            yield rule_mistake(("pools", name, "instance-type"), "dra-01", fault)
        if pool.effective_provisioner is Provisioner.KARPENTER:
            yield rule_mistake(("pools", name, "nodes"), "dra-01", "a pool of Karpenter with devices: dra")
        if pool.gpu_sharing:
            change = "drop gpu-sharing, or set cluster.devices to plugin"
            yield rule_mistake(
                ("pools", name, "gpu-sharing"), "dra-01", f"{pool.gpu_sharing.mode} with devices: dra", change
            )


def _yield_mistakes(environment: Environment) -> Iterator[Mistake]:
    """Mistakes in what the pools yield together; checked only if every layout fits."""
    whole_gpu_pools = [
        name
        for name, pool in environment.pools.items()
        if not pool.gpu_sharing and any(not slices for _, slices in environment.partitions_of(name))
    ]
    strategies: dict[str, str] = {}
    for name, pool in environment.pools.items():
        if pool.machine.gpus and not environment.flavors_of(name):
            fault = f"pool {name}, which yields no declared flavor"
            example = _example_flavor(pool, environment.partitions_of(name))
            yield rule_mistake(
                ("pools", name), "ref-01", fault, f"declare its GPU or slices under flavors, such as {example}"
            )
        partitions = environment.partitions_of(name)
        if pool.mig and pool.mig.strategy is Strategy.SINGLE:
            location = ("pools", name, "mig", "strategy")
            if len(partitions) != 1 or len(partitions[0].slices) != 1:
                parts = ", ".join(
                    f"{count} x [{boards.write_layout(slices) or 'whole'}]" for count, slices in partitions
                )
                yield rule_mistake(location, "mig-02", f"strategy: single over {parts}")
            if whole_gpu_pools and not pool.gpu_sharing:
                fault = f"strategy: single beside whole GPUs in {', '.join(whole_gpu_pools)}, both called {gpus.GPU}"
                yield rule_mistake(location, "mig-02", fault, "use strategy: mixed")
        for flavor in environment.flavors_of(name):
            first_pool = strategies.setdefault(flavor, name)
            strategy, first_strategy = pool.strategy, environment.pools[first_pool].strategy
            if environment.flavors[flavor].mig and strategy is not first_strategy:
                fault = f"flavor {flavor} as {strategy} in {name} and as {first_strategy} in {first_pool}"
                yield rule_mistake(("pools", name, "mig", "strategy"), "mig-02", fault, "use one strategy for a flavor")
        yield from _pod_limit_mistakes(environment, name, pool)


def _pod_limit_mistakes(environment: Environment, name: str, pool: Pool) -> Iterator[Mistake]:
    """More replicas or slices than a node takes pods: the last ones could never be used."""
    units = sum(count * (sum(slices.values()) or 1) for count, slices in environment.partitions_of(name))
    platform_pods = environment.daemonset_resources(name).pods
    free_pods = pool.max_pods - platform_pods
    replicas = pool.gpu_sharing.replicas if pool.gpu_sharing else 1
    if units * replicas <= free_pods:
        return
    unit_text = pluralize(units, "slice" if pool.mig else "GPU")
    fault = (
        f"{unit_text} x {replicas} = {units * replicas} pods on {pool.instance_type}, which takes {pool.max_pods}, "
        f"{platform_pods} of them the platform's"
    )
    location = ("pools", name, "gpu-sharing") if pool.gpu_sharing else ("pools", name, "mig")
    yield rule_mistake(location, "pool-04", fault, _pod_limit_change(pool, free_pods, units, replicas))


def _example_flavor(pool: Pool, partitions: Sequence[GpuPartition]) -> str:
    """A flavor that a pool yields, as it is declared."""
    mig = next((profile for partition in partitions for profile in partition.slices), None)
    share = pool.gpu_sharing.mode if pool.gpu_sharing else None
    parts = {"gpu": pool.machine.gpu, "mig": mig, "gpu-sharing": share}
    fields = ", ".join(f"{name}: {value}" for name, value in parts.items() if value)
    return f"{'-'.join(filter(None, (pool.machine.gpu.partition('-')[0], mig, share)))}: {{{fields}}}"


def _pod_limit_change(pool: Pool, free_pods: int, units: int, replicas: int) -> str:
    """Change of a pool whose slices and replicas are more than its nodes take pods."""
    if pool.gpu_sharing and free_pods // units > 1:
        return f"share by {free_pods // units} at most"
    slices_per_gpu = free_pods // replicas // pool.machine.gpus
    if not pool.mig or not slices_per_gpu:
        return (
            "drop gpu-sharing"
            if pool.gpu_sharing and units <= free_pods
            else "choose an instance type that takes more pods"
        )
    replica_hint = f", {free_pods // replicas} on a node with {replicas} replicas of each" if replicas > 1 else ""
    return f"cut each GPU into {slices_per_gpu} slices at most{replica_hint}"


Environment.checks.append(environment_mistakes)
