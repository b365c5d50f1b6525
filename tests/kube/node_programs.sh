#!/usr/bin/env bash
# node_programs.sh: fetches what a node runs beside the kubelet, and prints the folder that holds it, as its last line.
#
# These are Debian's packages of section `node` in packages.txt: they are unpacked into the cache of build.sh, not
# installed, since a machine may have another containerd that it needs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${CORRO_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corro/kube}
# shellcheck source=tests/kube/plane.sh
source "$here/plane.sh"

read -ra packages <<<"$(sed -n 's/^node: //p' "$root/packages.txt" | tr '\n' ' ')"
folder=$cache/node-$(sha256sum <<<"${packages[*]}" | cut -c1-8)

download() { apt-get download --quiet=2 "${packages[@]}"; }

fetch() {
  local part=$folder.part
  rm -rf "$part"
  mkdir -p "$part/packages"
  cd "$part/packages"
  # The lists of a fresh machine are empty or old: refresh them once.
  download 2>"$part/apt.log" || { apt-get update --quiet=2 && download; }
  for package in *.deb; do
    say "unpacking $(basename "$package" .deb)"
    dpkg-deb --extract "$package" "$part"
  done
  rm -r "$part/packages"
  mv "$part" "$folder"
}

mkdir -p "$cache"
if [[ ! -d $folder ]]; then
  exec 9>"$cache/node-lock"
  flock 9
  [[ -d $folder ]] || (fetch)
fi
echo "$folder"
