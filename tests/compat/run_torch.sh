#!/usr/bin/env bash
# Runs torch's own tests of torch.distributed over Gloo and corro with 2 and 4 ranks, prints a table and writes
# build/compat/torch.json. About half an hour; needs `make setup`.
#   tests/compat/run_torch.sh [--ranks 2 4] [--backend gloo corro] [-k NAME] [--timeout SECONDS] [--resume] [--verbose]
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
exec "$root/.venv/bin/python" "$root/tests/compat/torch_suite.py" "$@"
