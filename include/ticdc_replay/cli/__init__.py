"""The ``ticdc-replay`` command: the library without Airflow. One verb a file, registered in ``main``; no logic but showing."""
