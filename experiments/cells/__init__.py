# SPDX-License-Identifier: Apache-2.0
"""One cell, in a process and its own network namespace."""
