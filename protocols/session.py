# SPDX-License-Identifier: Apache-2.0
"""Run a protocol's programs: start them, give them files, end them."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Protocol

from protocols.adapter import Adapter, Setup
from protocols.program import Program

CONNECT_LIMIT_S: Final = 120.0
LISTEN_S: Final = 0.2  # time for a sender to listen before receivers connect
QUIET_S: Final = 0.3  # between the last connection and the first file
END_S: Final = 10.0  # for a sender to end after its last file


class SessionError(Exception):
    """A program failed. The text quotes the programs."""


class Launch(Protocol):
    """Starts a program in a host: 0 is the sender, 1 the first receiver."""

    def __call__(
        self,
        host: int,
        argv: Sequence[str],
        *,
        stdin: int | IO[bytes],
        stdout: IO[bytes],
        stderr: IO[bytes],
    ) -> subprocess.Popen[bytes]:
        """Start the program."""


class Session:
    """The sender and the receivers of one protocol. Makes the directories of `setup`."""

    def __init__(self, adapter: Adapter, setup: Setup, launch: Launch, logs: Path) -> None:
        self.adapter, self.setup = adapter, setup
        self._launch, self._logs = launch, logs
        self._feed = adapter.feed_of(setup)
        self.senders: list[Program] = []
        self.receivers: list[Program] = []
        self._waiting: list[Path] = []  # for the next batch
        self._pipe = -1
        for i in range(len(setup.receivers)):
            setup.inbox(i).mkdir(parents=True)
        setup.source.mkdir(parents=True)

    @property
    def programs(self) -> tuple[Program, ...]:
        """Return all programs that were started."""
        return (*self.senders, *self.receivers)

    @property
    def is_batch(self) -> bool:
        """Return whether the protocol starts a command for each batch of files."""
        return self._feed == "batch"

    def start(self, host: int, argv: Sequence[str], name: str, *, stdin: bool = False) -> Program:
        """Start a program in a host. With `stdin`, it reads what `tell` writes."""
        log = self._logs / f"{name}.err"
        read, write = os.pipe() if stdin else (-1, -1)
        with log.open("wb") as err, log.with_suffix(".out").open("wb") as out:
            if stdin:
                with os.fdopen(read, "rb") as source:
                    popen = self._launch(host, argv, stdin=source, stdout=out, stderr=err)
                self._pipe = write
            else:
                null = subprocess.DEVNULL
                popen = self._launch(host, argv, stdin=null, stdout=out, stderr=err)
        return Program(popen, log)

    def start_sender(self, files: Sequence[Path], *, stdin: bool = False) -> Program:
        """Start the sender for some files."""
        argv = self.adapter.sender(self.setup, files)
        sender = self.start(0, argv, f"sender{len(self.senders)}", stdin=stdin)
        self.senders.append(sender)
        return sender

    def _start_receivers(self) -> None:
        for i in range(len(self.setup.receivers)):
            argv = self.adapter.receiver(self.setup, i)
            self.receivers.append(self.start(i + 1, argv, f"receiver{i}"))

    def get_ready(self) -> None:
        """Prepare for files: start programs and wait until receivers have connected."""
        if self.adapter.receivers_first:
            self._start_receivers()
            time.sleep(self.adapter.settle_s)
        if self._feed == "stdin":
            sender = self.start_sender([], stdin=True)
            if not self.adapter.receivers_first:
                time.sleep(LISTEN_S)
                self._start_receivers()
            end = time.monotonic() + CONNECT_LIMIT_S
            while self.adapter.ready not in sender.said():
                self.check_alive()
                if time.monotonic() > end:
                    raise SessionError(f"receivers did not connect; {self.complaint()}")
                time.sleep(0.02)
            time.sleep(QUIET_S)
        self.check_alive()
        for program in self.programs:
            program.mark()

    def send(self, path: Path) -> None:
        """Send a file now, or with the next batch. Raises SessionError if the sender has ended."""
        if self._feed == "stdin":
            try:
                os.write(self._pipe, f"{path}\n".encode())
            except BrokenPipeError:
                self.senders[0].wait(END_S)
                text = f"sender0 ended with {self.senders[0].code}; {self.complaint()}"
                raise SessionError(text) from None
        elif self._feed == "batch":
            self._waiting.append(path)
            self.go_on()
        else:
            self.start_sender([path])

    def go_on(self) -> None:
        """Start the next batch, if there is one and the previous one has ended."""
        if self._waiting and (not self.senders or self.senders[-1].code is not None):
            files, self._waiting = self._waiting, []
            self.start_sender(files)

    @property
    def is_sending(self) -> bool:
        """Return whether a batch is under way or waits."""
        busy = bool(self.senders) and self.senders[-1].code is None
        return self.is_batch and (busy or bool(self._waiting))

    def check_alive(self) -> None:
        """Raise SessionError if a program has failed."""
        for program in self.programs:
            if program.code not in (None, 0):
                raise SessionError(f"exit code {program.code}; {self.complaint()}")

    def failed(self) -> str:
        """Return what is wrong with a program that must keep running; empty if nothing. A batch may
        fail: its receivers then miss its files."""
        senders = () if self.is_batch else self.senders
        for program in (*senders, *self.receivers):
            if program.code is not None:
                said = program.said().strip().splitlines()[-1:] or ["nothing was said"]
                return f"{program.log.stem} ended with {program.code}: {said[0][:200]}"
        return ""

    def complaint(self) -> str:
        """Return the last lines that the programs printed, shortened."""
        for program in self.programs:
            text = program.said().strip().splitlines()
            if text and program.code:
                return f"{program.log.stem} says: {text[-1][:200]}"
        said = self.senders[-1].said().strip().splitlines() if self.senders else []
        return f"the sender says: {said[-1][:200]}" if said else "nothing was said"

    def counts(self) -> dict[str, float]:
        """Return the counters that the programs printed when they ended."""
        sent = "".join(p.printed() + p.said() for p in self.senders)
        return dict(self.adapter.counts(sent, [p.printed() for p in self.receivers]))

    def stop(self) -> None:
        """End all programs. A sender that reads names ends when they end."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
            self.senders[0].wait(END_S)
        for program in self.programs:
            program.stop()
