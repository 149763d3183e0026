"""Options, environment and file become one configuration, or one line that says what is wrong and never a secret."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from sira_es.dsl.compile import ENRICHED_WEIGHT
from sira_es.enrich.reading import DEFAULT_CHUNK_TOKENS
from sira_es.errors import ConfigurationError
from sira_es.evaluate.tuning import DEFAULT
from sira_es.settings import ClusterSettings, IndexSettings, Settings, load_settings, weighted_field
from sira_es.vocabulary import Rules

SECRET = "hunter2-S3cr3t"

Load = Callable[..., Settings]
Complaint = Callable[..., str]


@pytest.fixture(autouse=True)
def no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.upper().startswith("SIRA_ES__"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Load a file with this content."""

    def loaded(content: str | bytes = "", **options: Any) -> Settings:
        file = tmp_path / "sira-es.yml"
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        return load_settings(file, **options)

    return loaded


@pytest.fixture
def complaint(load: Load, tmp_path: Path) -> Complaint:
    """The message for a file with this content, without the folder of the file."""

    def said(content: str | bytes = "", **options: Any) -> str:
        with pytest.raises(ConfigurationError) as caught:
            load(content, **options)
        message = str(caught.value)
        assert "\n" not in message
        return message.replace(f"{tmp_path}/", "")

    return said


# What is configured


def test_without_a_file_the_defaults_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    settings = load_settings()
    assert settings.cluster.url == ["http://127.0.0.1:9200"]
    assert settings.state == Path("/state/sira-es")
    assert (settings.llm.documents.model, settings.llm.queries.deadline) == (None, 2.0)


def test_the_defaults_of_an_index_are_those_of_the_method() -> None:
    index = IndexSettings(text_fields=["body"])
    assert index.expansion.model_dump() == {
        "budget": 1.2,
        "knee": 5.0,
        "lift": 0.5,
        "max_terms": 16,
        "min_margin": 0.0,
        "max_df": 0.5,
    }
    assert (index.search.mode, index.proxy.mode, index.proxy.online) == ("recall", "rerank", "deadline")


