# SPDX-License-Identifier: Apache-2.0
"""Cells whose subscribers join and leave feeds while these are sent (`kind: join-leave`)."""
