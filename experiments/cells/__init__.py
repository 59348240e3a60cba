# SPDX-License-Identifier: Apache-2.0
"""One cell, in its own process and network namespace."""
