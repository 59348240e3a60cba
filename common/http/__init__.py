# SPDX-License-Identifier: Apache-2.0
"""An HTTP server that strangers may reach: what a connection, an address and a request may cost."""
