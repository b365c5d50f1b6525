#!/usr/bin/env bash
# run_node.sh [PYTEST ARGUMENT...]: runs the tests of node/ beside a real node, with the images that `make images` built.
# The last line is "N passed, N failed, N skipped". A machine that allows no node skips them all, and says why.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
[[ -x $python ]] || python=python3

export CORRO_NODE_IMAGES="dist/images/corro-operator.tar dist/images/corro-python.tar"
code=0
tests/kube/node.sh "$python" -m pytest -q -rs -p no:cacheprovider tests/kube/node "$@" || code=$?
if [[ $code -eq 77 ]]; then
  skipped=$(cat tests/kube/node/test_*.py | grep -c '^def test_')
  echo "0 passed, 0 failed, $skipped skipped"
  exit 0
fi
exit "$code"
