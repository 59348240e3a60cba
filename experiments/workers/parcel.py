# SPDX-License-Identifier: Apache-2.0
"""What is sent: a cell with all it needs, to a worker; its files with their digests, back."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final

from common.files import write_json, write_text
from experiments.cells.job import Job
from experiments.runs import digests

JOB, NETWORK, TRACE, TERMS, ENDED = (
    "job.json", "network.json", "trace.txt", "terms.json", "ended.json",
)  # fmt: skip
RESULT_LIMIT_BYTES: Final = 2_000_000_000  # of a cell's files, unpacked


class ParcelError(Exception):
    """What arrived is not what was sent; the text says why."""


@dataclass(frozen=True)
class Terms:
    """How a worker runs a cell. `memory_bytes`: for its guest; None: the free memory there.
    `environment`: what the worker's must be; None: any. `out`: the directory of its files; None:
    beside the parcel. `lease`: a file that the runner renews; None: the worker's standard input
    ends with the runner."""

    limit_s: float | None
    stall_s: float
    memory_bytes: int | None = None
    environment: Mapping[str, str] | None = None
    out: str | None = None
    lease: str | None = None


@dataclass(frozen=True)
class Parcel:
    """A cell to be sent to a worker, as texts."""

    job: str
    network: str
    trace: str
    terms: Terms

    @classmethod
    def of(cls, job: Job, terms: Terms) -> Parcel:
        """Pack a cell. Raises OSError."""
        return cls(job.to_json(), job.network.read_text(), job.trace.read_text(), terms)

    def to_dict(self) -> dict[str, Any]:
        """Return what `from_dict` takes, in plain types."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> Parcel:
        """Return the parcel that `to_dict` described."""
        return cls(**{**raw, "terms": Terms(**raw["terms"])})

    def unpack(self, place: Path) -> None:
        """Write the parcel into an existing directory. Raises OSError."""
        write_text(place / JOB, self.job)
        write_text(place / NETWORK, self.network)
        write_text(place / TRACE, self.trace)
        write_json(place / TERMS, dataclasses.asdict(self.terms))


def terms_in(place: Path) -> Terms:
    """Return the terms of an unpacked parcel. Raises OSError."""
    return Terms(**json.loads((place / TERMS).read_text()))


def job_in(place: Path, build: Path) -> Job:
    """Return the job of an unpacked parcel, with this machine's paths. Raises OSError."""
    work = place / "work"
    work.mkdir(exist_ok=True)
    return dataclasses.replace(
        Job.from_json((place / JOB).read_text()),
        network=place / NETWORK,
        trace=place / TRACE,
        build=build,
        work=work,
        keep_work=False,
    )


# -- and back ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Ended:
    """How a worker's cell ended. `problem`: why it could not run, "" if it did; `files`: what it
    wrote, with SHA-256."""

    code: int
    problem: str
    host: str
    environment: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)

    def write(self, place: Path) -> None:
        """Write this beside the parcel. Raises OSError."""
        write_json(place / ENDED, dataclasses.asdict(self))

    @classmethod
    def from_text(cls, text: str) -> Ended:
        """Read what `write` wrote. Raises ParcelError."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ParcelError(f"{ENDED} cannot be read: {error}") from None


def sums(out: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a directory. Raises OSError."""
    return {str(p.relative_to(out)): digests.digest_of(p).sha256 for p in digests.cell_files(out)}


def check(out: Path, files: Mapping[str, str]) -> None:
    """Compare a directory with the files that its worker wrote. Raises ParcelError."""
    there = sums(out)
    wrong = sorted(name for name in {**files, **there} if files.get(name) != there.get(name))
    if wrong:
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        raise ParcelError(f"{wrong[0]}{more} did not arrive as the worker wrote it")


def pack(out: Path) -> bytes:
    """Return a directory as a compressed tar. Raises OSError."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz", compresslevel=3) as tar:
        tar.add(out, arcname=".")
    return packed.getvalue()


def unpack(packed: bytes, out: Path) -> None:
    """Write the files of a tar below a directory. Raises ParcelError, OSError."""
    left = RESULT_LIMIT_BYTES
    try:
        with tarfile.open(fileobj=io.BytesIO(packed), mode="r:gz") as tar:
            for member in tar:
                name = PurePosixPath(member.name)
                if (
                    name.is_absolute()
                    or ".." in name.parts
                    or not (member.isfile() or member.isdir())
                ):
                    raise ParcelError(f"found '{member.name}' in a result; valid: files below it")
                if member.isdir():
                    (out / name).mkdir(parents=True, exist_ok=True)
                    continue
                left -= member.size
                if left < 0:
                    raise ParcelError(f"a result is larger than {RESULT_LIMIT_BYTES} bytes")
                content = tar.extractfile(member)
                assert content is not None
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                (out / name).write_bytes(content.read())
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ParcelError(f"a result is not an archive: {error}") from None
