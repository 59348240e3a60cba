# SPDX-License-Identifier: Apache-2.0
"""Names and units of the metrics, for metrics.json, the reports and a `paper:` block."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Value:
    """A metric's value in its SI unit (bit/s, s, %, products). None always has a reason."""

    value: float | None
    unit: str
    reason: str = ""  # why there is no value
    note: str = ""  # how to read it

    def __post_init__(self) -> None:
        if (self.value is None) != bool(self.reason):
            raise ValueError("a value and a reason exclude each other; give one of them")


def absent(unit: str, reason: str) -> Value:
    """Return a missing value with its reason."""
    return Value(None, unit, reason=reason)


@dataclass(frozen=True, slots=True)
class Metric:
    """How to show a metric: value / `scale`, with `shown_unit` and `digits` decimals."""

    name: str
    label: str
    unit: str
    shown_unit: str
    scale: float
    digits: int
    source: str

    def show(self, value: float) -> str:
        """Return `value` (SI) in the shown unit, with the unit."""
        return f"{value / self.scale:.{self.digits}f} {self.shown_unit}".rstrip()


_MBPS = ("bit/s", "Mbit/s", 1e6, 2)
_PERCENT = ("%", "%", 1.0, 2)
_MS = ("s", "ms", 1e-3, 1)
_FILES = ("", "files", 1.0, 3)
_MB = ("B", "MB", 1e6, 2)
_RATIO = ("", "", 1.0, 3)
_PRODUCTS = ("products", "", 1.0, 0)

