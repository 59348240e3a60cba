# SPDX-License-Identifier: Apache-2.0
"""Cells on other machines: workers of a Dask scheduler, or jobs of a Slurm partition.

`address` reads where the workers are; `parcel` is what is sent; `worker_cell` runs at the worker;
`dask_clock` and `slurm_clock` start cells there for the runner, which uses them as any other clock.
"""
