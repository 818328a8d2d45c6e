#!/usr/bin/env bash
# Verifies on a real cluster what the lab cannot: devices, network and metadata as a pod sees them, and pools' nodes.
# Usage: scripts/verify-on-cluster.sh NAMESPACE OTHER_NAMESPACE IMAGE [ENV]
#        scripts/verify-on-cluster.sh --pools ENV [IMAGE]
#   NAMESPACE        a tenant's namespace in which you may create pods
#   OTHER_NAMESPACE  another tenant's namespace with at least one running pod
#   IMAGE            an allowed image with bash, chroot, curl, timeout, nvidia-smi; it sets NVIDIA_VISIBLE_DEVICES=all
#   ENV              an environment; its pools are compared with their nodes. With IMAGE a privileged pod checks a
#                    node of each pool with MIG or EFA, which needs the rights of the platform's group
set -euo pipefail
usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }
namespace='' other='' image='' environment=''
if [ "${1:-}" = --pools ]; then
  [ $# -ge 2 ] && [ $# -le 3 ] || usage
  environment=$2 image=${3:-}
else
  [ $# -ge 3 ] && [ $# -le 4 ] || usage
  namespace=$1 other=$2 image=$3 environment=${4:-}
fi
root=$(cd "$(dirname "$0")/.." && pwd)
PATH=$root/.venv/bin:$PATH # the checkout's tenancy, and a python that reads YAML
work=$(mktemp -d)
made=() # namespace/name of every pod, removed at the end
clean() {
  local pod
  for pod in ${made[@]+"${made[@]}"}; do
    kubectl -n "${pod%/*}" delete pod "${pod#*/}" --ignore-not-found --wait=false >/dev/null || true
  done
  rm -rf "$work"
}
trap clean EXIT
failed=0
say() { printf '%-8s %s\n' "$1" "$2"; }
gap() { say "$1" "$2"; failed=1; }

# Pods

where='' pod='' # the pod that `inside` runs in
start() { # start NAMESPACE SPEC: create a pod of a spec without its braces, and wait for it
  where=$1 pod=tenancy-verify-$RANDOM
  made+=("$where/$pod")
  kubectl -n "$where" create -f - >/dev/null <<POD
{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "$pod"},
 "spec": {"restartPolicy": "Never", "automountServiceAccountToken": false, $2}}
POD
  kubectl -n "$where" wait --for=condition=Ready "pod/$pod" --timeout=180s >/dev/null
}
start_plain() { # start_plain NAMESPACE: a pod that every tenant may run
  local resources='{"cpu": "100m", "memory": "256Mi"}'
  start "$1" "\"securityContext\": {\"runAsNonRoot\": true, \"runAsUser\": 1000,
      \"seccompProfile\": {\"type\": \"RuntimeDefault\"}},
    \"containers\": [{\"name\": \"probe\", \"image\": \"$image\", \"command\": [\"sleep\", \"900\"],
      \"resources\": {\"requests\": $resources, \"limits\": $resources},
      \"securityContext\": {\"allowPrivilegeEscalation\": false, \"capabilities\": {\"drop\": [\"ALL\"]}}}]"
}
start_on() { # start_on NODE: a privileged pod with the node's disk at /host
  start kube-system "\"nodeName\": \"$1\", \"hostNetwork\": true, \"hostPID\": true,
    \"tolerations\": [{\"operator\": \"Exists\"}],
    \"volumes\": [{\"name\": \"host\", \"hostPath\": {\"path\": \"/\"}}],
    \"containers\": [{\"name\": \"probe\", \"image\": \"$image\", \"command\": [\"sleep\", \"900\"],
      \"env\": [{\"name\": \"NVIDIA_VISIBLE_DEVICES\", \"value\": \"void\"}],
      \"securityContext\": {\"privileged\": true, \"runAsUser\": 0},
      \"volumeMounts\": [{\"name\": \"host\", \"mountPath\": \"/host\"}]}]"
}
run() { kubectl -n "$where" exec "$pod" -- "$@"; }
inside() { run timeout 4 "$@" >/dev/null 2>&1; }
on_host() { kubectl -n "$where" exec -i "$pod" -- chroot /host "$@"; }
allowed() { # allowed WHAT COMMAND...: must succeed inside the pod
  local what=$1; shift
  if inside "$@"; then say allowed "$what"; else gap BROKEN "$what"; fi
}
refused() { # refused WHAT COMMAND...: must fail inside the pod
  local what=$1; shift
  if inside "$@"; then gap GAP "$what"; else say refused "$what"; fi
}
silent() { # silent WHAT HOST PORT: must time out; an answer, even "connection refused", means that packets arrive
  local what=$1 code=0
  inside bash -c "exec 3<>/dev/tcp/$2/$3" || code=$?
  if [ $code -eq 124 ]; then say silent "$what"; else gap GAP "$what (exit code $code)"; fi
}

tenant() {
  local peer node
  peer=$(kubectl -n "$other" get pods --field-selector=status.phase=Running -o jsonpath='{.items[0].status.podIP}')
  [ -n "$peer" ] || { echo "no running pod in $other: its network cannot be tested" >&2; exit 2; }
  start_plain "$namespace"
  node=$(kubectl -n "$where" get pod "$pod" -o jsonpath='{.status.hostIP}')
  allowed "a command in the pod (the twin of all checks below)" true
  allowed "the cluster's DNS" getent hosts kubernetes.default.svc.cluster.local
  refused "a GPU without asking for one" nvidia-smi -L
  silent "instance metadata, IPv4" 169.254.169.254 80
  silent "another tenant's pod" "$peer" 80
  silent "another tenant's pod, a closed port" "$peer" 9
  silent "the kubelet of the pod's node" "$node" 10250
}

metadata() { # without network policies the node's own settings have to keep a pod from the node's role
  local url=http://169.254.169.254/latest answer
  local token='X-aws-ec2-metadata-token-ttl-seconds: 60'
  start_plain tenancy-system
  allowed "the cluster's DNS, in a pod without network policies" getent hosts kubernetes.default.svc.cluster.local
  answer=$(run curl -s -m 3 -o /dev/null -w '%{http_code}' -X PUT -H "$token" "$url/api/token" || true)
  if [ "${answer: -3}" = 000 ]; then
    say refused "a metadata token, in a pod without network policies: the hop limit is 1"
  else
    gap GAP "a metadata token, in a pod without network policies (HTTP $answer): the hop limit is above 1"
  fi
  answer=$(run curl -s -m 3 -o /dev/null -w '%{http_code}' "$url/meta-data/instance-id" || true)
  case ${answer: -3} in
    000 | 401) say refused "metadata without a token (HTTP ${answer: -3})" ;;
    *) gap GAP "metadata without a token (HTTP $answer)" ;;
  esac
}

