# SPDX-License-Identifier: Apache-2.0
"""Changes an unpacked kernel source: adds drop-ins (C files), and small edits that call them.

An edit is anchored in the text of the file, not in line numbers, so that it fits many kernel
versions; an anchor that does not occur exactly once is an error, never a guess.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DROP_INS: Final = Path(__file__).resolve().parent / "kernel"


class KernelError(Exception):
    """No kernel is available; the text says why and what would help."""


class NoSourceError(KernelError):
    """This machine cannot get a kernel's source; the drop-ins and edits are not at fault."""


class EditError(KernelError):
    """This version's source lacks what the edits need."""


@dataclass(frozen=True)
class DropIn:
    """A drop-in: its name in `kernel/`, and its place in the source."""

    name: str
    target: str


@dataclass(frozen=True)
class Edit:
    """`insertion` goes directly after (or `before`) the only occurrence of `anchor` in `file`."""

    file: str
    anchor: str
    insertion: str
    reason: str
    before: bool = False


FILES: Final = (
    DropIn("downpour.h", "include/linux/downpour.h"),
    DropIn("downpour.c", "arch/um/kernel/downpour.c"),
    DropIn("downpour_sched.c", "kernel/sched/downpour_sched.c"),
    DropIn("tcp_ctcp.c", "net/ipv4/tcp_ctcp.c"),
    DropIn("downpour_clock.h", "include/linux/downpour_clock.h"),
    DropIn("downpour_clock.c", "arch/um/kernel/downpour_clock.c"),
    DropIn("downpour_stub.h", "arch/um/include/shared/skas/downpour_stub.h"),
    DropIn("um_vdso.c", "arch/x86/um/vdso/um_vdso.c"),
)

INCLUDE: Final = "#include <linux/downpour.h>\n"
CLOCK: Final = "#include <linux/downpour_clock.h>\n"
STUB: Final = "#include <downpour_stub.h>\n"

