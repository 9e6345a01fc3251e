"""Define the commands and options of `voicepipe`."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from voicepipe import __version__
from voicepipe.errors import ConfigError

KEY_VARIABLE: Final = "VOICEPIPE_KEY"
"""The variable from which `talk` reads its key: command line arguments are visible to every user of the machine."""

_SHORTHANDS: Final = {
    "host": "server.host",
    "port": "server.port",
    "data_dir": "server.data_dir",
    "tls_cert": "server.tls_cert",
    "tls_key": "server.tls_key",
    "tls_dev": "server.tls_dev",
    "trust_proxy": "server.trusted_proxies",
    "stt": "agents.default.stt",
    "llm": "agents.default.llm",
    "tts": "agents.default.tts",
}
"""Options that set a setting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """A parsed command line. Options that a command does not have keep their default."""

    command: str = ""
    config: str | None = None
    set: tuple[str, ...] = ()
    host: str | None = None
    port: str | None = None
    data_dir: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    tls_dev: str | None = None
    trust_proxy: tuple[str, ...] | None = None
    stt: str | None = None
    llm: str | None = None
    tts: str | None = None
    sound: Path = Path()
    out: Path | None = None
    url: str | None = None
    key: str | None = None
    agent: str | None = None
    text: bool = False
    action: str = ""
    project: str = "default"
    name: str = ""
    scope: tuple[str, ...] = ()
    id: str = ""
    subject: str = ""
    identity: str = ""
    seconds: int | None = None
    session: str = ""
    origin: tuple[str, ...] = ()
    max_sessions: int | None = None
    session_seconds: int | None = None
    turns: int | None = None
    spend_usd: float | None = None
    lock: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()
    specs: tuple[str, ...] = ()
    prompts: Path | None = None
    manifest: Path | None = None
    texts: Path | None = None
    cached: bool = False
    voice: str | None = None
    language: str | None = None
    n: int = 20
    concurrency: int = 1
    cache: str = "cold"
    max_tokens: int = 100
    names: tuple[str, ...] = ()
    probe: bool = False
    pool: tuple[str, ...] = ()
    policy: tuple[str, ...] = ()
    seed: int = 7
    latencies: Path | None = None
    csv: Path | None = None
    json: bool = False
    files: tuple[Path, ...] = ()
    what_if: tuple[str, ...] = ()
    p95_ms: float = 50.0
    misses: float = 0.01
    min_turns: int | None = None

    @classmethod
    def of(cls, written: argparse.Namespace) -> Options:
        """Build the options from argparse's result."""
        found: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in vars(written).items()
        }
        return cls(**found)

    @property
    def picks_models(self) -> bool:
        """Return whether models were named, which only a locally started server can apply."""
        return any((self.stt, self.llm, self.tts))

    @property
    def credential(self) -> str | None:
        """Return the key to connect with."""
        return self.key or os.environ.get(KEY_VARIABLE) or None

    def overrides(self) -> dict[str, object]:
        """Return the settings among the options, by dotted key.

        Raises:
            ConfigError: a `--set` is not KEY=VALUE.
        """
        written: dict[str, object] = {}
        for pair in self.set:
            key, equals, value = pair.partition("=")
            if not (key and equals):
                raise ConfigError(f"--set: expected KEY=VALUE, for example server.port=9000, got {pair!r}")
            written[key.strip()] = value
        shorthands = ((key, getattr(self, name)) for name, key in _SHORTHANDS.items())
        return written | {
            key: ",".join(value) if isinstance(value, tuple) else value
            for key, value in shorthands
            if value is not None
        }


def parser() -> argparse.ArgumentParser:
    """Return the whole tree of commands and options; a test checks the README's table against it."""
    tree = argparse.ArgumentParser(
        prog="voicepipe",
        description="A realtime voice agent server that holds every stage of a turn to a one-second budget.",
        argument_default=argparse.SUPPRESS,
    )
    tree.add_argument("--version", action="version", version=f"voicepipe {__version__}")
    commands = tree.add_subparsers(dest="command", metavar="COMMAND")
    _serve(commands)
    _talk(commands)
    _check(commands)
    _providers(commands)
    _keys(commands)
    _token(commands)
    _revoke(commands)
    _bench(commands)
    _simulate(commands)
    _replay(commands)
    _gate(commands)
    return tree


Commands = argparse._SubParsersAction  # the type of what `add_subparsers` returns has no public name


