#!/usr/bin/env bash
# up.sh: starts a real Kubernetes control plane and fake nodes on loopback, and prints KUBECONFIG=... as its last line.
#
#   eval "$(tests/kube/up.sh)"; kubectl get nodes; tests/kube/down.sh
#
#   --nodes N           fake nodes (fake_nodes.py); 4
#   --lifetime SECONDS  the plane ends by itself after so long; 7200
#   --owner PID         and as soon as this process is gone
#   --gang              serve the in-tree gang scheduler (Workload and PodGroup, alpha in 1.36)
#   --node-grace SECONDS  a node that is silent for so long is Unknown; 20
#
# CORRO_KUBE_FOLDERS: where the folders of planes are; default build/kube.
#
# The story: etcd, then the API server, then controller manager, scheduler and fake nodes at once. Each waits for
# the one before to answer, and the script returns when all nodes are Ready and the controllers work. Every process
# is written down in FOLDER/pids as soon as it runs, the watchdog first, so whatever goes wrong, down.sh and the
# watchdog find all of them. Ports are below the kernel's ephemeral range, where no client's connection takes one
# between our choice and our use; if another server does, that process says so and up.sh fails with its log.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
# shellcheck source=tests/kube/plane.sh
source "$here/plane.sh"
# shellcheck source=tests/kube/certificates.sh
source "$here/certificates.sh"

nodes=4 lifetime=7200 owner="" gang="" node_grace=20
while [[ $# -gt 0 ]]; do
  case $1 in
    --nodes) nodes=$2; shift ;;
    --lifetime) lifetime=$2; shift ;;
    --owner) owner=$2; shift ;;
    --node-grace) node_grace=$2; shift ;;
    --gang) gang=1 ;;
    *) say "unknown option $1; the head of $0 lists them"; exit 2 ;;
  esac
  shift
done

python=$root/.venv/bin/python
[[ -x $python ]] || python=python3
programs=$("$here/build.sh")
began=${EPOCHREALTIME/./}
folders=${CORRO_KUBE_FOLDERS:-$root/build/kube}
mkdir -p "$folders"
folder=$(mktemp -d "$folders/XXXXXX")
: >"$folder/pids"

fail() {
  trap - ERR EXIT
  say "$1 (logs: $folder)"
  end_processes "$folder/pids" || true
  exit 1
}
trap 'fail "stopped at line $LINENO"' ERR
trap 'fail interrupted' INT TERM

# start NAME COMMAND...: runs it detached, with its output in a log.
start() {
  local name=$1
  shift
  setsid "$@" </dev/null >"$folder/$name.log" 2>&1 &
  record "$folder" "$name" $!
}

# wait_for SECONDS WHAT PROCESS COMMAND...: until the command succeeds; says why not when PROCESS is gone.
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2 process=$3 pid start
  shift 3
  until "$@" >/dev/null 2>"$folder/wait.log"; do
    read -r _ pid start < <(grep "^$process " "$folder/pids")
    if ! is_alive "$pid" "$start" || ((SECONDS > deadline)); then
      tail -n 5 "$folder/$process.log" "$folder/wait.log" >&2
      fail "$what did not happen"
    fi
    sleep 0.1
  done
}

free_ports() {
  "$python" - "$1" <<'PYTHON'
import random, socket, sys
held = []
while len(held) < int(sys.argv[1]):
    trial = socket.socket()
    try:
        trial.bind(("127.0.0.1", random.randrange(20000, 32000)))
        held.append(trial)
    except OSError:
        trial.close()
print(*(trial.getsockname()[1] for trial in held))
PYTHON
}

make_certificates() {
  openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3 -subj /CN=corro-kube-tests \
    -keyout "$folder/ca.key" -out "$folder/ca.crt" 2>"$folder/openssl.log"
  echo "https://127.0.0.1:$api_port" >"$folder/server"
  openssl genrsa -out "$folder/accounts.key" 2048 2>"$folder/openssl.log"
  certificate "$folder" server /CN=kube-apiserver \
    "subjectAltName=IP:127.0.0.1,IP:10.96.0.1,DNS:localhost,DNS:kubernetes.default.svc"
  certificate "$folder" admin /O=system:masters/CN=admin
  certificate "$folder" controllers /CN=system:kube-controller-manager
  certificate "$folder" scheduler /CN=system:kube-scheduler
  for user in admin controllers scheduler; do kubeconfig "$folder" "$user"; done
}

