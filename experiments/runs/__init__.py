# SPDX-License-Identifier: Apache-2.0
"""The cells of an experiment, run, followed, repeated and compared."""
