"""`POST /v1/embeddings`: the request, read and checked, and the answer. No I/O.

Source: OpenAI API reference, "Create embeddings".
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from voicepipe.protocol.chat_request import Name, Opaque, json_refusal
from voicepipe.protocol.json_fields import JsonObject

MAX_INPUTS: Final = 2_048
"""The published maximum number of texts."""

Tokens = Annotated[list[Annotated[int, Meta(ge=0)]], Meta(min_length=1, max_length=65_536)]
Input = Annotated[str, Meta(min_length=1)]


class EmbeddingRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One request, its shape checked. The provider gets it as it is, with its own name of the model."""

    model: Name
    input: (
        Input | Annotated[list[Input | Annotated[int, Meta(ge=0)] | Tokens], Meta(min_length=1, max_length=MAX_INPUTS)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1, le=65_536)] | None = None
    user: Opaque | None = None

    @property
    def n_chars(self) -> int:
        """Return the length of all texts; a token counts as 4 characters."""
        if isinstance(self.input, str):
            return len(self.input)
        return sum(len(each) if isinstance(each, str) else 4 * _n_tokens(each) for each in self.input)


class EmbeddingUsage(Struct, frozen=True):
    """Tokens of a request, as the provider counts them."""

    prompt_tokens: int = 0
    total_tokens: int = 0


class ProviderEmbeddings(Struct, frozen=True):
    """A provider's answer; its vectors are passed on as they came."""

    data: Raw
    usage: EmbeddingUsage | None = None


_decode: Final = msgspec.json.Decoder(EmbeddingRequest).decode


def read_embedding_request(body: bytes) -> EmbeddingRequest:
    """Read a request's body.

    Raises:
        ProtocolError: it is no such request; `field` is the dotted path of what is wrong.
    """
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as wrong:
        raise json_refusal(wrong) from None


def embeddings_answer(model: str, data: Raw, n_tokens: int, extension: JsonObject) -> bytes:
    """Return the answer. `model` is the requested name; `extension` is added to the published fields."""
    usage = {"prompt_tokens": n_tokens, "total_tokens": n_tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": model, "usage": usage, "voicepipe": extension})


def _n_tokens(each: int | list[int]) -> int:
    return 1 if isinstance(each, int) else len(each)
