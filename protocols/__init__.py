# SPDX-License-Identifier: Apache-2.0
"""Protocols that distribute files: each has an adapter, which `experiments/` and `bench/` use."""
