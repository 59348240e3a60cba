# SPDX-License-Identifier: Apache-2.0
"""Circuit TCP in a run: how it gets into the kernel, and the hosts that use it.

All namespaces share the kernel's list of congestion controls, so each run registers its own under
its own name: `ctcp_name`. If the kernel has ctcp built in (as the guest in virtual time, where no
other run exists), this module only sets the window.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from common.places import program
from common.shell import (
    NetworkError,
    die_with_parent,
    in_node,
)
from topologies.emulate import marks
from topologies.emulate.elsewhere import NOBODY, Elsewhere, ask_all

BTF = Path("/sys/kernel/btf/vmlinux")
AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
BUILT_IN = "ctcp"
WINDOW = Path(
    "/sys/module/tcp_ctcp/parameters/cwnd"
)  # of new connections; exists if ctcp is built in
START_TIMEOUT_S = 10.0
STOP_TIMEOUT_S = 3.0
# Room for a window in flight and as much out of order, at what a segment costs the kernel (2.3 kB,
# up to a page): buffers are counted in that.
BUFFER_BYTES_PER_SEGMENT = 12_000
BUFFERS = ("tcp_wmem", "tcp_rmem")


def loader_program() -> Path:
    return program("ctcp-load")


def object_file() -> Path:
    return program("ctcp.bpf.o")


def ctcp_name(run_id: str) -> str:
    """Return the name of the run's congestion control: "ctcp_" and 10 hexadecimal digits (the
    kernel allows 15 characters)."""
    return f"ctcp_{hashlib.sha256(run_id.encode()).hexdigest()[:10]}"


def is_built_in() -> bool:
    """Return whether the running kernel has ctcp without a loader."""
    with contextlib.suppress(OSError):
        return WINDOW.exists() and BUILT_IN in AVAILABLE.read_text(encoding="utf-8").split()
    return False


def what_is_missing() -> str:
    """Return why ctcp cannot be tried on this machine; "" if it can."""
    if is_built_in():
        return ""
    if not BTF.exists():
        return f"the kernel has no {BTF} (CONFIG_DEBUG_INFO_BTF)"
    for path in (loader_program(), object_file()):
        if not path.exists():
            return f"{path.name} is not built (needs clang and libbpf-dev; then: make build)"
    return ""


def registered(text: str | None = None) -> frozenset[str]:
    """Return the runs' congestion controls in `text` (default: the kernel's list now)."""
    if text is None:
        with contextlib.suppress(OSError):
            text = AVAILABLE.read_text(encoding="utf-8")
    return frozenset(n for n in (text or "").split() if n.startswith("ctcp_"))


def remove_leftover(run_id: str) -> str:
    """Unregister what a killed loader left on a kernel without BPF links; return "" or why not."""
    name = ctcp_name(run_id)
    if name not in registered():
        return ""
    try:
        result = subprocess.run(
            [str(loader_program()), "--unregister", name],
            capture_output=True,
            text=True,
            timeout=STOP_TIMEOUT_S,
            check=False,
        )
        complaint = result.stderr.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        complaint = str(error)
    return complaint if name in registered() else ""


class CircuitTcp:
    """A run's congestion control: the kernel's own, or the one that ctcp-load registers."""

    def __init__(self, run_id: str, log: Path, *, options: tuple[str, ...] = ()) -> None:
        self._built_in = is_built_in()
        self.name = BUILT_IN if self._built_in else ctcp_name(run_id)
        self._run_id = run_id
        self._log = log
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, cwnd_packets: int) -> None:
        """Wait until the congestion control exists with this window. Raises NetworkError, which
        says why it does not."""
        if self._built_in:
            set_window(cwnd_packets)
            return
        if missing := what_is_missing():
            raise NetworkError(missing)
        argv = [str(loader_program()), "--object", str(object_file()), "--name", self.name]
        argv += ["--cwnd", str(cwnd_packets), *self._options]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, marks.MARK: self._run_id},
                start_new_session=True,
                # Not SIGKILL: on kernels without BPF links, the program must unregister by itself.
                preexec_fn=die_with_parent(signal.SIGTERM),
            )
        assert self._process.stdout is not None
        with self._process.stdout as stream:
            # The program writes its only line at once.
            answered, _, _ = select.select([stream], [], [], START_TIMEOUT_S)
            line = os.read(stream.fileno(), 200).decode(errors="replace") if answered else ""
        if not line.startswith(f"ready name={self.name} cwnd={cwnd_packets} "):
            self.stop()
            text = self._log.read_text(encoding="utf-8", errors="replace").strip()
            silent = "" if answered else f"no answer within {START_TIMEOUT_S:g} s"
            last = text.splitlines()[-1].strip() if text else "no reason given"
            raise NetworkError(silent or last)

    @property
    def alive(self) -> bool:
        """Return whether new connections still get Circuit TCP."""
        if self._built_in:
            return True
        return self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        """Unregister what was registered. Connections that use it keep it."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        # It leaves the list a moment later (the kernel releases links in the background).
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.name in registered() and time.monotonic() < deadline:
            time.sleep(0.01)


