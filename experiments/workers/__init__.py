# SPDX-License-Identifier: Apache-2.0
"""Cells on other machines: workers of a Dask scheduler, or jobs of a Slurm partition.

`address` reads where; `parcel` is what travels; `worker_cell` runs at the worker; `dask_clock` and
`slurm_clock` start cells there for the runner, to which they look like any other clock.
"""
