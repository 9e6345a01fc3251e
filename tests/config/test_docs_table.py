"""What people are shown of the settings, and what they are never shown."""

from __future__ import annotations

from pathlib import Path

from voicepipe.config import OptionRow, Settings, effective, load, markdown


def settings(tmp_path: Path) -> Settings:
    file = tmp_path / "voicepipe.toml"
    file.write_text(
        """
        [server]
        port = 9000
        [providers.mine]
        base_url = "http://127.0.0.1:9/v1"
        api_key = "hush-1"
        options = { token = "hush-2" }
        [agents.other]
        llm = "mine/x"
        """
    )
    environ = {"HOME": "/h", "OPENAI_API_KEY": "hush-3", "VOICEPIPE_SERVER__HOST": "localhost"}
    return load(str(file), environ=environ)


def test_rows_have_the_value_and_its_source(tmp_path: Path) -> None:
    rows = {row.key: (row.value, row.source) for row in effective(settings(tmp_path))}
    file = str(tmp_path / "voicepipe.toml")
    assert rows["server.port"] == ("9000", file)
    assert rows["server.host"] == ('"localhost"', "$VOICEPIPE_SERVER__HOST")
    assert rows["server.max_sessions"] == ("100", "default")
    assert rows["budget.total_ms"] == ("1000", "default")
    assert rows["agents.other.llm"] == ('"mine/x"', file)
    assert rows["agents.default.voice"] == ("unset", "default")
    assert rows["providers.openai.api_key"] == ("(set, hidden)", "$OPENAI_API_KEY")
    assert rows["providers.ollama.api_key"] == ('""', "default")
    assert rows["providers.mine.options"] == ("{token = (set, hidden)}", file)


def test_no_secret_is_ever_displayed(tmp_path: Path) -> None:
    loaded = settings(tmp_path)
    displayed = repr(loaded) + str(loaded) + str(effective(loaded)) + repr(loaded.providers["mine"].connection())
    assert "mine" in displayed
    assert "hush" not in displayed


def test_the_markdown_table_has_every_option_with_its_own_meaning() -> None:
    lines = markdown().splitlines()
    keys = [line.split("`")[1] for line in lines[2:]]
    assert len(keys) == len(set(keys))
    assert {"server.port", "records.text", "deadlines.reply_ms", "agents.NAME.llm", "providers.NAME.api_key"} <= set(
        keys
    )
    port = next(line for line in lines if "`server.port`" in line)
    assert port == (
        "| `server.port` | `8080` | a whole number | The one port for everything; 0 takes a free one and prints it. |"
    )
    assert all(line.count(" | ") == 3 for line in lines)


def test_every_default_in_the_table_can_be_written_as_it_stands(tmp_path: Path) -> None:
    known = {row.key: row for row in effective(load(environ={"HOME": "/h"}, folder=tmp_path))}
    written: dict[str, str] = {}
    for line in markdown().splitlines()[2:]:
        key = line.split("`")[1].replace("agents.NAME", "agents.default").replace("providers.NAME", "providers.ollama")
        if key not in known:  # there is no pool, rule, experiment or language unless it was written
            free = key.split(".")[1] == "NAME" or ".TAG." in key
            assert free or "| `[" in line, "or it is a table of options that are rows elsewhere"
            continue
        value = known[key].value
        if value in ("unset", "[]", '""', "{}") or value.endswith('..."'):
            continue
        written[key] = value
    overrides = {key: value.strip('"') for key, value in written.items()}
    again = effective(load(overrides=overrides, environ={"HOME": "/h"}, folder=tmp_path))
    assert {OptionRow(key, value, "command line") for key, value in written.items()} <= set(again)
