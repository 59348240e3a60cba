# SPDX-License-Identifier: Apache-2.0
"""Protocols that distribute files: an adapter each, used by `experiments/` and `bench/`."""