def test_the_file_of_the_working_directory_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sira-es.yml").write_text("cluster: {url: http://here:9200}")
    monkeypatch.chdir(tmp_path)
    assert load_settings().cluster.url == ["http://here:9200"]


def test_a_whole_file_is_read(load: Load) -> None:
    settings = load("""
cluster: {url: https://es.example:9200, ca_certs: /etc/ssl/corp.pem}
llm:
  documents: {model: openai/gpt-4.1-mini, rpm: 500, tpm: 200000}
  queries: {model: openai/gpt-4.1-mini, deadline: 500ms, max_cost_per_day: 5}
state: ~/sira
indices:
  docs:
    text_fields: [title^2, body]
    description: internal IT support articles of a bank
    language: en
    expansion: {budget: 1}
    search: {mode: rerank, baseline: {query: {match: {body: "{{query}}"}}}}
""")
    docs = settings.index("docs")
    assert docs.fields == (("title", 2.0), ("body", 1.0))
    assert (docs.main, docs.expansion.budget, docs.expansion.knee) == ("body", 1.0, 5.0)
    assert docs.search.baseline == {"query": {"match": {"body": "{{query}}"}}}
    assert settings.state == Path.home() / "sira"
    assert settings.llm.queries.deadline == 0.5


@pytest.mark.parametrize(
    ("inside", "url"),
    [
        ("eu-west-1.aws.found.io$abc123$def456", "https://abc123.eu-west-1.aws.found.io:443"),
        ("eastus.azure.elastic-cloud.com:9243$abc123$", "https://abc123.eastus.azure.elastic-cloud.com:9243"),
        ("cloud.example:9243$abc123:9244$def456:9245", "https://abc123.cloud.example:9244"),
    ],
)
def test_a_cloud_id_stands_for_the_address_that_it_names(inside: str, url: str, load: Load) -> None:
    cloud_id = f"my-deployment:{b64encode(inside.encode()).decode()}"
    assert load(f"cluster: {{cloud_id: '{cloud_id}', api_key: abc}}").cluster.url == [url]


@pytest.mark.parametrize(
    "cloud_id",
    ["https://es.example:9200", "name:####", "name:", f"name:{b64encode(b'no dollar').decode()}",
     f"name:{b64encode(b'host$').decode()}", f"name:{b64encode(b'evil/path?$a@b$').decode()}",
     f"name:{b64encode(bytes([255, 254])).decode()}"],
)  # fmt: skip
def test_what_is_no_cloud_id_is_told_without_its_content(cloud_id: str, complaint: Complaint) -> None:
    said = complaint(f"cluster: {{cloud_id: '{cloud_id}'}}")
    assert "cloud_id is none; copy it" in said
    assert cloud_id not in said


@pytest.mark.parametrize("where", ["option", "environment"])
def test_an_address_given_elsewhere_beats_the_cloud_id_of_the_file(
    where: str, load: Load, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = f"cluster: {{cloud_id: 'name:{b64encode(b'host$abc$').decode()}'}}"
    if where == "environment":
        monkeypatch.setenv("SIRA_ES__CLUSTER__URL", "http://here:9200")
    options = {"cluster.url": "http://here:9200"} if where == "option" else {}
    assert load(content, **options).cluster.url == ["http://here:9200"]


def test_the_end_of_a_line_does_not_belong_to_a_secret(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY_OF_A_FILE", f"{SECRET}\n")
    key = load("cluster: {api_key: '${KEY_OF_A_FILE}'}").cluster.api_key
    assert key is not None
    assert key.get_secret_value() == SECRET


def test_a_fingerprint_without_tls_is_an_error(complaint: Complaint) -> None:
    assert "write https://" in complaint("cluster: {url: 'http://es:9200', fingerprint: 'aa:bb'}")


def test_an_address_beside_a_cloud_id_is_an_error(complaint: Complaint) -> None:
    cloud_id = f"name:{b64encode(b'host$abc$').decode()}"
    assert "url and cloud_id are both given; keep one" in complaint(
        f"cluster: {{cloud_id: '{cloud_id}', url: 'http://es:9200'}}"
    )


@pytest.mark.parametrize(
    ("given", "seconds"), [("2s", 2), ("500ms", 0.5), ("1.5m", 90), ("1h", 3600), (3, 3), ("4", 4)]
)
def test_times_may_have_a_unit(given: Any, seconds: float) -> None:
    assert ClusterSettings(timeout=given).timeout == seconds


@pytest.mark.parametrize(
    ("given", "field"), [("title", ("title", 1)), ("title^2", ("title", 2)), ("a.b^0.5", ("a.b", 0.5))]
)
def test_a_text_field_is_a_name_with_an_optional_weight(given: str, field: tuple[str, float]) -> None:
    assert weighted_field(given) == field


@pytest.mark.parametrize("given", ["", "^2", "title^0", "title^-1", "title^x", "title^nan", "title^inf", "title^2^3"])
def test_any_other_text_field_is_an_error(given: str, complaint: Complaint) -> None:
    said = complaint(f"indices: {{docs: {{text_fields: ['{given}']}}}}")
    assert said == (
        f"sira-es.yml: indices.docs: text field '{given}' must be a name with an optional weight above 0, such as title^2"
    )


def test_main_field_is_the_last_text_field_unless_named() -> None:
    assert IndexSettings(text_fields=["title^2", "body"]).main == "body"
    assert IndexSettings(text_fields=["title^2", "body"], main_field="title").main == "title"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("text_fields: []", "indices.docs: text_fields is empty; name at least one text field"),
        ("text_fields: [a, a^2]", "indices.docs: text field 'a' is named twice; keep one"),
        ("text_fields: [a], main_field: b", "indices.docs: main_field 'b' is not among text_fields (a)"),
        *(
            (fields, "indices.docs: 'enriched_terms' is searched anyway; name it only as the one text field beside read_fields")
            for fields in (
                "text_fields: [enriched_terms]",
                "text_fields: [a, enriched_terms], read_fields: [b]",
                "text_fields: [a], read_fields: [enriched_terms]",
            )
        ),
        ("language: en", "indices.docs.text_fields: is missing"),
        ("text_fields: [a], language: no", "indices.docs.language: must be text; put it in quotes"),
        ("text_fields: [a], search: {mode: x}", "indices.docs.search.mode: Input should be 'recall', 'rerank' or 'rescore'"),
        ("text_fields: [a], expansion: {lift: .inf}", "indices.docs.expansion.lift: Input should be a finite number"),
        ("text_fields: [a], expansion: {min_margin: .nan}", "indices.docs.expansion.min_margin: Input should be a finite number"),
        ("text_fields: [a], expansion: {max_df: 0}", "indices.docs.expansion.max_df: Input should be greater than 0"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_told_with_its_place(content: str, said: str, complaint: Complaint) -> None:
    assert complaint(f"indices: {{docs: {{{content}}}}}") == f"sira-es.yml: {said}"


def test_an_index_without_settings_is_told_with_the_nearest_name(load: Load) -> None:
    settings = load("indices: {articles: {text_fields: [a]}}")
    with pytest.raises(ConfigurationError, match="no index 'article' in the configuration; did you mean 'articles'"):
        settings.index("article")
    with pytest.raises(ConfigurationError, match="run 'sira-es init --index logs' first"):
        settings.index("logs")


# Unknown keys


@pytest.mark.parametrize(
    ("content", "key", "near"),
    [
        ("clustr: {}", "clustr", "cluster"),
        ("cluster: {ulr: x}", "cluster.ulr", "url"),
        ("cluster: {aws: {region: x, regoin: x}}", "cluster.aws.regoin", "region"),
        ("llm: {query: {}}", "llm.query", "queries"),
        ("llm: {queries: {dead_line: 2s}}", "llm.queries.dead_line", "deadline"),
        ("indices: {docs: {text_fields: [a], descripton: x}}", "indices.docs.descripton", "description"),
        ("indices: {docs: {text_fields: [a], expansion: {budgt: 1}}}", "indices.docs.expansion.budgt", "budget"),
        ("indices: {docs: {text_fields: [a], search: {mod: x}}}", "indices.docs.search.mod", "mode"),
        ("indices: {docs: {text_fields: [a], proxy: {onlin: x}}}", "indices.docs.proxy.onlin", "online"),
        ("indices: {cluster: {text_fields: [a], languag: x}}", "indices.cluster.languag", "language"),
        ("stor: index", "stor", "store"),
    ],
)
def test_an_unknown_key_is_an_error_with_the_nearest_valid_one(
    content: str, key: str, near: str, complaint: Complaint
) -> None:
    assert complaint(content) == f"sira-es.yml: unknown key '{key}'; did you mean '{near}'?"


def test_an_unknown_key_like_no_other_is_told_with_all_that_are_known(complaint: Complaint) -> None:
    assert complaint("xyz: 1") == "sira-es.yml: unknown key 'xyz'; known here: cluster, llm, state, store, indices"


def test_an_unknown_key_without_a_value_is_an_error_too(complaint: Complaint) -> None:
    assert complaint("cluster: {ulr: }").startswith("sira-es.yml: unknown key 'cluster.ulr'")
    assert complaint("xyz:").startswith("sira-es.yml: unknown key 'xyz'")


def test_a_known_key_without_a_value_counts_as_not_given(load: Load) -> None:
    settings = load("cluster:\nllm:\n  queries:\nindices:\n  docs: {text_fields: [a], description: , expansion: }\n")
    assert settings.cluster == ClusterSettings()
    assert settings.index("docs") == IndexSettings(text_fields=["a"])


# Who wins


def test_an_option_beats_the_environment_which_beats_the_file(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    file = "cluster: {url: http://file, timeout: 5, verify: false}"
    monkeypatch.setenv("SIRA_ES__CLUSTER__URL", "http://environment")
    monkeypatch.setenv("SIRA_ES__CLUSTER__TIMEOUT", "6s")
    both = load(file).cluster
    assert (both.url, both.timeout, both.verify) == (["http://environment"], 6.0, False)
    all_three = load(file, **{"cluster.url": "http://option"}).cluster
    assert (all_three.url, all_three.timeout, all_three.verify) == (["http://option"], 6.0, False)


def test_an_option_that_is_none_counts_as_not_given(load: Load) -> None:
    assert load("cluster: {url: http://file}", **{"cluster.url": None}).cluster.url == ["http://file"]


def test_the_environment_reaches_into_an_index(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRA_ES__INDICES__DOCS__TEXT_FIELDS", "title^3, body")
    monkeypatch.setenv("SIRA_ES__INDICES__DOCS__EXPANSION__BUDGET", "0.7")
    docs = load("indices: {docs: {text_fields: [x], description: kept}}").index("docs")
    assert (docs.fields, docs.expansion.budget, docs.description) == ((("title", 3.0), ("body", 1.0)), 0.7, "kept")


def test_a_variable_may_hold_a_whole_part_as_json(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRA_ES__CLUSTER", '{"url": "http://json", "timeout": 7}')
    assert load().cluster.url == ["http://json"]


def test_an_empty_variable_counts_as_not_given(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIRA_ES__CLUSTER__API_KEY", "")
    assert load("cluster: {basic_auth: 'a:b'}").cluster.api_key is None


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("SIRA_ES__CLUSTR__URL", "x", "environment: unknown key 'SIRA_ES__CLUSTR__URL'; did you mean 'cluster'?"),
        ("SIRA_ES__CLUSTER__ULR", "x", "environment SIRA_ES__CLUSTER__ULR: unknown key 'cluster.ulr'; did you mean 'url'?"),
        ("SIRA_ES__LLM__QUERIES__RPM", "0", "environment SIRA_ES__LLM__QUERIES__RPM: llm.queries.rpm: Input should be greater than 0"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_the_environment_is_told_by_the_variable(
    name: str, value: str, said: str, complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert complaint("cluster: {timeout: 5}") == said


def test_a_variable_that_is_not_json_is_told_without_its_value(
    complaint: Complaint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIRA_ES__CLUSTER", f'{{"api_key": "{SECRET}"')
    said = complaint()
    assert 'field "cluster"' in said
    assert SECRET not in said


def test_what_is_wrong_in_an_option_is_not_blamed_on_the_file(complaint: Complaint) -> None:
    said = complaint("cluster: {url: http://file}", **{"cluster.url": "localhost:9200"})
    assert said.startswith("option: cluster.url: must be an address such as https://es.example:9200")


# References in the file


def test_a_variable_and_the_content_of_a_file_can_stand_for_a_value(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("pass word\n")
    monkeypatch.setenv("MY_USER", "elastic ${MY_USER}")
    settings = load(f'cluster: {{basic_auth: "${{MY_USER}}:${{file:{tmp_path}/password}}"}}')
    assert settings.cluster.basic_auth is not None
    assert settings.cluster.basic_auth.get_secret_value() == "elastic ${MY_USER}:pass word"


def test_references_are_found_at_any_depth(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FIELD", "title")
    monkeypatch.setenv("RPM", "30")
    settings = load('llm: {queries: {rpm: "${RPM}"}}\nindices: {docs: {text_fields: ["${FIELD}^2", body]}}')
    assert settings.llm.queries.rpm == 30
    assert settings.index("docs").fields[0] == ("title", 2.0)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("${NOT_SET_ANYWHERE}", "the environment variable NOT_SET_ANYWHERE is not set"),
        ("${file:/no/such/file}", "cannot read /no/such/file"),
        ("${file:/}", "cannot read /"),
        ("${file:~nosuchuser/x}", "cannot read ~nosuchuser/x"),
        ("${MY-KEY}", "'${MY-KEY}' is neither ${NAME} nor ${file:/path}"),
        ("${KEY:-default}", "'${KEY:-default}' is neither ${NAME} nor ${file:/path}"),
        ("${}", "'${}' is neither ${NAME} nor ${file:/path}"),
    ],
)
def test_a_reference_to_nothing_is_an_error(reference: str, said: str, complaint: Complaint) -> None:
    assert complaint(f'cluster: {{api_key: "{reference}"}}') == f"sira-es.yml: cluster.api_key: {said}"


def test_a_file_that_is_not_text_is_told_without_its_content(complaint: Complaint, tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"\xff\xfe" + SECRET.encode())
    said = complaint(f'cluster: {{api_key: "${{file:{tmp_path}/key}}"}}')
    assert said == "sira-es.yml: cluster.api_key: cannot read key"


# What YAML allows


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("- a", " must hold keys such as 'cluster:' and 'indices:', not a list"),
        ("text", " must hold keys such as 'cluster:' and 'indices:', not a str"),
        ("cluster:\n\turl: x", " line 2 is not valid YAML: found character '\\t' that cannot start any token"),
        ("state: x\ncluster: {url: x", " line 2 is not valid YAML: expected ',' or '}', but got '<stream end>'"),
        ("state: x\nstate: y", " line 2 is not valid YAML: a key is given twice"),
        ("cluster:\n  url: http://a\n  url: http://b", " line 3 is not valid YAML: a key is given twice"),
        ("a: 1\n---\nb: 2", " line 2 is not valid YAML: but found another document"),
        ("x: \x01", " is not valid YAML: it holds a character that YAML does not allow"),
        ("x: 2024-13-45", " holds a date or number that does not exist; put it in quotes"),
        ("x: &a [*a]", " is nested too deeply, or an anchor holds itself"),
        ("[" * 5000, " is nested too deeply, or an anchor holds itself"),
    ],
)
def test_what_is_no_configuration_is_told_with_the_line(content: str, said: str, complaint: Complaint) -> None:
    assert complaint(content) == f"sira-es.yml{said}"


@pytest.mark.parametrize("content", [b"\xff\xfea\x00", "description: Büro".encode("latin-1")])
def test_a_file_that_is_not_utf_8_is_told(content: bytes, complaint: Complaint) -> None:
    assert complaint(content) == "cannot read sira-es.yml: not UTF-8 text; save it as UTF-8"


@pytest.mark.parametrize("content", [b"", b"# nothing yet\n", b"---\n", b"\xef\xbb\xbfindices: {}\r\n"])
def test_an_empty_file_and_a_byte_order_mark_are_fine(content: bytes, load: Load) -> None:
    assert load(content).indices == {}


def test_anchors_and_merges_are_fine(load: Load) -> None:
    settings = load("indices:\n  a: &a {text_fields: [x], language: en}\n  b: {<<: *a, language: de}\n  c: *a\n")
    assert [settings.index(name).language for name in "abc"] == ["en", "de", "en"]
    assert settings.index("b").text_fields == ["x"]


def test_a_missing_file_and_a_folder_are_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"no configuration file .*absent\.yml; 'sira-es init"):
        load_settings(tmp_path / "absent.yml")
    with pytest.raises(ConfigurationError, match=r"cannot read .*: Is a directory"):
        load_settings(tmp_path)


def test_an_unknown_home_directory_is_told(complaint: Complaint) -> None:
    assert complaint("state: ~nosuchuser/x") == (
        "state: the home directory is not known; set 'state' to the full path of a folder"
    )


# Signing in


@pytest.mark.parametrize(
    ("url", "address", "credentials"),
    [
        ("https://elastic:pw@es:9200", "https://es:9200", "elastic:pw"),
        ("https://elastic:p%40s%2Fs%3Aw%25@es:9200/prefix", "https://es:9200/prefix", "elastic:p@s/s:w%"),
        ("https://elastic:p@ss@es:9200", "https://es:9200", "elastic:p@ss"),
        ("http://user:p%C3%A4ss@[::1]:9200", "http://[::1]:9200", "user:päss"),
        ("https://user:@es", "https://es", "user:"),
    ],
)
def test_credentials_are_taken_out_of_the_url(url: str, address: str, credentials: str) -> None:
    cluster = ClusterSettings(url=[url])
    assert cluster.url == [address]
    assert cluster.basic_auth is not None
    assert cluster.basic_auth.get_secret_value() == credentials


def test_several_nodes_may_repeat_the_credentials_or_leave_them_out(load: Load) -> None:
    cluster = load("cluster: {url: 'https://u:p@a:9200/x, https://u:p@b:9200,https://c:9200'}").cluster
    assert cluster.url == ["https://a:9200/x", "https://b:9200", "https://c:9200"]
    assert cluster.basic_auth is not None
    assert cluster.basic_auth.get_secret_value() == "u:p"


@pytest.mark.parametrize(
    "content",
    [
        f"url: ['https://u:{SECRET}@a', 'https://u:other@b']",
        f"url: 'https://u:{SECRET}@a', basic_auth: 'u:other'",
        f"url: 'https://u:{SECRET}@a', api_key: other",
        f"api_key: {SECRET}, bearer: other",
        f"basic_auth: 'u:{SECRET}', aws: {{region: eu-west-1}}",
    ],
)
def test_two_ways_to_sign_in_are_one_too_many(content: str, complaint: Complaint) -> None:
    said = complaint(f"cluster: {{{content}}}")
    assert said.startswith("sira-es.yml: cluster: ")
    assert said.endswith("keep one")
    assert SECRET not in said


@pytest.mark.parametrize(
    "url",
    [
        f"elastic:{SECRET}@es:9200",
        f"https://elastic:{SECRET}/x@es:9200",
        f"https://elastic:{SECRET}#x@es:9200",
        f"https://elastic:{SECRET}?x@es:9200",
        f"https://elastic:{SECRET},x@es:9200",
        f"https://elastic:{SECRET}[x@es:9200",
        f"https://elastic:{SECRET}℀x@es:9200",
        f"https://elastic:123/{SECRET}@es:9200",
        f"https://es:9200/?token={SECRET}",
        f"https://{SECRET}:99999",
        f"ftp://{SECRET}",
        f"//{SECRET}",
        f"{SECRET}:9200",
        "https://",
        "9200",
    ],
)
def test_what_is_no_address_is_an_error_that_does_not_repeat_it(url: str, complaint: Complaint) -> None:
    said = complaint("", **{"cluster.url": url})
    assert said.startswith("option: cluster.url: must be an address such as https://es.example:9200")
    assert SECRET not in said


@pytest.mark.parametrize("url", ["''", "[]", "','"])
def test_no_address_is_an_error(url: str, complaint: Complaint) -> None:
    assert complaint(f"cluster: {{url: {url}}}") == (
        "sira-es.yml: cluster.url: is empty; give an address such as https://es.example:9200"
    )


# Secrets


def test_secrets_are_in_no_print_of_the_settings(load: Load) -> None:
    for cluster in (f"api_key: {SECRET}", f"bearer: {SECRET}", f"url: 'https://u:{SECRET}@es'"):
        settings = load(f"cluster: {{{cluster}}}\nllm: {{queries: {{model: m, api_key: {SECRET}}}}}")
        for shown in (repr(settings), str(settings), repr(settings.model_dump()), settings.model_dump_json()):
            assert SECRET not in shown
            assert "**********" in shown


@pytest.mark.parametrize(
    "content",
    [
        f"cluster: {{api_key: [{SECRET}]}}",
        f"cluster: {{basic_auth: {{elastic: {SECRET}}}}}",
        f"cluster: {{basic_auth: {SECRET}}}",
        f"cluster: {{timeout: {SECRET}}}",
        f"cluster: {{verify: {SECRET}}}",
        f"cluster: {{aws: {SECRET}}}",
        f"cluster: {SECRET}",
        f"cluster: [{SECRET}]",
        f"cluster: {{api_key: *{SECRET}}}",
        f"cluster:\n  api_key: !{SECRET}\n",
        f"cluster:\n  api_key: !x!{SECRET}\n",
        f"cluster: {{api_key: %{SECRET}}}",
        f"cluster: {{api_key: '{SECRET}}}",
        f"llm: {{queries: {{rpm: {SECRET}}}}}",
        f"llm: {{queries: {{api_base: 'http://u:{SECRET}@model/v1'}}}}",
        f"indices: {SECRET}",
    ],
)
def test_no_error_repeats_a_value(content: str, complaint: Complaint) -> None:
    assert SECRET not in complaint(content)


def test_an_error_of_validation_itself_shows_no_input_either() -> None:
    with pytest.raises(ValidationError) as caught:
        ClusterSettings.model_validate({"api_key": SECRET, "bearer": "x"})
    assert SECRET not in str(caught.value)
    with pytest.raises(ValidationError) as caught:
        Settings(cluster={"api_key": SECRET, "timeout": -1})  # type: ignore[arg-type]
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("key", ["api_key", "bearer", "basic_auth"])
def test_an_empty_secret_is_an_error(key: str, complaint: Complaint) -> None:
    assert complaint(f"cluster: {{{key}: ''}}") == f"sira-es.yml: cluster.{key}: is empty"


def test_a_password_without_a_user_is_an_error(complaint: Complaint) -> None:
    assert complaint("cluster: {basic_auth: x}") == "sira-es.yml: cluster: basic_auth must have the form user:password"


def test_settings_do_not_change(load: Load) -> None:
    settings = load()
    with pytest.raises(ValidationError, match="frozen"):
        settings.indices = {}


def test_the_defaults_of_the_configuration_are_those_of_the_method_of_requests_and_of_tuning() -> None:
    settings = IndexSettings(text_fields=["text"])
    expansion, search = settings.expansion.model_dump(), settings.search
    assert expansion == asdict(Rules())
    assert search.enriched_weight == ENRICHED_WEIGHT
    assert (
        dict(DEFAULT).items() <= {**expansion, "enriched_weight": search.enriched_weight, "mode": search.mode}.items()
    )
    assert settings.chunk_tokens == DEFAULT_CHUNK_TOKENS
