#!/usr/bin/env bash
# node_inside.sh FOLDER PROGRAMS NODE_PROGRAMS HIERARCHIES COMMAND...: what node.sh does inside of its namespaces.
#
# The story: mounts first, so that what containerd and the kubelet write to their fixed places lands in FOLDER; then the
# control plane, without fake nodes; containerd, with the images of CORRO_NODE_IMAGES (docker archives); the services'
# routes; the kubelet. When the node is Ready, the command runs. Nothing is cleaned here: node.sh says why.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
folder=$1 programs=$2 node_programs=$3 hierarchies=$4
shift 4
# shellcheck source=tests/kube/plane.sh
source "$here/plane.sh"
# shellcheck source=tests/kube/certificates.sh
source "$here/certificates.sh"

readonly node=real node_address=10.97.0.1
readonly kernel_settings="vm/overcommit_memory 1
vm/panic_on_oom 0
kernel/panic 10
kernel/panic_on_oops 1
kernel/keys/root_maxkeys 1000000
kernel/keys/root_maxbytes 25000000"
python=$root/.venv/bin/python
[[ -x $python ]] || python=python3
export PATH=$programs:$node_programs/usr/bin:$node_programs/usr/sbin:$PATH
began=${EPOCHREALTIME/./}

# Its cgroups become the roots of their hierarchies; the kernel's settings stay as they are; /run is new; what is written below /var goes to the folder.
mount_own() {
  local controllers at
  umount --recursive --lazy /sys/fs/cgroup
  mount -t tmpfs tmpfs /sys/fs/cgroup
  while read -r controllers _; do
    at=/sys/fs/cgroup/${controllers#name=}
    mkdir "$at"
    [[ $controllers != name=* ]] || controllers=none,$controllers
    mount -t cgroup -o "$controllers" cgroup "$at"
  done <<<"$hierarchies"
  # The kubelet sets these for the whole machine: it finds files that have its values.
  while read -r name value; do
    echo "$value" >"$folder/${name//\//.}"
    mount --bind "$folder/${name//\//.}" "/proc/sys/$name"
  done <<<"$kernel_settings"
  mount -t tmpfs tmpfs /run
  mkdir "$folder/var" "$folder/var-work"
  mount -t overlay -o "lowerdir=/var,upperdir=$folder/var,workdir=$folder/var-work" overlay /var
}

make_network() {
  ip link set lo up
  ip address add "$node_address/32" dev lo
  mkdir "$folder/cni"
  cat >"$folder/cni/10-bridge.conflist" <<JSON
{"cniVersion": "0.4.0", "name": "corro", "plugins": [{
  "type": "bridge", "bridge": "pods", "isGateway": true, "hairpinMode": true,
  "ipam": {"type": "host-local", "routes": [{"dst": "0.0.0.0/0"}], "ranges": [[{"subnet": "10.244.0.0/16"}]]}}]}
JSON
}

start() {
  local name=$1
  shift
  setsid "$@" </dev/null >"$folder/$name.log" 2>&1 &
  declare -g "pid_$name=$!"
}

# wait_for SECONDS WHAT LOG COMMAND...
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2 log=$folder/$3.log
  shift 3
  until "$@" >"$folder/wait.log" 2>&1; do
    if ((SECONDS > deadline)); then
      tail -n 5 "$log" "$folder/wait.log" >&2
      say "$what did not happen"
      exit 1
    fi
    sleep 0.1
  done
}

# No rights over the scores of processes that are there (restrict_oom_score_adj): a container may lack them.
start_containerd() {
  cat >"$folder/containerd.toml" <<TOML
version = 2
root = "$folder/containerd"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  sandbox_image = "localhost/pause:1"
  cni = {bin_dir = "$node_programs/usr/lib/cni", conf_dir = "$folder/cni"}
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    options = {BinaryName = "$node_programs/usr/sbin/runc"}
TOML
  start containerd containerd --config "$folder/containerd.toml"
  wait_for 30 "containerd's start" containerd ctr version
  "$python" "$here/pause_image.py" "$node_programs/bin/busybox" "$folder/pause.tar"
  for image in "$folder/pause.tar" ${CORRO_NODE_IMAGES:-}; do
    ctr --namespace k8s.io images import "$image" >"$folder/import.log" 2>&1 || { cat "$folder/import.log" >&2; exit 1; }
  done
}

start_kubelet() {
  local plane=${KUBECONFIG%/*}
  certificate "$plane" "$node" "/O=system:nodes/CN=system:node:$node"
  kubeconfig "$plane" "$node"
  # Nothing here depends on names: who looks one up is refused at once.
  echo "nameserver 127.0.0.1" >"$folder/resolv.conf"
  cat >"$folder/kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
syncFrequency: 10s # How soon a ConfigMap's change is seen in pods; 1m by default.
address: $node_address
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $plane/ca.crt}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
failCgroupV1: false
enforceNodeAllocatable: []
makeIPTablesUtilChains: false
failSwapOn: false
oomScoreAdj: 0
resolvConf: $folder/resolv.conf
volumePluginDir: $folder/volume-plugins
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%, nodefs.inodesFree: 1%}
imageGCHighThresholdPercent: 100
YAML
  start kubelet kubelet --config "$folder/kubelet.yaml" --kubeconfig "$plane/$node.kubeconfig" \
    --root-dir "$folder/kubelet" --cert-dir "$folder/pki" --hostname-override "$node" --node-ip "$node_address"
}

is_ready() {
  local state
  state=$(kubectl get node "$node" -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}{.spec.taints}')
  [[ $state == True ]]
}

mount_own
make_network
shown=$(CORRO_KUBE_FOLDERS=$folder/planes "$here/up.sh" --nodes 0 --lifetime 86400)
export KUBECONFIG=${shown##*KUBECONFIG=}
start_containerd
start services "$python" "$here/service_routes.py" "${KUBECONFIG%/*}"
start_kubelet
wait_for 60 "the node's readiness" kubelet is_ready
say "a real node after $(((${EPOCHREALTIME/./} - began) / 1000)) ms: logs in $folder"
export CORRO_NODE_FOLDER=$folder
"$@"
