# SPDX-License-Identifier: Apache-2.0
"""One sender and N receivers, each in its own network namespace, joined by a bridge.

The bridge is in the run's namespace (topologies/emulate/lifecycle.py), which this process is in:
the kernel's own, or, in a guest, whose kernel has none, Open vSwitch as a learning switch. Rate and
queue are HTB with a bfifo at the sender's NIC, the delay is netem at the bridge's ports in both
directions, and iptables draws the losses of everything that arrives at a receiver, UDP and TCP.
Native hosts receive on all processors if the kernel can set that for new devices.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final

from bench.jobs import Card, Job
from common.shell import (
    NetworkError,
    check,
    check_all,
    die_with_parent,
    enter_network_namespace,
    in_node,
)
from topologies.emulate.openvswitch import OpenVSwitch

CLONE_NEWNET: Final = 0x40000000
QUEUE_BYTES: Final = 600_000_000
PREFIX: Final = 20
SENDER_IP: Final = "10.77.0.1"
STEERING: Final = Path("/proc/sys/net/core/rps_default_mask")  # of a namespace; Linux 6.3
SHOW_STEERING: Final = "mount -t sysfs s /sys && cat /sys/class/net/eth0/queues/rx-0/rps_cpus"
NETEM_PACKETS: Final = 1_000_000  # its queue: far more than what 25 ms hold


def receiver_ip(index: int) -> str:
    """Return the address of receiver 0, 1, ..., up to 999."""
    return f"10.77.{(index + 2) // 256}.{(index + 2) % 256}"


def _new_namespace() -> None:
    if hasattr(os, "unshare"):  # Python 3.12
        os.unshare(CLONE_NEWNET)
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare")


def steering_mask(processors: int) -> str:
    """Return the mask of the first `processors` processors, in the kernel's words of 32 bits."""
    digits = f"{(1 << processors) - 1:x}"
    words = [digits[max(0, end - 8) : end] for end in range(len(digits), 0, -8)]
    return ",".join(reversed(words))


def htb_commands(rate_bps: int) -> list[list[str]]:
    """Return the commands that put everything the sender sends into one class."""
    rate = ["rate", f"{rate_bps}bit", "ceil", f"{rate_bps}bit", "quantum", "1514"]
    leaf = ["parent", "1:1", "handle", "11:", "bfifo", "limit", str(QUEUE_BYTES)]
    return [
        ["tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1"],
        ["tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:1", "htb", *rate],
        ["tc", "qdisc", "add", "dev", "eth0", *leaf],
    ]


def loss_command(loss: float) -> list[str]:
    """Return the command that drops a share of the arriving packets."""
    return [
        *("iptables", "-w", "-A", "INPUT", "-i", "eth0", "-m", "statistic", "--mode", "random"),
        *("--probability", f"{loss:.6f}", "-j", "DROP"),
    ]


def parse_htb_bytes(text: str) -> int:
    """Return the bytes that the root HTB sent, from `tc -j -s qdisc show`. A segmented packet
    counts with the headers of all its segments."""
    for qdisc in json.loads(text):
        if qdisc.get("kind") == "htb":
            return int(qdisc["bytes"])
    raise ValueError("found no htb qdisc")


def parse_tx_bytes(text: str, interface: str) -> int:
    """Return the bytes that an interface has sent, from /proc/net/dev."""
    for line in text.splitlines():
        name, _, rest = line.partition(":")
        if name.strip() == interface:
            return int(rest.split()[8])
    raise ValueError(f"found no interface '{interface}'")


