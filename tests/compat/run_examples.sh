#!/usr/bin/env bash
# Runs Horovod's own PyTorch examples, of a checkout of its repository, with the package horovod of this one, torch 2.13 and 2
# processes, and writes build/compat/examples.json. Some minutes; needs `make setup` and the package dataset-fashion-mnist.
#   tests/compat/run_examples.sh CHECKOUT
set -euo pipefail
# shellcheck source=tests/compat/environments.sh
source "$(dirname "${BASH_SOURCE[0]}")/environments.sh"
vision=$root/build/compat/torchvision-0.28
install_once "$vision" --target "$vision" torchvision==0.28.0 pillow==13.0.0
PYTHONPATH=$vision:$PYTHONPATH exec "$newest" "$root/tests/compat/horovod_examples.py" --python "$old" "$@"
