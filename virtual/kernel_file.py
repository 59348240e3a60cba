# SPDX-License-Identifier: Apache-2.0
"""A built kernel as a file: written for a release, checked and installed from one.

A release has two files: downpour-kernel-VERSION-DIGEST-MACHINE.xz, and beside it one of the same
name with .json: digest of the inputs, source, compiler, sha256 of the kernel.
"""

from __future__ import annotations

import dataclasses
import json
import lzma
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from common import digests
from virtual import kernel_cache
from virtual.kernel_cache import COMPRESSED, Build, Kernel
from virtual.kernel_source import KernelError

# A kernel has 8 MB; a file that unpacks to more than this cannot be one.
MAX_KERNEL_BYTES: Final = 256 * 2**20
_BLOCK_BYTES: Final = 1 << 20


def artefact_name(build: Build) -> str:
    """Return the name of a release's file of this kernel."""
    return f"downpour-kernel-{build.version}-{build.digest}-{platform.machine()}{COMPRESSED}"


def export_kernel(directory: Path) -> Path:
    """Write this machine's kernel and its digest file to `directory`; return the kernel's file.
    Raises KernelError if there is no kernel, or it cannot be written."""
    kernel = kernel_cache.find_kernel()
    if kernel is None:
        raise KernelError("found no kernel to export; valid: build one: downpour virtual kernel")
    build = kernel_cache.description_of(kernel.path)
    kernel_cache.check_content(kernel.path, build)
    build = dataclasses.replace(
        build, sha256=digests.digest_of(kernel.path).sha256, origin="installed"
    )
    target = directory / artefact_name(build)
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with kernel.path.open("rb") as source, lzma.open(partial, "wb", preset=6) as stream:
            shutil.copyfileobj(source, stream, _BLOCK_BYTES)
        text = json.dumps(dataclasses.asdict(build), indent=1) + "\n"
        target.with_name(f"{target.name}.json").write_text(text, encoding="utf-8")
        partial.rename(target)
    except OSError as error:
        raise KernelError(f"{error.filename or target}: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
    return target


def install_kernel(file: Path) -> Kernel:
    """Check the kernel in `file` (a release's .xz, or a kernel as it is) against its digest file,
    put it where this user's builds go, and return it. If it raises KernelError, nothing has
    changed."""
    if not file.is_file():
        raise KernelError(f"found '{file}'; valid: a file that `virtual kernel --export` wrote")
    build = kernel_cache.description_of(file)
    if not build.sha256:
        raise KernelError(f"{file}: its digest file has no sha256; valid: one with it")
    with kernel_cache.only_builder(lambda: None):
        work = kernel_cache.kernels_directory() / f".build-{os.getpid()}"
        try:
            work.mkdir()
            kernel = work / "linux"
            _unpack(file, kernel)
            kernel_cache.check_content(kernel, build)
            kernel.chmod(0o755)
            _check_runs(file, kernel)
            return kernel_cache.store(
                work, kernel, None, dataclasses.replace(build, origin="installed")
            )
        except OSError as error:
            raise KernelError(f"{error.filename or work}: {error.strerror}") from None
        finally:
            shutil.rmtree(work, ignore_errors=True)


@contextmanager
def _content(file: Path) -> Iterator[IO[bytes]]:
    if file.suffix == COMPRESSED:
        with lzma.open(file) as stream:
            yield stream
    else:
        with file.open("rb") as plain:
            yield plain


def _unpack(file: Path, target: Path) -> None:
    """Copy a kernel, decompressed if its name ends in .xz. Raises KernelError, OSError."""
    size = 0
    try:
        with _content(file) as source, target.open("wb") as stream:
            while block := source.read(_BLOCK_BYTES):
                size += len(block)
                if size > MAX_KERNEL_BYTES:
                    raise KernelError(
                        f"{file}: found more than {MAX_KERNEL_BYTES >> 20} MB; valid: a kernel"
                    )
                stream.write(block)
    except (lzma.LZMAError, EOFError) as error:
        raise KernelError(f"{file}: cannot decompress it: {error}") from None


def _check_runs(file: Path, kernel: Path) -> None:
    """Raise KernelError unless this machine can start the program (its processor, its C
    library)."""
    try:
        result = subprocess.run(
            [kernel, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KernelError(f"{file}: does not run on this machine: {error}") from None
    if result.returncode != 0:
        words = result.stderr.decode(errors="replace").strip()[-200:] or f"exit {result.returncode}"
        raise KernelError(f"{file}: does not run on this machine: {words}")
