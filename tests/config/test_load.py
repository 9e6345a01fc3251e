"""What can be written, which of two wins, and what is refused with which words."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from voicepipe.config import AgentSettings, Settings, load
from voicepipe.config.sources import SECTIONS
from voicepipe.errors import ConfigError
from voicepipe.registry import Spec


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """The path of a settings file that a test may write."""
    return tmp_path / "voicepipe.toml"


def read(path: Path, text: str, **environ: str) -> Settings:
    path.write_text(text)
    return load(str(path), environ={"HOME": str(path.parent), **environ}, folder=path.parent)


def refusal(path: Path, text: str, **environ: str) -> str:
    """The words of the refusal, with the file's path shortened to FILE."""
    with pytest.raises(ConfigError) as caught:
        read(path, text, **environ)
    return str(caught.value).replace(str(path), "FILE")


def test_nothing_written_gives_a_local_agent_on_loopback(tmp_path: Path) -> None:
    settings = load(environ={"HOME": str(tmp_path)}, folder=tmp_path)
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8080)
    assert dict(settings.agents) == {"default": AgentSettings()}
    assert settings.agents["default"].spec("llm") == Spec("local", "smollm2-135m")
    assert settings.data_path == tmp_path / ".local/share/voicepipe"
    assert settings.keeps_text


def test_data_dir_follows_xdg_and_the_home_sign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load(environ={"XDG_DATA_HOME": "/x"}, folder=tmp_path).data_path == Path("/x/voicepipe")
    chosen = load(overrides={"server.data_dir": "~/here"}, environ={}, folder=tmp_path)
    assert chosen.data_path == tmp_path / "here"


def test_the_command_line_beats_the_environment_which_beats_the_file(written: Path) -> None:
    written.write_text("[server]\nport = 1\nhost = '127.0.0.2'\nping_ms = 9_000\n")
    environ = {"HOME": "/h", "VOICEPIPE_SERVER__PORT": "2", "VOICEPIPE_SERVER__HOST": "127.0.0.3"}
    settings = load(str(written), overrides={"server.port": 3}, environ=environ)
    assert (settings.server.port, settings.server.host, settings.server.ping_ms) == (3, "127.0.0.3", 9_000)
    assert settings.origins["server.port"] == "command line"
    assert settings.origins["server.host"] == "$VOICEPIPE_SERVER__HOST"
    assert settings.origins["server.ping_ms"] == str(written)


def test_the_file_is_found_in_the_working_folder_then_in_the_home(tmp_path: Path) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    (home / ".config/voicepipe").mkdir(parents=True)
    here.mkdir()
    (home / ".config/voicepipe/voicepipe.toml").write_text("[server]\nport = 1\n")
    assert load(environ={"HOME": str(home)}, folder=here).server.port == 1
    (here / "voicepipe.toml").write_text("[server]\nport = 2\n")
    assert load(environ={"HOME": str(home)}, folder=here).server.port == 2
    named = {"HOME": str(home), "VOICEPIPE_CONFIG": str(home / ".config/voicepipe/voicepipe.toml")}
    assert load(environ=named, folder=here).server.port == 1


def test_one_line_brings_a_better_model(tmp_path: Path) -> None:
    settings = load(overrides={"agents.default.llm": "ollama/llama3.2"}, environ={"HOME": "/h"}, folder=tmp_path)
    spec = settings.agents["default"].spec("llm")
    assert settings.connection(spec, key="agents.default.llm").base_url == "http://127.0.0.1:11434/v1"


def test_agents_take_what_they_leave_out_from_the_default_one(written: Path) -> None:
    settings = read(
        written,
        """
        [agents.default]
        llm = "ollama/llama3.2"
        voice = "heart"
        aliases = ["gpt-realtime"]
        [agents.support]
        instructions = "Be brief."
        aliases = ["helper"]
        [agents.french]
        tts = "ollama/some-voice"
        language = "fr-FR"
        [agents.plain]
        """,
    )
    support, french = settings.agents["support"], settings.agents["french"]
    assert (support.llm, support.voice, support.instructions) == (("ollama/llama3.2",), "heart", "Be brief.")
    assert (french.voice, french.language) == (None, "fr-FR"), "a voice belongs to the provider it was named for"
    assert settings.origins["agents.support.llm"] == "agents.default"
    assert settings.agent_named("helper") == settings.agent_named("support") == "support"
    assert settings.agent_named("gpt-realtime") == "default"
    assert settings.agent_named("plain") == "plain"
    assert settings.agent_named("nobody") is None