# Pools

expected() {
  tenancy report pools "$environment" --format json >"$work/pools.json"
  tenancy render "$environment" --out "$work/rendered" >/dev/null
  kubectl get nodes -o json >"$work/nodes.json"
}

nodes() { # nodes of every pool: number, labels, taints, resources; also writes node lists for the later checks
  python - "$work" <<'PY' || failed=1
import json, pathlib, sys

import yaml

work, bad = pathlib.Path(sys.argv[1]), False
def read(path):
    return list(yaml.safe_load_all(path.read_text())) if path.exists() else []
def taint(each):
    effects = {"NO_SCHEDULE": "NoSchedule", "NO_EXECUTE": "NoExecute"}
    return f"{each['key']}={each.get('value', '')}:{effects.get(each['effect'], each['effect'])}"
def tell(ok, what):
    global bad
    bad |= not ok
    print(f"{'equal' if ok else 'DIFFERS':8} {what}")

born = {}
for cluster in read(work / "rendered/cluster/cluster.yaml"):
    born |= {group["pool"]: group["taints"] for group in cluster["groups"] if group["pool"]}
for made in read(work / "rendered/platform/60-nodes.yaml"):
    if made["kind"] == "NodePool":
        born.setdefault(made["metadata"]["name"], made["spec"]["template"]["spec"].get("taints", []))
cut = {name for found in read(work / "rendered/cluster/mig-parted.yaml") for name in found["mig-configs"]}
there = json.loads((work / "nodes.json").read_text())["items"]
for pool in json.loads((work / "pools.json").read_text())["pools"]:
    name, board = pool["pool"], pool["board"]
    mine = [node for node in there if node["metadata"]["labels"].get("tenancy.gpu/pool") == name]
    ready = [n for n in mine if any(c["type"] == "Ready" and c["status"] == "True" for c in n["status"]["conditions"])]
    least, most = pool["nodes_min"], pool["nodes_max"]
    tell(least <= len(ready) <= most, f"{name}: {len(ready)} nodes are ready, {least} to {most} in the file")
    names = "".join(f"{node['metadata']['name']}\n" for node in ready)
    for kind, holds in (("mig", name in cut), ("efa", "vpc.amazonaws.com/efa" in pool["resources"])):
        if holds:
            (work / f"{kind}-{name}").write_text(names)
    if not mine:
        print(f"skipped  {name}: labels, taints and resources: it has no node")
        continue
    labels = {"node.kubernetes.io/instance-type": pool["instance-type"]} | ({"tenancy.gpu/board": board} if board else {})
    wrong = {
        f"{node['metadata']['name']} {key}={node['metadata']['labels'].get(key)}"
        for node in mine for key, value in labels.items() if node["metadata"]["labels"].get(key) != value
    }
    tell(not wrong, f"{name}: labels of type and board" + "".join(f"; {text}" for text in sorted(wrong)))
    if name in born:
        # Cilium removes its own taint; additional taints of a node, which keep more pods away, are no difference.
        wanted = {taint(each) for each in born[name] if each["key"] != "node.cilium.io/agent-not-ready"}
        wrong = {
            f"{node['metadata']['name']} lacks {', '.join(sorted(lacks))}"
            for node in mine if (lacks := wanted - {taint(each) for each in node["spec"].get("taints", [])})
        }
        text = f"{name}: taints {', '.join(sorted(wanted)) or 'none'}"
        tell(not wrong, text + "".join(f"; {each}" for each in sorted(wrong)))
    else:
        print(f"skipped  {name}: taints: the environment creates no nodes of its own")
    offers = {}
    for node in ready:
        said = node["status"]["allocatable"]
        devices = {k: int(v) for k, v in said.items() if k.startswith(("nvidia.com/", "vpc.amazonaws.com/")) and int(v)}
        offers.setdefault((tuple(sorted(devices.items())), int(said["pods"])), []).append(node["metadata"]["name"])
    for (devices, pods), on in sorted(offers.items()):
        same = dict(devices) == pool["resources"] and pods == pool["allocatable"]["pods"]
        text = ", ".join(f"{count} {what}" for what, count in devices) or "no device"
        tell(same, f"{name}: {len(on)} nodes ({on[0]} first) offer {text} and {pods} pods")
sys.exit(bad)
PY
}