# Ends the plane at its time, or when the owner, the folder, or an up.sh that was not done is gone.
# Its reading never gets a byte.
watch_over() {
  local until=$((SECONDS + lifetime)) owner_start="" starter_start list nothing
  [[ -z $owner ]] || owner_start=$(start_of "$owner" || echo gone)
  starter_start=$(start_of "$starter" || echo gone)
  exec {nothing}<> <(:)
  while ((SECONDS < until)) && [[ -f $folder/pids ]]; do
    list=$(<"$folder/pids")
    [[ -z $owner ]] || is_alive "$owner" "$owner_start" || break
    [[ -e $folder/bin ]] || is_alive "$starter" "$starter_start" || break
    read -r -t 1 -u "$nothing" || true
  done
  # The folder may be gone, by `make clean` say: the list in memory is not.
  end_processes /dev/stdin <<<"$list"
  rm -rf "$folder"
}
export -f watch_over say start_of is_alive end_processes
starter=$$
export lifetime owner folder starter

read -r etcd_port peer_port api_port < <(free_ports 3)
make_certificates
start watchdog bash -c watch_over

start etcd "$programs/etcd" --name plane --data-dir "$folder/etcd" --unsafe-no-fsync --log-level warn \
  --listen-client-urls "http://127.0.0.1:$etcd_port" --advertise-client-urls "http://127.0.0.1:$etcd_port" \
  --listen-peer-urls "http://127.0.0.1:$peer_port" --initial-cluster "plane=http://127.0.0.1:$peer_port" \
  --initial-advertise-peer-urls "http://127.0.0.1:$peer_port"

gates=()
[[ -z $gang ]] || gates=(--feature-gates "GenericWorkload=true,GangScheduling=true")
start apiserver "$programs/kube-apiserver" --etcd-servers "http://127.0.0.1:$etcd_port" \
  --secure-port "$api_port" --bind-address 127.0.0.1 --advertise-address 127.0.0.1 --endpoint-reconciler-type none \
  --tls-cert-file "$folder/server.crt" --tls-private-key-file "$folder/server.key" \
  --client-ca-file "$folder/ca.crt" --authorization-mode Node,RBAC --allow-privileged \
  --service-account-issuer https://kubernetes.default.svc --service-account-key-file "$folder/accounts.key" \
  --service-account-signing-key-file "$folder/accounts.key" --service-cluster-ip-range 10.96.0.0/16 \
  --kubelet-client-certificate "$folder/admin.crt" --kubelet-client-key "$folder/admin.key" \
  --kubelet-preferred-address-types InternalIP \
  "${gates[@]}" ${gang:+--runtime-config scheduling.k8s.io/v1alpha2=true}
export KUBECONFIG=$folder/admin.kubeconfig
kubectl=("$programs/kubectl" --cache-dir "$folder/kubectl")
wait_for 120 "the API server's readiness" apiserver "${kubectl[@]}" get --raw /readyz

# The defaults of 20 to 50 calls a second would make 2000 pods wait for the plane and not for the operator.
start controllers "$programs/kube-controller-manager" --kubeconfig "$folder/controllers.kubeconfig" \
  --use-service-account-credentials --service-account-private-key-file "$folder/accounts.key" \
  --root-ca-file "$folder/ca.crt" --leader-elect=false --bind-address 127.0.0.1 --secure-port 0 \
  --node-monitor-period 1s --node-monitor-grace-period "${node_grace}s" \
  --kube-api-qps 500 --kube-api-burst 1000 "${gates[@]}"
cat >"$folder/scheduler.yaml" <<YAML
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: $folder/scheduler.kubeconfig, qps: 500, burst: 1000}
YAML
start scheduler "$programs/kube-scheduler" --config "$folder/scheduler.yaml" --bind-address 127.0.0.1 \
  --secure-port 0 "${gates[@]}"
start nodes "$python" "$here/fake_nodes.py" "$folder" --nodes "$nodes"

# A service account is the controller manager's work, a node without its taint both its and the fake nodes'.
wait_for 60 "the default service account" controllers "${kubectl[@]}" get serviceaccount default
nodes_ready() {
  local ready
  ready=$("${kubectl[@]}" get nodes -o 'jsonpath={range .items[*]}{.metadata.name}{.spec.taints}{"\n"}{end}')
  [[ $(grep -c '^[^[]*$' <<<"$ready") -eq $nodes ]]
}
((nodes == 0)) || wait_for 60 "readiness of $nodes nodes" nodes nodes_ready

ln -s "$programs" "$folder/bin"
say "up in $(((${EPOCHREALTIME/./} - began) / 1000)) ms: $folder"
echo "KUBECONFIG=$KUBECONFIG"
