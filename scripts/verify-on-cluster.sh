#!/usr/bin/env bash
# Shows on a real cluster what the lab cannot: devices, network and metadata as a tenant's pod sees them.
# Usage: scripts/verify-on-cluster.sh NAMESPACE OTHER_NAMESPACE IMAGE
#   NAMESPACE        a tenant's namespace in which you may create pods
#   OTHER_NAMESPACE  another tenant's namespace with at least one running pod
#   IMAGE            an allowed image with bash, curl, timeout and nvidia-smi that sets NVIDIA_VISIBLE_DEVICES=all
set -euo pipefail
[ $# -eq 3 ] || { sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2; }
namespace=$1 other=$2 image=$3
pod=tenancy-verify-$RANDOM
peer=$(kubectl -n "$other" get pods --field-selector=status.phase=Running -o jsonpath='{.items[0].status.podIP}')
[ -n "$peer" ] || { echo "no running pod in $other: its network cannot be tried" >&2; exit 2; }
trap 'kubectl -n "$namespace" delete pod "$pod" --ignore-not-found --wait=false >/dev/null' EXIT

kubectl -n "$namespace" create -f - >/dev/null <<POD
apiVersion: v1
kind: Pod
metadata: {name: $pod}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: probe
      image: $image
      command: [sleep, "300"]
      resources: {requests: {cpu: 100m, memory: 256Mi}, limits: {cpu: 100m, memory: 256Mi}}
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
POD
kubectl -n "$namespace" wait --for=condition=Ready "pod/$pod" --timeout=120s >/dev/null

failed=0
inside() { kubectl -n "$namespace" exec "$pod" -- timeout 4 "$@" >/dev/null 2>&1; }
allowed() { # allowed WHAT COMMAND...: must succeed inside the pod
  local what=$1; shift
  if inside "$@"; then echo "allowed  $what"; else echo "BROKEN   $what"; failed=1; fi
}
refused() { # refused WHAT COMMAND...: must fail inside the pod
  local what=$1; shift
  if inside "$@"; then echo "GAP      $what"; failed=1; else echo "refused  $what"; fi
}
silent() { # silent WHAT HOST PORT: must time out; an answer, even "connection refused", means that packets arrive
  local what=$1 code=0
  inside bash -c "exec 3<>/dev/tcp/$2/$3" || code=$?
  if [ $code -eq 124 ]; then echo "silent   $what"; else echo "GAP      $what (exit code $code)"; failed=1; fi
}
node=$(kubectl -n "$namespace" get pod "$pod" -o jsonpath='{.status.hostIP}')
allowed "a command in the pod (the twin of all below)" true
allowed "the cluster's DNS" getent hosts kubernetes.default.svc.cluster.local
refused "a GPU without asking for one" nvidia-smi -L
silent "instance metadata, IPv4" 169.254.169.254 80
silent "another tenant's pod" "$peer" 80
silent "another tenant's pod, a port that nobody serves" "$peer" 9
silent "the kubelet of the pod's node" "$node" 10250
exit $failed