def _serve(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "serve", "run the server until Ctrl-C")
    command.add_argument("--host", help="the address to listen on (127.0.0.1)")
    command.add_argument("--port", help="the port (8080); 0 takes a free one")
    command.add_argument("--tls-cert", metavar="FILE", help="speak https with this certificate chain (PEM)")
    command.add_argument("--tls-key", metavar="FILE", help="the certificate's private key (PEM)")
    command.add_argument(
        "--tls-dev", action="store_const", const="true", help="speak https with a certificate made for trying out"
    )
    command.add_argument(
        "--trust-proxy",
        action="append",
        metavar="ADDRESS",
        help="believe this proxy, or network of proxies, about who calls; repeat for several",
    )
    _settings(command)


def _talk(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "talk", "say a recording, print and keep the answer, show where the time went")
    command.add_argument("sound", type=Path, metavar="SOUND", help="the question: a wav, flac, ogg or mp3 file")
    command.add_argument("--out", type=Path, metavar="FILE", help="write the answer's sound to this wav file")
    command.add_argument("--url", help="the server; without it the usual address, or a server started for this call")
    command.add_argument("--key", help=f"an API key or client secret; better in ${KEY_VARIABLE}")
    command.add_argument("--agent", metavar="NAME", help="who is to answer")
    command.add_argument("--text", action="store_true", help="have the answer in writing only")
    _settings(command)


def _check(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "check", "print the settings in force and try every stage of every agent")
    command.add_argument("--agent", metavar="NAME", help="try only this agent's stages")
    _settings(command)


def _providers(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "providers", "list who could think, hear and speak: keys, prices, speed")
    command.add_argument("names", nargs="*", metavar="NAME", help="show all known models of these, and no others")
    command.add_argument("--probe", action="store_true", help="ask each whose key is set to answer, hear or speak")
    command.add_argument("--json", action="store_true", help="print JSON, with the sources of all figures")
    command.add_argument("--project", metavar="NAME", help="whose turns are measured (default)")
    _config(command)


def _keys(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "keys", "make, list and revoke API keys")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    create = _add(actions, "create", "make a key and print it, this once")
    create.add_argument("--project", metavar="NAME", help="whose turns, sessions and tokens are theirs alone (default)")
    create.add_argument("--name", metavar="TEXT", help="what you call the key")
    create.add_argument("--scope", action="append", metavar="SCOPE", help="what it may do; repeat for several")
    listing = _add(actions, "list", "show all keys, without their secrets")
    revoke = _add(actions, "revoke", "make a key stop working")
    revoke.add_argument("id", metavar="ID", help="the eight characters that `keys list` shows")
    rotate = _add(actions, "rotate", "make a new secret that signs client secrets; those given out stay good")
    forget = _add(actions, "forget", "forget an older signing secret, and with it what it signed")
    forget.add_argument("id", metavar="KID", help="its name, as `keys rotate` prints it")
    for each in (create, listing, revoke, rotate, forget):
        _config(each)


def _token(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "token", "mint a client secret and print it")
    command.add_argument("--project", metavar="NAME", help="whose turns and sessions (default)")
    command.add_argument("--agent", metavar="NAME", help="who answers, and nobody else")
    command.add_argument("--subject", metavar="NAME", help="who speaks, as you name them; it can be revoked by that")
    command.add_argument("--identity", metavar="TEXT", help="a name for people to read")
    command.add_argument("--seconds", type=int, metavar="N", help="how long it opens sessions (600)")
    command.add_argument("--scope", action="append", metavar="SCOPE", help="what it may do; repeat for several")
    command.add_argument("--origin", action="append", metavar="URL", help="a page that may use it; repeat for several")
    command.add_argument("--max-sessions", type=int, metavar="N", help="how many sessions it starts; 1 is single use")
    command.add_argument("--session-seconds", type=int, metavar="N", help="how long each session lasts")
    command.add_argument("--turns", type=int, metavar="N", help="how many turns all its sessions have")
    command.add_argument("--spend-usd", type=float, metavar="USD", help="what all its sessions may cost")
    command.add_argument("--session", metavar="JSON", help="the session that it starts, as in session.update")
    command.add_argument("--lock", action="append", metavar="FIELD", help="what session.update may not change")
    command.add_argument("--hide", action="append", metavar="FIELD", help="the same, and the client does not see it")
    _config(command)


def _revoke(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "revoke", "take client secrets back, and end the calls that began with them")
    command.add_argument("id", metavar="ID", nargs="?", help="the client secret's id, as `token` prints it")
    command.add_argument("--subject", metavar="NAME", help="all that this subject was given until now")
    command.add_argument("--project", metavar="NAME", help="whose they are (default)")
    _config(command)


