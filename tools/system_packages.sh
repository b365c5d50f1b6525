#!/usr/bin/env bash
# system_packages.sh SECTION...: installs the Debian packages of these sections of packages.txt that are missing.
# Asks dpkg first, so a machine that has them needs neither network nor rights.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if ! command -v dpkg-query >/dev/null; then
  echo "corro: no dpkg here; install what packages.txt names under '$*' with your own package manager" >&2
  exit 0
fi

missing=()
for section in "$@"; do
  while read -r package; do
    # The status is "install ok installed" only when the package is there and configured.
    status=$(dpkg-query --show --showformat='${Status}' "$package" 2>/dev/null || true)
    [[ $status == "install ok installed" ]] || missing+=("$package")
  done < <(sed -n "s/^$section: //p" packages.txt | tr ' ' '\n')
done
[[ ${#missing[@]} -gt 0 ]] || exit 0

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  # Without a terminal sudo could only hang on its password prompt.
  if ! command -v sudo >/dev/null || { [[ ! -t 0 ]] && ! sudo -n true 2>/dev/null; }; then
    echo "corro: please ask for these Debian packages: apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi
echo "corro: installing Debian packages for $*: ${missing[*]}"
install_missing() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --quiet=2 --no-install-recommends -o Dpkg::Use-Pty=0 "${missing[@]}" |
    sed --unbuffered --quiet 's/^Setting up \([^ ]*\).*/corro:   \1/p'
}
# The lists of a fresh machine are empty or old: refresh them once, then say plainly what is wanted.
if ! { "${as_root[@]}" apt-get update --quiet=2 && install_missing; }; then
  echo "corro: apt-get could not install: ${missing[*]} (see its message above)" >&2
  exit 1
fi
