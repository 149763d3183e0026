"""`sira-es.yml`, the environment and the options of a call: read and validated once, secrets masked.

Order of precedence: option, environment (`SIRA_ES__CLUSTER__URL`), file, default. A key without a value, and an empty
variable, count as not given. In the file `${NAME}` stands for a variable of the environment and `${file:/path}` for the
content of a file, so that no secret need stand in it.
"""

from __future__ import annotations

import difflib
import os
import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict, SettingsError
from pydantic_settings.sources import InitSettingsSource

from sira_es.errors import ConfigurationError

__all__ = [
    "DEFAULT_FILE",
    "AwsSettings",
    "ClusterSettings",
    "ExpansionSettings",
    "IndexSettings",
    "LlmSettings",
    "LlmStage",
    "ProxySettings",
    "QueryRules",
    "SearchSettings",
    "Settings",
    "load_settings",
    "weighted_field",
]

Mode = Literal["recall", "rerank", "rescore"]
DEFAULT_FILE = Path("sira-es.yml")
_PREFIX = "SIRA_ES__"
_ENRICHED = "enriched_terms"


def _seconds(value: object) -> object:
    match = re.fullmatch(r"\s*([0-9.]+)\s*(ms|s|m|h)?\s*", value) if isinstance(value, str) else None
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "h": 3600, None: 1}[match[2]] if match else value


def _listed(value: object) -> object:
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


def _stripped(value: object) -> object:
    """Secrets often arrive with the end of the line that they stood in."""
    return value.strip() if isinstance(value, str) else value


Seconds = Annotated[float, BeforeValidator(_seconds), Field(gt=0)]
Secret = Annotated[SecretStr, BeforeValidator(_stripped), Field(min_length=1)]
Names = Annotated[list[str], NoDecode, BeforeValidator(_listed)]


