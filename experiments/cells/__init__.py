# SPDX-License-Identifier: Apache-2.0
"""One cell, in a process and a network namespace of its own."""
