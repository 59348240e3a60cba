# SPDX-License-Identifier: Apache-2.0
"""Tools for the project's development, which no program ships."""