def _bench(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "bench", "measure what the settings name")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    llm = _add(actions, "llm", "ask several language models the same questions, and tell how fast each answers")
    llm.add_argument("specs", nargs="+", metavar="SPEC", help="the models, as provider/model")
    llm.add_argument("--prompts", type=Path, metavar="FILE", help='a question on each line, or {"system", "user"}')
    llm.add_argument("--cache", choices=("cold", "warm", "both"), help="new questions or known ones (cold)")
    llm.add_argument("--max-tokens", type=int, metavar="N", help="the longest answer (100)")
    _repeated(llm, "llm")
    stt = _add(actions, "stt", "say the same recordings to several ears, and tell how soon and how well each hears")
    stt.add_argument("specs", nargs="+", metavar="SPEC", help="the ears, as provider/model")
    stt.add_argument("--manifest", type=Path, metavar="FILE", help='{"path", "text"} of a recording on each line')
    stt.add_argument("--language", metavar="TAG", help="BCP-47; the ear finds out")
    _repeated(stt, "stt")
    tts = _add(actions, "tts", "have several voices speak the same texts, and tell how soon and how steadily each does")
    tts.add_argument("specs", nargs="+", metavar="SPEC", help="the voices, as provider/model")
    tts.add_argument("--texts", type=Path, metavar="FILE", help="a text on each line")
    tts.add_argument("--cached", action="store_true", help="measure each voice's sounds from disk, too")
    tts.add_argument("--voice", metavar="NAME", help="the voice's name at its provider")
    tts.add_argument("--language", metavar="TAG", help="BCP-47")
    _repeated(tts, "tts")


def _repeated(command: argparse.ArgumentParser, stage: str) -> None:
    command.add_argument("--n", type=int, metavar="N", help="answers of each (20)")
    command.add_argument("--concurrency", type=int, metavar="N", help="how many at a time (1)")
    command.add_argument(
        "--out", type=Path, metavar="FOLDER", help=f"write {stage}.md, {stage}.csv and {stage}.svg there"
    )
    _config(command)


def _simulate(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "simulate", "rehearse what the settings would do")
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)
    router = _add(actions, "router", "rehearse how pools of language models share the work, in virtual time")
    router.add_argument(
        "--pool", action="append", metavar="NAME", help="a pool of the settings, or one that comes along"
    )
    router.add_argument("--policy", action="append", metavar="POLICY", help="only this one; repeat for several")
    router.add_argument("--turns", type=int, metavar="N", help="how many turns (20000)")
    router.add_argument("--seed", type=int, metavar="N", help="of the drawn latencies (7)")
    router.add_argument("--latencies", type=Path, metavar="FILE", help="recorded ones instead: CSV with model, ttft_ms")
    router.add_argument("--csv", type=Path, metavar="FILE", help="write the table there too")
    _config(router)


def _replay(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "replay", "tell the core again what a journal holds, and show the first difference")
    command.add_argument("files", nargs="+", type=Path, metavar="JOURNAL", help="files, folders, ids of sessions")
    command.add_argument(
        "--what-if", nargs="+", action="extend", metavar="KEY=VALUE", help="what callers would have felt with these"
    )
    command.add_argument("--json", action="store_true", help="print a line of JSON for each journal")
    _config(command)


def _gate(commands: Commands[argparse.ArgumentParser]) -> None:
    command = _add(commands, "gate", "fail when callers wait longer in a second run than in a first")
    command.add_argument(
        "files", nargs=2, type=Path, metavar="RUN", help="before and after: journals, exported turns, a bench's CSV"
    )
    command.add_argument("--p95-ms", type=float, metavar="MS", help="by how much the 95th percentile may grow (50)")
    command.add_argument("--misses", type=float, metavar="SHARE", help="and the share of turns that are late (0.01)")
    command.add_argument("--min-turns", type=int, metavar="N", help="how many turns each run must have (72)")
    _config(command)


def _add(commands: Commands[argparse.ArgumentParser], name: str, does: str) -> argparse.ArgumentParser:
    return commands.add_parser(
        name, help=does, description=f"{does[0].upper()}{does[1:]}.", argument_default=argparse.SUPPRESS
    )


def _settings(command: argparse.ArgumentParser) -> None:
    command.add_argument("--stt", metavar="SPEC", help="who hears, as provider/model")
    command.add_argument("--llm", metavar="SPEC", help="who thinks, as provider/model")
    command.add_argument("--tts", metavar="SPEC", help="who speaks, as provider/model")
    _config(command)


def _config(command: argparse.ArgumentParser) -> None:
    command.add_argument("--config", metavar="FILE", help="the settings' file (voicepipe.toml)")
    command.add_argument("--data-dir", metavar="FOLDER", help="the folder for all that is written at run time")
    command.add_argument(
        "--set", action="append", metavar="KEY=VALUE", help="any other setting, by its dotted name; may be repeated"
    )
