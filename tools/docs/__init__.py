# SPDX-License-Identifier: Apache-2.0
"""Generated parts of the documentation: drawings of the architecture, reference pages, the site."""
