# SPDX-License-Identifier: Apache-2.0
# The front door. `make help` lists what is here.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PY := .venv/bin/python
# Networks need root; everything else runs as you. runs/ is handed back to you afterwards.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -E)
define as_root
@$(SUDO) env PYTHONPATH=$(CURDIR) $(PY) $(1); code=$$?; \
  if [ -n "$(SUDO)" ] && [ -d runs ]; then $(SUDO) chown -R $$(id -u):$$(id -g) runs; fi; exit $$code
endef

EXPERIMENT_ARGS = $(if $(DURATION),--duration $(DURATION)) $(if $(RECEIVERS),--receivers $(RECEIVERS)) \
  $(if $(TRACE),--trace $(TRACE)) $(if $(SEED),--seed $(SEED)) $(if $(QUEUE_BYTES),--queue-bytes $(QUEUE_BYTES)) \
  $(if $(LEVEL),--level $(LEVEL)) $(if $(REPEATS),--repeats $(REPEATS)) $(foreach e,$(ONLY),--only '$(e)') \
  $(if $(ORDER),--order $(ORDER)) $(foreach link,$(CAPTURE),--capture '$(link)') $(if $(DRY_RUN),--dry-run) \
  $(if $(RESUME),--resume) $(if $(CLOCK),--clock $(CLOCK)) $(if $(JOBS),--jobs $(JOBS))
TOPOLOGY ?= geni5

.PHONY: help
help: ## this list
	@echo "Downpour: a testbed in a box for reliable multicast file-stream distribution"
	@echo
	@awk -F':.*## ' '/^[a-z%A-Z-]+:.*## / {printf "  make %-26s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo
	@echo "  Options: LEVEL=quick|paper REPEATS=5 ONLY='receivers=8 protocol=ldm7' DRY_RUN=1 RESUME=1 CAPTURE=link ORDER=file"
	@echo "           DURATION=60 RECEIVERS=8 TRACE=file SEED=1 QUEUE_BYTES=5000000000 for experiments;"
	@echo "           CLOCK=virtual JOBS=2: in virtual time, without root, so many cells at once;"
	@echo "           TOPOLOGY=geni5|drfsm8|bottleneck|twocores RECEIVERS=8 for up; HOST=name for shell."

.PHONY: setup
setup: ## install what is missing (Ansible; returns at once when nothing is; BUNDLE=DIR: without network)
	@ansible/setup $(if $(BUNDLE),--bundle '$(abspath $(BUNDLE))')

.PHONY: build
build: setup ## build the C programs into build/
	@[ -f build/build.ninja ] || { echo "build: configuring"; meson setup build -Dbuildtype=release >build.log 2>&1 || { cat build.log; rm -rf build build.log; exit 1; }; rm -f build.log; }
	@if ninja -C build -n programs 2>/dev/null | grep -q 'no work to do'; then :; else echo "build: compiling the C programs"; ninja -C build programs; fi

.PHONY: doctor
doctor: ## what works here, what is missing and how to get it (installs nothing; root adds the kernel's features)
	@PYTHONPATH=$(CURDIR) python3 -B -m downpour.doctor

# In virtual time nothing needs root; the guest's kernel is built once.
experiment-%: build $(if $(filter virtual,$(CLOCK)),virtual-kernel) ## run experiments/NAME.yaml and print its report (make experiments: which there are)
	$(if $(filter virtual,$(CLOCK)),@PYTHONPATH=$(CURDIR) $(PY) -m downpour run $* $(EXPERIMENT_ARGS),$(call as_root,-m downpour run $* $(EXPERIMENT_ARGS)))

.PHONY: experiments
experiments: setup ## the experiments there are
	@$(PY) -m downpour experiments

# JUNIT= and SUMMARY= are for CI systems; which clock: virtual if its kernel is built, else this machine's.
REGRESSION_ARGS = -m downpour regression $(if $(CLOCK),--clock $(CLOCK)) $(if $(JOBS),--jobs $(JOBS)) \
  $(if $(DURATION),--duration $(DURATION)) $(if $(JUNIT),--junit $(JUNIT)) $(if $(SUMMARY),--summary $(SUMMARY))
