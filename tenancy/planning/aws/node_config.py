"""Configuration of a node before its kubelet starts: kubelet settings, disks, and how its GPUs are cut and shared.

Sources, read 2026-11-20:

- nodeadm: awslabs/amazon-eks-ami `nodeadm/`, main: NodeConfig parts of the user data merge in their order, the
  kubelet's flags by appending, and labels of several --node-labels add up;
- units: the same, `templates/al2023/runtime/`: nodeadm-run starts the kubelet at every boot, after cloud-final, where
  cloud-init runs shell scripts, at the first boot only; nvidia-kmod-load, in newer images nvidia-setup, loads drivers;
- Karpenter: karpenter-provider-aws v1.14.1 `pkg/providers/amifamily/bootstrap/nodeadm.go`: its NodeConfig comes last;
- mig-parted: NVIDIA/mig-parted `api/spec/v1/spec.go` and `cmd/nvidia-mig-manager/`;
- device plugin: NVIDIA/k8s-device-plugin v0.18.0 `api/config/v1/` and `internal/rm/rm.go`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import yaml

from tenancy.catalog import gpus, vocabulary
from tenancy.catalog.boards import BOARDS
from tenancy.planning.common.pools import MIG_CONFIG, PLUGIN_CONFIG, node_labels
from tenancy.spec.fields.environment import Environment
from tenancy.spec.fields.pools import Pool, Sharing, Strategy

LAYOUT_LABEL = vocabulary.PREFIX + "layout"
"""Label of a node whose GPUs are cut or shared: a hash of how. It is in the user data, so that a change is a new launch
template or node class, which replaces nodes; it also identifies the nodes that still have the older layout."""

BOUNDARY = "gpu-tenancy"
USER_DATA_BYTES = 16 * 1024
"""EC2's limit, before base64; EKS and Karpenter add a NodeConfig of their own."""

PIDS_PER_POD = 16_384
"""Tenants share nodes and the kubelet sets no limit by itself: a fork bomb ends at its pod. 250 pods fit in pid_max."""


def mig_parted(environment: Environment) -> dict[str, Any]:
    """Configuration of mig-parted: one for each pool with MIG, by the pool's name; empty without such a pool.

    Nodes that are made here cut themselves (`user_data`); by this `nvidia-mig-parted assert` tells whether they did.
    """
    mig_pools = [name for name, pool in sorted(environment.pools.items()) if pool.mig]
    return (
        {"version": "v1", "mig-configs": {name: _mig_devices(environment, name) for name in mig_pools}}
        if mig_pools
        else {}
    )


def _mig_devices(environment: Environment, name: str) -> list[dict[str, Any]]:
    cuts = environment.partitions_of(name)
    devices: list[dict[str, Any]] = []
    first_index = 0
    for count, slices in cuts:
        device_indices = "all" if len(cuts) == 1 else list(range(first_index, first_index + count))
        layout = {"mig-enabled": True, "mig-devices": dict(slices)} if slices else {"mig-enabled": False}
        devices.append({"devices": device_indices, **layout})
        first_index += count
    return devices


def device_plugin_configs(environment: Environment) -> dict[str, dict[str, Any]]:
    """Configurations of the device plugin: one for each pool with MIG or sharing, by the pool's name.

    Their strategy counts only where the operator has none of its own: MIG_STRATEGY in the plugin's environment wins.
    """
    pool_names = [name for name, pool in sorted(environment.pools.items()) if pool.mig or pool.gpu_sharing]
    return {name: _plugin_config(environment, name) for name in pool_names}


def _plugin_config(environment: Environment, name: str) -> dict[str, Any]:
    pool = environment.pools[name]
    # Without MIG none: the plugin refuses to start with mixed and MPS.
    config: dict[str, Any] = {"version": "v1", "flags": {"migStrategy": pool.strategy.value if pool.mig else "none"}}
    if pool.gpu_sharing:
        profiles = {profile for _, slices in environment.partitions_of(name) for profile in slices or [None]}
        single = pool.strategy is Strategy.SINGLE
        resources = sorted({gpus.resource_name(None if single else profile, shared=False) for profile in profiles})
        mode = "mps" if pool.gpu_sharing.mode is Sharing.MPS else "timeSlicing"
        config["sharing"] = {
            mode: {
                "renameByDefault": True,  # as <resource>.shared, so that a replica is not mistaken for a whole GPU
                "failRequestsGreaterThanOne": True,  # two replicas may be one GPU twice; with MPS the plugin insists
                "resources": [{"name": resource, "replicas": pool.gpu_sharing.replicas} for resource in resources],
            }
        }
    return config


