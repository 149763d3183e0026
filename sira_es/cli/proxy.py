"""`sira-es proxy`: stands before the cluster, and makes searches better on their way."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from sira_es.cli.common import Options, common_options, recorded_option
from sira_es.errors import ConfigurationError
from sira_es.settings import DEFAULT_FILE

if TYPE_CHECKING:
    from sira_es.proxy import options as proxy_options
    from sira_es.settings import Settings

_FIGURES = "PROMETHEUS_MULTIPROC_DIR"


def _share(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """A share such as 5% or 0.05."""
    if value is None:
        return None
    try:
        share = float(value.removesuffix("%")) / (100 if value.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise click.BadParameter(f"'{value}' is not a share; give one such as 5%", ctx, param)
    return share


@click.command()
@click.option("--listen", default="127.0.0.1:9201", show_default=True, metavar="HOST:PORT", help="Where to serve.")
@click.option("--upstream", multiple=True, metavar="URL", help="A node of the cluster; may be repeated [cluster.url].")
@click.option(
    "--mode",
    type=click.Choice(["rerank", "recall", "rescore", "rescue", "off"]),
    help="For all indices [as configured].",
)
@click.option(
    "--online",
    type=click.Choice(["deadline", "never"]),
    help="Wait for the model as long as its deadline, or only take what the store knows [as configured].",
)
@click.option(
    "--shadow",
    callback=_share,
    metavar="SHARE",
    default="0",
    help="Search this share a second time, expanded and unseen.",
)
@click.option("--sample", callback=_share, metavar="SHARE", help="Serve expanded searches to this share of users.")
@click.option("--workers", type=click.IntRange(1, 256), default=1, show_default=True, help="Processes.")
@click.option("--tls-cert", type=click.Path(path_type=Path), help="Serve TLS with this certificate (PEM).")
@click.option("--tls-key", type=click.Path(path_type=Path), help="Its key, where it is not in the same file.")
@recorded_option
@common_options
def proxy(options: Options, **given: Any) -> int:
    """Serve as the cluster does, with searches made better on their way.

    Clients need no change but the URL. Everything that is not a search goes through untouched, and so does every search
    of an index that is not configured.

    Example: sira-es proxy --listen 0.0.0.0:9201 --upstream https://es.example:9200
    """
    from sira_es.proxy.options import Options as ProxyOptions

    urls = ",".join(given["upstream"]) or None

    file = options.config or DEFAULT_FILE
    filled = not _empty(file)

    def load() -> Settings:
        settings = options.settings(**({"cluster.url": urls} if urls else {}))
        if filled and _empty(file):
            raise ConfigurationError(f"{file} is gone or empty; write it again")
        return settings

    serving = ProxyOptions(
        mode=given["mode"],
        online=given["online"],
        shadow=cast("float", given["shadow"]),
        sample=given["sample"],
        recorded=given["recorded"],
    )
    settings = load()
    host, port = _address(given["listen"])
    if given["tls_key"] and not given["tls_cert"]:
        raise ConfigurationError("--tls-key: there is no certificate with it; give --tls-cert too")
    if given["workers"] == 1 or _FIGURES in os.environ:
        return _serve(options, load, settings, serving, (host, port), given)
    with tempfile.TemporaryDirectory(prefix="sira-es-metrics-") as folder:
        os.environ[_FIGURES] = folder
        try:
            return _serve(options, load, settings, serving, (host, port), given)
        finally:
            del os.environ[_FIGURES]


def _serve(
    options: Options,
    load: Any,
    settings: Settings,
    serving: proxy_options.Options,
    address: tuple[str, int],
    given: dict[str, Any],
) -> int:
    from sira_es.proxy.app import Proxy
    from sira_es.proxy.memory import LocalMemory, Memory, SharedMemory
    from sira_es.proxy.room import check
    from sira_es.proxy.server import Tls, bind, serve
    from sira_es.proxy.upstream import tls_of

    workers = given["workers"]
    tls_of(settings.cluster)  # what is wrong with it is said before anything is served
    asyncio.run(check(settings, serving))
    listening = bind(*address)
    tls = Tls(given["tls_cert"], given["tls_key"]) if given["tls_cert"] else None
    scheme = "https" if tls else "http"
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    if not settings.indices:
        options.say("sira-es: no index is configured: everything passes; 'sira-es init --index NAME' configures one")
    elif not settings.llm.queries.model and not serving.recorded:
        options.say(
            "sira-es: no model is configured for queries: set llm.queries.model in sira-es.yml, or use --recorded"
        )
    options.say(f"sira-es: {scheme}://{shown}:{port} in front of {', '.join(settings.cluster.url)}")
    sys.stderr.flush()

    def memory(current: Settings) -> Memory:
        return SharedMemory(current.state / "served.sqlite") if workers > 1 else LocalMemory()

    def make_app() -> Proxy:
        return Proxy(load, serving, memory=memory, quiet=options.quiet, say=options.say)

    return serve(make_app, listening, workers=workers, tls=tls)


def _empty(file: Path) -> bool:
    """Whether a file is gone or holds nothing but comments, as one does that is just being written."""
    try:
        lines = [line.strip() for line in file.read_bytes().splitlines()]
    except OSError:
        return True
    return all(not line or line.startswith(b"#") for line in lines)


def _address(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise ConfigurationError(f"--listen {listen}: give host and port, such as 127.0.0.1:9201")
    if not colon:
        return "127.0.0.1", int(port)
    return host.strip("[]") or "0.0.0.0", int(port)  # noqa: S104  an empty host means all of them, as for other servers
