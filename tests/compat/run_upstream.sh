#!/usr/bin/env bash
# Runs Horovod's own tests, of a checkout of its repository, with the package horovod of this one and 2 processes, with torch 2.13
# and with the newest; prints a table and writes build/compat/upstream.json. Ten minutes; needs `make setup`.
#   tests/compat/run_upstream.sh CHECKOUT [-k NAME] [FILE...]
set -euo pipefail
# shellcheck source=tests/compat/environments.sh
source "$(dirname "${BASH_SOURCE[0]}")/environments.sh"
exec "$newest" "$root/tests/compat/horovod_suite.py" --python "$old" --python "$newest" "$@"
