#!/usr/bin/env bash
# Formats every source: C++, CMake, Python.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PWD/.venv/bin:$PATH"

. tools/sources.sh

sources '*.h' '*.cc' | xargs -0 clang-format-19 -i
sources '*CMakeLists.txt' '*.cmake' | xargs -0 gersemi --in-place --quiet
ruff check --quiet --fix-only
ruff format --quiet