class Network:
    """Hosts 0 (the sender) to N. Everything in them ends with this process."""

    def __init__(self, job: Job, directory: Path) -> None:
        self.job = job
        self._directory = directory  # of the switch's files
        self._switch: OpenVSwitch | None = None
        self._holders = [self._holder() for _ in range(job.receivers + 1)]
        self._links()
        self._hosts()
        self._conditions()

    def _holder(self) -> subprocess.Popen[bytes]:
        with_parent = die_with_parent()

        def prepare() -> None:
            _new_namespace()
            if with_parent is not None:
                with_parent()

        return subprocess.Popen(["sleep", "infinity"], preexec_fn=prepare)

    def pid(self, host: int) -> int:
        """Return a process in a host's network namespace."""
        return self._holders[host].pid

    def _links(self) -> None:
        if self.job.steered:
            self._steer()
        ports = [f"p{i}" for i in range(len(self._holders))]
        lines = [
            f"link add {port} type veth peer name eth0 netns {holder.pid}"
            for port, holder in zip(ports, self._holders, strict=True)
        ]
        if self.job.clock == "native":
            lines.append("link add br0 type bridge mcast_snooping 0 forward_delay 0")
            lines += [f"link set {port} master br0" for port in ports]
        lines += [f"link set {port} up" for port in ports]
        check(["ip", "-batch", "-"], stdin="\n".join(lines) + "\n", timeout_s=300)
        if self.job.clock == "virtual":
            self._switch = OpenVSwitch(self._directory)
            self._switch.start()
            add = ["--", "add-br", "br0", "--", "set", "bridge", "br0", "fail_mode=standalone"]
            for port in ports:
                add += ["--", "add-port", "br0", port]
            check(["ovs-vsctl", "--timeout=60", *add])
        check(["ip", "link", "set", "br0", "up"])

    def _steer(self) -> None:
        """Let hosts receive on all processors, as machines of their own would (RPS). Otherwise the
        kernel does the receivers' part of the work in the sender's thread, while it sends."""
        everywhere = f"echo {steering_mask(os.cpu_count() or 1)} > {STEERING}"
        for i in range(len(self._holders)):
            check(in_node(self.pid(i), ["sh", "-c", everywhere]))

    def _hosts(self) -> None:
        for i in range(len(self._holders)):
            ip = SENDER_IP if i == 0 else receiver_ip(i - 1)
            lines = [
                "link set lo up",
                f"addr add {ip}/{PREFIX} dev eth0",
                "link set eth0 up",
                "route add 224.0.0.0/4 dev eth0",
            ]
            check(in_node(self.pid(i), ["ip", "-batch", "-"]), stdin="\n".join(lines) + "\n")

    def _conditions(self) -> None:
        job = self.job
        if job.rate_bps:
            for command in htb_commands(job.rate_bps):
                check(in_node(self.pid(0), command))
        if job.delay_ms:
            lines = [
                f"qdisc add dev p{i} root netem delay {job.delay_ms:g}ms limit {NETEM_PACKETS}"
                for i in range(len(self._holders))
            ]
            check(["tc", "-batch", "-"], stdin="\n".join(lines) + "\n")
        if job.loss:
            for i in range(1, len(self._holders)):
                check(in_node(self.pid(i), loss_command(job.loss)))
        if job.card != "segmenting":
            check_all(self._card_commands(job.card))
        self._read_back()

    def _card_commands(self, card: Card) -> dict[str, tuple[list[str], str]]:
        """Return the commands that give each host its card. A veth joins datagrams (GRO) only if
        its peer does not segment."""
        off = ["tx-udp-segmentation", "off", "tso", "off"]
        last = ["gro", "on"] if card == "plain" else ["gso", "off"]
        commands: dict[str, tuple[list[str], str]] = {}
        for i in range(len(self._holders)):
            argv = in_node(self.pid(i), ["ethtool", "-K", "eth0", *off, *last])
            commands[f"host {i}"] = (argv, "")
            if card == "plain":
                commands[f"port {i}"] = (["ethtool", "-K", f"p{i}", *off], "")
        return commands

    def _read_back(self) -> None:
        """End the run if a setting differs from the request, since emulators ignore impossible
        values."""
        job = self.job
        if job.card == "plain":
            show = {
                f"host {i}": (in_node(self.pid(i), ["ethtool", "-k", "eth0"]), "")
                for i in range(len(self._holders))
            }
            for host, features in check_all(show).items():
                if "generic-receive-offload: on" not in features:
                    raise NetworkError(f"{host}: its card does not join datagrams (GRO)")
        if job.loss:
            for i in range(1, len(self._holders)):
                rules = check(in_node(self.pid(i), ["iptables", "-w", "-S", "INPUT"]))
                if "statistic" not in rules:
                    raise NetworkError(
                        f"receiver {i}: no loss rule, iptables says: {rules.strip()}"
                    )
        if job.rate_bps:
            text = check(in_node(self.pid(0), ["tc", "class", "show", "dev", "eth0"]))
            if "rate" not in text:
                raise NetworkError(f"the sender has no HTB class, tc says: {text.strip()}")
        if job.steered:
            text = check(in_node(self.pid(1), ["unshare", "--mount", "sh", "-c", SHOW_STEERING]))
            if int(text.replace(",", ""), 16) != (1 << (os.cpu_count() or 1)) - 1:
                raise NetworkError(f"receiver 0 receives on processors {text.strip()} (a mask)")
        if job.delay_ms:
            text = check(["tc", "qdisc", "show", "dev", "p1"])
            if f"delay {job.delay_ms:g}" not in text:
                raise NetworkError(f"port 1 has no delay, tc says: {text.strip()}")

    def sent_bytes(self) -> int:
        """Return what the sender's NIC has sent."""
        if self.job.rate_bps:
            command = ["tc", "-j", "-s", "qdisc", "show", "dev", "eth0"]
            return parse_htb_bytes(check(in_node(self.pid(0), command)))
        return parse_tx_bytes(Path(f"/proc/{self.pid(0)}/net/dev").read_text(), "eth0")

    def popen(
        self,
        host: int,
        argv: Sequence[str],
        *,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: IO[bytes],
        stderr: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        """Start a program in a host; it ends with this process at the latest."""
        with_parent = die_with_parent()
        namespace = os.open(f"/proc/{self.pid(host)}/ns/net", os.O_RDONLY | os.O_CLOEXEC)

        def prepare() -> None:
            enter_network_namespace(namespace)
            if with_parent is not None:
                with_parent()

        try:
            return subprocess.Popen(
                list(argv), stdin=stdin, stdout=stdout, stderr=stderr, preexec_fn=prepare
            )
        except FileNotFoundError as error:
            raise NetworkError(f"{argv[0]}: not found on this machine") from error
        finally:
            os.close(namespace)

    def close(self) -> None:
        """Take the network down."""
        if self._switch is not None:
            self._switch.stop()
        for holder in self._holders:
            holder.kill()
        for holder in self._holders:
            holder.wait()
