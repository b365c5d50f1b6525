#!/usr/bin/env bash
# Uses what is installed from outside the tree: find_package(corro), the wheels in an empty environment, and the wheel
# of `make demo` in another. `make install-test` builds all of them first.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(cd "$here/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset PYTHONPATH

echo "install: find_package(corro) from an outside project"
cmake --install "$root/build/release" --component development --prefix "$work/prefix" >/dev/null
cmake -S "$here" -B "$work/build" -G Ninja -DCMAKE_PREFIX_PATH="$work/prefix" >/dev/null
cmake --build "$work/build"
"$work/build/use_corro_c"
"$work/build/use_corro_cc"
"$work/prefix/bin/corro" --version
# `make demo` builds no planner and no operator, and docs/quickstart.md installs this component after it.
[[ ! -e $work/prefix/libexec ]] || { echo "install: the component development needs more than \`make demo\` builds" >&2; exit 1; }
cmake --install "$root/build/release" --component development-more --prefix "$work/prefix" >/dev/null
"$work/prefix/bin/corro" plan --help >/dev/null
"$work/prefix/bin/corro" operator --help >/dev/null

echo "install: the wheel in an empty environment, used from an empty folder"
uv=$root/.venv/bin/uv
"$uv" venv --quiet --python "$(readlink -f "$root/.venv/bin/python")" "$work/env"
# uv leaves a .lock of its own in the environments that it has worked on.
files() { find "$work/env" -name __pycache__ -prune -o -type f ! -name .lock -print | sort; }
files >"$work/before"
install=("$uv" pip install --quiet --python "$work/env/bin/python")
"${install[@]}" "$root"/dist/corro-*.whl
# numpy is the user's choice; corro imports without it.
(cd "$work" && env/bin/python -c "import corro")
"${install[@]}" "$(grep '^numpy==' "$root/python/requirements/dev.txt")"
cp "$here/allreduce.py" "$work/"
(cd "$work" && env/bin/corro run -np 2 --show all env/bin/python allreduce.py)
(cd "$work" && env/bin/corro plan --model gpt3-13b --cluster "$root/examples/plan/a100_64.yaml" >/dev/null)
(cd "$work" && env/bin/corro operator --help >/dev/null)
(cd "$work" && env/bin/python -c "import corro; assert corro.run(lambda: 7, np=2) == [7, 7]")

echo "install: corro-horovod beside it, without torch"
"${install[@]}" "$root"/dist/corro-*.whl "$root"/dist/corro_horovod-*.whl
cp "$here/horovod_ranks.py" "$work/"
(cd "$work" && env/bin/horovodrun --check-build | grep -F "[ ] PyTorch")
(cd "$work" && env/bin/horovodrun -np 2 env/bin/python horovod_ranks.py | sort)
(cd "$work" && env/bin/python -c "import horovod; assert horovod.run(lambda: 7, num_proc=2) == [7, 7]")

echo "install: engine and launcher alone, as make demo installs them"
"$uv" venv --quiet --python "$(readlink -f "$root/.venv/bin/python")" "$work/engine"
"$uv" pip install --quiet --python "$work/engine/bin/python" "$root"/build/dist-engine/corro-*.whl \
  "$(grep '^numpy==' "$root/python/requirements/dev.txt")"
(cd "$work" && engine/bin/corro run -np 2 --show all engine/bin/python allreduce.py)
says_it_is_missing() {
  local status=0
  (cd "$work" && engine/bin/corro "$@" >said 2>&1) || status=$?
  cat "$work/said"
  [[ $status == 127 && $(wc -l <"$work/said") == 1 ]] && grep -q "^corro $1: .* is not there" "$work/said"
}
says_it_is_missing plan --model gpt3-13b --cluster "$root/examples/plan/a100_64.yaml"
says_it_is_missing operator

echo "install: uninstalling leaves nothing"
"$uv" pip uninstall --quiet --python "$work/env/bin/python" corro-horovod corro cloudpickle numpy packaging pyyaml
diff "$work/before" <(files)
echo "install: fine"
