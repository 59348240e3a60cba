# SPDX-License-Identifier: Apache-2.0
"""What an experiment is: files, cells, networks, traces. Pure."""