EDITS: Final = (
    Edit(
        "kernel/sched/Makefile",
        "obj-y += core.o\n",
        "obj-y += downpour_sched.o\n",
        "slices of the processor",
    ),
    Edit(
        "arch/um/kernel/Makefile",
        "obj-y += load_file.o\n",
        "obj-y += downpour.o\n",
        "status page and seed are part of the architecture",
    ),
    Edit(
        "net/ipv4/Makefile",
        "obj-$(CONFIG_TCP_CONG_CUBIC) += tcp_cubic.o\n",
        "obj-y += tcp_ctcp.o\n",
        "Circuit TCP is built in",
    ),
    Edit(
        "arch/um/kernel/process.c",
        "#include <linux/time-internal.h>\n",
        INCLUDE,
        "declares the hook below",
    ),
    Edit(
        "arch/um/kernel/process.c",
        "\tset_current(to);\n",
        "\tdownpour_switched(to);\n",
        "status page: the task on the processor",
    ),
    Edit(
        "arch/um/kernel/skas/syscall.c",
        "#include <linux/time-internal.h>\n",
        INCLUDE,
        "declares the hook below",
    ),
    Edit(
        "arch/um/kernel/skas/syscall.c",
        "\tUPT_SYSCALL_NR(r) = PT_SYSCALL_NR(r->gp);\n",
        "\tdownpour_called(current);\n",
        "status page: system calls",
    ),
    Edit(
        "arch/um/kernel/time.c",
        "#include <linux/time-internal.h>\n",
        INCLUDE,
        "declares the hooks below",
    ),
    Edit(
        "arch/um/kernel/time.c",
        "\treturn (unsigned long long)(jiffies - INITIAL_JIFFIES +\n",
        "\tif (time_travel_mode == TT_MODE_INFCPU || time_travel_mode == TT_MODE_EXTERNAL)\n"
        "\t\treturn downpour_sched_clock(time_travel_time,\n"
        "\t\t\t\t\t    tt_extra_sched_jiffies *\n"
        "\t\t\t\t\t    (NSEC_PER_SEC / HZ));\n",
        "the scheduler's clock follows virtual time, not its ticks",
        before=True,
    ),
    Edit(
        "arch/um/kernel/time.c",
        "\ttime_travel_time = ns;\n",
        "\tdownpour_time(ns);\n",
        "status page: virtual time, at the only place that sets it",
    ),
    Edit(
        "arch/um/kernel/time.c",
        "\tif (time_travel_mode == TT_MODE_EXTERNAL && time_travel_ext_request(ns))\n",
        "\tif (idle)\n\t\tdownpour_jumped();\n",
        "status page: the clock jumps because nothing can run",
        before=True,
    ),
    Edit(
        "arch/um/Kconfig",
        "config HZ\n\tint\n",
        "\tdefault 250\n",
        "TCP's delayed acknowledgement and retransmission timers count in ticks: 250 a second, as "
        "the distributions' kernels have, not the 100 of this architecture",
    ),
    Edit(
        "arch/um/kernel/Makefile",
        "obj-$(CONFIG_BLK_DEV_INITRD) += initrd.o\n",
        "obj-y += downpour_clock.o\n",
        "clock without system calls",
    ),
    Edit(
        "arch/um/kernel/process.c",
        "#include <linux/ptrace.h>\n",
        CLOCK,
        "declares the hook below",
    ),
    Edit(
        "arch/um/kernel/process.c",
        "\t\tthread_flags = read_thread_flags();\n\t}\n",
        "\tdownpour_clock_publish();\n",
        "clock without system calls: this is the last before a program runs",
    ),
    Edit(
        "arch/um/kernel/skas/syscall.c",
        "#include <linux/ptrace.h>\n",
        CLOCK,
        "declares the hook below",
    ),
    Edit(
        "arch/um/kernel/skas/syscall.c",
        "\tPT_REGS_SET_SYSCALL_RETURN(regs, -ENOSYS);\n",
        "\tdownpour_clock_collect();\n",
        "clock without system calls: the time of a program's readings passes",
    ),
    Edit(
        "arch/um/kernel/skas/syscall.c",
        "\t\t\tum_udelay(1);\n",
        "\t\t\tif (downpour_error_takes_time())\n",
        "a system call that fails takes no time, unless a program does nothing else",
        before=True,
    ),
    Edit(
        "arch/um/os-Linux/skas/mem.c",
        "#include <skas.h>\n",
        STUB,
        "declares the hook below",
    ),
    Edit(
        "arch/um/os-Linux/skas/mem.c",
        "\tif (proc_data->err < 0) {\n",
        "\tif (using_seccomp && proc_data->err == -ENOMEM) {\n"
        "\t\tdownpour_unmap_all(mm_idp);\n"
        "\t\tproc_data->restart_wait = 1;\n"
        "\t\twait_stub_done_seccomp(mm_idp, 0, 1);\n\t}\n",
        "the host allows a process 65,530 mappings: a program that needs more loses all of them "
        "and gets back those that it touches",
        before=True,
    ),
    Edit(
        "arch/um/os-Linux/skas/process.c",
        "#include <skas.h>\n",
        STUB,
        "declares the hook below",
    ),
    Edit(
        "arch/um/os-Linux/skas/process.c",
        "\t\t\twait_stub_done_seccomp(mm_id, 0, 0);\n",
        "\t\t\tif (proc_data->err == -ENOMEM) {\n"
        "\t\t\t\tdownpour_unmap_all(mm_id);\n"
        "\t\t\t\twait_stub_done_seccomp(mm_id, 0, 0);\n\t\t\t}\n",
        "the same, where a program goes on: it never ran, as its mappings failed",
    ),
    Edit(
        "arch/um/kernel/trap.c",
        "\t} while (!pte_present(*pte));\n",
        "\tif (!pte_needsync(*pte)) {\n"
        "\t\tset_pte(pte, *pte);\n"
        "\t\tum_tlb_mark_sync(mm, address & PAGE_MASK, (address & PAGE_MASK) + PAGE_SIZE);\n"
        "\t}\n",
        "a page that is there, but which the host has no mapping of: map it again",
    ),
    Edit(
        "arch/x86/um/vdso/vma.c",
        "#include <linux/init.h>\n",
        CLOCK,
        "declares the hook below",
    ),
    Edit(
        "arch/x86/um/vdso/vma.c",
        "\tif (mmap_write_lock_killable(mm))\n\t\treturn -EINTR;\n",
        "\tif (downpour_clock_map(mm, um_vdso_addr - PAGE_SIZE)) {\n"
        "\t\tmmap_write_unlock(mm);\n\t\treturn -ENOMEM;\n\t}\n",
        "clock without system calls: the page that the vDSO reads lies directly below it",
    ),
    Edit(
        "drivers/char/random.c",
        "#include <linux/random.h>\n",
        INCLUDE,
        "declares the hook below",
    ),
    Edit(
        "drivers/char/random.c",
        "\tfor (i = 0; i < ARRAY_SIZE(block.rdseed);) {\n",
        "\tif (downpour_random(buf, len))\n\t\treturn;\n\n",
        "seed: all keys of the generator come out of this function; what went into the pool (the "
        "host's random bytes, the command line, the wall clock, interrupts) counts no more",
        before=True,
    ),
)


def edited(text: str, edit: Edit, version: str) -> str:
    """Return `text` of `edit.file` with the insertion. Raises EditError unless the anchor occurs
    exactly once."""
    found = text.count(edit.anchor)
    if found != 1:
        raise EditError(
            f"kernel {version}: {edit.file}: found {found} times '{edit.anchor.strip()}'; "
            f"valid: exactly once (needed for: {edit.reason})"
        )
    new = edit.insertion + edit.anchor if edit.before else edit.anchor + edit.insertion
    return text.replace(edit.anchor, new)


def apply(tree: Path, version: str) -> None:
    """Copy the drop-ins into the unpacked source `tree` and make the edits. Only once per tree.
    Raises EditError, before anything is changed, if the source lacks what the edits need."""
    texts: dict[Path, str] = {}
    for edit in EDITS:
        path = tree / edit.file
        if path not in texts:
            try:
                texts[path] = path.read_text(encoding="utf-8")
            except OSError as error:
                raise EditError(f"kernel {version}: {edit.file}: {error.strerror}") from None
        texts[path] = edited(texts[path], edit, version)
    for path, text in texts.items():
        path.write_text(text, encoding="utf-8")
    for file in FILES:
        shutil.copyfile(DROP_INS / file.name, tree / file.target)
