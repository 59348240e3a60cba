# SPDX-License-Identifier: Apache-2.0
"""What of the documentation is generated: the drawing of the house, reference pages, the site."""
