# SPDX-License-Identifier: Apache-2.0
# The front door. `make help` lists what is here; tools/front_door.py says what each target means.
SHELL := /bin/bash
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules --no-print-directory


PY := .venv/bin/python
FRONT_DOOR := python3 -B tools/front_door.py
# What was written on the command line: values go through the environment, never into a recipe.
GIVEN := $(foreach name,$(.VARIABLES),$(if $(filter command,$(firstword $(origin $(name)))),$(name)))
# They are text: make itself would run a `$(shell ...)` in one.
$(foreach name,$(GIVEN),$(eval override $(name) := $$(value $(name)))$(eval export $(name)))
is_on = $(filter-out 0 no false off,$(strip $(1)))

.PHONY: help
help: arguments
	@$(FRONT_DOOR) help

# Everything else waits for this: bad input is refused before anything is installed or built.
.PHONY: arguments
arguments:
	@command -v python3 >/dev/null || ansible/python3 $(or $(MAKECMDGOALS),help)
	@$(FRONT_DOOR) check '$(GIVEN)' $(or $(MAKECMDGOALS),help)

# A misspelt target: says which is near.
.DEFAULT:
	@$(FRONT_DOOR) check '' $@

.PHONY: python setup build
python: arguments
	@ansible/setup --for python
setup: arguments
	@ansible/setup $(if $(BUNDLE),--bundle "$$BUNDLE")
	$(if $(call is_on,$(RYU)),@ansible/setup --tags ryu)
build: setup
	@[ -f build/build.ninja ] || { echo "build: configuring"; meson setup build -Dbuildtype=release >build.log 2>&1 || { cat build.log; rm -rf build build.log; exit 1; }; rm -f build.log; }
	@if ninja -C build -n programs 2>/dev/null | grep -q 'no work to do'; then :; else echo "build: compiling the C programs"; ninja -C build programs; fi

.PHONY: doctor
doctor: arguments
	@PYTHONPATH=. python3 -B -m downpour doctor

# A plan needs neither programs nor a kernel; in virtual time nothing needs root.
RUN_NEEDS := $(if $(call is_on,$(DRY_RUN))$(AT),python,build $(if $(filter virtual,$(CLOCK)),kernel))
experiment-%: arguments $(RUN_NEEDS)
	@$(FRONT_DOOR) run $@
.PHONY: experiments regression report monitor dashboard
experiments report monitor dashboard: python
	@$(FRONT_DOOR) run $@
regression: $(RUN_NEEDS)
	@$(FRONT_DOOR) run $@
.PHONY: workers
workers: build kernel
	@$(FRONT_DOOR) run $@

.PHONY: up status shell down
up: build
	@$(FRONT_DOOR) run $@
shell down: setup
	@$(FRONT_DOOR) run $@
status: python
	@$(FRONT_DOOR) run $@

# Students of one machine share a checkout that they may not write to: somebody else has built it.
WRITABLE := $(shell test -w . && echo yes)
LAB_NEEDS := $(if $(WRITABLE),build) $(if $(filter native,$(CLOCK)),,kernel)
.PHONY: labs lab lab-shell lab-check lab-reset lab-stop
labs: arguments $(if $(WRITABLE),python)
	@$(FRONT_DOOR) run $@
lab: arguments $(LAB_NEEDS)
	@$(FRONT_DOOR) run $@
lab-shell lab-check lab-reset lab-stop: arguments
	@$(FRONT_DOOR) run $@

.PHONY: kernel virtual-kernel virtual-selftest
kernel: arguments $(if $(WRITABLE),setup)
	@$(PY) -B -m downpour virtual kernel
virtual-kernel: setup
	@$(FRONT_DOOR) run $@
virtual-selftest: build
	@$(FRONT_DOOR) run $@

.PHONY: docs check test test-all test-setup test-all-setup test-frameworks test-container test-labs lint analyze coverage bench fuzz
check: build
	@$(PY) -m tests.run check
test: build
	@$(FRONT_DOOR) run $@ $(PY) -m tests.run test
test-all: build
	@$(MAKE) --no-print-directory test-all-setup || echo "make: could not install what only tests use; those tests will be skipped" >&2
	@$(FRONT_DOOR) run $@ $(PY) -m tests.run all
test-setup: setup
	@PATH=$$PATH:/usr/sbin; { command -v tshark && command -v chromium-headless-shell && command -v slurmctld && command -v sshd && command -v victoria-metrics && { test -f .venv/share/downpour-test/axe.min.js || ! command -v npm; }; } >/dev/null || ansible/setup --tags testtools
test-all-setup: test-setup
	@{ command -v dh && command -v lintian && command -v debootstrap; } >/dev/null || ansible/setup --tags deb
	@{ command -v s390x-linux-gnu-gcc && command -v arm-linux-gnueabihf-gcc && command -v qemu-s390x; } >/dev/null || ansible/setup --tags cross
test-frameworks: setup
	@for name in os-ken-eventlet os-ken-3.1 ryu-4.34 c65of-1.0.5; do echo "== $$name"; $(PY) -m tests.frameworks $$name || exit; done
test-container: setup
	@$(FRONT_DOOR) run $@ tests/container.sh
test-labs: build kernel
	@DOWNPOUR_TEST_LABS=1 $(PY) -m pytest -q -p no:cacheprovider -m emulated labs
docs: setup
	@$(PY) -m tools.docs $(if $(INTO),--into "$$INTO")
lint: setup
	@.venv/bin/ruff check . && .venv/bin/ruff format --check . && .venv/bin/mypy && $(PY) -m tests.lab_types
analyze: setup
	@$(PY) -m tests.quality analyze
coverage: setup
	@$(PY) -m tests.quality coverage
bench: build bench-setup
	@$(FRONT_DOOR) run $@
PATH_TESTS := $(PY) -m pytest -q -s -p no:cacheprovider tests/path_service/test_failures.py tests/path_service/test_guarantees.py
.PHONY: path-figures
path-figures: build
	@$(FRONT_DOOR) run $@ $(if $(filter virtual,$(CLOCK)),$(PY) -m downpour virtual run -- )$(PATH_TESTS)
fuzz: setup
	@ansible/setup --tags fuzz
	@[ -f build-fuzz/build.ninja ] || CC=clang meson setup build-fuzz -Dfuzz=true -Db_sanitize=address,undefined -Db_lundef=false
	@ninja -C build-fuzz && tests/fuzz.sh build-fuzz "$${SECONDS_EACH:-60}" $$TARGETS

# What is compared is not part of a plain set-up; programs over its libraries are built when it is there.
.PHONY: bench-setup
bench-setup: setup
	@{ command -v uftpd && command -v udp-receiver && command -v iperf3 && [ -e /usr/include/lmdb.h ] && [ -e /usr/include/normApi.h ]; } >/dev/null || ansible/setup --tags bench
	@protocols/flute_setup.sh build && protocols/aeron_setup.sh build && protocols/quic_setup.sh build
	@[ ! -f build/build.ninja ] || [ -e build/bench/peers/bench-norm ] || meson setup --reconfigure build >/dev/null
	@[ ! -f build/build.ninja ] || ninja -C build --quiet peers

include tools/package.mk

.PHONY: clean
clean: arguments
	rm -rf build build-install build-python build-asan build-fuzz build-analyze build-coverage build-tsan .pytest_cache .mypy_cache .ruff_cache
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +
.PHONY: distclean
distclean: clean
	rm -rf .venv
