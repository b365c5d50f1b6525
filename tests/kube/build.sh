#!/usr/bin/env bash
# build.sh: builds the control plane of the tests and prints the folder that holds it, as its last line.
#
# The versions are pinned in plane/go.mod. The programs are kept in a cache of this machine, one folder for each
# set of versions and each Go, so the build (eight minutes on two cores) happens once. go_programs.sh says where.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/kube/go_programs.sh
source "$here/go_programs.sh"
readonly programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet)

version_of() { sed -n "s|^\t$1 \(v[0-9.]*\).*|\1|p" "$here/plane/go.mod" | head -n 1; }

build() {
  local go=$1 folder=$2 kube packages flags total
  kube=$(version_of k8s.io/kubernetes)
  packages=(go.etcd.io/etcd/server/v3)
  for name in "${programs[@]:1}"; do packages+=("k8s.io/kubernetes/cmd/$name"); done
  # Without these the API server says that it is v0.0.0-master.
  IFS=. read -r major minor _ <<<"${kube#v}"
  flags="-s -w"
  for at in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
    flags+=" -X $at.gitVersion=$kube -X $at.gitMajor=$major -X $at.gitMinor=$minor"
  done
  cd "$here/plane"
  export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" GOTOOLCHAIN=local GOWORK=off
  say "fetching modules (some 100 MB the first time)"
  total=$("$go" list -deps "${packages[@]}" | wc -l)
  say "building Kubernetes $kube and etcd $(version_of go.etcd.io/etcd/server/v3) once: 8 minutes on two cores"
  "$go" build -v -trimpath ${CORRO_KUBE_JOBS:+-p "$CORRO_KUBE_JOBS"} -ldflags "$flags" -o "$folder/" \
    "${packages[@]}" 2>&1 | show_progress "$total"
  mv "$folder/server" "$folder/etcd"
}

main() {
  local go key
  mkdir -p "$cache"
  go=$(find_go)
  key=$(version_of k8s.io/kubernetes)-$("$go" env GOVERSION)-$(sha256sum "$here/plane/go.sum" | cut -c1-8)
  build_once "$cache/$key" "${programs[*]}" build "$go"
  echo "$cache/$key"
}

main "$@"