mig() { # mig POOL NODE: compare the driver's MIG slices with the node's resources and with the layout
  local pool=$1 node=$2 code=0
  start_on "$node"
  if ! on_host nvidia-smi -L >"$work/cut" </dev/null; then gap BROKEN "$pool: nvidia-smi -L on $node"; return; fi
  python - "$work" "$pool" "$node" <<'PY' || failed=1
import collections, json, pathlib, re, sys

import yaml

work, pool, node = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
found, gpu = collections.defaultdict(collections.Counter), None
for line in (work / "cut").read_text().splitlines():
    if match := re.match(r"GPU (\d+):", line):
        gpu = int(match[1])
        found[gpu].update()
    elif match := re.match(r"\s+MIG (\S+)", line):
        found[gpu][match[1]] += 1
wanted = {}
for part in yaml.safe_load((work / "rendered/cluster/mig-parted.yaml").read_text())["mig-configs"][pool]:
    for index in list(found) if part["devices"] == "all" else part["devices"]:
        wanted[index] = part.get("mig-devices", {})
cut = sum(found.values(), collections.Counter())
node_said = next(n for n in json.loads((work / "nodes.json").read_text())["items"] if n["metadata"]["name"] == node)
offers = ", ".join(f"{v} {k}" for k, v in sorted(node_said["status"]["allocatable"].items()) if k.startswith("nvidia"))
slices = ", ".join(f"{count} x {profile}" for profile, count in sorted(cut.items())) or "no slices"
same = wanted == {index: dict(each) for index, each in found.items()}
print(f"{'equal' if same else 'DIFFERS':8} {pool}: nvidia-smi -L on {node} shows {slices}; the node offers {offers}")
sys.exit(not same)
PY
  if ! on_host sh -c 'command -v nvidia-mig-parted' >/dev/null 2>&1 </dev/null; then
    say skipped "$pool: nvidia-mig-parted assert: the tool is not on $node"
    return
  fi
  on_host nvidia-mig-parted assert -f - -c "$pool" <"$work/rendered/cluster/mig-parted.yaml" >/dev/null 2>&1 || code=$?
  if [ $code -eq 0 ]; then say equal "$pool: nvidia-mig-parted assert on $node"
  else gap DIFFERS "$pool: nvidia-mig-parted assert on $node (exit code $code)"; fi
}

