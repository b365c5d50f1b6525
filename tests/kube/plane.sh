# plane.sh: what up.sh and down.sh share: which processes belong to a plane, and their end. Sourced, not run.
# shellcheck shell=bash
#
# A plane is a folder under build/kube. Its file `pids` has one line for each process: name, process id, and the
# time at which the kernel started it. Only a process with the id and that start is ours: an id that the kernel
# has given to somebody else since is left alone. Nothing that a plane holds outlives it, so the end is SIGKILL.

say() { echo "corro: kube: $*" >&2; }

# Prints when the kernel started process $1, in ticks since boot; fails if there is no such process.
start_of() {
  local stat
  # A process may go between any two looks at it.
  { stat=$(<"/proc/$1/stat"); } 2>/dev/null || return 1
  stat=${stat##*) } # The name, in parentheses, may hold anything.
  local fields
  read -ra fields <<<"$stat"
  [[ ${fields[0]} != Z ]] || return 1
  echo "${fields[19]}"
}

is_alive() { [[ $(start_of "$1" || true) == "$2" ]]; }

# record FOLDER NAME PID
record() { echo "$2 $3 $(start_of "$3" || echo gone)" >>"$1/pids"; }

# end_processes FILE: ends every process that the file names, but for this one, and waits until they are gone.
end_processes() {
  local name pid start
  while read -r name pid start; do
    [[ $pid != "$BASHPID" ]] || continue
    is_alive "$pid" "$start" || continue
    kill -KILL "$pid" 2>/dev/null || true
    for _ in {1..500}; do
      is_alive "$pid" "$start" || continue 2
      sleep 0.02
    done
    say "$name (process $pid) does not end"
    return 1
  done <"$1"
}