def test_environment_reaches_agents_and_providers_by_name(written: Path) -> None:
    settings = read(
        written,
        "[providers.my-vllm]\nbase_url = 'http://127.0.0.1:8000/v1/'\noptions = { fast = true, n = 3 }\n",
        VOICEPIPE_PROVIDERS__MY_VLLM__API_KEY="k-1",
        VOICEPIPE_AGENTS__DEFAULT__LLM="my-vllm/qwen",
        VOICEPIPE_AGENTS__DEFAULT__ALIASES="one, two",
        VOICEPIPE_AGENTS__DEFAULT__VOICE="",
        VOICEPIPE_SERVER__STRICT_MODELS="yes",
    )
    connection = settings.connection(settings.agents["default"].spec("llm"), key="k")
    assert (connection.base_url, connection.api_key) == ("http://127.0.0.1:8000/v1", "k-1")
    assert connection.options == (("fast", "true"), ("n", "3"))
    assert settings.agents["default"].aliases == ("one", "two")
    assert settings.agents["default"].voice is None
    assert settings.server.strict_models is True


def test_an_empty_apology_is_none_wherever_it_is_written(written: Path) -> None:
    """Unset means the usual words; a variable can say "nothing" too."""
    assert read(written, "").agents["default"].apology is None
    assert read(written, "[agents.default]\napology = ''").agents["default"].apology == ""
    assert read(written, "", VOICEPIPE_AGENTS__DEFAULT__APOLOGY="").agents["default"].apology == ""


def test_a_vendor_of_the_catalog_needs_its_key_and_nothing_else(written: Path) -> None:
    settings = read(written, "[agents.default]\nllm = 'groq/llama-3.3-70b'", GROQ_API_KEY="gsk-1")
    connection = settings.connection(settings.agents["default"].spec("llm"), key="k")
    assert (connection.kind, connection.base_url, connection.api_key) == (
        "openai",
        "https://api.groq.com/openai/v1",
        "gsk-1",
    )
    inworld = read(written, "", INWORLD_API_KEY="k").connection(Spec("inworld", "auto"), key="k")
    assert dict(inworld.options)["auth_scheme"] == "Basic"


def test_the_second_name_of_a_key_is_taken_when_the_first_is_not_set(written: Path) -> None:
    settings = read(written, "", GOOGLE_API_KEY="g-1")
    assert settings.providers["gemini"].api_key == "g-1"
    assert settings.origins["providers.gemini.api_key"] == "$GOOGLE_API_KEY"
    with pytest.raises(ConfigError, match=r"expected one in the environment variable GEMINI_API_KEY"):
        read(written, "").connection(Spec("gemini", "gemini-2.5-flash"), key="k")


def test_what_is_particular_to_a_model_goes_with_its_connection(written: Path) -> None:
    settings = read(written, "", OPENAI_API_KEY="k")
    options = dict(settings.connection(Spec("openai", "gpt-5-mini"), key="k").options)
    assert options["model_extra"] == '{"reasoning_effort":"minimal"}'
    assert options["max_tokens_field"] == "max_completion_tokens"
    assert "model_extra" not in dict(settings.connection(Spec("openai", "gpt-4.1"), key="k").options)


def test_another_address_is_another_server(written: Path) -> None:
    """Its name keeps the adapter; key, whims and prices are the vendor's at the vendor's addresses."""
    text = "[providers.openai]\nbase_url = 'http://127.0.0.1:9/v1'\n[providers.moonshot]\nbase_url = '{}'\n"
    settings = read(written, text.format("https://api.moonshot.cn/v1/"), MOONSHOT_API_KEY="m", OPENAI_API_KEY="o")
    assert settings.vendor("openai") is None
    assert settings.facts(Spec("openai", "gpt-5-mini")).input_usd_per_million is None
    assert settings.providers["moonshot"].api_key == "m"
    assert settings.facts(Spec("moonshot", "kimi-k3")).input_usd_per_million == 3.0


def test_address_is_required_only_when_the_provider_is_used(written: Path) -> None:
    with pytest.raises(ConfigError, match=r"providers\.flo2\.base_url: k is 'flo2/x', which has no default address"):
        read(written, "", FLO2_API_KEY="f").connection(Spec("flo2", "x"), key="k")
    given = read(written, "[providers.flo2]\nbase_url = 'https://flo2.example/v1'", FLO2_API_KEY="f")
    connection = given.connection(Spec("flo2", "x"), key="k")
    assert (connection.base_url, connection.api_key) == ("https://flo2.example/v1", "f")


