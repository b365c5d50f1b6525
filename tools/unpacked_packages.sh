#!/usr/bin/env bash
# unpacked_packages.sh SECTION [CACHE]: unpacks the Debian packages of a section of packages.txt into a cache, and prints
# the folder that holds them, as its last line.
#
# They are not installed: the machine may have others of that kind that it needs, and a package of a server would start
# it. So this needs no rights, and a second call needs no network.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
section=$1
cache=${2:-${XDG_CACHE_HOME:-$HOME/.cache}/corro/packages}

say() { echo "corro: $*" >&2; }

read -ra packages <<<"$(sed -n "s/^$section: //p" "$root/packages.txt" | tr '\n' ' ')"
folder=$cache/$section-$(sha256sum <<<"${packages[*]}" | cut -c1-8)

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

command -v apt-get >/dev/null || { say "no apt-get here, which ${packages[*]} would come with"; exit 1; }
mkdir -p "$cache"
if [[ ! -d $folder ]]; then
  exec 9>"$cache/$section-lock"
  flock 9
  [[ -d $folder ]] || (fetch)
fi
echo "$folder"
