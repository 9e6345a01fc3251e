"""An agent's documents: searched before each request to the LLM, given to it, and cited in the record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from voicepipe.config.load import load
from voicepipe.errors import ConfigError
from voicepipe.ports.transcriber import Samples
from voicepipe.session.knowledge import HEAD
from voicepipe.testing.fakes.cues import EmbeddingCue, Status, SttCue
from voicepipe.testing.user import calling
from voicepipe.wiring.server import running

Event = dict[str, Any]

WATCHED = {"instructions": "Be brief.", "providerData": {"voicepipe": {"turn_events": True}}}


@pytest.fixture(autouse=True)
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests are about what is found, on any machine; `tests/session/test_knowledge.py` has the limit of time."""
    monkeypatch.setattr("voicepipe.session.knowledge.SEARCH_TIMEOUT_S", 30.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two documents."""
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "pets.md").write_text("# Pets\n\nDogs are welcome.\n\n# Parking\n\nBehind the building.\n")
    (documents / "hours.txt").write_text("The desk is open from 3 pm, on Sundays from 5 pm.\n")
    return documents


async def text_turn(user: Any, words: str) -> Event:
    """A typed question and its response."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": words}]}
    await user.send("conversation.item.create", item=item)
    await user.send("response.create", response={"output_modalities": ["text"]})
    done: Event = (await user.until("response.done"))["response"]
    return done


async def test_a_spoken_question_is_answered_from_the_documents(
    fake_server: Any, folder: Path, speech: Samples
) -> None:
    """The best passage stands behind the user's words, and the record cites it."""
    async with fake_server({"agents.default.knowledge": str(folder)}) as server:
        server.vendor.stt.usual = SttCue(text="can I bring my dog")
        async with calling(server.url, session=WATCHED) as user:
            await user.speak(speech)
            record = (await user.until("voicepipe.turn.record"))["record"]
        system, question = (await server.vendor.llm.nth(0)).question["messages"]
    assert system["content"] == "Be brief."
    assert str(question["content"]).startswith("can I bring my dog")
    assert HEAD in str(question["content"])
    assert "[pets.md: Pets]" in str(question["content"])
    assert "Behind the building" not in str(question["content"])
    assert record["knowledge"]["passages"] == [{"document": "pets.md", "passage": 1}]
    assert record["knowledge"]["took_ms"] >= 0
    assert record["user_text"] == "can I bring my dog"


async def test_passages_leave_the_beginning_of_the_next_request_as_it_was(fake_server: Any, folder: Path) -> None:
    """They are of one answer; a short question is searched for together with the one before."""
    async with fake_server({"agents.default.knowledge": str(folder)}) as server:
        async with calling(server.url, session={"instructions": "Be brief."}) as user:
            await text_turn(user, "from when on is the desk open today")
            await text_turn(user, "and on Sundays")
            await text_turn(user, "thank you very much indeed")
        first, second, third = [received.question["messages"] for received in server.vendor.llm.received]
    assert "hours.txt" in str(first[-1]["content"])
    assert "hours.txt" in str(second[-1]["content"])
    assert second[1]["content"] == "from when on is the desk open today"
    assert third[:2] == second[:2]
    assert HEAD not in str(third)


async def test_a_bad_folder_stops_the_server_with_its_setting(tmp_path: Path) -> None:
    """Before any client connects."""
    overrides = {
        "server.port": 0,
        "server.data_dir": str(tmp_path / "data"),
        "agents.default.knowledge": str(tmp_path / "nowhere"),
        "providers.fake.base_url": "http://127.0.0.1:9/v1",
        **{f"agents.default.{stage}": f"fake/{stage}" for stage in ("stt", "llm", "tts")},
    }
    settings = load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)
    with pytest.raises(ConfigError, match=r"^agents.default.knowledge: expected a folder"):
        async with running(settings):
            pass


EMBEDS = {"agents.default.knowledge_embedding": "fake/embed", "agents.default.knowledge_embedding_ms": 5_000}
PARAPHRASED = EmbeddingCue(meanings=(("dogs", "hound"), ("welcome", "allowed")))


