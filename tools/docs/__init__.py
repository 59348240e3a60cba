# SPDX-License-Identifier: Apache-2.0
"""Generated parts of the documentation: the drawing of the house, reference pages, the site."""