# For cells that compare LDM7 with LDM6.
TRANSPORT_METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("throughput", "Run throughput", *_MBPS, "sizes over latencies"),
        Metric("throughput_sets", "Throughput, mean of sets", *_MBPS, "MPUP16 eq. 3"),
        Metric("throughput_median", "Throughput, median of file-sets", *_MBPS, "MPUP16 V-C"),
        Metric("throughput_iqr", "Throughput, IQR of file-sets", *_MBPS, "MPUP16 V-C"),
        Metric("file_sets", "File-sets", "", "", 1.0, 0, "MPUP16 V-C"),
        Metric("throughput_fmtp", "FMTP throughput, all", *_MBPS, "DRFSM21 eq. 1"),
        Metric("throughput_mc", "FMTP throughput, no retx", *_MBPS, "DRFSM21 eq. 2"),
        Metric("throughput_retx", "FMTP throughput, with retx", *_MBPS, "DRFSM21 eq. 3"),
        Metric("ffdr", "FFDR", *_PERCENT, "MPUP16 eq. 4"),
        Metric("ffdr_count", "FFDR by count, of received", *_PERCENT, "DRFSM21 eq. 4"),
        Metric("ffdr_size", "FFDR by size, of received", *_PERCENT, "DRFSM21 eq. 5"),
        Metric("mplr", "MPLR", *_PERCENT, "DRFSM21 eq. 6"),
        Metric("repaired_files", "Files that needed repair", *_PERCENT, "receiver logs"),
        Metric("nic_bandwidth", "Sender NIC bandwidth", *_MBPS, "MPUP16 eq. 5, all NICs"),
        Metric("nic1_bandwidth", "NIC1 (path)", *_MBPS, "MPUP16 eq. 5"),
        Metric("nic2_bandwidth", "NIC2 (control network)", *_MBPS, "MPUP16 eq. 5"),
        Metric("multicast_bandwidth", "Of it multicast", *_MBPS, "the queue's bytes"),
        Metric("repair_bandwidth", "Of it repairs", *_MBPS, "FMTP's statistics"),
        Metric("pull_bandwidth", "Of it pulls", *_MBPS, "receiver logs"),
        Metric("control_bandwidth", "Of it control, TCP headers", *_MBPS, "the rest"),
        Metric("nic_bandwidth_sar", "NIC1 by sar", *_MBPS, "MPUP16 III-B, sar"),
        Metric("input_rate", "Input rate", *_MBPS, "pqinsert.log"),
        Metric("cpu", "Sender CPU, all cores", *_PERCENT, "MPUP16 III-B"),
        Metric("cpu_one_core", "Sender CPU, of one core", *_PERCENT, "MPUP16 III-B"),
        Metric("cpu_ps", "CPU by ps, all cores", *_PERCENT, "MPUP16 III-B, ps"),
        Metric("latency_p50", "Latency p50", *_MS, "receiver logs"),
        Metric("latency_p90", "Latency p90", *_MS, "receiver logs"),
        Metric("latency_p99", "Latency p99", *_MS, "receiver logs"),
        Metric("latency_max", "Latency max", *_MS, "receiver logs"),
        Metric("latency_mean", "Latency mean", *_MS, "receiver logs"),
        Metric("latency_propagation", "Of latency: propagation", *_MS, "DRFSM21 eq. 7"),
        Metric("latency_emission", "Of latency: emission", *_MS, "DRFSM21 eq. 7"),
        Metric("latency_buffer", "Of latency: sending buffer", *_MS, "DRFSM21 eq. 7"),
        Metric("latency_repair", "Of latency: repair", *_MS, "DRFSM21 5.2"),
        Metric("latency_offset", "Of latency: clock offset", *_MS, "DRFSM21 eq. 7"),
        Metric("latency_rest", "Of latency: rest", *_MS, "receiver logs"),
        Metric("fmtp_delay_p50", "FMTP delay p50 (from BOP)", *_MS, "receiver logs"),
        Metric("fmtp_delay_p99", "FMTP delay p99 (from BOP)", *_MS, "receiver logs"),
        Metric("fmtp_wait_max", "FMTP delay without repair, longest", *_MS, "receiver logs"),
        Metric("retransmitted_blocks", "Blocks retransmitted", "blocks", "", 1.0, 0, "DRFSM21 B_t"),
        Metric("bandwidth_over_offered", "NIC bandwidth / input rate", "", "", 1.0, 2, "counters"),
        Metric("products_identical", "Receivers identical, share", "", "", 1.0, 3, "pqcat --list"),
        Metric("verdict_invalid", "Verdict is invalid", "", "", 1.0, 0, "verdict.json"),
        Metric("loss_injected", "Loss injected", "%", "%", 1.0, 3, "cell.json"),
        Metric("loss_measured", "Loss measured", "%", "%", 1.0, 3, "iptables counters"),
        Metric(
            "loss_burst", "Mean burst of losses", "packets", "packets", 1.0, 2, "iptables counters"
        ),
        Metric("listening_time", "Listening time, mean", *_FILES, "MSR-TR-99-14 5"),
        Metric("listening_max", "Listening time, longest", *_FILES, "MSR-TR-99-14 5"),
        Metric("listening_formula", "Listening time by the formula", *_FILES, "MSR-TR-99-14 5"),
        Metric("listening_over_formula", "Listening time / formula", *_RATIO, "both"),
        Metric("symbols_received", "Symbols received / the file's", *_RATIO, "fcast-recv"),
        Metric("symbols_needed", "Symbols of use / the file's", *_RATIO, "fcast-recv"),
        Metric("disk_rate", "Rate of writing, while symbols come", *_MBPS, "fcast-recv"),
        Metric("disk_seeks", "Seeks / the file's symbols", *_RATIO, "fcast-recv"),
        Metric("scheme_memory", "Memory that the scheme may take", *_MB, "fcast-recv"),
        Metric("scheme_formula", "Memory by the formula", *_MB, "MSR-TR-99-14 6"),
        Metric("rss", "Receiver's memory, at most", *_MB, "getrusage"),
        Metric("wire_per_file", "NIC1's bytes / data", *_RATIO, "counters"),
        Metric(
            "feedback_packets", "Receivers' packets on the path", "packets", "", 1.0, 0, "counters"
        ),
        Metric("wire_per_delivered", "Bytes sent / delivered to each", *_RATIO, "counters"),
        Metric("products_missing", "Products missing", *_PRODUCTS, "receiver logs"),
        Metric("transfer_time", "Time until the file is there", "s", "s", 1.0, 1, "M2C10 7.2 time"),
        Metric("gput", "The file's size / time", "bit/s", "kbit/s", 1e3, 0, "M2C10 7.2"),
        Metric("tput", "Bytes on the link / time", "bit/s", "kbit/s", 1e3, 0, "M2C10 7.2"),
        Metric("transfer_loss", "Packets lost", *_PERCENT, "M2C10 7.2 loss"),
        Metric("dup", "Symbols that were not needed", *_PERCENT, "M2C10 7.2"),
        Metric("sym", "Symbols needed beyond the file's", *_PERCENT, "M2C10 7.2"),
        Metric("head", "Headers", *_PERCENT, "M2C10 7.2"),
        Metric("net", "Bytes on the link beyond the file's", *_PERCENT, "M2C10 7.2"),
        Metric("comp", "Time after the last symbol", *_PERCENT, "M2C10 7.2"),
        Metric("line_used", "Least share of a receiver's line used", *_PERCENT, "receiver logs"),
        Metric("rival_rate", "Rate of what competes", "bit/s", "kbit/s", 1e3, 0, "counters"),
        Metric("rival_loss", "Packets that the competing TCP lost", *_PERCENT, "counters"),
        Metric("share_of_rival", "Throughput / what competes", *_RATIO, "counters"),
        Metric("jain", "Jain's index of two sessions", *_RATIO, "m2c-recv"),
        Metric("latency_p50_others", "Latency p50, all but the first", *_MS, "receiver logs"),
        Metric("latency_p99_others", "Latency p99, all but the first", *_MS, "receiver logs"),
        Metric("missing_others", "Missing at all but the first", *_PRODUCTS, "receiver logs"),
        Metric("jain_flows", "Jain's index, path and flows", *_RATIO, "iperf3, counters"),
        Metric("background_goodput", "Competing TCP's goodput", *_MBPS, "iperf3"),
    )
}