async def test_a_question_in_other_words_is_answered_from_the_documents(fake_server: Any, folder: Path) -> None:
    """By its meaning; the record says how long the query's vector took."""
    async with fake_server({"agents.default.knowledge": str(folder), **EMBEDS}) as server:
        server.vendor.embeddings.usual = PARAPHRASED
        async with calling(server.url, session=WATCHED) as user:
            found: list[Event] = []
            while not found or found[-1]["embedding_ms"] is None:  # until the documents are embedded
                await text_turn(user, "would my hound be allowed")
                found.append((await user.until("voicepipe.turn.record"))["record"]["knowledge"])
    assert found[-1]["passages"][0] == {"document": "pets.md", "passage": 1}
    assert 0 <= found[-1]["embedding_ms"] <= found[-1]["took_ms"]


@pytest.mark.parametrize("price", [None, 2.0])
async def test_the_embedded_query_is_in_the_turns_cost(fake_server: Any, folder: Path, price: float | None) -> None:
    """By its text, at the setting's price; without one the cost is not whole."""
    prices = {"input_usd_per_million": 0, "output_usd_per_million": 0, "embedding_usd_per_million": price}
    options = {f"providers.fake.{name}": usd for name, usd in prices.items() if usd is not None}
    settings = {"agents.default.knowledge": str(folder), **EMBEDS, **options}
    async with fake_server(settings) as server, calling(server.url, session=WATCHED) as user:
        record: Event = {"knowledge": {"embedding_ms": None}}
        while record["knowledge"]["embedding_ms"] is None:  # until the documents are embedded
            assert record.get("cost", {}).get("embedding_usd", 0) == 0
            await text_turn(user, "pets " * 800)
            record = (await user.until("voicepipe.turn.record"))["record"]
    usd = 0 if price is None else 1_000 * 2 / 1e6
    assert record["knowledge"]["embedding_usd"] == (None if price is None else pytest.approx(usd))
    assert record["cost"]["embedding_usd"] == record["cost"]["usd"] == pytest.approx(usd)
    assert record["cost"]["whole"] is (price is not None)


async def test_without_the_vendor_words_alone_are_searched_for(fake_server: Any, folder: Path) -> None:
    """The server starts, and answers from its documents."""
    async with fake_server({"agents.default.knowledge": str(folder), **EMBEDS}) as server:
        server.vendor.embeddings.usual = EmbeddingCue(fault=Status(503))
        async with calling(server.url, session=WATCHED) as user:
            await text_turn(user, "can I bring my dog with me")
            found = (await user.until("voicepipe.turn.record"))["record"]["knowledge"]
    assert found["passages"] == [{"document": "pets.md", "passage": 1}]
    assert found["embedding_ms"] is None


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"knowledge": "FOLDER", "knowledge_embedding": "nobody/m"}, "no provider is called 'nobody'"),
        ({"knowledge": "FOLDER", "knowledge_embedding": "local/m"}, "expected a provider with OpenAI's API"),
        ({"knowledge": "FOLDER", "knowledge_embedding": "none"}, 'expected "provider/model"'),
        ({"knowledge_embedding": "openai/m"}, "expected agents.default.knowledge beside it"),
    ],
)
async def test_a_wrong_embedding_model_stops_the_start(
    tmp_path: Path, folder: Path, settings: dict[str, str], why: str
) -> None:
    """With the name of the setting."""
    named = {f"agents.default.{name}": value.replace("FOLDER", str(folder)) for name, value in settings.items()}
    overrides = {"server.port": 0, "server.data_dir": str(tmp_path / "data"), **named}

    async def start() -> None:
        async with running(load(overrides=overrides, environ={"HOME": str(tmp_path)}, folder=tmp_path)):
            pass

    with pytest.raises(ConfigError, match=why) as refused:
        await start()
    assert "agents.default.knowledge_embedding" in str(refused.value)
