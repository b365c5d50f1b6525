#!/usr/bin/env bash
# Runs Horovod's own tests, of a checkout of its repository, with the package horovod of this one and 2 processes; prints a
# table and writes build/compat/upstream.json. A few minutes; needs `make setup`.
#   tests/compat/run_upstream.sh CHECKOUT [-k NAME] [FILE...]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
site=$root/build/compat/site
packages=(mock==5.2.0 parameterized==0.9.0 psutil==7.2.2)
if [[ ! -e $site/.ready || $(<"$site/.ready") != "${packages[*]}" ]]; then
  echo "run_upstream: installing what Horovod's tests import in build/compat/site"
  "$root/.venv/bin/uv" pip install --quiet --no-deps --target "$site" "${packages[@]}"
  echo "${packages[*]}" >"$site/.ready"
fi
PYTHONPATH=$site exec "$root/.venv/bin/python" "$root/tests/compat/horovod_suite.py" "$@"
