# SPDX-License-Identifier: Apache-2.0
"""`python -m controller keys DIR`: make a certificate authority for tests and trials with openssl.

It signs three certificates: for the controller's REST interface, for its OpenFlow side, and for the
switches. With `--switch`, it signs one more for each switch, valid for that switch alone. Operators
with their own authority can use its files instead.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from common.exit_codes import EXIT_USAGE

DAYS = 3650
NAMES = ("rest", "controller", "switch")
SWITCH = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
# P-256: supported by every OpenSSL and Open vSwitch in use.
CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class KeysError(Exception):
    """Keys could not be made. The text is one line that says which and why."""


def _openssl(*arguments: str | Path) -> None:
    try:
        subprocess.run(
            ["openssl", *map(str, arguments)], check=True, capture_output=True, text=True
        )
    except FileNotFoundError as error:
        raise KeysError("openssl is not installed; valid: apt install openssl") from error
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise KeysError(f"openssl {arguments[0]} failed: {last}") from error


def make_keys(
    directory: Path, hosts: Sequence[str], switches: Sequence[str] = ()
) -> tuple[Path, ...]:
    """Write ca.pem, and NAME-key.pem and NAME-cert.pem for each of NAMES, all or nothing.

    `hosts` are the names and addresses in the REST certificate. For each of `switches`, write
    switch-NAME-key.pem and switch-NAME-cert.pem too. Raises KeysError.
    """
    for name in switches:
        if not SWITCH.fullmatch(name):
            raise KeysError(f"found switch '{name}'; valid: letters, digits, '.', '_' and '-'")
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise KeysError(f"{directory}: not empty; valid: a new or empty directory")
        temporary = Path(tempfile.mkdtemp(dir=directory, prefix=".keys-"))
    except OSError as error:
        raise KeysError(f"{directory}: {error.strerror}") from error
    try:
        _make(temporary, hosts, switches)
        made = []
        for path in sorted(temporary.glob("*.pem")):
            made.append(directory / path.name)
            path.rename(made[-1])
    finally:
        shutil.rmtree(temporary)
    return tuple(made)


def _make(directory: Path, hosts: Sequence[str], switches: Sequence[str]) -> None:
    old = os.umask(0o077)
    try:
        ca_key, ca = directory / "ca-key.pem", directory / "ca.pem"
        _openssl(
            *("req", "-x509", *CURVE, "-days", str(DAYS), "-subj", "/CN=Downpour test CA"),
            *("-addext", "basicConstraints=critical,CA:TRUE"),
            *("-keyout", ca_key, "-out", ca),
        )
        named = {name: f"DNS:{name}" for name in NAMES}
        named["rest"] = ",".join(map(_alternative, hosts))
        named |= {f"switch-{switch}": f"DNS:{switch}" for switch in switches}
        for name, names in named.items():
            key, request = directory / f"{name}-key.pem", directory / f"{name}.csr"
            extensions = directory / f"{name}.ext"
            extensions.write_text(
                f"subjectAltName={names}\nbasicConstraints=CA:FALSE\n"
                "extendedKeyUsage=serverAuth,clientAuth\n"
            )
            _openssl(
                *("req", "-new", *CURVE, "-subj", f"/CN=downpour-{name}"),
                *("-keyout", key, "-out", request),
            )
            _openssl(
                *("x509", "-req", "-in", request, "-CA", ca, "-CAkey", ca_key),
                *("-CAcreateserial", "-days", str(DAYS), "-extfile", extensions),
                *("-out", directory / f"{name}-cert.pem"),
            )
    finally:
        os.umask(old)


def _alternative(host: str) -> str:
    kind = "IP" if host.replace(".", "").isdigit() or ":" in host else "DNS"
    return f"{kind}:{host}"


def main(argv: Sequence[str]) -> int:
    """Run `python -m controller keys`; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m controller keys",
        description="Make a certificate authority for tests, and keys for REST and OpenFlow.",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="new or empty")
    parser.add_argument(
        "--host",
        action="append",
        metavar="NAME",
        help="name or address of the REST interface, any number (default localhost, 127.0.0.1)",
    )
    parser.add_argument(
        "--switch",
        action="append",
        metavar="NAME",
        default=[],
        help="a certificate for this switch alone, any number",
    )
    arguments = parser.parse_args(argv)
    hosts = arguments.host or ["localhost", "127.0.0.1"]
    try:
        made = make_keys(arguments.directory, hosts, arguments.switch)
    except KeysError as error:
        print(f"controller keys: {error}", file=sys.stderr)
        return EXIT_USAGE
    for path in made:
        print(path)
    return 0