def set_window(cwnd_packets: int) -> None:
    """Set the window of new connections of the built-in ctcp. Raises NetworkError if the kernel
    refuses."""
    try:
        WINDOW.write_text(f"{cwnd_packets}\n", encoding="utf-8")
        found = WINDOW.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise NetworkError(
            f"found window '{cwnd_packets}'; valid: 1 to 1000000 segments "
            f"({WINDOW}: {error.strerror})"
        ) from None
    if found != str(cwnd_packets):
        raise NetworkError(f"asked a window of {cwnd_packets} segments; {WINDOW} has {found}")


def use_script(name: str, cwnd_packets: int) -> str:
    """Return a shell script for a host's namespace that sets the congestion control, and buffers
    that do not limit the window. It prints the settings that result."""
    need = cwnd_packets * BUFFER_BYTES_PER_SEGMENT
    lines = [
        "cd /proc/sys/net/ipv4 || exit 1",
        "for f in tcp_wmem tcp_rmem; do",
        "  set -- $(cat $f)  # (read takes single bytes, which sysctl files refuse)",
        f'  if [ "$3" -lt {need} ]; then echo "$1 $2 {need}" > $f || exit 1; fi',
        "done",
        f"echo {name} > tcp_congestion_control || exit 1",
        "cat tcp_congestion_control",
    ]
    return "\n".join(lines) + "\n"


def planned_buffers(
    as_built: Mapping[str, str], hosts: Iterable[str], cwnd_packets: int
) -> dict[str, str]:
    """Return what an inventory shows of the hosts' socket buffers after `use_script`. `as_built`:
    what it showed before. The window is rate x RTT, so the largest buffer follows from both."""
    need = cwnd_packets * BUFFER_BYTES_PER_SEGMENT
    found = {}
    for thing in _buffer_things(as_built, hosts):
        least, usual, most = as_built[thing].split()
        found[thing] = f"{least} {usual} {max(int(most), need)}"
    return found


def _buffer_things(as_built: Mapping[str, str], hosts: Iterable[str]) -> list[str]:
    things = [f"{host} sysctl ipv4/{name}" for host in hosts for name in BUFFERS]
    return [thing for thing in things if thing in as_built]


def restore_script(as_built: Mapping[str, str], host: str, control: str) -> str:
    """Return a shell script for a host's namespace that restores the buffers and sets the
    congestion control."""
    lines = ["cd /proc/sys/net/ipv4 || exit 1"]
    for thing in _buffer_things(as_built, [host]):
        name = thing.rpartition("/")[2]
        lines.append(f'echo "{as_built[thing]}" > {name} || exit 1')
    lines.append(f"echo {control} > tcp_congestion_control || exit 1")
    return "\n".join(lines) + "\n"


def use_in(
    pids: Mapping[str, int],
    name: str,
    cwnd_packets: int,
    elsewhere: Mapping[str, Elsewhere] = NOBODY,
) -> None:
    """Make `name` the congestion control of all new connections of these hosts (host -> process).
    Raises NetworkError, which names the hosts where the settings read back differ."""
    script = use_script(name, cwnd_packets)
    commands = {h: (in_node(pid, ["sh", "-s"]), script) for h, pid in pids.items()}
    found = ask_all(commands, pids, elsewhere)
    wrong = [f"{h} has {text.strip()}" for h, text in found.items() if text.strip() != name]
    if wrong:
        raise NetworkError(f"asked {name} in every host; {', '.join(wrong[:3])}")
