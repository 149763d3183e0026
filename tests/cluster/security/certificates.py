"""Certificates for a node on loopback and for one that signs in with its own: a private authority, made anew."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Certificates:
    """Files of a private authority; `client` is signed by it for the name `cert-user`, `stranger` by nobody."""

    ca: Path
    node: Path
    node_key: Path
    client: Path
    client_key: Path
    stranger: Path
    stranger_key: Path

    @classmethod
    def of(cls, folder: Path) -> Certificates:
        files = [f"{name}.{end}" for name in ("node", "client", "stranger") for end in ("crt", "key")]
        return cls(folder / "ca.crt", *(folder / f for f in files))

    @property
    def fingerprint(self) -> str:
        command = ["openssl", "x509", "-in", str(self.node), "-noout", "-fingerprint", "-sha256"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip().partition("=")[2]


def make(folder: Path) -> Certificates:
    _openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "ca.key", "-out", "ca.crt",
             "-subj", "/CN=test authority")  # fmt: skip
    _openssl(folder, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-keyout", "stranger.key",
             "-out", "stranger.crt", "-subj", "/CN=cert-user")  # fmt: skip
    for name, subject, extension in (
        ("node", "/CN=localhost", "subjectAltName=DNS:localhost,IP:127.0.0.1"),
        ("client", "/CN=cert-user", "extendedKeyUsage=clientAuth"),
    ):
        (folder / f"{name}.ext").write_text(extension + "\n")
        _openssl(folder, "req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
                 "-subj", subject)  # fmt: skip
        _openssl(folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
                 "-days", "2", "-out", f"{name}.crt", "-extfile", f"{name}.ext")  # fmt: skip
    return Certificates.of(folder)


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
