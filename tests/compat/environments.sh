#!/usr/bin/env bash
# Sourced: the Pythons with which Horovod's own files run, $newest and $old, and $site with what those files import.
# shellcheck disable=SC2034  # Who sources this uses them.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
newest=$root/.venv/bin/python
site=$root/build/compat/site
uv=$root/.venv/bin/uv

# Installs packages, without what they ask for, unless these very ones are there.
#   install DIRECTORY OPTION VALUE PACKAGE...
install_once() {
  mkdir -p "$1"
  local ready=$1/.ready
  shift
  if [[ ! -e $ready || $(<"$ready") != "$*" ]]; then
    echo "compat: installing ${*:3}"
    "$uv" pip install --quiet --no-deps "$@"
    echo "$*" >"$ready"
  fi
}

# Makes an environment whose packages are its own, and behind them those of another Python, corro too: nothing of it is compiled
# against a framework. Sets $layered to its Python.
#   layer NAME PYTHON PACKAGE...
layer() {
  local env=$root/build/compat/$1
  layered=$env/bin/python
  [[ -x $layered ]] || "$uv" venv --quiet --python "$2" "$env"
  install_once "$env" --python "$layered" "${@:3}"
  "$2" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
    >"$("$layered" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/newest.pth"
  for program in corro horovodrun; do ln -sf "$(dirname "$2")/$program" "$env/bin/$program"; done
}

install_once "$site" --target "$site" mock==5.2.0 parameterized==0.9.0 psutil==7.2.2
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}

# The torch for which Horovod's own score is known, 550 MB. cuRAND alone is no longer asked for by the newest torch.
layer torch-2.13 "$newest" torch==2.13.0 nvidia-curand==10.4.0.35
old=$layered

# Sets $tensorflow_old, the TensorFlow for which Horovod 0.28.1 was built, 900 MB, and $tensorflow_newest.
tensorflow_environments() {
  mapfile -t packages < <(grep -v '^#' "$root/python/requirements/tensorflow212.txt")
  layer tensorflow-2.12 "$newest" "${packages[@]}"
  tensorflow_old=$layered
  tensorflow_newest=$root/.venv-tensorflow/bin/python
}
