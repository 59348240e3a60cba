# SPDX-License-Identifier: Apache-2.0
"""Whether guests in virtual time can run on this machine: their kernel, and room for it."""

from __future__ import annotations

from collections.abc import Sequence

from common.findings import ADVICE, MISSING, OK, Finding
from virtual import kernel_cache
from virtual.kernel_source import KernelError

REMEDY = "make virtual-kernel"


def guest_findings(missing_packages: Sequence[str]) -> list[Finding]:
    """What there is of the guest's kernel. `missing_packages`: what a build of it lacks."""
    try:
        kernel = kernel_cache.find_kernel()
    except KernelError as error:
        return [Finding(MISSING, "kernel", str(error))]
    if kernel is not None:
        mode = "seccomp mode" if kernel.seccomp else "ptrace mode, half as fast"
        return [Finding(OK, "kernel", f"Linux {kernel.version} ({mode}): {kernel.path}")]
    if missing_packages:
        text = (
            f"not built; to build it: apt install {' '.join(missing_packages)}, then {REMEDY}; "
            "or DOWNPOUR_KERNEL=FILE names a built one"
        )
        return [Finding(MISSING, "kernel", text)]
    text = (
        f"not built yet; the first run builds it once, or: {REMEDY}; "
        "or DOWNPOUR_KERNEL=FILE names a built one"
    )
    return [Finding(ADVICE, "kernel", text)]
