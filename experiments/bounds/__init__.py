# SPDX-License-Identifier: Apache-2.0
"""A run's metrics held against accepted bands."""
