"""`environment.yaml`: the cluster, its pools and the limits of each tier of tenants."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tenancy.catalog import boards, gpus
from tenancy.catalog.text import counted
from tenancy.catalog.versions import incompatible
from tenancy.rules.values import (
    holds_pods,
    inside,
    is_service_cidr,
    moving_image,
)
from tenancy.schema.base import (
    Mistake,
    broken,
)
from tenancy.schema.cluster import (
    DNS_NAME,
    DRIVER_DOMAIN,
    ClusterMode,
    Cni,
    Devices,
)
from tenancy.schema.environment_facts import OPERATOR_PARTS, DerivedEnvironment
from tenancy.schema.environment_fields import GuardsMode as GuardsMode
from tenancy.schema.environment_fields import Layout as Layout
from tenancy.schema.pools import (
    BALANCED,
    Cut,
    Flavor,
    Pool,
    Provisioner,
    Strategy,
    layout_mistakes,
    layout_of,
    nearest,
)
from tenancy.schema.services import Source
from tenancy.schema.source import Location
from tenancy.schema.tiers import Spread


def undeclared(
    where: Location, what: str, given: str, known: Collection[str], home: str = "environment.yaml"
) -> Mistake:
    """A mistake for an undeclared name, with the nearest declared names."""
    hint = f"use {' or '.join(nearest(given, known, 2))}, or " if known else ""
    return broken(where, "ref-01", f"{what} {given!r}", f"{hint}declare it in {home}")


def _reservation(pool: Pool) -> str:
    """The reservation that a pool's nodes come from, in words."""
    begins = f" from {pool.purchase.starts}" if pool.purchase.starts else ""
    kind = f"capacity block{begins} until {pool.purchase.ends}" if pool.purchase.ends else "on-demand reservation"
    return f"{kind} of {pool.instance} in {', '.join(pool.zones)}"


