# SPDX-License-Identifier: Apache-2.0
"""Check whether guests in virtual time can run on this machine: their kernel, and the walls around
it."""

from __future__ import annotations

from collections.abc import Sequence

from common.findings import ADVICE, MISSING, OK, Finding
from virtual import kernel_cache
from virtual.kernel_source import KernelError
from virtual.walls import VARIABLE, WallError, chosen_walls

REMEDY = "make virtual-kernel"
SUBJECT = "guest's walls"


def guest_findings(missing_packages: Sequence[str]) -> list[Finding]:
    """Check the guest's kernel, and the walls around it. `missing_packages`: packages that are
    needed to build it and are missing."""
    return [*_kernel_findings(missing_packages), wall_finding()]


def wall_finding() -> Finding:
    """Check what keeps a guest from this machine's files and processes."""
    try:
        walls = chosen_walls()
    except WallError as error:
        return Finding(MISSING, SUBJECT, str(error))
    if not walls.names:
        return Finding(ADVICE, SUBJECT, f"none ({VARIABLE}=none): a guest may write your files")
    if not walls.namespaces:
        text = (
            f"{walls}; a guest cannot change modes and times of files, and it reads all of this "
            "checkout. For the rest: allow user namespaces"
        )
        return Finding(ADVICE, SUBJECT, text)
    if not walls.landlock:
        return Finding(OK, SUBJECT, f"{walls} (no Landlock in this kernel)")
    return Finding(OK, SUBJECT, str(walls))


def _kernel_findings(missing_packages: Sequence[str]) -> list[Finding]:
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
