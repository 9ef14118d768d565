"""How the rows of a dump are written: Dumpling's options. No file of a dump says them."""

import re
from typing import Literal

import msgspec

from ticdc_replay.domain.errors import ConfigError

BinaryFormat = Literal["raw", "hex", "base64"]

OUTPUT_DIALECTS: dict[str, BinaryFormat] = {"": "raw", "snowflake": "hex", "redshift": "hex", "bigquery": "base64"}
"""Values of ``--csv-output-dialect``, and how each writes binary columns (dumpling/export/config.go, DialectBinaryFormatMap)."""

_TERMINATORS = ("\r\n", "\n")
_NUMBER = re.compile(r"[-+0-9.eE]*")


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """Options of Dumpling that decide what its files look like. SQL files depend on ``escape_backslash`` alone.

    The defaults are Dumpling's (dumpling/export/config.go, DefineFlags).
    """

    separator: str = ","
    delimiter: str = '"'
    """Encloses values that are not numbers; empty for none."""
    null_value: str = "\\N"
    line_terminator: str = "\r\n"
    header: bool = True
    """Whether the first line of a CSV file names the columns."""
    escape_backslash: bool = True
    """Whether a backslash escapes; otherwise the delimiter, or in SQL the quote, is doubled."""
    binary: BinaryFormat = "raw"

    def check(self) -> None:
        """Raises ConfigError for options with which different rows give the same text."""
        if not self.separator:
            raise ConfigError("--csv-separator: it is empty, which Dumpling refuses")
        if self.line_terminator not in _TERMINATORS:
            raise ConfigError(f"--csv-line-terminator: {self.line_terminator!r}; Dumpling has \\r\\n and \\n")
        for name, text in (("--csv-separator", self.separator), ("--csv-delimiter", self.delimiter)):
            if "\\" in text or "\n" in text or "\r" in text or "\0" in text:
                raise ConfigError(
                    f"{name}: {text!r} has a backslash or the end of a line in it: values could not be told apart"
                )
        if self.delimiter and (self.delimiter in self.separator or self.separator in self.delimiter):
            raise ConfigError(
                f"--csv-separator {self.separator!r} and --csv-delimiter {self.delimiter!r} contain each other"
            )
        if not self.escape_backslash and len(self.delimiter.encode()) != 1:
            raise ConfigError(
                f"--csv-delimiter: without --escape-backslash it must be one character of ASCII, not {self.delimiter!r}: "
                "values could not be told apart. Dump again with --escape-backslash or with a delimiter"
            )
        self._check_null()

    def _check_null(self) -> None:
        null = self.null_value
        apart = [self.separator, self.delimiter, "\n", "\r"]
        if any(text and text in null for text in apart):
            raise ConfigError(f"--csv-null-value: {null!r} has a separator, a delimiter or the end of a line in it")
        if null and _NUMBER.fullmatch(null):
            raise ConfigError(f"--csv-null-value: {null!r} may be a number of a row, too")
        if "\\" in null and null != "\\N":
            raise ConfigError(f"--csv-null-value: {null!r}: with a backslash only \\N is supported")
        if not self.delimiter and null != "\\N":
            raise ConfigError(
                f"--csv-null-value: {null!r} may be the text of a row, too, as there is no --csv-delimiter: dump again with \\N"
            )
