# SPDX-License-Identifier: Apache-2.0
"""Test the path service on a whole network: its guarantees, and what its failures cost.

`scenarios.py` measures, the tests judge; `make path-figures` shows the figures.
"""
