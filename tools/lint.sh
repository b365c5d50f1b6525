#!/usr/bin/env bash
# Every formatter's check and every linter, all of them even when one complains. `make lint` prepares what it needs.
#
#     tools/lint.sh [--without-tidy]
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
export PATH="$PWD/.venv/bin:$PATH"
. tools/sources.sh

failed=()
check() {
  local name=$1
  shift
  echo "lint: $name"
  "$@" || failed+=("$name")
}
clang_format() { sources '*.h' '*.cc' | xargs -0 clang-format-19 --dry-run --Werror; }
cmake_format() { sources '*CMakeLists.txt' '*.cmake' | xargs -0 gersemi --check --quiet; }
shell() { sources '*.sh' .ci/run | xargs -0 shellcheck; }
spelling() { sources . | xargs -0 codespell; }

check clang-format clang_format
check gersemi cmake_format
check "ruff format" ruff format --check --quiet
check ruff ruff check --quiet
check mypy mypy --no-error-summary
MYPYPATH=python/tests check "mypy tools" mypy --no-error-summary tools
MYPYPATH=tests/kube:tests/kube/node:tools:python/tests check "mypy tests/kube" mypy --no-error-summary \
  tests/kube/{api,pod_life,fake_nodes,harness,jobs,kueue,operator_process,pause_image,played_deployment,service_routes}.py tests/kube/node/{node_jobs,pods_seen}.py
check shellcheck shell
check codespell spelling
[[ ${1:-} == --without-tidy ]] || check clang-tidy .venv/bin/python tools/run_tidy.py

if [[ ${#failed[@]} -gt 0 ]]; then
  echo "lint: failed: ${failed[*]} (make format mends what a formatter decides)" >&2
  exit 1
fi
echo "lint: clean"
