# SPDX-License-Identifier: Apache-2.0
"""A snapshot separates a run's leftovers from what other processes did."""

from __future__ import annotations

from dataclasses import fields

from tests.machine_snapshot import Snapshot, compare, own_mounts, own_sockets


def test_mounts_of_others_do_not_count() -> None:
    def line(point: str) -> str:
        return f"36 35 98:0 / {point} rw - overlay none rw"

    before = ["/", "/sys", "/sys/fs/cgroup", "/run/netns"]
    others = ["/var/lib/docker/overlay2/d2/merged", "/run/docker/netns/d2", "/run/netns/theirs"]
    others += ["/run/netns/downpour-foreign", "/systems/d2", "/home/ann/mnt"]
    ours = ["/run/netns/downpour-x", "/run/downpour/x/etc", "/dev/shm/downpour/x", "/etc/hosts"]

    def points(*found: str) -> frozenset[str]:
        return own_mounts("\n".join(map(line, found)), {"foreign"})

    assert points(*before, *others) == points(*before)
    for own in ours:
        assert points(*before, own) - points(*before) == {own}
    assert points(*before, "/sys") - points(*before) == {"/sys 2"}


def test_sockets_of_others_do_not_count() -> None:
    ours = 'udp UNCONN 0 0 0.0.0.0:388 0.0.0.0:* users:(("ldmd",pid=7,fd=3))\n'
    theirs = 'udp UNCONN 0 0 0.0.0.0:389 0.0.0.0:* users:(("ldmd",pid=77,fd=3))\n'
    kernels = "udp UNCONN 0 0 0.0.0.0:4789 0.0.0.0:*\n"
    ending = "tcp LISTEN 0 9 127.0.0.1:44111 0.0.0.0:*\n"
    looks = [ours + theirs + kernels + ending, ours + theirs + kernels]
    assert own_sockets(looks, [7]) == {"udp 0.0.0.0:388", "udp 0.0.0.0:4789"}


def test_a_dead_run_of_others_may_be_swept() -> None:
    def mounted(*points: str) -> Snapshot:
        empty: dict[str, frozenset[str]] = {f.name: frozenset() for f in fields(Snapshot)}
        return Snapshot(**(empty | {"mounts": frozenset(points)}))

    left = "/run/netns/downpour-dead"
    assert compare(mounted("/sys", left), mounted("/sys")) == []
    assert compare(mounted("/sys"), mounted("/sys", left)) == [f"mounts: left behind: {left}"]
    assert compare(mounted("/sys", "/run/netns"), mounted("/sys")) == ["mounts: gone: /run/netns"]
