"""Reading YAML strictly: a key that stands twice is an error, and a moment stays the text that was written."""

from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from ticdc_replay.domain.errors import ConfigError


class _StrictLoader(yaml.SafeLoader):
    """``yaml.SafeLoader`` that refuses duplicate keys and knows no timestamps (theirs lose the zone)."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable) and key in seen:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key {key!r} occurs more than once", key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping that *path* holds. Raises ConfigError if it can't be read, is not YAML, or is no mapping, with file,
    line and column, but without content, which might be a secret."""
    try:
        content = yaml.load(path.read_text(encoding="utf-8"), Loader=_StrictLoader)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(f"{path}{place}: {error.problem or 'not valid YAML'}") from None
    except yaml.YAMLError:
        raise ConfigError(f"{path}: is not valid YAML (a character that YAML does not allow)") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: must be a mapping of keys such as name, changefeed and targets")
    return content
