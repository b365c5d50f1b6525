#!/usr/bin/env bash
# Sourced: the Pythons with which Horovod's own files run, $newest and $old, and $site with what those files import.
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

install_once "$site" --target "$site" mock==5.2.0 parameterized==0.9.0 psutil==7.2.2
export PYTHONPATH=$site${PYTHONPATH:+:$PYTHONPATH}

# The torch for which Horovod's own score is known, 550 MB. Everything else is .venv's, corro and CUDA's libraries too: nothing
# of corro is compiled against a torch. cuRAND alone is no longer asked for by the newest torch.
env=$root/build/compat/torch-2.13
old=$env/bin/python
[[ -x $old ]] || "$uv" venv --quiet --python "$newest" "$env"
install_once "$env" --python "$old" torch==2.13.0 nvidia-curand==10.4.0.35
"$newest" -c 'import sysconfig; print(sysconfig.get_path("purelib"))' \
  >"$("$old" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/newest.pth"
for program in corro horovodrun; do ln -sf "$root/.venv/bin/$program" "$env/bin/$program"; done
