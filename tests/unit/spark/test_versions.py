"""Which versions of Spark run jobs."""

import pytest

from ticdc_replay.domain.errors import ConfigError
from ticdc_replay.spark.versions import SUPPORTED, minor_of, refuse_others


@pytest.mark.parametrize("minor", SUPPORTED)
def test_a_supported_version_is_taken_whatever_its_patch(minor: str) -> None:
    refuse_others(f"{minor}.3", f"{minor}.9")


@pytest.mark.parametrize("version", ["3.4.4", "4.2.0", "unknown"])
def test_another_version_is_refused_with_the_supported_ones(version: str) -> None:
    with pytest.raises(ConfigError, match=rf"PySpark here is {version}, .* 3\.5, 4\.0, 4\.1: install"):
        refuse_others(version, version)
    with pytest.raises(ConfigError, match=rf"Spark at the server is {version}"):
        refuse_others("4.1.3", version, " at the server")


@pytest.mark.parametrize(("client", "server"), [("4.1.3", "4.0.5"), ("3.5.7", "4.1.3"), ("4.0.5", "4.1.0")])
def test_a_server_of_another_minor_version_is_refused_with_the_one_to_install(client: str, server: str) -> None:
    with pytest.raises(ConfigError, match=f"install PySpark {minor_of(server)} here"):
        refuse_others(client, server)