.PHONY: regression
regression: build $(if $(filter virtual,$(CLOCK)),virtual-kernel) ## the 8-receiver run against the accepted bands of its metrics (CLOCK= JUNIT=file SUMMARY=file)
	$(if $(filter native,$(CLOCK)),$(call as_root,$(REGRESSION_ARGS)),@PYTHONPATH=$(CURDIR) $(PY) $(REGRESSION_ARGS))

.PHONY: report
report: setup ## write the report of the newest run (or RUN=directory) again
	$(call as_root,-m downpour report $(RUN))

.PHONY: up status shell down
up: build ## bring a network up to play with (TOPOLOGY=, RECEIVERS=)
	$(call as_root,-m downpour up $(TOPOLOGY) $(if $(RECEIVERS),--receivers $(RECEIVERS)))
status: setup ## what is up
	$(call as_root,-m downpour status)
shell: setup ## a shell in a host of the network that is up (HOST=uva)
	$(if $(HOST),,$(error found no HOST; valid: make shell HOST=name, with a name that `make status` lists))
	$(call as_root,-m downpour shell $(HOST))
down: setup ## take the network down, and leftovers of dead runs
	$(call as_root,-m downpour down)

# Labs run as you; on the native clock their networks need root.
LAB_ARGS = $(if $(N),$(N),$(error found no N; valid: make $@ N=1, with a number that `make labs` lists)) $(if $(DIR),--dir $(DIR))
LAB_CLOCK = $(if $(CLOCK),--clock $(CLOCK)) $(if $(STUDENT),--student '$(STUDENT)')
define lab
@$(if $(filter native,$(CLOCK)),$(SUDO) ,)env PYTHONPATH=$(CURDIR) $(PY) -m downpour lab $(1)
endef
.PHONY: labs lab lab-shell lab-check lab-reset lab-stop
labs: setup ## the labs for a class there are (docs/labs.md)
	@$(PY) -m downpour lab list
# Students of one machine share a checkout that they may not write to: somebody else has built it.
ifeq ($(shell test -w $(CURDIR) && echo yes),yes)
LAB_NEEDS := build $(if $(filter native,$(CLOCK)),,virtual-kernel)
else
LAB_NEEDS := $(if $(filter native,$(CLOCK)),,shared-kernel)
endif
.PHONY: shared-kernel
shared-kernel:
	@$(PY) -B -m downpour virtual kernel
lab: $(LAB_NEEDS) ## start a lab (N=3 STUDENT=name DIR=~/downpour-labs/3 CLOCK=native)
	$(call lab,start $(LAB_ARGS) $(LAB_CLOCK))
lab-shell: ## a prompt in the lab's network (N=3); its time passes only while a command runs
	$(call lab,shell $(LAB_ARGS))
lab-check: ## what of the lab is done: tried, expected, found, a hint; 0 all, 1 not all, 2 nothing yet
	$(call lab,check $(LAB_ARGS))
lab-reset: ## the lab's start state again; your files are kept aside
	$(call lab,reset $(LAB_ARGS))
lab-stop: ## end the lab's network; your files stay
	$(call lab,stop $(LAB_ARGS))

.PHONY: docs check test test-all test-setup test-frameworks test-container test-labs lint analyze coverage bench fuzz
check: build ## the quick tests: lint, types, C under sanitizers, Python; no root
	@$(PY) -m tests.run check
test: build ## what CI runs: check, slow tests, the 8-receiver regression in virtual time, a native smoke test
	$(call as_root,-m tests.run test)
test-all: build ## everything: the emulated network, labs in guests, other frameworks, analyzers, coverage
	$(call as_root,-m tests.run all)
test-setup: setup ## install what only tests use: a browser for the reports, tshark for captures (else their tests are skipped)
	@{ command -v tshark && command -v chromium-headless-shell; } >/dev/null || ansible/setup --tags testtools