def registration_labels(name: str, pool: Pool) -> dict[str, str]:
    """Labels that choose how a node's GPUs are cut and shared; empty where they are neither.

    A node has them from its birth to its end: in user data, or in the template of a NodePool. Were they labels of a
    managed node group, EKS would change them on running nodes.
    """
    selecting_keys = (MIG_CONFIG, PLUGIN_CONFIG)
    return {key: value for key, value in node_labels(name, pool).items() if key in selecting_keys}


def _layout_digest(environment: Environment, name: str) -> str:
    pool = environment.pools[name]
    share = (pool.gpu_sharing.mode.value, pool.gpu_sharing.replicas) if pool.gpu_sharing else None
    layout = [[(count, dict(slices)) for count, slices in environment.partitions_of(name)], pool.strategy.value, share]
    return hashlib.sha256(json.dumps(layout, sort_keys=True).encode()).hexdigest()[:8]


def user_data(environment: Environment, pool: str | None, *, base: bool) -> str:
    """User data of a pool's nodes, or of the system's, as MIME parts.

    `base` is for a managed node group: all that nodes need beyond what EKS adds. Otherwise it is for an EC2NodeClass,
    and what Karpenter must know to choose machines is in its own fields: pods, local disks, labels.
    """
    parts = [("application/node.eks.aws", _node_config(environment, pool, base))]
    if pool and environment.pools[pool].mig:
        parts.append(('text/x-shellscript; charset="us-ascii"', _partition_script(environment, pool)))
    lines = ["MIME-Version: 1.0", f'Content-Type: multipart/mixed; boundary="{BOUNDARY}"', ""]
    for kind, text in parts:
        lines += [f"--{BOUNDARY}", f"Content-Type: {kind}", "", text]
    return "\n".join([*lines, f"--{BOUNDARY}--", ""])


def _node_config(environment: Environment, name: str | None, base: bool) -> str:
    """NodeConfig without the cluster, which EKS and Karpenter add."""
    settings: dict[str, Any] = {"podPidsLimit": PIDS_PER_POD}
    kubelet: dict[str, Any] = {"config": settings}
    spec: dict[str, Any] = {"kubelet": kubelet}
    if name:
        pool = environment.pools[name]
        labels = {LAYOUT_LABEL: _layout_digest(environment, name)} if pool.mig or pool.gpu_sharing else {}
        if base:
            labels |= registration_labels(name, pool)
            # EKS' own number for managed nodes: whichever part merges last, the plan is right.
            settings["maxPods"] = pool.max_pods
            if pool.machine.nvme:
                spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
        if labels:
            label_list = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
            kubelet["flags"] = [f"--node-labels={label_list}"]
    config = {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}
    return yaml.safe_dump(config, sort_keys=False, width=10_000)


# The cut

PROGRAM = "/usr/local/sbin/partition-gpus"
UNIT = "partition-gpus.service"

_INSTALL_SCRIPT = """\
#!/bin/bash
# Installs the service that cuts the GPUs, at every boot: this script itself runs at the first one only.
set -euo pipefail
# Without the service the node would join uncut.
trap 'systemctl poweroff' ERR

cat > @PROGRAM@ << 'END'
@SCRIPT@END
chmod 0755 @PROGRAM@

cat > /etc/systemd/system/@UNIT@ << 'END'
[Unit]
Description=Cut the GPUs as the pool says
After=nvidia-kmod-load.service nvidia-setup.service nvidia-persistenced.service nvidia-fabricmanager.service
# A new machine takes the place of one that cannot be cut.
FailureAction=poweroff

[Service]
Type=oneshot
RemainAfterExit=yes
StateDirectory=gpu-tenancy
# The console outlives the machine: aws ec2 get-console-output.
StandardOutput=journal+console
TimeoutStartSec=20min
ExecStart=@PROGRAM@
END

# The kubelet never starts before the GPUs are cut.
mkdir -p /etc/systemd/system/kubelet.service.d
cat > /etc/systemd/system/kubelet.service.d/50-partition-gpus.conf << 'END'
[Unit]
Requires=@UNIT@
After=@UNIT@
END

systemctl daemon-reload
"""

