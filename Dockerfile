# SPDX-License-Identifier: Apache-2.0
# The testbed in an image, by the same Ansible roles as on a machine: docker-compose.yml runs it.
#
# BASE is an image of Debian 12, by date; by digest: --build-arg BASE=debian@sha256:...
# SNAPSHOT (e.g. 20251229T000000Z) takes all packages as snapshot.debian.org had them then.
ARG BASE=debian:bookworm-20251229-slim

FROM ${BASE} AS base
ARG SNAPSHOT=
# As in Debian's slim images: no documentation.
RUN set -eu; \
    printf 'path-exclude /usr/share/%s/*\n' doc man info locale > /etc/dpkg/dpkg.cfg.d/downpour; \
    if [ -n "$SNAPSHOT" ]; then \
      rm -f /etc/apt/sources.list.d/*; \
      for suite in "debian bookworm" "debian bookworm-updates" "debian-security bookworm-security"; do \
        echo "deb [check-valid-until=no] http://snapshot.debian.org/archive/${suite% *}/$SNAPSHOT/ ${suite#* } main"; \
      done > /etc/apt/sources.list; \
    fi
ENV LC_ALL=C.UTF-8 PIP_NO_CACHE_DIR=1 PIP_NO_COMPILE=1 PYTHONDONTWRITEBYTECODE=1

# What compiles.
FROM base AS tools
RUN apt-get -qq update && apt-get -qq -y --no-install-recommends install make >/dev/null
COPY ansible /downpour/ansible
RUN /downpour/ansible/setup
WORKDIR /downpour

# The kernel of virtual time's guests, from the files that make it: changes of others leave it alone.
FROM tools AS kernel
ARG VIRTUAL=1
COPY virtual/__init__.py virtual/cores.py virtual/kernel_*.py /downpour/virtual/
COPY virtual/kernel /downpour/virtual/kernel
COPY common/__init__.py common/counting.py common/digests.py common/exit_codes.py common/places.py common/quantities.py common/shell.py /downpour/common/
RUN mkdir -p /kernel && if [ "$VIRTUAL" = 1 ]; then \
      .venv/bin/python -c 'from virtual.kernel_command import run; raise SystemExit(run())' && cd /var/cache && cp -a --parents downpour/kernels /kernel/; fi

FROM tools AS builder
COPY . /downpour
RUN make build
# What runs, without what it was built from.
RUN set -eu; mkdir -p /out/build; \
    (cd build && find . -type f -perm /111 ! -name 'lib*.so*' ! -path '*/test*' ! -path './meson-private/*' ! -path './bench/*' \
      -exec cp --parents -t /out/build {} + && find . -name '*.bpf.o' -exec cp --parents -t /out/build {} +); \
    find /out/build -type f -perm /111 -exec strip {} +

FROM base AS downpour
COPY ansible /downpour/ansible
# The roles' own tools leave in the same layer.
RUN set -eu; \
    /downpour/ansible/setup --only-run; \
    apt-mark auto ansible-core >/dev/null; \
    apt-get -qq -y autoremove --purge >/dev/null; \
    : "Python packages that had come with the tools"; \
    /downpour/.venv/bin/python -m pip install --quiet --require-hashes -r /downpour/ansible/requirements.lock; \
    find /downpour/.venv /usr/lib/python3 -depth -type d \( -name tests -o -name test \) -path '*-packages/*' -exec rm -rf {} +; \
    rm -rf /downpour/.venv/lib/*/site-packages/pip /root/.ansible /root/.cache /var/lib/apt/lists/* /var/cache/apt/* /var/log/* /tmp/*
RUN useradd --create-home --uid 1000 downpour && install -d -o downpour -g downpour /downpour/runs /run/downpour
COPY . /downpour
COPY --from=builder /out/build /downpour/build
COPY --from=kernel /kernel/ /var/cache/
WORKDIR /downpour
ENV PATH=/downpour/.venv/bin:$PATH
CMD [".venv/bin/python", "-m", "downpour", "experiments"]
