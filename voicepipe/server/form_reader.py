"""Read a form with a file in it as it arrives (multipart/form-data, RFC 7578), with limits of number and size.

A piece costs time in proportion to its bytes, independent of its content. Libraries that read line by line or part by
part take seconds for input of only line ends or empty fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final, Literal

from voicepipe.errors import ProtocolError

FILE_BYTES: Final = 25 << 20
"""The published maximum size of a file."""

FIELD_BYTES: Final = 64 << 10
"""Maximum size of all other fields, names and values."""

MAX_PARTS: Final = 64

PART_HEADER_BYTES: Final = 4 << 10
"""Maximum size of one part's headers: its name, the file's name, its type."""

PREAMBLE_BYTES: Final = 256
"""Maximum size of the preamble before the first part, which clients do not send."""

BOUNDARY: Final = re.compile(rb"[ -~]{0,69}[!-~]")
"""RFC 2046, 5.1.1, and somewhat more."""

_PARAMETER: Final = re.compile(rb';[ \t]*([!#$%&\'*+.^`|~\w-]+)[ \t]*=[ \t]*("(?:[^"\\]|\\.)*"|[^;"\s]*)')


class FileTooLarge(Exception):
    """The file has more than `FILE_BYTES`."""


@dataclass(slots=True)
class Form:
    """The content of a form."""

    file: bytearray | None = None
    fields: dict[str, list[str]] = field(default_factory=dict)
    """The values of each field; `name[]` is stored as `name`."""


class FormReader:
    """Parses a form's bytes in pieces of any length."""

    def __init__(self, content_type: str) -> None:
        """Begin.

        Args:
            content_type: the header, `multipart/form-data; boundary=...`.

        Raises:
            ProtocolError: it has no valid boundary.
        """
        boundary = _parameter(content_type.encode(), b"boundary")
        if not BOUNDARY.fullmatch(boundary):
            raise ProtocolError("Expected a form with a boundary of 1 to 70 characters.", code="invalid_type")
        self.form = Form()
        self._delimiter = b"\r\n--" + boundary
        self._tail = bytearray(b"\r\n")  # so that the first delimiter looks like all others
        self._at: Literal["preamble", "boundary", "headers", "content", "over"] = "preamble"
        self._n_parts = self._n_field_bytes = 0
        self._name = ""
        self._content = bytearray()

    def push(self, piece: bytes) -> None:
        """Parse the next bytes.

        Raises:
            ProtocolError: the bytes are no form, or too many; the text names the expected form.
            FileTooLarge: the file has more than `FILE_BYTES`.
        """
        self._tail += piece
        while self._step():
            pass

    def finish(self) -> Form:
        """Return the form.

        Raises:
            ProtocolError: the form is incomplete.
        """
        if self._at != "over":
            raise _broken("it breaks off")
        return self.form

    def _step(self) -> bool:
        """Parse further; False: more bytes are needed."""
        match self._at:
            case "preamble" | "content":
                return self._read_content()
            case "boundary":
                return self._read_boundary()
            case "headers":
                return self._read_headers()
            case "over":  # bytes after the end are ignored
                self._tail.clear()
                return False

    def _read_content(self) -> bool:
        found = self._tail.find(self._delimiter)
        n_sure = found if found >= 0 else max(0, len(self._tail) - len(self._delimiter) + 1)
        self._take(self._tail[:n_sure])
        if found < 0:
            del self._tail[:n_sure]
            return False
        del self._tail[: found + len(self._delimiter)]
        if self._at == "content":
            self._end_part()
        self._at, self._content = "boundary", bytearray()
        return True

    def _take(self, piece: bytearray) -> None:
        self._content += piece
        if self._at == "preamble":
            if len(self._content) > PREAMBLE_BYTES:
                raise _broken("it does not begin with its boundary")
        elif self._name == "file":
            if len(self._content) > FILE_BYTES:
                raise FileTooLarge
        else:
            self._check_fields(len(self._content))

    def _check_fields(self, n_more: int) -> None:
        if self._n_field_bytes + n_more > FIELD_BYTES:
            name = self._name[:64]
            why = f"{name}: expected at most {FIELD_BYTES} bytes in all fields but the file, got more"
            raise ProtocolError(why, field=name, code="form_too_large")

    def _end_part(self) -> None:
        if self._name == "file":
            self.form.file = self._content
            return
        self._n_field_bytes += len(self._content)
        try:
            value = self._content.decode()
        except UnicodeDecodeError:
            raise ProtocolError(f"{self._name[:64]}: expected UTF-8", field=self._name[:64]) from None
        self.form.fields.setdefault(self._name.removesuffix("[]"), []).append(value)

    def _read_boundary(self) -> bool:
        """Parse what follows a boundary: two dashes end the form, a line end begins a part."""
        if len(self._tail) < 2:
            return False
        if self._tail.startswith(b"--"):
            self._at = "over"
            return True
        end = self._tail.find(b"\r\n", 0, PREAMBLE_BYTES)
        if self._tail[: max(end, 0)].strip(b" \t") or (end < 0 and len(self._tail) >= PREAMBLE_BYTES):
            raise _broken("a boundary is not alone in its line")
        if end < 0:
            return False
        del self._tail[:end]  # the line end stays: headers, if any, are between it and an empty line
        self._at = "headers"
        return True

    def _read_headers(self) -> bool:
        end = self._tail.find(b"\r\n\r\n", 0, PART_HEADER_BYTES)
        if end < 0:
            if len(self._tail) >= PART_HEADER_BYTES:
                raise _broken(f"a part has more than {PART_HEADER_BYTES} bytes of headers")
            return False
        self._begin_part(bytes(self._tail[:end]))
        del self._tail[: end + 4]
        return True

    def _begin_part(self, headers: bytes) -> None:
        self._n_parts += 1
        if self._n_parts > MAX_PARTS:
            raise ProtocolError(f"Expected at most {MAX_PARTS} parts in the form, got more.", code="form_too_large")
        self._name = _name_of(headers)
        if self._name == "file" and self.form.file is not None:
            raise ProtocolError("file: expected one file, got more", field="file", code="form_too_large")
        if self._name != "file":
            self._n_field_bytes += len(self._name)
            self._check_fields(0)
        self._at = "content"


def _name_of(headers: bytes) -> str:
    for line in headers.split(b"\r\n"):
        header, _, value = line.partition(b":")
        if header.strip().lower() == b"content-disposition" and value.strip().lower().startswith(b"form-data"):
            name = _parameter(value, b"name").decode("utf-8", "replace")
            if name:
                return name
    raise _broken("a part has no name")


def _parameter(value: bytes, name: bytes) -> bytes:
    """Return a parameter of a header's value; empty: there is none."""
    found = (match[2] for match in _PARAMETER.finditer(value) if match[1].lower() == name)
    return next(found, b"").strip(b'"')


def _broken(why: str) -> ProtocolError:
    return ProtocolError(f"Expected a form (multipart/form-data), got a broken one: {why}.", code="invalid_type")
