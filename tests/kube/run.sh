#!/usr/bin/env bash
# run.sh [PYTEST ARGUMENT...]: starts a control plane, runs the tests of this folder on it, and ends it.
# The last line is "N passed, N failed, N skipped".
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
python=.venv/bin/python
[[ -x $python ]] || python=python3

began=$SECONDS
shown=$(tests/kube/up.sh --gang --owner $$)
export KUBECONFIG=${shown##*KUBECONFIG=}
trap 'tests/kube/down.sh "$KUBECONFIG"' EXIT
echo "test-kube: a control plane after $((SECONDS - began)) s"
"$python" -m pytest -q -rs -p no:cacheprovider tests/kube "$@"