PINGPONG=/opt/amazon/efa/bin/fi_pingpong
pingpong() { # pingpong FROM TO: over EFA alone, 0 if it works; 2 if a node lacks the tool or runs no pod
  local address served server code=0
  start_on "$2" || return 2
  on_host test -x $PINGPONG </dev/null || return 2
  address=$(kubectl -n "$where" get pod "$pod" -o jsonpath='{.status.hostIP}')
  run chroot /host timeout 60 $PINGPONG -p efa -e rdm >/dev/null 2>&1 &
  served=$! server=$pod
  start_on "$1" || return 2
  on_host test -x $PINGPONG </dev/null || return 2
  sleep 2
  run chroot /host timeout 30 $PINGPONG -p efa -e rdm "$address" >/dev/null 2>&1 || code=1
  kubectl -n "$where" delete pod "$server" --ignore-not-found --wait=false >/dev/null
  wait $served || true
  return $code
}
efa() { # nodes of one pool reach one another over EFA, and nodes of other pools do not
  local file pool one two code first_pool='' first_node='' between=''
  for file in "$work"/efa-*; do
    [ -e "$file" ] || { say skipped "EFA: no pool has it"; return; }
    pool=${file##*/efa-}
    one=$(sed -n 1p "$file") two=$(sed -n 2p "$file")
    if [ -z "$one" ]; then say skipped "EFA of $pool: it has no node"; continue; fi
    if [ -z "$two" ]; then say skipped "EFA within $pool (the twin): it has one node"; else
      code=0; pingpong "$one" "$two" || code=$?
      case $code in
        0) say allowed "EFA within $pool, from $one to $two (the twin)" ;;
        2) say skipped "EFA within $pool: no $PINGPONG on $one or $two, or no pod runs there" ;;
        *) gap BROKEN "EFA within $pool, from $one to $two (the twin)" ;;
      esac
    fi
    if [ -n "$first_node" ]; then
      between=tried
      code=0; pingpong "$one" "$first_node" || code=$?
      case $code in
        0) gap GAP "EFA from $pool ($one) to $first_pool ($first_node)" ;;
        2) say skipped "EFA from $pool to $first_pool: no $PINGPONG on $one or $first_node, or no pod runs there" ;;
        *) say refused "EFA from $pool ($one) to $first_pool ($first_node)" ;;
      esac
    fi
    [ -n "$first_node" ] || first_pool=$pool first_node=$one
  done
  [ -n "$between" ] || say skipped "EFA between pools: fewer than two pools have nodes with it"
}

pools() {
  local file node
  expected
  nodes
  if [ -z "$image" ]; then
    say skipped "metadata, nvidia-smi, nvidia-mig-parted and EFA: no IMAGE was given"
    return
  fi
  metadata
  for file in "$work"/mig-*; do
    [ -e "$file" ] || { say skipped "MIG: no pool has a layout"; break; }
    node=$(sed -n 1p "$file")
    if [ -n "$node" ]; then mig "${file##*/mig-}" "$node"; else say skipped "MIG of ${file##*/mig-}: it has no node"; fi
  done
  efa
}

if [ -n "$namespace" ]; then tenant; fi
if [ -n "$environment" ]; then pools; else say skipped "the pools' nodes: no ENV was given"; fi
exit $failed
