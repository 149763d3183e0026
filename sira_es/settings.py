"""`sira-es.yml`, the environment and the options of a call: read and validated once, secrets masked.

Order of precedence: option, environment (`SIRA_ES__CLUSTER__URL`), file, default. In the file `${NAME}` stands for a variable of
the environment and `${file:/path}` for the content of a file, so that no secret need stand in it.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError
from pydantic_settings.sources import InitSettingsSource

from sira_es.errors import ConfigurationError

__all__ = [
    "AwsSettings",
    "ClusterSettings",
    "ExpansionSettings",
    "IndexSettings",
    "LlmSettings",
    "LlmStage",
    "ProxySettings",
    "SearchSettings",
    "Settings",
    "load_settings",
    "weighted_field",
]

Mode = Literal["recall", "rerank", "rescore"]
DEFAULT_FILE = Path("sira-es.yml")


def _seconds(value: object) -> object:
    match = re.fullmatch(r"\s*([0-9.]+)\s*(ms|s|m|h)?\s*", value) if isinstance(value, str) else None
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}[match[2]] if match else value


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Names = Annotated[list[str], NoDecode, BeforeValidator(_listed)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())


class AwsSettings(_Part):
    """Requests signed with AWS Signature 4; credentials come from the usual AWS chain."""

    region: str
    service: Literal["es", "aoss"] = "es"


class ClusterSettings(_Part):
    """Where the cluster is and how to sign in. At most one of the ways to sign in may be given.

    `url` may name several nodes of one cluster, separated by commas, each with a path prefix. Credentials in it are taken
    out and kept as `basic_auth`. `timeout` is in seconds, for one request. `document_security` says whether the index hides
    documents from some users; unset, our own credentials count as unrestricted.
    """

    url: Names = ["http://127.0.0.1:9200"]
    api_key: SecretStr | None = None
    bearer: SecretStr | None = None
    basic_auth: SecretStr | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    ca_certs: Path | None = None
    fingerprint: str | None = None
    verify: bool = True
    aws: AwsSettings | None = None
    document_security: bool | None = None
    timeout: Seconds = 30.0

    @model_validator(mode="before")
    @classmethod
    def _credentials_out_of_the_url(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not data.get("url"):
            return data
        urls, found = [], None
        listed = _listed(data["url"])
        for url in listed if isinstance(listed, list) else [listed]:
            parts = urlsplit(str(url))
            if "@" in parts.netloc:
                userinfo, host = parts.netloc.rsplit("@", 1)
                found = unquote(userinfo)
                parts = parts._replace(netloc=host)
            urls.append(urlunsplit(parts))
        return {**data, "url": urls, **({"basic_auth": found} if found and not data.get("basic_auth") else {})}

    @model_validator(mode="after")
    def _one_way_to_sign_in(self) -> ClusterSettings:
        for url in self.url:
            parts = urlsplit(url)
            if parts.scheme not in {"http", "https"} or not parts.hostname:
                raise ValueError(f"'{url}' is not a cluster address such as https://es.example:9200")
        ways = [n for n in ("api_key", "bearer", "basic_auth", "aws") if getattr(self, n) is not None]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} are both given; keep one")
        if self.basic_auth and ":" not in self.basic_auth.get_secret_value():
            raise ValueError("basic_auth must have the form user:password")
        return self


class LlmStage(_Part):
    """One use of a language model. `model` is any litellm name; None: no model, only recorded or stored answers.

    `rpm` and `tpm` are requests and tokens a minute; `timeout` and `deadline` seconds: for one call, and for how long a
    search that is served may wait; `max_cost_per_day` in the currency of the price list (US dollars).
    """

    model: str | None = None
    api_base: str | None = None
    api_key: SecretStr | None = None
    rpm: int | None = Field(default=None, gt=0)
    tpm: int | None = Field(default=None, gt=0)
    concurrency: int = Field(default=8, gt=0)
    timeout: Seconds = 60.0
    deadline: Seconds = 2.0
    max_cost_per_day: float | None = Field(default=None, ge=0)


class LlmSettings(_Part):
    documents: LlmStage = LlmStage()
    queries: LlmStage = LlmStage()


class ExpansionSettings(_Part):
    """The numbers of the method: how much the expansions may weigh, and which words may count."""

    budget: float = Field(default=1.2, ge=0)
    knee: float = Field(default=5.0, ge=0)
    lift: float = Field(default=0.5, ge=0)
    max_terms: int = Field(default=16, ge=0)
    min_margin: float = 0.0
    max_df: float = Field(default=0.5, gt=0, le=1)


class SearchSettings(_Part):
    mode: Mode = "recall"
    baseline: dict[str, Any] | None = None
    """A whole search body with {{query}} where the text goes: the application's own query."""


class ProxySettings(_Part):
    mode: Literal["recall", "rerank", "rescore", "rescue", "off"] = "rerank"
    online: Literal["never", "deadline"] = "deadline"