def test_a_local_server_may_do_without_a_key(written: Path) -> None:
    assert read(written, "").connection(Spec("vllm", "m"), key="k").api_key == ""
    given = read(written, "[providers.vllm]\nbase_url = 'http://10.0.0.7:8000/v1'", VLLM_API_KEY="v")
    assert given.connection(Spec("vllm", "m"), key="k").api_key == "v"


def test_prices_are_the_catalogs_until_the_settings_name_others(written: Path) -> None:
    usual = read(written, "").facts(Spec("groq", "openai/gpt-oss-20b"))
    assert (usual.input_usd_per_million, usual.cached_usd_per_million) == (0.075, 0.0375)
    text = "[providers.groq]\ninput_usd_per_million = 1\noutput_usd_per_million = 2\n"
    own = read(written, text).facts(Spec("groq", "openai/gpt-oss-20b"))
    assert (own.input_usd_per_million, own.output_usd_per_million) == (1.0, 2.0)
    assert (own.cached_usd_per_million, own.source) == (None, "providers.groq")
    cached = read(written, "[providers.groq]\ncached_usd_per_million = 0.01\n").facts(
        Spec("groq", "openai/gpt-oss-20b")
    )
    assert (cached.input_usd_per_million, cached.cached_usd_per_million) == (0.075, 0.01)
    hour = read(written, "[providers.anthropic]\ncache_write_usd_per_million = 2\n").facts(
        Spec("anthropic", "claude-haiku-4-5")
    )
    assert (hour.cache_write_usd_per_million, hour.cached_usd_per_million) == (2.0, 0.1)


