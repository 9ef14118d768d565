"""DDL text → tokens, and a cursor over them.

sqlglot's MySQL tokenizer knows MySQL's quoting, literals and comments. Its parser is not used: it drops what matters here
(REAL becomes FLOAT, MEDIUMTEXT of a charset, NATIONAL types) and turns much of TiDB's DDL into opaque commands; see
docs/decisions.md.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

from sqlglot.dialects.mysql import MySQL
from sqlglot.errors import SqlglotError

from ticdc_replay.domain.limits import refused_name

_Item = TypeVar("_Item")
Kind = Literal["word", "name", "string", "number", "bits", "hex", "symbol"]


class DdlSyntaxError(ValueError):
    """A DDL text has a form this reader does not know; the message says where."""


class Token(NamedTuple):
    """One token. ``word`` is a keyword or bare name, ``name`` a quoted name; strings are unquoted."""

    kind: Kind
    text: str


MAX_CHARACTERS = 4 * 1024 * 1024
"""Of a text that is read. A table of 1,017 columns with the longest comments TiDB allows has a quarter of it."""
_LARGEST_NUMBER = (1 << 63) - 1
"""Of lengths and the like. No type has a length near it, and it is the last that every format of ours can hold."""
_LONGEST_NUMBER = len(str(_LARGEST_NUMBER))

# Every alternative takes an opened quote or comment to its end or to that of the text, and none gives back what it took: so
# a text is passed once, however many quotes it opens. What repeats possessively is without lookahead and group: before 3.11.5
# Python loses its place there.
_QUOTED_OR_COMMENT = re.compile(
    r"""'(?:[^'\\]++|\\(?:.|\Z)|'')*+(?:'|\Z)|"(?:[^"\\]++|\\(?:.|\Z)|"")*+(?:"|\Z)|`(?:[^`]++|``)*+(?:`|\Z)"""
    r"|/\*T!\[[^]]{,256}\].*?\*/|/\*.*?(?:\*/|\Z)"
    r"|#[^\n]*+|--\s[^\n]*+",
    re.DOTALL,
)
_CONDITIONAL = re.compile(r"/\*(?:T!(?:\[[^]]{,256}\])?|!\d*+)(.*)\*/", re.DOTALL)
_PLAIN_STRING = re.compile(r"'(?:[^']++|'')*+(?:'|\Z)|`(?:[^`]++|``)*+(?:`|\Z)")
_NORMALISED = re.compile(r"[A-Z0-9_ =]*`")


class _Tokenizer(MySQL.Tokenizer):  # type: ignore[misc]
    COMMANDS: ClassVar[set[Any]] = set()  # RENAME and others would swallow the rest of the text as one token


_KINDS: dict[str, Kind] = {
    "STRING": "string",
    "NATIONAL_STRING": "string",
    "IDENTIFIER": "name",
    "NUMBER": "number",
    "BIT_STRING": "bits",
    "HEX_STRING": "hex",
}


def wire_tokens(query: str) -> list[Token]:
    """The tokens of a DDL as TiCDC sends it.

    TiCDC parses and restores the text without the flag that escapes backslashes (tiflow, "add special comment to DDL"):
    there a backslash inside quotes is itself. Text that was not restored (upper-case keywords, backquoted names) is
    ordinary SQL. Raises DdlSyntaxError.
    """
    if "\\" in query and _NORMALISED.match(query):
        query = _PLAIN_STRING.sub(lambda match: _escape_string(match[0]), query)
    return sql_tokens(query)


def _escape_string(text: str) -> str:
    return text if text.startswith("`") else text.replace("\\", "\\\\")


def sql_tokens(text: str) -> list[Token]:
    """The tokens of a SQL text, as SHOW CREATE TABLE prints it. Raises DdlSyntaxError.

    The content of conditional comments (``/*T![ttl] … */``, ``/*!80016 … */``) counts, as it does for TiDB.
    """
    if len(text) > MAX_CHARACTERS:
        raise DdlSyntaxError(f"{len(text)} characters; at most {MAX_CHARACTERS} are read")
    opened = _QUOTED_OR_COMMENT.sub(_open_conditional, text)
    try:
        raw = _Tokenizer(dialect="mysql").tokenize(opened)
    except SqlglotError as error:
        raise DdlSyntaxError(f"not readable as SQL: {str(error).splitlines()[0][:200]}") from None
    tokens: list[Token] = []
    for token in raw:
        kind = _KINDS.get(token.token_type.name)
        if kind is not None:
            tokens.append(Token(kind, token.text))
        elif token.text[:1].isalpha() or token.text[:1] in "_$" or token.text[:1].isdigit():
            tokens.extend(Token("word", word) for word in token.text.split())  # NOT NULL and the like come as one
        else:
            tokens.append(Token("symbol", token.text))
    return tokens


