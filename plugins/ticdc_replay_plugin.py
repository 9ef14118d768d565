"""Registers the library's plugin with an Airflow that has the library on its path, but not as an installed package.

Where the wheel is installed, its entry point ``airflow.plugins`` has done so, and this file does nothing: a plugin that comes
twice is an error of Airflow.
"""

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="ticdc_replay"):
    from ticdc_replay.airflow.registration.plugin import TicdcReplayPlugin as TicdcReplayPlugin