# For cells whose subscribers join and leave.
SUBSCRIPTION_METRICS: dict[str, Metric] = {
    m.name: m
    for m in (
        Metric("lost_products", "Products lost", *_PRODUCTS, "pqcat --list"),
        Metric("lost_products_stayed", "Lost at those who stayed", *_PRODUCTS, "pqcat --list"),
        Metric("not_recovered_products", "Not recovered after a break", *_PRODUCTS, "pqcat --list"),
        Metric("duplicate_products", "Products twice in a queue", *_PRODUCTS, "pqcat --list"),
        Metric("damaged_products", "Products damaged", *_PRODUCTS, "pqcat --list"),
        Metric("throughput_stayed", "Throughput, who stayed", *_MBPS, "MPUP16 eq. 3"),
        Metric("ffdr_stayed", "FFDR, who stayed", *_PERCENT, "MPUP16 eq. 4"),
        Metric("latency_p50_stayed", "Latency p50, who stayed", *_MS, "receiver logs"),
        Metric("latency_p99_stayed", "Latency p99, who stayed", *_MS, "receiver logs"),
        Metric("joins", "Joins", "sessions", "", 1.0, 0, "events.json"),
        Metric("ends", "Leaves and kills", "sessions", "", 1.0, 0, "events.json"),
        Metric("path_setup", "Path set up, mean", *_MS, "publisher's log"),
        Metric("leaf_setup_p50", "Leaf set up p50", *_MS, "publisher's log"),
        Metric("leaf_setup_max", "Leaf set up max", *_MS, "publisher's log"),
        Metric("join_ready_p50", "Join to FMTP p50", *_MS, "subscribers' logs"),
        Metric("join_ready_max", "Join to FMTP max", *_MS, "subscribers' logs"),
        Metric("join_product_p50", "Join to first product p50", *_MS, "subscribers' logs"),
        Metric("join_product_max", "Join to first product max", *_MS, "subscribers' logs"),
        Metric("prune_p50", "Leave to pruned branch p50", *_MS, "publisher's log"),
        Metric("prune_max", "Leave to pruned branch max", *_MS, "publisher's log"),
        TRANSPORT_METRICS["verdict_invalid"],
    )
}
PARTS_OF_A_WHOLE = frozenset(  # percentages that cannot exceed 100
    {"ffdr", "ffdr_count", "ffdr_size", "ffdr_stayed", "repaired_files", "loss_measured"}
)
METRICS: dict[str, Metric] = {**TRANSPORT_METRICS, **SUBSCRIPTION_METRICS}

# Longer names that a `paper:` block may use for the same metric.
ALIASES = {
    "nic": "nic_bandwidth",
    "bandwidth": "nic_bandwidth",
    "nic_bw": "nic_bandwidth",
    "sender_bandwidth": "nic_bandwidth",
    "sender_nic_bandwidth": "nic_bandwidth",
    "cpu_utilization": "cpu",
    "cpu_utilisation": "cpu",
    "sender_cpu": "cpu",
    "sender_cpu_utilization": "cpu",
    "latency_median": "latency_p50",
    "throughput_whole": "throughput",
    "nic_bandwidth_counters": "nic_bandwidth",
}
_SUFFIXES = ("_bps", "_mbps", "_percent", "_pct", "_s", "_ms")

_FACTORS: dict[str, dict[str, float]] = {
    "bit/s": {
        "bit/s": 1.0,
        "bps": 1.0,
        "kbit/s": 1e3,
        "kbps": 1e3,
        "mbit/s": 1e6,
        "mbps": 1e6,
        "mb/s": 1e6,
        "gbit/s": 1e9,
        "gbps": 1e9,
    },
    "%": {"%": 1.0, "percent": 1.0, "ratio": 100.0, "fraction": 100.0, "1": 100.0},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6},
    "blocks": {"blocks": 1.0, "1": 1.0},
    "products": {"products": 1.0, "1": 1.0},
    "packets": {"packets": 1.0, "1": 1.0},
    "sessions": {"sessions": 1.0, "1": 1.0},
    "": {"": 1.0, "1": 1.0},
}


def canonical(name: str) -> str | None:
    """Return the metric's name in `METRICS`, from that name, an alias, or a name with a unit
    suffix; None if unknown."""
    name = name.strip().lower().replace("-", "_").replace(" ", "_")
    candidates = [name]
    candidates += [name[: -len(suffix)] for suffix in _SUFFIXES if name.endswith(suffix)]
    for candidate in candidates:
        found = ALIASES.get(candidate, candidate)
        if found in METRICS:
            return found
    return None


def to_si(value: float, unit: str, metric: Metric) -> float:
    """Return `value` in the metric's own unit. Raises ValueError, which names the valid units."""
    factors = _FACTORS[metric.unit]
    factor = factors.get(unit.strip().lower())
    if factor is None:
        raise ValueError(f"unit {unit!r} of {metric.name}; valid: {', '.join(factors)}")
    return value * factor


def two_digits(value: float) -> str:
    """Return a number with two digits, and without an exponent up to a million: 130, 4.2."""
    return f"{float(f'{value:.2g}'):g}"
