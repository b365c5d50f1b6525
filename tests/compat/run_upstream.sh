#!/usr/bin/env bash
# Runs Horovod's own tests, of a checkout of its repository, with the package horovod of this one and 2 processes, with torch 2.13
# and the newest, and with TensorFlow 2.12 and the newest; prints a table and writes build/compat/upstream.json. Half an hour; needs
# `make test-setup`.
#   tests/compat/run_upstream.sh CHECKOUT [-k NAME] [FILE...]
set -euo pipefail
# shellcheck source=tests/compat/environments.sh
source "$(dirname "${BASH_SOURCE[0]}")/environments.sh"
tensorflow_environments
exec "$newest" "$root/tests/compat/horovod_suite.py" --python "$old" --python "$newest" \
  --tensorflow "$tensorflow_old" --tensorflow "$tensorflow_newest" "$@"
