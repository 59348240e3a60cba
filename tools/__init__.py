# SPDX-License-Identifier: Apache-2.0
"""What serves the project and ships with no program."""