test-frameworks: setup ## the controller's tests over Open vSwitch with os-ken's eventlet hub, os-ken 3.1 and Ryu 4.34
	@for name in os-ken-eventlet os-ken-3.1 ryu-4.34; do echo "== $$name"; $(PY) -m tests.frameworks $$name || exit; done
test-container: setup ## docker-compose.yml for real, with an engine of its own (root; 10 minutes)
	@$(SUDO) tests/container.sh
test-labs: build virtual-kernel ## every lab in guests: start state, solution, wrong answers (10 minutes)
	@DOWNPOUR_TEST_LABS=1 $(PY) -m pytest -q -p no:cacheprovider -m emulated labs
docs: setup ## the documentation as a site, with generated reference pages, in build/docs
	@$(PY) -m tools.docs
lint: setup ## ruff and mypy
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && for f in labs/[0-9]*/checks.py; do .venv/bin/mypy $$f || exit; done
analyze: setup ## gcc -fanalyzer and clang-tidy over the C programs
	@$(PY) -m tests.quality analyze
coverage: setup ## line coverage of the C programs by their tests, with the shares that must be met
	@$(PY) -m tests.quality coverage
bench: build bench-setup ## beside UFTP, UDPcast, NORM, FLUTE, TCP, LMDB (ONLY=blast,shaped,stream,small,receivers,queue,paths REPEATS=5 TOOLS= CELLS= RESUME=1)
	$(call as_root,-m downpour bench run $(if $(ONLY),--only $(ONLY)) $(if $(REPEATS),--repeats $(REPEATS)) $(if $(TOOLS),--tools $(TOOLS)) $(if $(CELLS),--cells '$(CELLS)') $(if $(CLOCK),--clock $(CLOCK)) $(if $(JOBS),--jobs $(JOBS)) $(if $(RESUME),--resume))
PATH_TESTS := -m pytest -q -s -p no:cacheprovider tests/path_service/test_failures.py tests/path_service/test_guarantees.py
.PHONY: path-figures
path-figures: build ## what failures of the path service cost and what its guarantees hold, in figures (CLOCK=virtual)
	$(if $(filter virtual,$(CLOCK)),@$(PY) -m downpour virtual run -- $(PY) $(PATH_TESTS),$(call as_root,$(PATH_TESTS)))
fuzz: setup ## libFuzzer on every parser of bytes (SECONDS_EACH=60 TARGETS="fuzz_xdr ...")
	@ansible/setup --tags fuzz
	@[ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
	@ninja -C build-fuzz && tests/fuzz.sh build-fuzz $(or $(SECONDS_EACH),60) $(TARGETS)

# What is compared is no part of a plain set-up; programs over its libraries are built when it is there.
.PHONY: bench-setup
bench-setup: setup ## install what `make bench` compares with
	@{ command -v uftpd && command -v udp-receiver && command -v iperf3 && [ -e /usr/include/lmdb.h ] && [ -e /usr/include/normApi.h ]; } >/dev/null || ansible/setup --tags bench
	@bench/flute_setup.sh build
	@[ ! -f build/build.ninja ] || [ -e build/bench/peers/bench-norm ] || meson setup --reconfigure build >/dev/null
	@[ ! -f build/build.ninja ] || ninja -C build --quiet

.PHONY: virtual-kernel
virtual-kernel: setup ## build the kernel of virtual time's guests (once, some minutes; SOURCE=file, NO_DOWNLOAD=1)
	@$(PY) -m downpour virtual kernel $(if $(SOURCE),--source $(SOURCE)) $(if $(NO_DOWNLOAD),--no-download)
.PHONY: virtual-selftest
virtual-selftest: build ## is virtual time true? every timer and shaper in a guest against theory
	@$(PY) -m downpour virtual selftest $(if $(JSON),--json $(JSON))

include tools/package.mk

.PHONY: clean
clean: ## remove what was built (runs/ and .venv/ stay; `make distclean` removes .venv/ too)
	rm -rf build build-install build-python build-asan build-fuzz build-analyze build-coverage build-tsan .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
.PHONY: distclean
distclean: clean
	rm -rf .venv
