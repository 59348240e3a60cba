# SPDX-License-Identifier: Apache-2.0
# Installing and releasing; the Makefile includes it.
PREFIX ?= /usr/local
DESTDIR ?=
BUNDLE ?=
INSTALL_ARGS = --prefix '$(PREFIX)' --destdir '$(DESTDIR)' $(if $(BUNDLE),--bundle '$(abspath $(BUNDLE))')
.PHONY: install uninstall deb bundle release licences
install: ## install the programs and `downpour` below PREFIX=/usr/local (DESTDIR= BUNDLE=)
	@tools/install install $(INSTALL_ARGS)
uninstall: ## remove what `make install` installed (PREFIX= DESTDIR=)
	@tools/install uninstall --prefix '$(PREFIX)' --destdir '$(DESTDIR)'
deb: ## the Debian packages downpour and downpour-ldm, into dist/
	@tools/deb
bundle: ## what a machine without network installs from, into dist/bundle/ (there: make setup BUNDLE=DIR)
	@tools/bundle
release: ## source archive, wheel, Debian packages, guest's kernel and checksums into dist/
	@tools/release
licences: ## write the licences of what Downpour runs with to docs/reference/licences.md
	@.venv/bin/python tools/licences
