"""A node with security on: TLS of a private authority, users, roles, API keys, tokens, client certificates."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster.security.certificates import Certificates, make
from end_to_end.conftest import Result
from sira_es.cli import run
from sira_es.settings import ClusterSettings

PASSWORD = "planted-Pa55-word"


@dataclass(frozen=True)
class Secured:
    """A running node with security; `call` asks it as its administrator, without any client of ours."""

    url: str
    certificates: Certificates
    log: Path

    def call(self, method: str, path: str, body: object = None, *, user: str = "", lines: Sequence[Any] = ()) -> Any:
        """The JSON of the answer; raises urllib's HTTPError for a refusal."""
        data = None if body is None else json.dumps(body).encode()
        if lines:
            data = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        credentials = base64.b64encode((user or f"admin:{PASSWORD}").encode()).decode()
        headers = {"content-type": "application/json", "authorization": f"Basic {credentials}"}
        request = urllib.request.Request(f"{self.url}{path}", data, headers, method=method)
        context = ssl.create_default_context(cafile=str(self.certificates.ca))
        handlers = [urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)]
        with urllib.request.build_opener(*handlers).open(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def user(self, name: str, *roles: str) -> str:
        """Make a user with these roles; the user:password of its own."""
        password = f"planted-{secrets.token_hex(6)}"
        self.call("PUT", f"/_security/user/{name}", {"password": password, "roles": list(roles)})
        return f"{name}:{password}"

    def role(self, name: str, body: Mapping[str, Any]) -> None:
        self.call("PUT", f"/_security/role/{name}", body)

    def settings(self, **sign_in: Any) -> ClusterSettings:
        return ClusterSettings(**{"url": self.url, "ca_certs": self.certificates.ca, **sign_in})


@pytest.fixture(scope="session")
def secured(engine: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """One node for the session: of the engine under test, of es8 where none is named."""
    from sira_es import devnode

    if running := os.environ.get("SIRA_ES_TEST_SECURED"):  # "https://127.0.0.1:9418 /folder/of/its/certificates"
        url, folder = running.split(" ")
        yield Secured(url, Certificates.of(Path(folder)), Path(os.devnull))
        return
    named = os.environ.get("SIRA_ES_TEST_ENGINE")
    row = devnode.ENGINES[named or "es8"]
    if row.family != "elasticsearch":
        pytest.skip("the server that Maven serves for this engine holds no security plugin")
    if not shutil.which("openssl"):
        pytest.skip("openssl is needed to make certificates")
    certificates = make(tmp_path_factory.mktemp("certificates"))
    files = {f"certs/{f.name}": f.read_bytes() for f in (certificates.ca, certificates.node, certificates.node_key)}
    settings = {
        "xpack.security.http.ssl.enabled": "true",
        "xpack.security.http.ssl.certificate": "certs/node.crt",
        "xpack.security.http.ssl.key": "certs/node.key",
        "xpack.security.http.ssl.certificate_authorities": "certs/ca.crt",
        "xpack.security.http.ssl.client_authentication": "optional",
        "xpack.security.authc.token.enabled": "true",
        "xpack.security.authc.realms.file.file1.order": "0",
        "xpack.security.authc.realms.native.native1.order": "1",
        "xpack.security.authc.realms.pki.pki1.order": "2",
        "xpack.security.authc.realms.pki.pki1.certificate_authorities": "certs/ca.crt",
    }
    instance = f"test-secured-{os.getpid()}"
    try:
        node = devnode.up(row.name, 0, instance=instance, settings=settings, password=PASSWORD, files=files)
    except devnode.ToolMissingError as missing:
        pytest.skip(str(missing))
    try:
        yield Secured(node.url, certificates, node.folder / "node.log")
    finally:
        devnode.down(row.name, instance=instance, purge=True)


@pytest.fixture
def index_name(secured: Secured) -> Iterator[str]:
    """A fresh name; every index whose name begins with it is deleted after the test."""
    name = f"test-{secrets.token_hex(6)}"
    yield name
    for row in secured.call("GET", f"/_cat/indices/{name}*?h=index&format=json&expand_wildcards=all"):
        secured.call("DELETE", f"/{row['index']}")


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Run one command in this process."""

    def call(*arguments: object) -> Result:
        capsys.readouterr()
        code = run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return Result(code, captured.out, captured.err)

    return call


@pytest.fixture
def write_config(tmp_path: Path, secured: Secured) -> Callable[..., Path]:
    """Write a sira-es.yml for an index of title and text, signed in as told."""

    def write(index: str, **cluster: Any) -> Path:
        file = tmp_path / "sira-es.yml"
        content = {
            "cluster": {"url": secured.url, "ca_certs": str(secured.certificates.ca), **cluster},
            "state": str(tmp_path / "state"),
            "indices": {index: {"text_fields": ["title", "text"], "language": "en"}},
        }
        file.write_text(yaml.safe_dump(content), encoding="utf-8")
        return file

    return write


def status_of(secured: Secured, method: str, path: str, **options: Any) -> int:
    """The status of a request, refusals included."""
    try:
        secured.call(method, path, **options)
    except urllib.error.HTTPError as refusal:
        refusal.close()
        return refusal.code
    return 200
