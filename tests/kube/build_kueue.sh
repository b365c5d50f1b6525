#!/usr/bin/env bash
# build_kueue.sh: builds Kueue's controller manager and prints the folder that holds it, as its last line.
#
# The folder has the program and, from the same module, what a cluster has to be told of it: crd/ (definitions) and
# webhooks.yaml. The module's hash is pinned here, and the hashes of all that it needs are in its own go.sum.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/kube/go_programs.sh
source "$here/go_programs.sh"
readonly kueue=v0.19.0 hash=h1:5yCu85qsJhvUVVxE0Csw546DDBcRwUXpBEOmEFlws34=

# Prints where the module's source is.
fetch() {
  local told
  told=$("$1" mod download -json "sigs.k8s.io/kueue@$kueue") || { echo "$told" >&2; return 1; }
  grep -qF "\"Sum\": \"$hash\"" <<<"$told" || { say "Kueue $kueue has another hash than $hash"; return 1; }
  sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' <<<"$told"
}

build() {
  local go=$1 folder=$2 module total
  cd "$folder"
  export CGO_ENABLED=0 GOFLAGS="-mod=readonly -buildvcs=false" GOTOOLCHAIN=local GOWORK=off
  say "fetching the modules of Kueue (some 100 MB the first time)"
  module=$(fetch "$go")
  cd "$module"
  total=$("$go" list -deps ./cmd/kueue | wc -l)
  say "building Kueue $kueue once"
  "$go" build -v -trimpath ${CORRO_KUBE_JOBS:+-p "$CORRO_KUBE_JOBS"} -ldflags "-s -w" -o "$folder/kueue" ./cmd/kueue \
    2>&1 | show_progress "$total"
  cp -r --no-preserve=mode config/components/crd LICENSE "$folder/"
  cp --no-preserve=mode config/components/webhook/manifests.yaml "$folder/webhooks.yaml"
}

main() {
  local go folder
  mkdir -p "$cache"
  go=$(find_go)
  folder=$cache/kueue-$kueue-$("$go" env GOVERSION)
  build_once "$folder" kueue build "$go"
  echo "$folder"
}

main "$@"
