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
refused() { # refused WHAT COMMAND...: the command must fail inside the pod
  local what=$1; shift
  if kubectl -n "$namespace" exec "$pod" -- "$@" >/dev/null 2>&1; then
    echo "GAP      $what"; failed=1
  else
    echo "refused  $what"
  fi
}
allowed() {
  local what=$1; shift
  if kubectl -n "$namespace" exec "$pod" -- "$@" >/dev/null 2>&1; then echo "allowed  $what"; else echo "BROKEN   $what"; failed=1; fi
}
allowed "a command in the pod (the twin of all below)" true
allowed "the cluster's DNS" timeout 5 getent hosts kubernetes.default.svc.cluster.local
refused "a GPU without asking for one" nvidia-smi -L
refused "instance metadata, IPv4" curl -sf -m 3 -X PUT -H 'X-aws-ec2-metadata-token-ttl-seconds: 60' http://169.254.169.254/latest/api/token
refused "instance metadata, IPv6" curl -sf -m 3 'http://[fd00:ec2::254]/latest/meta-data/'
refused "another tenant's pod, port 22" timeout 3 bash -c "exec 3<>/dev/tcp/$peer/22"
refused "another tenant's pod, port 80" timeout 3 bash -c "exec 3<>/dev/tcp/$peer/80"
refused "another tenant's pod, port 443" timeout 3 bash -c "exec 3<>/dev/tcp/$peer/443"
refused "the kubelet of the pod's node" timeout 3 bash -c "exec 3<>/dev/tcp/\$(ip route 2>/dev/null | awk '/default/ {print \$3}')/10250"
exit $failed
