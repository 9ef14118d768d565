"""What pydantic found wrong in a file, as people read it: file, key, and what is allowed."""

from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ticdc_replay.domain.errors import ConfigError

_WORDS = {
    "missing": "missing",
    "string_pattern_mismatch": "not allowed; it must match {pattern}",
    "too_short": "empty; give at least one",
    "greater_than_equal": "too small; at least {ge}",
    "greater_than": "too small; it must be more than {gt}",
    "less_than_equal": "too large; at most {le}",
    "int_parsing": "not a whole number",
    "int_type": "not a whole number",
    "int_from_float": "not a whole number",
    "literal_error": "not allowed; allowed: {expected}",
    "union_tag_invalid": "not allowed; allowed: {expected_tags}",
    "union_tag_not_found": "missing",
}
"""By the type of pydantic's error; its own text for others."""


def explained(error: ValidationError, document: dict[str, Any], path: Path, model: type[BaseModel]) -> ConfigError:
    """*error*, met in the *document* of the file *path* when it was read as a *model*: one line per finding."""
    findings = []
    for detail in error.errors(include_url=False, include_input=False):
        key, kind, context = _key_path(detail["loc"], document), detail["type"], detail.get("ctx", {})
        if kind == "extra_forbidden":
            message = _unknown_key(detail["loc"], model)
        elif kind in _WORDS:
            message = _WORDS[kind].format(**context)
        else:
            message = detail["msg"].removeprefix("Value error, ")
        if kind.startswith("union_tag_"):
            key = f"{key}.type"
        findings.append(f"{path}: {key}: {message}" if key else f"{path}: {message}")
    return ConfigError("\n".join(findings))


def _unknown_key(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    known = _known_keys(location[:-1], model)
    alike = get_close_matches(str(location[-1]), known, n=1)
    meant = f", did you mean {alike[0]}?" if alike else ";"
    return f"unknown key{meant} allowed: {', '.join(known)}"


def _known_keys(location: tuple[int | str, ...], model: type[BaseModel]) -> list[str]:
    """The keys of the section at *location*, as pydantic writes it, in the order of the documentation."""
    schema = model.model_json_schema()
    section = schema
    for part in location:
        if isinstance(part, int):
            section = section["items"]
        elif "discriminator" in section:
            section = {"$ref": section["discriminator"]["mapping"][part]}
        else:
            section = section["properties"][part]
        if "$ref" in section:
            section = schema["$defs"][section["$ref"].rpartition("/")[2]]
    return list(section["properties"])


def _key_path(location: tuple[int | str, ...], document: Any) -> str:
    """*location* as a person writes it. pydantic puts a target's ``type`` between index and key: that is left out."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
            document = document[part] if isinstance(document, list) and part < len(document) else None
        elif (
            text.endswith("]") and isinstance(document, dict) and part == document.get("type") and part not in document
        ):
            continue
        else:
            text += f".{part}" if text else str(part)
            document = document.get(part) if isinstance(document, dict) else None
    return text