class _Part(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), hide_input_in_errors=True, allow_inf_nan=False
    )

    @model_validator(mode="before")
    @classmethod
    def _without_empty_keys(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {key: value for key, value in data.items() if value is not None or key not in cls.model_fields}


class AwsSettings(_Part):
    """Requests signed with AWS Signature 4; credentials come from the usual AWS chain."""

    region: str
    service: Literal["es", "aoss"] = "es"


class ClusterSettings(_Part):
    """Where the cluster is and how to sign in. At most one of the ways to sign in may be given.

    `url` may name several nodes of one cluster, separated by commas, each with a path prefix. Credentials in it are
    taken out and kept as `basic_auth`. `cloud_id`, as Elastic Cloud shows it, stands for the `url` that it names.
    `timeout` is in seconds, for one request. `document_security` says whether the index hides documents from some
    users; unset, our own credentials count as unrestricted.
    """

    url: Names = ["http://127.0.0.1:9200"]
    cloud_id: str | None = None
    api_key: Secret | None = None
    bearer: Secret | None = None
    basic_auth: Secret | None = None
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
    def _url_of_the_cloud_id(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or not isinstance(data.get("cloud_id"), str):
            return data
        if _listed(data.get("url") or []) not in ([], cls.model_fields["url"].default):
            raise ValueError("url and cloud_id are both given; keep one")
        return {**data, "url": [_address_in(data["cloud_id"])], "cloud_id": None}

    @model_validator(mode="before")
    @classmethod
    def _credentials_out_of_the_url(cls, data: Any) -> Any:
        if not isinstance(data, Mapping) or data.get("url") is None:
            return data
        listed = _listed(data["url"])
        split = [_without_credentials(url) for url in (listed if isinstance(listed, list) else [listed])]
        found = {credentials for _, credentials in split if credentials}
        given = data.get("basic_auth")
        if found and given:
            found.add(given.get_secret_value() if isinstance(given, SecretStr) else str(given))
        if len(found) > 1:
            raise ValueError("there are different credentials in url and basic_auth, or for different nodes; keep one")
        return {**data, "url": [url for url, _ in split], **({"basic_auth": found.pop()} if found else {})}

    @field_validator("url")
    @classmethod
    def _addresses(cls, urls: list[str]) -> list[str]:
        if not urls:
            raise ValueError("is empty; give an address such as https://es.example:9200")
        for url in urls:
            try:
                parts = urlsplit(url)
                good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
            except ValueError:
                good = False
            if not good or "@" in url or parts.query or parts.fragment:
                raise ValueError(  # which does not tell the address: it may hold a password
                    "must be an address such as https://es.example:9200; in credentials write , / ? # @ as %2C %2F %3F %23 %40"
                )
        return urls

    @model_validator(mode="after")
    def _one_way_to_sign_in(self) -> ClusterSettings:
        ways = [n for n in ("api_key", "bearer", "basic_auth", "aws") if getattr(self, n) is not None]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} are both given; keep one")
        if self.fingerprint and not all(url.startswith("https:") for url in self.url):
            raise ValueError("fingerprint is that of a certificate, but url is not https; write https://")
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
    api_key: Secret | None = None
    rpm: int | None = Field(default=None, gt=0)
    tpm: int | None = Field(default=None, gt=0)
    concurrency: int = Field(default=8, gt=0)
    timeout: Seconds = 60.0
    deadline: Seconds = 2.0
    max_cost_per_day: float | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _no_secret_in_the_address(self) -> LlmStage:
        if self.api_base and re.match(r"\w+://[^/]*@", self.api_base):
            raise ValueError("api_base holds credentials; give them as api_key")
        return self


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


class QueryRules(_Part):
    """Regular expressions for whole queries, in any case: `deny` is never expanded, `allow` whatever it looks like."""

    allow: list[str] = []
    deny: list[str] = []

    @field_validator("allow", "deny")
    @classmethod
    def _patterns(cls, patterns: list[str]) -> list[str]:
        for pattern in patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ValueError(f"'{pattern}' is no regular expression: {error}") from None
        return patterns


class SearchSettings(_Part):
    mode: Mode = "recall"
    baseline: dict[str, Any] | None = None
    """A whole search body with {{query}} where the text goes: the application's own query."""
    enriched_weight: float = Field(default=1.5, gt=0)
    """What `enriched_terms` weighs beside the text fields, for a word of an expansion, on a fully enriched index."""


class ProxySettings(_Part):
    mode: Literal["recall", "rerank", "rescore", "rescue", "off"] = "rerank"
    online: Literal["never", "deadline"] = "deadline"


class IndexSettings(_Part):
    """What is known of one index. `text_fields` are names with an optional weight: `title^2`.

    `read_fields` are read by the model as well, but not searched: text inside nested objects, keywords. A document of
    more than `chunk_tokens` is read in several parts. `updated_field` is a date that every change of a document sets: by
    it changes are found where the cluster does not tell its checkpoints. An index that has text in nested objects alone is searched by what
    is added to it: `text_fields: [enriched_terms]`, with the nested fields as `read_fields`.
    """

    text_fields: Names
    read_fields: Names = []
    main_field: str | None = None
    updated_field: str | None = None
    chunk_tokens: int = Field(default=4000, ge=200)
    description: str = ""
    language: str = ""
    questions: bool = False
    expansion: ExpansionSettings = ExpansionSettings()
    expand_queries: QueryRules = QueryRules()
    search: SearchSettings = SearchSettings()
    proxy: ProxySettings = ProxySettings()

    @model_validator(mode="after")
    def _fields_fit(self) -> IndexSettings:
        if not self.text_fields:
            raise ValueError("text_fields is empty; name at least one text field")
        names = [weighted_field(f)[0] for f in self.text_fields]
        if twice := next((n for n in names + self.read_fields if (names + self.read_fields).count(n) > 1), None):
            raise ValueError(f"text field '{twice}' is named twice; keep one")
        if _ENRICHED in names + self.read_fields and not (names == [_ENRICHED] and self.read_fields):
            raise ValueError(f"'{_ENRICHED}' is searched anyway; name it only as the one text field beside read_fields")
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

    @property
    def pattern(self) -> str:
        """The read field that gives `enriched_terms` its analyzers, where that is the only searched field; else empty."""
        return self.read_fields[0] if self.main == _ENRICHED else ""

    @property
    def read(self) -> list[str]:
        """All fields that the model reads: the text fields, then the read fields."""
        return [name for name, _ in self.fields if name != _ENRICHED] + self.read_fields


class Settings(BaseSettings):
    """The whole configuration."""

    model_config = SettingsConfigDict(
        env_prefix=_PREFIX,
        env_nested_delimiter="__",
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
        hide_input_in_errors=True,
        nested_model_default_partial_update=True,
    )

    cluster: ClusterSettings = ClusterSettings()
    llm: LlmSettings = LlmSettings()
    state: Path = Field(default_factory=lambda: _state_home() / "sira-es")
    store: Literal["file", "index"] = "file"
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
        """Options first, then the environment, then the file, which arrives as `_file_content`."""
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
    """Split `title^2` into name and weight, 1 where none is given. Raises ValueError for a weight not above 0."""
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

    `options` override whole keys, dotted names reach inside: `{"cluster.url": "http://..."}`; one that is None counts
    as not given. Raises ConfigurationError.
    """
    file = Path(path) if path is not None else DEFAULT_FILE
    content = _read(file) if path is not None or file.exists() else {}
    given: dict[str, Any] = {}
    for dotted, value in options.items():
        if value is not None:
            place = given
            *parents, last = dotted.split(".")
            for parent in parents:
                place = place.setdefault(parent, {})
            place[last] = value
    try:
        _check_environment()
        if isinstance(cluster := content.get("cluster"), dict) and _named_elsewhere(given):
            content = {**content, "cluster": {k: v for k, v in cluster.items() if k != "cloud_id"}}
        settings = Settings(_file_content=content, **given)  # type: ignore[call-arg]
        return settings.model_copy(update={"state": settings.state.expanduser()})
    except ValidationError as error:
        raise ConfigurationError(_explain(error, file, content, given)) from None
    except SettingsError as error:
        raise ConfigurationError(f"environment {_PREFIX}...: {error}; lists and maps are written as JSON") from None
    except RuntimeError:
        raise ConfigurationError(
            "state: the home directory is not known; set 'state' to the full path of a folder"
        ) from None


def _named_elsewhere(given: Mapping[str, Any]) -> bool:
    """Whether an option or the environment names the cluster, which beats a cloud id of the file."""
    variables = {name.upper() for name, value in os.environ.items() if value}
    return "url" in given.get("cluster", {}) or f"{_PREFIX}CLUSTER__URL" in variables


def _check_environment() -> None:
    """Raise ConfigurationError for a variable of ours that names no key; of nested ones the validation takes care."""
    for name in sorted(os.environ):
        if name.upper().startswith(_PREFIX):
            key = name[len(_PREFIX) :].split("__")[0].lower()
            if key not in Settings.model_fields:
                raise ConfigurationError(_unknown("environment", name, key, list(Settings.model_fields)))


def _state_home() -> Path:
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")


def _address_in(cloud_id: str) -> str:
    """The address of Elasticsearch in a cloud id, `name:base64(host[:port]$elasticsearch[:port]$kibana)`.

    Raises ValueError.
    """
    try:
        host, cluster, *_ = b64decode(cloud_id.rpartition(":")[2], validate=True).decode().split("$")
        host, _, port = host.partition(":")
        cluster, _, own_port = cluster.partition(":")
        address = f"https://{cluster}.{host}:{own_port or port or 443}"
        good = bool(re.fullmatch(r"https://[\w.-]+:[0-9]+", address) and host and cluster)
    except ValueError:
        good = False
    if not good:
        raise ValueError("cloud_id is none; copy it from the page of the deployment in Elastic Cloud")
    return address


def _without_credentials(url: object) -> tuple[object, str]:
    """An address, and the user:password that was in it; both as they are where it is none."""
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
    except ValueError:
        parts = None
    if parts is None or "@" not in parts.netloc:
        return url, ""
    user, _, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=host)), unquote(user)


class _Loader(yaml.SafeLoader):
    """YAML whose mappings may not name a key twice: the second would win without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise yaml.constructor.ConstructorError(problem="a key is given twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _read(file: Path) -> dict[str, Any]:
    try:
        content = yaml.load(file.read_text(encoding="utf-8-sig"), _Loader)  # noqa: S506  a safe loader
        filled = _interpolate(content, file, "")
    except FileNotFoundError:
        raise ConfigurationError(f"no configuration file {file}; 'sira-es init --index NAME' writes one") from None
    except OSError as error:
        raise ConfigurationError(f"cannot read {file}: {error.strerror or 'input/output error'}") from None
    except UnicodeDecodeError:
        raise ConfigurationError(f"cannot read {file}: not UTF-8 text; save it as UTF-8") from None
    except yaml.YAMLError as error:
        raise ConfigurationError(f"{file}{_what_is_no_yaml(error)}") from None
    except ValueError:
        raise ConfigurationError(f"{file} holds a date or number that does not exist; put it in quotes") from None
    except RecursionError:
        raise ConfigurationError(f"{file} is nested too deeply, or an anchor holds itself") from None
    if filled is None:
        return {}
    if not isinstance(filled, dict):
        raise ConfigurationError(
            f"{file} must hold keys such as 'cluster:' and 'indices:', not a {type(filled).__name__}"
        )
    return {key: value for key, value in filled.items() if value is not None or key not in Settings.model_fields}


def _what_is_no_yaml(error: yaml.YAMLError) -> str:
    """Where and what, without the names of aliases and tags: an unquoted password may begin with * or !."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or "it holds a character that YAML does not allow"
    problem = re.sub(
        r"(alias|anchor|tag|handle) ['\"].*", r"\1; put a value that begins with * & or ! in quotes", problem
    )
    return f"{f' line {mark.line + 1}' if mark else ''} is not valid YAML: {' '.join(problem.split())}"


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
            except (OSError, ValueError, RuntimeError):
                raise ConfigurationError(f"{file}: {place}: cannot read {name.removeprefix('file:')}") from None
        if not re.fullmatch(r"[A-Za-z_]\w*", name):
            raise ConfigurationError(f"{file}: {place}: '${{{name}}}' is neither ${{NAME}} nor ${{file:/path}}")
        if name not in os.environ:
            raise ConfigurationError(f"{file}: {place}: the environment variable {name} is not set")
        return os.environ[name]

    return re.sub(r"\$\{([^{}]*)\}", replace, value)


def _nearest(name: str, candidates: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(name, candidates, n=1, cutoff=0.6)), None)


def _unknown(source: str, where: str, key: str, candidates: Sequence[str]) -> str:
    near = _nearest(key, candidates)
    hint = f"did you mean '{near}'?" if near else f"known here: {', '.join(candidates)}"
    return f"{source}: unknown key '{where}'; {hint}"


def _explain(error: ValidationError, file: Path, content: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """One line for the first problem: source, key path, what is wrong, nearest valid key. Never the value: a secret?"""
    first = error.errors(include_url=False, include_input=False)[0]
    path = [str(p) for p in first["loc"]]
    where = ".".join(path)
    source = _source_of(path, file, content, given)
    if first["type"] == "extra_forbidden":
        return " ".join(_unknown(source, where, path[-1], _keys_at(path[:-1])).split())
    message = {
        "missing": "is missing",
        "too_short": "is empty",
        "string_type": "must be text; put it in quotes",
        "model_type": "must hold keys of its own",
        "dict_type": "must hold keys of its own",
    }.get(first["type"], first["msg"].removeprefix("Value error, "))
    return " ".join(f"{source}: {where}: {message}".split())


def _source_of(path: Sequence[str], file: Path, content: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """Who said what stands at a path: an option, a variable of the environment, or the file."""
    if _holds(given, path):
        return "option"
    names = [f"{_PREFIX}{'__'.join(path[:n])}".upper() for n in range(len(path), 0, -1)]
    variables = {name.upper() for name in os.environ}
    if name := next((n for n in names if n in variables), None):
        return f"environment {name}"
    return str(file) if _holds(content, path[:1]) else "configuration"


def _holds(value: Any, path: Sequence[str]) -> bool:
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return False
        value = value[key]
    return bool(path)


def _keys_at(path: Sequence[str]) -> list[str]:
    """The keys that are known at a place of the configuration."""
    model: Any = Settings
    for depth, key in enumerate(path):
        if list(path[:depth]) == ["indices"]:
            model = IndexSettings
        elif (field := getattr(model, "model_fields", {}).get(key)) is not None:
            parts = getattr(field.annotation, "__args__", ())
            model = next((part for part in parts if hasattr(part, "model_fields")), field.annotation)
    return list(getattr(model, "model_fields", {}))