def test_a_catalog_of_ones_own_adds_vendors(written: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(
        "[providers.corner]\ntitle = 'Corner'\nbase_url = 'https://corner.example/v1'\nkey_env = ['CORNER_KEY']\n"
        "evidence = 'documented'\nsource = 's'\ncached_tokens = '-'\naffinity = '-'\n"
    )
    settings = read(written, f"[catalog]\nfile = '{tmp_path / 'mine.toml'}'", CORNER_KEY="c")
    assert settings.connection(Spec("corner", "m"), key="k").api_key == "c"


def test_the_usual_key_is_used_at_the_usual_address_only(written: Path) -> None:
    usual = read(written, "", GROQ_API_KEY="gsk-1")
    assert usual.providers["groq"].api_key == "gsk-1"
    assert usual.origins["providers.groq.api_key"] == "$GROQ_API_KEY"
    elsewhere = read(written, "[providers.groq]\nbase_url = 'http://127.0.0.1:9/v1'\n", GROQ_API_KEY="gsk-1")
    assert elsewhere.providers["groq"].api_key == ""
    section = "[providers.groq]\nbase_url = 'http://127.0.0.1:9/v1'\napi_key_env = 'GROQ_API_KEY'\n"
    assert read(written, section, GROQ_API_KEY="gsk-1").providers["groq"].api_key == "gsk-1"


def test_a_key_may_stand_in_a_file(written: Path, tmp_path: Path) -> None:
    """As containers and systemd hand secrets over; the variable itself goes before it."""
    file = tmp_path / "groq"
    file.write_text("gsk-2\n")
    assert read(written, "", GROQ_API_KEY_FILE=str(file)).providers["groq"].api_key == "gsk-2"
    assert read(written, "", GROQ_API_KEY="gsk-1", GROQ_API_KEY_FILE="none").providers["groq"].api_key == "gsk-1"
    file.write_text("\n")
    for path, words in ((file, "which is empty"), (tmp_path / "none", "expected a file that can be read")):
        with pytest.raises(ConfigError, match=words):
            read(written, "", GROQ_API_KEY_FILE=str(path))


def test_a_promised_key_that_is_not_set_is_named(written: Path) -> None:
    settings = read(written, "[agents.default]\nllm = 'groq/llama-3.3-70b'\n")
    with pytest.raises(ConfigError) as caught:
        settings.connection(settings.agents["default"].spec("llm"), key="agents.default.llm")
    assert str(caught.value) == (
        "providers.groq.api_key: agents.default.llm is 'groq/llama-3.3-70b', which needs a key; expected one in the "
        "environment variable GROQ_API_KEY, which is not set"
    )


@pytest.mark.parametrize(
    ("host", "choice", "stored"),
    [
        ("127.0.0.1", "loopback", True),
        ("localhost", "loopback", True),
        ("::1", "loopback", True),
        ("0.0.0.0", "loopback", False),
        ("example.test", "loopback", False),
        ("0.0.0.0", "always", True),
        ("127.0.0.1", "never", False),
    ],
)
def test_text_is_stored_on_loopback_or_when_configured(written: Path, host: str, choice: str, stored: bool) -> None:
    assert read(written, f"[server]\nhost = '{host}'\n[records]\ntext = '{choice}'\n").keeps_text is stored


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "[server]\nprot = 1\n",
            "server.prot: unknown setting (FILE); did you mean server.port?",
        ),
        (
            "[records]\nkeep_forever = true\n",
            "records.keep_forever: unknown setting (FILE); did you mean records.keep_days?",
        ),
        (
            "[budget]\nzzz = 1\n",
            "budget.zzz: unknown setting (FILE); known here are budget.silence_ms, budget.endpoint_ms, "
            "budget.llm_ttft_ms, budget.first_clause_ms, budget.tts_ttfb_ms, budget.speech_to_speech_ms, "
            "budget.earlier_audio_ms, budget.playback_ms, budget.tool_ms, budget.overhead_ms, budget.total_ms",
        ),
        (
            "[records]\nurl = 'mysql://me:hunter2@db'\n",
            "records.url: expected an address that begins with postgresql://, got another one",
        ),
        (
            "[records]\nkeep_days = -1\n",
            "records.keep_days: expected a whole number from 0 to 36500, got -1 (FILE)",
        ),
        (
            "[sever]\nport = 1\n",
            "sever: unknown setting (FILE); did you mean server?",
        ),
        (
            "port = 1\n",
            f"port: unknown setting (FILE); known here are {', '.join(SECTIONS)}",
        ),
        (
            "server = 8080\n",
            "server: expected a table, got 8080 (FILE)",
        ),
        (
            "[server]\nport = '8080'\n",
            'server.port: expected a whole number, got "8080" (FILE)',
        ),
        (
            "[server]\nport = 70_000\n",
            "server.port: expected a whole number from 0 to 65535, got 70000",
        ),
        (
            "[server]\nport = true\n",
            "server.port: expected a whole number, got true (FILE)",
        ),
        (
            "[server.port]\nnumber = 1\n",
            "server.port: expected a whole number, got a table (FILE)",
        ),
        (
            "[server]\nstrict_models = 1\n",
            "server.strict_models: expected true or false, got 1 (FILE)",
        ),
        (
            "[records]\ntext = 'sometimes'\n",
            'records.text: expected "loopback" or "always" or "never", got "sometimes" (FILE)',
        ),
        (
            "[budget]\ntotal_ms = 0\n",
            "budget.total_ms: expected a positive number of ms, got 0",
        ),
        (
            "[budget]\nttft_ms = 1\n",
            "budget.ttft_ms: unknown setting (FILE); did you mean budget.llm_ttft_ms?",
        ),
        (
            "[agents.default]\ntemperature = 3\n",
            "agents.default.temperature: expected a number from 0 to 2, got 3 (FILE)",
        ),
        (
            "[agents.default]\ntemperature = nan\n",
            "agents.default.temperature: expected a number from 0 to 2, got NaN (FILE)",
        ),
        (
            "[agents.default]\nlanguage = 'English please'\n",
            'agents.default.language: expected a language tag such as "en" or "pt-BR" (text), got "English please" '
            "(FILE)",
        ),
        (
            "[agents.default]\naliases = 'one'\n",
            'agents.default.aliases: expected a list of texts, got "one" (FILE)',
        ),
        (
            "[agents.default]\naliases = ['one', 2]\n",
            'agents.default.aliases: expected a list of texts, got ["one", 2] (FILE)',
        ),
        (
            "[agents]\nllm = 'ollama/llama3.2'\n",
            'agents.llm: expected a table, got "ollama/llama3.2" (FILE)',
        ),
        (
            "[agents.default]\nllm = 'gpt-4o'\n",
            'agents.default.llm: expected "provider/model", for example "local/smollm2-135m", got \'gpt-4o\'',
        ),
        (
            "[agents.default]\nllm = 'olama/llama3.2'\n",
            "agents.default.llm: no provider is called 'olama'; did you mean ollama?; add [providers.olama] with its "
            "base_url (FILE)",
        ),
        (
            "[agents.a]\naliases = ['x']\n[agents.b]\naliases = ['x']\n",
            "agents.b.aliases: expected names of its own, got 'x', an alias of agents.a",
        ),
        (
            "[agents.a]\naliases = ['default']\n",
            "agents.a.aliases: expected names of its own, got 'default', the name of agents.default",
        ),
        (
            "[providers.mine]\napi_key = 'secret-1'\n",
            "providers.mine.base_url: expected an address such as http://127.0.0.1:8000/v1, got none",
        ),
        (
            "[providers.mine]\nbase_url = '127.0.0.1:8000'\n",
            "providers.mine.base_url: expected text that begins with http(s)://, ws(s):// or tcp://, "
            'got "127.0.0.1:8000" (FILE)',
        ),
        (
            "[providers.openai]\napi_key = 12345\n",
            "providers.openai.api_key: expected text, got something else (FILE)",
        ),
        (
            "[providers.local]\noptions = 'fast'\n",
            'providers.local.options: expected a table of names and plain values, got "fast" (FILE)',
        ),
    ],
)
def test_a_wrong_setting_is_refused_with_its_key_and_what_was_expected(written: Path, text: str, words: str) -> None:
    assert refusal(written, text) == words


