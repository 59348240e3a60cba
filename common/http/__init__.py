# SPDX-License-Identifier: Apache-2.0
"""An HTTP server for untrusted clients: it bounds the cost of connections, addresses and
requests."""
