#!/usr/bin/env bash
# down.sh [FOLDER | KUBECONFIG]...: ends control planes that up.sh started, and removes their folders.
# Without an argument: the plane that KUBECONFIG names, else every plane of this checkout.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/kube/plane.sh
source "$here/plane.sh"
root=$(cd "$here/../.." && pwd)

folders=("$@")
if [[ ${#folders[@]} -eq 0 ]]; then
  shopt -s nullglob
  folders=("$root"/build/kube/*/)
  [[ ! -f $(dirname "${KUBECONFIG:-/none}")/pids ]] || folders=("$KUBECONFIG")
fi
for folder in "${folders[@]}"; do
  [[ ! -f $folder ]] || folder=$(dirname "$folder")
  # A folder without the list is not a plane, or it is gone already: both are fine.
  [[ -f $folder/pids ]] || continue
  end_processes "$folder/pids"
  rm -rf "$folder"
done