_PARTITION_SCRIPT = """\
#!/bin/bash
# Cuts the GPUs as below and looks whether they are; fails if not. What is right already is left alone.
set -euo pipefail

# Each GPU and its slices, largest first, with the memory unit at which each starts.
LAYOUT=(
@LAYOUT@
)

mode() { nvidia-smi -i "$1" --query-gpu=mig.mode.current --format=csv,noheader; }
asked() { tr ',' '\\n' <<< "$1" | sed 's/:.*//' | sort; }
# Also makes the device nodes of the slices.
found() {
    nvidia-smi -L | awk -v me="GPU $1:" '/^GPU/ { mine = index($0, me) == 1 } mine && $1 == "MIG" { print $2 }' | sort
}

for _ in {1..60}; do
    nvidia-smi -L > /dev/null 2>&1 && break
    echo "waiting for the driver"
    sleep 5
done
nvidia-smi -L

reboot=
for line in "${LAYOUT[@]}"; do
    read -r gpu slices <<< "$line"
    want=Enabled bit=1
    [[ $slices == whole ]] && want=Disabled bit=0
    now=$(mode "$gpu")
    [[ $now == "$want" ]] && continue
    nvidia-smi -i "$gpu" -mig "$bit" || true
    now=$(mode "$gpu")
    [[ $now == "$want" ]] || reboot=yes
done
if [[ $reboot ]]; then
    # Ampere changes its mode in a reset, which EC2 gives only as a reboot. Later boards need none.
    if [[ -e $STATE_DIRECTORY/rebooted ]]; then
        echo "MIG mode is not as asked, even after a reboot" >&2
        exit 1
    fi
    touch "$STATE_DIRECTORY/rebooted"
    # Neither done nor failed until the reboot ends it.
    trap 'exit 0' TERM
    systemctl reboot
    sleep infinity &
    wait
fi

for line in "${LAYOUT[@]}"; do
    read -r gpu slices <<< "$line"
    [[ $slices == whole ]] && continue
    for attempt in 1 2 3; do
        [[ $(found "$gpu") == "$(asked "$slices")" ]] && continue 2
        if [[ $attempt != 1 ]]; then
            sleep 10
            # The driver may know better places.
            slices=$(sed 's/:[0-9]*//g' <<< "$slices")
        fi
        # Fail where there is nothing to remove.
        nvidia-smi mig -i "$gpu" -dci > /dev/null || true
        nvidia-smi mig -i "$gpu" -dgi > /dev/null || true
        nvidia-smi mig -i "$gpu" -cgi "$slices" -C || true
    done
    if [[ $(found "$gpu") != "$(asked "$slices")" ]]; then
        echo "GPU $gpu has $(found "$gpu" | tr '\\n' ' ')instead of $slices" >&2
        exit 1
    fi
done
# What the container toolkit wrote at boot lists the GPUs as they were before; older images have no such service.
systemctl start nvidia-cdi-refresh.service || true
echo "the GPUs are cut as asked"
"""


def _partition_script(environment: Environment, name: str) -> str:
    """The script that cloud-init runs."""
    board = environment.pools[name].machine.gpu
    cuts = [slices for count, slices in environment.partitions_of(name) for _ in range(count)]
    layout = "\n".join(
        f'    "{i} {",".join(_slice_placements(board, slices)) or "whole"}"' for i, slices in enumerate(cuts)
    )
    script = _PARTITION_SCRIPT.replace("@LAYOUT@", layout)
    return _INSTALL_SCRIPT.replace("@PROGRAM@", PROGRAM).replace("@UNIT@", UNIT).replace("@SCRIPT@", script)


def _slice_placements(board: str, slices: Mapping[str, int]) -> list[str]:
    """`profile:start` for each slice, or `profile` where no placement of all of them is known.

    Left to itself the driver places one slice after the other, and may close the only place of a later one.
    """
    profiles = BOARDS[board].profiles
    order = sorted(slices, key=lambda profile: (-profiles[profile].memory, len(profiles[profile].starts), profile))
    profiles_to_place = [profile for profile in order for _ in range(slices[profile])]

    def place(remaining: list[str], occupied: frozenset[int]) -> list[str] | None:
        if not remaining:
            return []
        for start in reversed(profiles[remaining[0]].starts):
            units = frozenset(range(start, start + profiles[remaining[0]].memory))
            if units & occupied:
                continue
            if (other_placements := place(remaining[1:], occupied | units)) is not None:
                return [f"{remaining[0]}:{start}", *other_placements]
        return None

    placement = place(profiles_to_place, frozenset())
    return profiles_to_place if placement is None else placement