class IndexSettings(_Part):
    """What is known of one index. `text_fields` are names with an optional weight: `title^2`."""

    text_fields: Names
    main_field: str | None = None
    description: str = ""
    language: str = ""
    questions: bool = False
    expansion: ExpansionSettings = ExpansionSettings()
    search: SearchSettings = SearchSettings()
    proxy: ProxySettings = ProxySettings()

    @model_validator(mode="after")
    def _fields_fit(self) -> IndexSettings:
        if not self.text_fields:
            raise ValueError("text_fields is empty; name at least one text field")
        names = [weighted_field(f)[0] for f in self.text_fields]
        if self.main_field and self.main_field not in names:
            raise ValueError(f"main_field '{self.main_field}' is not among text_fields ({', '.join(names)})")
        return self

    @property
    def fields(self) -> tuple[tuple[str, float], ...]:
        """The text fields with their weights."""
        return tuple(weighted_field(f) for f in self.text_fields)

    @property
    def main(self) -> str:
        """The field whose analyzer rules: `main_field`, else the last of the text fields."""
        return self.main_field or self.fields[-1][0]


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        env_prefix="SIRA_ES__", env_nested_delimiter="__", extra="forbid", frozen=True, nested_model_default_partial_update=True
    )

    cluster: ClusterSettings = ClusterSettings()
    llm: LlmSettings = LlmSettings()
    state: Path = Field(default_factory=lambda: _state_home() / "sira-es")
    store: Literal["sqlite", "index"] = "sqlite"
    indices: dict[str, IndexSettings] = {}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Options first, then the environment, then the file, which arrives under the private name `_file`."""
        options = dict(init_settings.init_kwargs) if isinstance(init_settings, InitSettingsSource) else {}
        content = options.pop("_file_content", {})
        return (
            InitSettingsSource(settings_cls, init_kwargs=options),
            env_settings,
            InitSettingsSource(settings_cls, init_kwargs=content),
        )

    def index(self, name: str) -> IndexSettings:
        """The settings of index `name`. Raises ConfigurationError, with the nearest name, where there are none."""
        if name in self.indices:
            return self.indices[name]
        near = _nearest(name, list(self.indices))
        hint = f"did you mean '{near}'?" if near else f"run 'sira-es init --index {name}' first"
        raise ConfigurationError(f"no index '{name}' in the configuration; {hint}")


def weighted_field(text: str) -> tuple[str, float]:
    """Split `title^2` into name and weight (1 where none is given). Raises ValueError for a weight that is not above 0."""
    name, _, weight = text.partition("^")
    try:
        value = float(weight) if weight else 1.0
    except ValueError:
        value = 0.0
    if not name or not 0 < value < 1e6:
        raise ValueError(f"text field '{text}' must be a name with an optional weight above 0, such as title^2")
    return name, value


def load_settings(path: Path | str | None = None, **options: Any) -> Settings:
    """Read the configuration. `path` None: `sira-es.yml` of the working directory where there is one.

    `options` override whole keys, dotted names reach inside: `{"cluster.url": "http://..."}`. Raises ConfigurationError.
    """
    file = Path(path) if path is not None else DEFAULT_FILE
    content: dict[str, Any] = {}
    if path is not None or file.exists():
        content = _read(file)
    given: dict[str, Any] = {}
    for dotted, value in options.items():
        if value is not None:
            place = given
            *parents, last = dotted.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
    try:
        settings = Settings(_file_content=content, **given)  # type: ignore[call-arg]
    except ValidationError as error:
        raise ConfigurationError(_explain(error, str(file) if content else "configuration")) from None
    except SettingsError as error:
        raise ConfigurationError(f"environment variable SIRA_ES__...: {error}; values of lists and maps are JSON") from None
    return settings.model_copy(update={"state": settings.state.expanduser()})


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8-sig"))
    except FileNotFoundError:
        raise ConfigurationError(f"no configuration file {file}; 'sira-es init --index NAME' writes one") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"cannot read {file}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" line {mark.line + 1}" if mark else ""
        raise ConfigurationError(f"{file}{place} is not valid YAML: {getattr(error, 'problem', None) or 'unreadable'}") from None
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigurationError(f"{file} must hold keys such as 'cluster:' and 'indices:', not a {type(content).__name__}")
    filled = _interpolate(content, file, "")
    assert isinstance(filled, dict)  # noqa: S101  a dict goes in, a dict comes out
    return filled


def _interpolate(value: Any, file: Path, place: str) -> Any:
    if isinstance(value, dict):
        return {str(k): _interpolate(v, file, f"{place}.{k}".lstrip(".")) for k, v in value.items()}
    if isinstance(value, list):
        return [_interpolate(v, file, place) for v in value]
    if not isinstance(value, str):
        return value

    def replace(match: re.Match[str]) -> str:
        name = match[1]
        if name.startswith("file:"):
            try:
                return Path(name.removeprefix("file:")).expanduser().read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError):
                raise ConfigurationError(f"{file}: {place}: cannot read {name.removeprefix('file:')}") from None
        if name not in os.environ:
            raise ConfigurationError(f"{file}: {place}: the environment variable {name} is not set")
        return os.environ[name]

    return re.sub(r"\$\{([A-Za-z_]\w*|file:[^}]+)\}", replace, value)


def _nearest(name: str, candidates: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)), None)


def _explain(error: ValidationError, source: str) -> str:
    """One line for the first problem: file, key path, what is wrong, nearest valid key. Never the value: it may be a secret."""
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(p) for p in first["loc"]]
    where = ".".join(path)
    if first["type"] == "extra_forbidden":
        near = _nearest(path[-1], _keys_at(path[:-1]))
        return f"{source}: unknown key '{where}'" + (f"; did you mean '{near}'?" if near else "; see the configuration in README.md")
    if first["type"] == "missing":
        return f"{source}: '{where}' is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{source}: {where}: {message}" if where else f"{source}: {message}"


def _keys_at(path: Sequence[str]) -> list[str]:
    model: Any = Settings
    for key in path:
        field = getattr(model, "model_fields", {}).get(key)
        if field is None:
            model = IndexSettings if model is dict else model
            continue
        annotation = field.annotation
        model = dict if key == "indices" else next((a for a in getattr(annotation, "__args__", ()) if hasattr(a, "model_fields")), annotation)
    return list(getattr(model, "model_fields", {}))
