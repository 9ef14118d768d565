"""Real servers on loopback, started and surely stopped, without Docker: for the demo, the tests and the benchmarks.

Every server is a context manager with ``start()`` and ``stop()``, picks free ports, keeps its data and its log in one folder
and runs below a supervisor that ends it when the process that started it goes away, however that happens. Linux only.
"""

from demo.embedded_stack.airflow import Airflow
from demo.embedded_stack.errors import StackError
from demo.embedded_stack.kafka import Kafka
from demo.embedded_stack.postgres import Postgres
from demo.embedded_stack.s3 import MotoServer, VersityGateway
from demo.embedded_stack.stack import DataServers

__all__ = ["Airflow", "DataServers", "Kafka", "MotoServer", "Postgres", "StackError", "VersityGateway"]
