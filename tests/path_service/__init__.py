# SPDX-License-Identifier: Apache-2.0
"""The path service on a whole network: what it guarantees, and what its failures cost.

`scenarios.py` measures, the tests judge, `python -m tests.path_service` prints the figures.
"""