def test_wrong_environment_is_refused_by_its_variable(written: Path) -> None:
    assert refusal(written, "", VOICEPIPE_SERVER__PORT="eighty") == (
        'server.port: expected a whole number, got "eighty" ($VOICEPIPE_SERVER__PORT)'
    )
    assert refusal(written, "", VOICEPIPE_SERVER__POTR="1") == (
        "server.potr: unknown setting ($VOICEPIPE_SERVER__POTR); did you mean server.port?"
    )
    assert refusal(written, "", VOICEPIPE_SERVER_PORT="1") == (
        "$VOICEPIPE_SERVER_PORT: unknown setting; did you mean VOICEPIPE_SERVER__PORT?"
    )
    assert read(written, "", VOICEPIPE_HOME="/x").server.port == 8080, "not every such variable is a setting"


def test_a_folder_that_the_user_cannot_enter_has_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the home of the administrator who calls `sudo -u voicepipe voicepipe keys create`."""
    folder, stat = tmp_path / "admin", Path.stat

    def refused(self: Path, **options: bool) -> os.stat_result:
        if self.is_relative_to(folder):
            raise PermissionError(13, "Permission denied", str(self))
        return stat(self, **options)

    monkeypatch.setattr(Path, "stat", refused)
    home = {"HOME": str(tmp_path)}
    assert load(environ=home, folder=folder) == load(environ=home, folder=tmp_path)


def test_a_file_that_was_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^--config: expected a settings file, got 'no.toml', which does not exist$"):
        load("no.toml", environ={}, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"^\$VOICEPIPE_CONFIG: expected a settings file, got 'no.toml'"):
        load(environ={"VOICEPIPE_CONFIG": "no.toml"}, folder=tmp_path)


def test_a_file_that_is_not_toml_names_the_line(written: Path) -> None:
    assert "FILE: expected a TOML file, got one that can't be read: " in refusal(written, "[server\n")
    assert "line 1" in refusal(written, "[server\n")


WINDOWS = """
[agents.default]
llm = ["groq/openai/gpt-oss-20b", "local/smollm2-135m"]

[agents.limited]
context_tokens = 3000

[agents.brief]
max_output_tokens = 500

[agents.long]
max_output_tokens = 1000000

[agents.local]
llm = "local/smollm2-135m"
"""


def test_an_agents_window_is_its_own_or_the_catalogs(written: Path) -> None:
    """The smallest that is known, less the answer, which takes half of it at most; none where none is known."""
    settings = read(written, WINDOWS, GROQ_API_KEY="k")
    window = settings.facts(Spec("groq", "openai/gpt-oss-20b")).context_tokens
    assert window is not None
    assert settings.context_tokens("default") == window - 4_096
    assert settings.context_tokens("limited") == 3_000
    assert settings.context_tokens("brief") == window - 500
    assert settings.context_tokens("long") == window - window // 2
    assert settings.context_tokens("local") is None
