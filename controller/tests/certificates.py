# SPDX-License-Identifier: Apache-2.0
"""Certificates that must not be accepted, signed by an authority of `python -m controller keys`.

They are made with `cryptography`, on which os-ken depends.
"""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

DAY = datetime.timedelta(days=1)
BOTH = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def make(
    directory: Path,
    name: str,
    authority: Path,
    *,
    host: str = "switch",
    begins: int = -1,
    ends: int = 1,
    uses: tuple[x509.ObjectIdentifier, ...] = BOTH,
    is_self_signed: bool = False,
) -> tuple[Path, Path]:
    """Write NAME-cert.pem and NAME-key.pem and return both; `begins`, `ends`: days from now."""
    key = ec.generate_private_key(ec.SECP256R1())
    ca_key = serialization.load_pem_private_key((authority / "ca-key.pem").read_bytes(), None)
    assert isinstance(ca_key, ec.EllipticCurvePrivateKey)
    ca = x509.load_pem_x509_certificate((authority / "ca.pem").read_bytes())
    now = datetime.datetime.now(datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(_name(name) if is_self_signed else ca.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins * DAY)
        .not_valid_after(now + ends * DAY)
        .add_extension(x509.SubjectAlternativeName([_alternative(host)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .sign(key if is_self_signed else ca_key, hashes.SHA256())
    )
    certificate, key_file = directory / f"{name}-cert.pem", directory / f"{name}-key.pem"
    certificate.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certificate, key_file
