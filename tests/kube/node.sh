#!/usr/bin/env bash
# node.sh [--lifetime SECONDS] [COMMAND...]: runs the command (a shell by default) beside a control plane with one
# real node: kubelet, containerd, runc, CNI.
#
#   tests/kube/node.sh kubectl get pods -A     # KUBECONFIG is set, kubectl and ctr are in PATH
#
# The story: command, plane, node and pods have process, network, mount and cgroup namespaces of their own, so this
# machine's containers, bridges and mounts are neither seen nor touched. When the command ends, or its time (3600 s) is
# over, or this script is gone, the kernel ends the first process of these namespaces, and everything in them with it:
# mounts and interfaces too. What is left is removed here: the cgroups, and the folder that took all that was written.
#
# It ends as the command does; with 77, and a reason, on a machine that does not allow it.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=tests/kube/plane.sh
source "$here/plane.sh"

lifetime=3600
if [[ ${1:-} == --lifetime ]]; then
  lifetime=$2
  shift 2
fi
[[ $# -gt 0 ]] || set -- bash

refuse() {
  say "no real node here: $1"
  exit 77
}

# Prints `controllers folder` for each hierarchy of cgroups, version 1: the folder is this process's own.
cgroups() {
  local controllers path folder
  while IFS=: read -r _ controllers path; do
    folder=/sys/fs/cgroup/${controllers#name=}
    [[ -z $controllers || ! -d $folder ]] || echo "$controllers ${folder}${path%/}"
  done </proc/self/cgroup
}

# make_cgroups NAME: one below this process's own in each hierarchy, and this process in it.
make_cgroups() {
  local controllers folder
  while read -r controllers folder; do
    mkdir "$folder/$1"
    if [[ $controllers == cpuset ]]; then
      for what in cpus mems; do cat "$folder/cpuset.$what" >"$folder/$1/cpuset.$what"; done
    fi
    echo $$ >"$folder/$1/cgroup.procs"
  done <<<"$hierarchies"
}

# leave_cgroups NAME: removes them; the processes in them have ended.
# shellcheck disable=SC2317 # The trap calls it.
leave_cgroups() {
  local folder
  while read -r _ folder; do
    [[ -d $folder/$1 ]] || continue
    echo $$ >"$folder/cgroup.procs"
    for _ in {1..500}; do
      find "$folder/$1" -depth -type d -exec rmdir {} + 2>/dev/null || true
      [[ -d $folder/$1 ]] || continue 2
      sleep 0.02
    done
    say "the cgroup $folder/$1 does not go"
  done <<<"$hierarchies"
}

[[ $(id -u) -eq 0 ]] || refuse "it needs root"
hierarchies=$(cgroups)
grep -q '^memory ' <<<"$hierarchies" || refuse "it needs cgroups of version 1 with the memory controller"
command -v apt-get >/dev/null || refuse "it needs apt-get, for Debian's containerd"
probe=$(unshare --net --mount --pid --cgroup --fork --kill-child --mount-proc ip link add probe type bridge 2>&1) ||
  refuse "it needs namespaces and bridges: $probe"

# What needs the network outside.
programs=$("$here/build.sh")
node_programs=$("$here/node_programs.sh")

name=corro-node-$$
folder=$(mktemp -d "/tmp/$name-XXXXXX")
trap 'leave_cgroups "$name"; rm -rf "$folder"' EXIT
make_cgroups "$name"
code=0
setpriv --pdeathsig KILL unshare --net --mount --pid --cgroup --fork --kill-child --mount-proc \
  timeout --foreground --kill-after 5 "$lifetime" \
  "$here/node_inside.sh" "$folder" "$programs" "$node_programs" "$hierarchies" "$@" || code=$?
exit "$code"