class Environment(DerivedEnvironment):
    """One cluster and all that its tenants share."""

    def mistakes(self) -> Iterator[Mistake]:
        """Mistakes of the environment as a whole, although each field is valid."""
        sound = True
        for name, pool in self.pools.items():
            for i, tier in enumerate(pool.tiers):
                if tier not in self.tiers:
                    yield undeclared(("pools", name, "tiers", i), "tier", tier, self.tiers)
            for mistake in self._layout(name, pool):
                sound = False
                yield mistake
            yield from self._placed(name, pool)
        yield from self._addressed()
        yield from self._reserved()
        yield from self._supported()
        yield from self._priced()
        yield from self._collected()
        yield from self._watched()
        yield from self._sandboxed()
        yield from self._sourced()
        if self.virtual_clusters and not self.virtual_clusters.storage_class and not self.has_storage_class:
            given = "virtual-clusters without storage-class, in an environment without one of its own"
            yield broken(("virtual-clusters",), "iso-03", given, "name a class of the cluster's under storage-class")
        if misfit := incompatible(self.cluster.kubernetes, "pod-defaults"):
            for name, tier in self.tiers.items():
                if tier.spread is Spread.REQUIRED:
                    given = f"spread: required on Kubernetes {self.cluster.kubernetes}"
                    change = f"{misfit}; or leave it to the manifests"
                    yield broken(("tiers", name, "spread"), "ver-01", given, change)
        strict = [name for name, tier in self.tiers.items() if not tier.image_tags]
        if strict and (given := moving_image(self.images.sample, tags=False)):
            yield broken(("images", "sample"), "img-02", f"{given}, which tier {strict[0]} does not take")
        for name, service in self.platform.services.items():
            if service.namespace not in self.system_namespaces:
                where = ("platform", "services", name, "namespace")
                yield undeclared(where, "namespace", service.namespace, self.system_namespaces, "platform.namespaces")
        for i, name in enumerate(self.platform.unmanaged):
            if name in self.system_namespaces:
                given = f"namespace {name} under unmanaged, which is the platform's"
                yield broken(("platform", "unmanaged", i), "name-02", given, "keep one of the two entries")
        built = self.aws.built_mistakes() if self.builds_cluster else ()
        for mistake in (*self.aws.identity_mistakes(self.platform.group, built=self.builds_cluster), *built):
            yield Mistake(("aws", *mistake.where), mistake.given, mistake.rule, mistake.change, mistake.id)
        kinds: dict[tuple[object, ...], str] = {}
        for name, flavor in self.flavors.items():
            yield from self._claimed(name, flavor)
            twin = kinds.setdefault((flavor.gpu, flavor.mig, flavor.share), name)
            if twin != name:
                given = f"flavors {twin} and {name}, which are identical"
                yield broken(("flavors", name), "name-02", given, "keep one of the two")
        if sound:
            yield from self._yields()

    def _reserved(self) -> Iterator[Mistake]:
        """Pools that describe one reservation differently. If they describe it alike, their nodes add up."""
        first: dict[str, str] = {}
        for name, pool in self.pools.items():
            if not (reservation := pool.purchase.reserved):
                continue
            other = first.setdefault(reservation, name)
            said, before = _reservation(pool), _reservation(self.pools[other])
            if said != before:
                given = f"{reservation} as {said}, and in pool {other} as {before}"
                change = "name the reservation that this pool's nodes come from, or make the two pools alike"
                yield broken(("pools", name, "purchase", pool.purchase.way), "pool-07", given, change)

    def _sandboxed(self) -> Iterator[Mistake]:
        if self.sandbox is None:
            return
        where = ("sandbox", "pool")
        pool = self.pools.get(self.sandbox.pool)
        if pool is None:
            yield undeclared(where, "pool", self.sandbox.pool, self.pools, "pools")
        elif not pool.bare_metal:
            given = f"pool {self.sandbox.pool} of {pool.instance}, which is a virtual machine itself"
            yield broken(where, "iso-02", given, "name a pool of bare metal, such as m7i.metal-24xl")

    def _addressed(self) -> Iterator[Mistake]:
        """Ranges of AWS services that contain the cluster's own addresses, and a service range that EKS would refuse
        after the VPC is made."""
        made = self.builds_cluster and not self.aws.network.vpc
        for i, text in enumerate(self.aws.network.service_ranges):
            given = holds_pods(text, self.own_ranges, made=made)
            if given := given or inside(text, self.service_cidrs, "services"):
                change = "name the addresses of endpoints, or the range of a subnet that has endpoints alone"
                yield broken(("aws", "network", "service-ranges", i), "net-05", given, change)
        cidr, where = self.cluster.service_cidr, ("cluster", "service-cidr")
        if cidr is None:
            return
        if given := inside(cidr, self.own_ranges):
            rule = "the range of services does not overlap that of nodes and pods"
            yield Mistake(where, given, rule, f"write one beside {', '.join(self.own_ranges)}")
        elif self.builds_cluster and not is_service_cidr(cidr):
            rule = "EKS takes /12 to /24 within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16"
            yield Mistake(where, repr(cidr), rule, "write it like 172.20.0.0/16")

    def _supported(self) -> Iterator[Mistake]:
        """Components of the platform that do not run on the cluster's Kubernetes version."""
        if not self.builds_cluster and not self.aws.enabled and not self.installs("gpu-operator"):
            return
        installed = ["guards", *(name for name in ("gpu-operator", "kueue") if self.installs(name))]
        if self.builds_cluster:
            installed += ["karpenter"] if any(pool.scales for pool in self.pools.values()) else []
            installed += ["cilium"] if self.cluster.cni is Cni.CILIUM else []
        for what in installed:
            if change := incompatible(self.cluster.kubernetes, what):
                given = f"Kubernetes {self.cluster.kubernetes} with {what}"
                yield broken(("cluster", "kubernetes"), "ver-01", given, change)
        proxy = self.aws.add_ons.versions.get("kube-proxy")
        if self.builds_cluster and proxy and not proxy.startswith(f"v{self.cluster.kubernetes}."):
            given = f"kube-proxy {proxy} on Kubernetes {self.cluster.kubernetes}"
            where = ("aws", "add-ons", "versions", "kube-proxy")
            change = f"write a version that begins with v{self.cluster.kubernetes}, or drop it"
            yield broken(where, "ver-01", given, change)

    def _watched(self) -> Iterator[Mistake]:
        for name, tier in self.tiers.items():
            lacks = (
                "queues.clock: false"
                if not self.clocked
                else "metrics.collector: none"
                if not self.metrics.collected
                else "cluster.devices: dra"
                if self.devices_by_claim
                else ""
            )
            if tier.idle and lacks:
                yield broken(("tiers", name, "idle"), "time-05", f"idle with {lacks}")

    def _collected(self) -> Iterator[Mistake]:
        """A collector that is installed without the class of its volume."""
        if self.metrics.installed and not self.has_storage_class:
            given = "collector: install without services.storage-class"
            rule = "an installed Prometheus keeps its series on a volume of the environment's storage class"
            change = "install kube-prometheus-stack with charts/values-kube-prometheus-stack.yaml of `tenancy render`, "
            yield Mistake(("metrics", "collector"), given, rule, f"{change}and write existing")

    def _sourced(self) -> Iterator[Mistake]:
        """A mode or service that the environment cannot have, or that a pool or the queue needs."""
        if self.cluster.mode is ClusterMode.BUILD and not self.aws.enabled:
            rule = "a cluster is built on AWS: aws has enabled: true, an account and a region"
            change = "write aws.enabled: true, or mode: existing"
            yield Mistake(("cluster", "mode"), "mode: build without aws.enabled", rule, change)
        if self.makes_storage_class and not self.aws.enabled:
            rule = "the storage class is of EBS volumes, which are AWS'"
            where = ("services", "storage-class")
            yield Mistake(where, "storage-class: install without aws.enabled", rule, "write none or present")
        needs: dict[str, str] = {}
        for name, pool in self.pools.items():
            if pool.machine.gpus:
                # Nodes get the labels that the DRA driver's pods select from the operator's feature discovery.
                service = "gpu-operator" if self.devices_by_claim else "device-plugin"
                needs.setdefault(service, f"pool {name} with GPUs")
                if self.metrics.collected:
                    needs.setdefault("dcgm-exporter", f"metrics.collector: {self.metrics.collector}")
            if pool.efa:
                needs.setdefault("efa-plugin", f"pool {name} with efa")
        if self.devices_by_claim:
            needs["dra-driver"] = "cluster.devices: dra"
        if self.queued:
            needs["kueue"] = "queues.scheduler: kueue"
        for part in OPERATOR_PARTS:
            if self.source_of(part) is Source.INSTALL and not self.installs("gpu-operator"):
                rule = "the chart of the GPU operator installs its parts"
                change = "write gpu-operator: install, or present for what another tool installs"
                yield Mistake(("services", part), f"{part}: install without gpu-operator: install", rule, change)
        for service, what in needs.items():
            source = self.source_of(service)
            of_operator = service in OPERATOR_PARTS and getattr(self.services, service.replace("-", "_")) is None
            name = "gpu-operator" if of_operator else service
            if source is Source.NONE:
                rule = "what a pool, the devices or the queue need is on the cluster"
                change = f"write install or present, or drop {what}"
                yield Mistake(("services", name), f"{name}: none beside {what}", rule, change)
            elif self.builds_cluster and source is Source.PRESENT:
                rule = "a cluster that is built has what the environment installs"
                where, change = ("services", name), "write install, or cluster.mode: existing"
                yield Mistake(where, f"{name}: present with cluster.mode: build", rule, change)

    def _priced(self) -> Iterator[Mistake]:
        """Prices of undeclared boards, tiers and pools, and boards without a price while others have one."""
        used = {flavor.gpu for flavor in self.flavors.values()}
        for board in self.prices:
            if board not in boards.BOARDS:
                yield undeclared(("prices", board), "board", board, used, "flavors")
        if missing := sorted(used - self.prices.keys()) if self.prices else []:
            yield broken(("prices",), "price-01", f"prices without {', '.join(missing)}")
        for tier in self.metrics.longest_wait:
            if tier not in self.tiers:
                yield undeclared(("metrics", "longest-wait", tier), "tier", tier, self.tiers, "tiers")
        for name in self.costs.pools:
            if name not in self.pools:
                yield undeclared(("costs", "pools", name), "pool", name, self.pools, "pools")

    def _claimed(self, name: str, flavor: Flavor) -> Iterator[Mistake]:
        """A flavor that cannot be a device class."""
        if not self.devices_by_claim:
            return
        if flavor.share:
            change = "drop the flavor, or set cluster.devices to plugin"
            yield broken(("flavors", name), "dra-01", f"flavor {name} of GPUs shared by {flavor.share}", change)
        if name.endswith(DRIVER_DOMAIN) or not DNS_NAME.fullmatch(name):
            change = f"rename it: a class has a DNS name, and those that end with {DRIVER_DOMAIN} are the driver's"
            yield broken(("flavors", name), "dra-01", f"flavor {name!r} as a device class", change)

    def _layout(self, name: str, pool: Pool) -> Iterator[Mistake]:
        """A named layout that is not declared, or that does not fit on the pool's board."""
        if not (pool.mig and pool.mig.named):
            return
        where, board = ("pools", name, "mig", "named"), pool.machine.gpu
        layout = layout_of(pool.mig.named, board, self.mig_layouts)
        if layout is None:
            yield undeclared(where, "layout", pool.mig.named, [*self.mig_layouts, BALANCED])
        else:
            yield from layout_mistakes(where, board, layout)

    def _placed(self, name: str, pool: Pool) -> Iterator[Mistake]:
        for i, zone in enumerate(pool.zones):
            if self.builds_cluster and zone not in self.aws.every_zone:
                known = self.aws.every_zone
                yield undeclared(("pools", name, "zones", i), "zone", zone, known, "aws.zones")
        uncertain = pool.uncertain
        for i, tier in enumerate(pool.tiers):
            if uncertain and tier in self.tiers and not self.tiers[tier].interruptible:
                yield broken(("pools", name, "tiers", i), "pool-05", f"tier {tier} on {uncertain}")
        firm = [name for name, tier in self.tiers.items() if not tier.interruptible]
        if uncertain and not pool.restricted and firm:
            given = f"{uncertain} for all tenants, tier {firm[0]} among them"
            yield broken(("pools", name), "pool-05", given, "name interruptible tiers under tiers")
        others = {Provisioner.SELF_MANAGED, Provisioner.AUTO_MODE}
        if pool.made_by in others and self.builds_cluster:
            given = f"provisioner: {pool.made_by} with cluster.mode: build"
            change = "use managed or karpenter, or set cluster.mode to existing"
            yield broken(("pools", name, "provisioner"), "pool-10", given, change)
        if pool.made_by is Provisioner.AUTO_MODE:
            for field in ("mig", "share"):
                if getattr(pool, field):
                    yield broken(("pools", name, field), "pool-10", f"{field} on nodes of Auto Mode")
            if self.cluster.devices is Devices.DRA:
                change = "set cluster.devices to plugin, or use another provisioner"
                yield broken(("pools", name, "provisioner"), "pool-10", "devices: dra on nodes of Auto Mode", change)
        if self.cluster.devices is Devices.DRA:
            if pool.machine.gpus and pool.machine.gpu not in boards.PRODUCTS:
                given = f"{pool.instance} with devices: dra; the driver's name of {pool.machine.gpu} is not known"
                yield broken(("pools", name, "instance"), "dra-01", given)
            if pool.made_by is Provisioner.KARPENTER:
                yield broken(("pools", name, "nodes"), "dra-01", "a pool of Karpenter with devices: dra")
            if pool.share:
                change = "drop share, or set cluster.devices to plugin"
                yield broken(("pools", name, "share"), "dra-01", f"{pool.share.mode} with devices: dra", change)

    def _yields(self) -> Iterator[Mistake]:
        """Mistakes in what the pools yield together; checked only if every layout fits."""
        whole = [
            name
            for name, pool in self.pools.items()
            if not pool.share and any(not slices for _, slices in self.cuts(name))
        ]
        strategies: dict[str, str] = {}
        for name, pool in self.pools.items():
            if pool.machine.gpus and not self.flavors_of(name):
                given = f"pool {name}, which yields no declared flavor"
                change = f"declare its GPU or slices under flavors, such as {_flavor_of(pool, self.cuts(name))}"
                yield broken(("pools", name), "ref-01", given, change)
            cuts = self.cuts(name)
            if pool.mig and pool.mig.strategy is Strategy.SINGLE:
                where = ("pools", name, "mig", "strategy")
                if len(cuts) != 1 or len(cuts[0][1]) != 1:
                    parts = ", ".join(f"{count} x [{boards.write_layout(slices) or 'whole'}]" for count, slices in cuts)
                    yield broken(where, "mig-02", f"strategy: single over {parts}")
                if whole and not pool.share:
                    given = f"strategy: single beside whole GPUs in {', '.join(whole)}, both called {gpus.GPU}"
                    yield broken(where, "mig-02", given, "use strategy: mixed")
            for flavor in self.flavors_of(name):
                other = strategies.setdefault(flavor, name)
                mine, theirs = pool.strategy, self.pools[other].strategy
                if self.flavors[flavor].mig and mine is not theirs:
                    given = f"flavor {flavor} as {mine} in {name} and as {theirs} in {other}"
                    yield broken(("pools", name, "mig", "strategy"), "mig-02", given, "use one strategy for a flavor")
            yield from self._pods(name, pool)

    def _pods(self, name: str, pool: Pool) -> Iterator[Mistake]:
        """More replicas or slices than a node takes pods: the last ones could never be used."""
        per_gpu = [sum(slices.values()) or 1 for _, slices in self.cuts(name)]
        units = sum(count * each for (count, _), each in zip(self.cuts(name), per_gpu, strict=True))
        ours = self.daemonsets(name).pods
        room = pool.most_pods - ours
        replicas = pool.share.replicas if pool.share else 1
        if units * replicas <= room:
            return
        what = counted(units, "slice" if pool.mig else "GPU")
        given = (
            f"{what} x {replicas} = {units * replicas} pods on {pool.instance}, which takes {pool.most_pods}, "
            f"{ours} of them the platform's"
        )
        where = ("pools", name, "share") if pool.share else ("pools", name, "mig")
        yield broken(where, "pool-04", given, _fewer(pool, room, units, replicas))


def _flavor_of(pool: Pool, cuts: Sequence[Cut]) -> str:
    """A flavor that a pool yields, as it is declared."""
    mig = next((profile for cut in cuts for profile in cut.slices), None)
    share = pool.share.mode if pool.share else None
    parts = {"gpu": pool.machine.gpu, "mig": mig, "share": share}
    fields = ", ".join(f"{name}: {value}" for name, value in parts.items() if value)
    return f"{'-'.join(filter(None, (pool.machine.gpu.partition('-')[0], mig, share)))}: {{{fields}}}"


def _fewer(pool: Pool, room: int, units: int, replicas: int) -> str:
    """What to change in a pool whose slices and replicas are more than its nodes take pods."""
    if pool.share and room // units > 1:
        return f"share by {room // units} at most"
    each = room // replicas // pool.machine.gpus
    if not pool.mig or not each:
        return "drop share" if pool.share and units <= room else "choose an instance type that takes more pods"
    beside = f", {room // replicas} on a node with {replicas} replicas of each" if replicas > 1 else ""
    return f"cut each GPU into {each} slices at most{beside}"
