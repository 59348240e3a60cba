# SPDX-License-Identifier: Apache-2.0
# Installing and releasing; the Makefile includes it.
PREFIX ?= /usr/local
DESTDIR ?=
BUNDLE ?=
export PREFIX DESTDIR BUNDLE
INSTALL_ARGS = --prefix "$$PREFIX" --destdir "$$DESTDIR" $(if $(BUNDLE),--bundle "$$BUNDLE")
.PHONY: install uninstall deb bundle release licences
install: arguments
	@tools/install install $(INSTALL_ARGS)
uninstall: arguments
	@tools/install uninstall --prefix "$$PREFIX" --destdir "$$DESTDIR"
deb: setup
	@{ command -v dpkg-buildpackage && command -v dh; } >/dev/null || ansible/setup --tags deb
	@tools/deb
bundle: arguments
	@tools/bundle
release: arguments
	@tools/release
licences: arguments
	@.venv/bin/python tools/licences