def _open_conditional(match: re.Match[str]) -> str:
    conditional = _CONDITIONAL.fullmatch(match[0])
    return match[0] if conditional is None else f" {conditional[1]} "


_SEMICOLON = Token("symbol", ";")


class Cursor:
    """Reads tokens from left to right; every expectation that fails raises DdlSyntaxError."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._at = 0
        self._end = len(tokens)
        while self._end and tokens[self._end - 1] == _SEMICOLON:
            self._end -= 1

    @property
    def at_end(self) -> bool:
        """Whether all tokens were read; a semicolon at the end does not count."""
        return self._at >= self._end

    def peek(self, ahead: int = 0) -> Token:
        """The token *ahead* tokens from here; an empty symbol after the end."""
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else Token("symbol", "")

    def next(self) -> Token:
        """Reads one token."""
        token = self.peek()
        if self._at >= len(self._tokens):
            raise DdlSyntaxError("the text ends too early")
        self._at += 1
        return token

    def sees(self, *words: str) -> bool:
        """Whether the next tokens are these keywords (any letter case) or symbols."""
        for ahead, word in enumerate(words):
            token = self.peek(ahead)
            if token.kind not in ("word", "symbol") or token.text.upper() != word:
                return False
        return True

    def take(self, *words: str) -> bool:
        """Reads these keywords or symbols if they are next."""
        if not self.sees(*words):
            return False
        self._at += len(words)
        return True

    def take_any(self, *words: str) -> str | None:
        """Reads one of these keywords, and returns it in upper case."""
        return next((word for word in words if self.take(word)), None)

    def expect(self, *words: str) -> None:
        """Reads these keywords or symbols."""
        if not self.take(*words):
            raise DdlSyntaxError(f"expected {' '.join(words)} before {self._rest()}")

    def name(self) -> str:
        """Reads one name, quoted or bare, that TiDB takes for one."""
        token = self.next()
        if token.kind not in ("name", "word"):
            raise DdlSyntaxError(f"expected a name, found {token.text!r} before {self._rest()}")
        refusal = refused_name(token.text)
        if refusal is not None:
            raise DdlSyntaxError(f"{refusal} before {self._rest()}")
        return token.text

    def dotted_name(self) -> tuple[str | None, str]:
        """Reads ``table`` or ``schema.table``."""
        first = self.name()
        return (first, self.name()) if self.take(".") else (None, first)

    def number(self) -> int:
        """Reads an unsigned integer."""
        token = self.next()
        if token.kind != "number" or not token.text.isdecimal():
            raise DdlSyntaxError(f"expected a number, found {token.text!r} before {self._rest()}")
        number = int(token.text) if len(token.text) <= _LONGEST_NUMBER else _LARGEST_NUMBER + 1
        if number > _LARGEST_NUMBER:
            raise DdlSyntaxError(f"the number {token.text[:40]} of {len(token.text)} digits before {self._rest()}")
        return number

    def string(self) -> str:
        """Reads a string, with or without a charset before it."""
        token = self.next()
        if token.kind == "word" and token.text.startswith("_"):
            token = self.next()
        if token.kind != "string":
            raise DdlSyntaxError(f"expected a string, found {token.text!r} before {self._rest()}")
        return token.text

    def listed(self, read: Callable[[], _Item]) -> list[_Item]:
        """What *read* reads, once and after each comma."""
        found = [read()]
        while self.take(","):
            found.append(read())
        return found

    def in_parentheses(self, read: Callable[[], _Item]) -> list[_Item]:
        """``(item, …)``, each item read by *read*."""
        self.expect("(")
        found = self.listed(read)
        self.expect(")")
        return found

    def skip_parentheses(self) -> None:
        """Reads a parenthesised group whatever it holds."""
        self.expect("(")
        depth = 1
        while depth:
            token = self.next()
            if token.kind == "symbol":
                depth += {"(": 1, ")": -1}.get(token.text, 0)

    def skip_item(self, *until: tuple[str, ...]) -> None:
        """Reads up to the next comma or closing parenthesis of this level, or to the words of one of *until*."""
        ends = ((",",), (")",), *until)
        while not self.at_end and not any(self.sees(*words) for words in ends):
            if self.sees("("):
                self.skip_parentheses()
            else:
                self.next()

    def _rest(self) -> str:
        rest = " ".join(token.text for token in self._tokens[self._at : self._at + 6])
        return repr(rest) if rest else "the end"
