"""Tokens of MLIR text, and the error that names a place in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn


class MLIRError(ValueError):
    """Error for text that can't be read. It says where, what was expected there, and what came.

    line and column count from 1.
    """

    def __init__(self, where: Position, expected: str, got: str):
        self.line, self.column = where.line, where.column
        self.expected, self.got = expected, got
        shown = where.source.line(self.line)
        mark = "".join("\t" if c == "\t" else " " for c in shown[: self.column - 1]) + "^"
        super().__init__(f"{where}: expected {expected}, got {got}\n{shown}\n{mark}")


@dataclass(frozen=True, slots=True)
class Source:
    """A text and its name in errors."""

    text: str
    filename: str

    def line(self, number: int) -> str:
        return self.text.split("\n")[number - 1]


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a source."""

    source: Source
    offset: int

    @property
    def line(self) -> int:
        return self.source.text.count("\n", 0, self.offset) + 1

    @property
    def column(self) -> int:
        return self.offset - self.source.text.rfind("\n", 0, self.offset)

    def __str__(self) -> str:
        return f"{self.source.filename}:{self.line}:{self.column}"

    def fail(self, expected: str, got: str) -> NoReturn:
        raise MLIRError(self, expected, got)


@dataclass(frozen=True, slots=True)
class Token:
    """kind: end, string, integer, hex, float, value (%), block (^), alias (#), dialect type (!),
    symbol (@), identifier, or the punctuation itself."""

    kind: str
    text: str
    where: Position

    def __str__(self) -> str:
        if self.kind == "end":
            return "the end of the text"
        return self.text if self.kind == "string" else f"'{self.text}'"

    @property
    def end(self) -> int:
        return self.where.offset + len(self.text)


_SPACE = re.compile(r"(?:\s+|//[^\n]*)*")
_SUFFIX = r"(?:[0-9]+|[A-Za-z$._-][A-Za-z0-9$._-]*)"
_TOKEN = re.compile(
    "|".join(
        f"(?P<{name}>{pattern})"
        for name, pattern in (
            ("string", r'"(?:[^"\\\n]|\\(?:["\\nt]|[0-9A-Fa-f]{2}))*"'),
            ("float", r"[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?"),
            ("hex", r"0x[0-9A-Fa-f]+"),
            ("integer", r"[0-9]+"),
            ("value", rf"%{_SUFFIX}(?:#[0-9]+)?"),
            ("block", rf"\^{_SUFFIX}"),
            ("alias", rf"#{_SUFFIX}"),
            ("type", rf"!{_SUFFIX}"),
            ("symbol", r'@(?:[A-Za-z_][A-Za-z0-9_$.]*|"(?:[^"\\\n]|\\.)*")'),
            ("identifier", r"[A-Za-z_][A-Za-z0-9_$.]*"),
            ("punctuation", r"->|[(){}\[\]<>,:=+*?|/-]"),
        )
    )
)
_SIZES = re.compile(r"(?:(?:[0-9]+|\?)x)*")
_ESCAPE = re.compile(rb'\\(["\\nt]|[0-9A-Fa-f]{2})')
_ESCAPED = {b'"': b'"', b"\\": b"\\", b"n": b"\n", b"t": b"\t"}
_CLOSING = {"<": ">", "(": ")", "[": "]", "{": "}"}


def unescape(literal: str) -> str:
    """The string that a literal (with its quotes) stands for."""

    def one(match: re.Match[bytes]) -> bytes:
        escape = match[1]
        return _ESCAPED[escape] if escape in _ESCAPED else bytes([int(escape, 16)])

    raw = literal[1:-1].encode("utf-8", "surrogateescape")
    return _ESCAPE.sub(one, raw).decode("utf-8", "surrogateescape")


class Lexer:
    """One token of lookahead over a source.

    MLIR's tokens depend on the place: sizes in `tensor<0x3xf32>` would be a hex number elsewhere.
    So a token is cut when the parser asks for it, not beforehand.
    """

    def __init__(self, source: Source, start: int = 0):
        self.source = source
        self._offset = start  # where the next token is looked for
        self._ahead: Token | None = None

    @property
    def token(self) -> Token:
        """The next token, not consumed."""
        if self._ahead is None:
            self._ahead = self._cut()
        return self._ahead

    def next(self) -> Token:
        token = self.token
        self._offset, self._ahead = token.end, None
        return token

    def _skip_space(self) -> int:
        match = _SPACE.match(self.source.text, self._offset)
        assert match is not None
        return match.end()

    def _cut(self) -> Token:
        start = self._skip_space()
        where = Position(self.source, start)
        if start == len(self.source.text):
            return Token("end", "", where)
        match = _TOKEN.match(self.source.text, start)
        if match is None:
            char = self.source.text[start]
            if char == '"':
                where.fail(
                    'a string that ends on its line, with escapes \\", \\\\, \\n, \\t, \\0A',
                    self.source.line(where.line)[where.column - 1 :],
                )
            where.fail("MLIR text", f"the character {char!r}")
        kind = match.lastgroup or ""
        return Token(match[0] if kind == "punctuation" else kind, match[0], where)

    def sizes(self) -> tuple[int | None, ...]:
        """The sizes before an element type, `2x?x` of `2x?xf32`; None stands for `?`."""
        self._ahead = None
        start = self._skip_space()
        match = _SIZES.match(self.source.text, start)
        assert match is not None
        self._offset = match.end()
        return tuple(None if size == "?" else int(size) for size in match[0].split("x")[:-1])

    def balanced(self) -> str:
        """Text in a dialect's own syntax, from `<` to the `>` that closes it."""
        opening = self.token.where
        text, at = self.source.text, opening.offset
        expected: list[str] = []
        while at < len(text):
            char = text[at]
            if char == '"':
                self._offset, self._ahead = at, None
                at = self.token.end
                continue
            if text.startswith("->", at):
                at += 2
                continue
            if char in _CLOSING:
                expected.append(_CLOSING[char])
            elif char in _CLOSING.values():
                if char != expected[-1]:
                    Position(self.source, at).fail(f"'{expected[-1]}'", f"'{char}'")
                expected.pop()
            at += 1
            if not expected:
                self._offset, self._ahead = at, None
                return text[opening.offset : at]
        opening.fail(f"a '{expected[-1]}' that closes this", "the end of the text")
