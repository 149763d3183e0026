"""The engines that can be started, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sira_es.errors import ConfigurationError

__all__ = ["ENGINES", "Engine", "engine_named"]

Family = Literal["elasticsearch", "opensearch"]

_OPENSEARCH_PLUGINS = (
    "org.opensearch.analysis.common.CommonAnalysis",
    "org.opensearch.index.mapper.MapperExtras",
    "org.opensearch.index.rankeval.RankEval",
    "org.opensearch.index.reindex.Reindex",
    "org.opensearch.ingest.common.IngestCommon",
    "org.opensearch.painless.Painless",
    "org.opensearch.script.mustache.Mustache",
    "org.opensearch.transport.Netty4",
)
_OPENSEARCH = {"node.roles": "cluster_manager,data,ingest"}  # the default roles lack ingest: every pipeline would fail
_ELASTICSEARCH = {"xpack.security.enabled": "false", "xpack.license.self_generated.type": "trial"}


@dataclass(frozen=True)
class Engine:
    """One engine in one version.

    `jdk` is the oldest and the newest JDK that runs it (None: no newer one is known to fail); `port` its default HTTP
    port, the transport port is 100 above; `plugins` must be reported by the running node before it counts as ready.
    """

    name: str
    family: Family
    version: str
    jdk: tuple[int, int | None]
    port: int
    plugins: tuple[str, ...]
    settings: Mapping[str, str]
    jvm_options: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        """Product and version as a person writes them."""
        return f"{'OpenSearch' if self.family == 'opensearch' else 'Elasticsearch'} {self.version}"


def _opensearch(
    name: str, version: str, jdk: tuple[int, int | None], port: int, ending: str, *jvm_options: str
) -> Engine:
    plugins = tuple(plugin + ending for plugin in _OPENSEARCH_PLUGINS)
    return Engine(
        name, "opensearch", version, jdk, port, plugins, _OPENSEARCH, ("-Dlog4j2.disable.jmx=true", *jvm_options)
    )


def _elasticsearch(name: str, version: str, jdk: tuple[int, int | None], port: int, **settings: str) -> Engine:
    return Engine(name, "elasticsearch", version, jdk, port, ("lite-analysis",), _ELASTICSEARCH | settings)


ENGINES: Mapping[str, Engine] = MappingProxyType(
    {
        row.name: row
        for row in (
            _opensearch("os2", "2.19.6", (17, None), 9219, "Plugin"),
            _opensearch("os3", "3.8.0", (21, None), 9238, "ModulePlugin", "--enable-native-access=ALL-UNNAMED"),
            _elasticsearch("es7", "7.17.29", (17, 23), 9207, **{"xpack.security.authc.api_key.enabled": "true"}),
            _elasticsearch("es8", "8.19.7", (17, None), 9208),
            _elasticsearch("es9", "9.2.0", (21, None), 9209),
        )
    }
)


def engine_named(name: str) -> Engine:
    """The row of that name; ConfigurationError when there is none."""
    try:
        return ENGINES[name]
    except KeyError:
        raise ConfigurationError(f"unknown engine {name!r}: choose one of {', '.join(ENGINES)}") from None
