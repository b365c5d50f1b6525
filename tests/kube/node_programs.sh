#!/usr/bin/env bash
# node_programs.sh: fetches what a node runs beside the kubelet, and prints the folder that holds it, as its last line.
#
# These are Debian's packages of section `node` in packages.txt: they are unpacked into the cache of build.sh, not
# installed, since a machine may have another containerd that it needs.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
cache=${CORRO_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corro/kube}
exec "$here/../../tools/unpacked_packages.sh" node "$cache"
