"""Apache Kafka: one broker in KRaft mode."""

import base64
import os
import subprocess
import uuid
from pathlib import Path
from typing import ClassVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from demo.embedded_stack import jars, java
from demo.embedded_stack.errors import StackError
from demo.embedded_stack.ports import HOST, free_ports
from demo.embedded_stack.process import ManagedProcess
from demo.embedded_stack.server import Server

PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://{host}:{plain},SASL://{host}:{sasl},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{plain},SASL://{host}:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
listener.name.sasl.sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.sasl.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
log.dirs={data}
num.network.threads=2
num.io.threads=4
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=4194304
# tests wait for retention and compaction
log.retention.check.interval.ms=1000
log.cleaner.backoff.ms=500
log.initial.task.delay.ms=500
# changefeeds are published with the times of their events
log.message.timestamp.before.max.ms=9223372036854775807
log.message.timestamp.after.max.ms=9223372036854775807
"""


class Kafka(Server):
    """A broker with an open listener (``bootstrap``) and one that asks for SCRAM-SHA-512 (``sasl_bootstrap``).

    Topics are not created by use. Record times are taken as they are sent, however old. Retention is looked at every second.
    """

    name: ClassVar[str] = "kafka"
    sasl_mechanism: ClassVar[str] = "SCRAM-SHA-512"
    sasl_username: ClassVar[str] = "replay"
    sasl_password: ClassVar[str] = "replay-password"

    def __init__(self, folder: Path, *, heap_mb: int = 512) -> None:
        super().__init__(folder)
        self._heap_mb = heap_mb
        self.bootstrap = ""
        """``host:port`` of the open listener, once started."""
        self.sasl_bootstrap = ""

    def _launch(self) -> ManagedProcess:
        properties = self.folder / "server.properties"
        fresh = not (self.folder / "data" / "meta.properties").exists()
        properties.write_text(self._properties())
        program = [
            *(str(java.find_home() / "bin" / "java"), "-Xms256m", f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC"),
            *("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"),
            *("-cp", f"{jars.fetch(jars.KAFKA)}/*"),
        ]
        if fresh:
            self._format(program, properties)
        return ManagedProcess(
            [*program, "kafka.Kafka", str(properties)], log=self.log, env=os.environ, cwd=self.folder, grace=20.0
        )

    def _properties(self) -> str:
        """The broker's configuration, with ports that are free now."""
        plain, sasl, controller = free_ports(3)
        self.bootstrap, self.sasl_bootstrap = f"{HOST}:{plain}", f"{HOST}:{sasl}"
        data = self.folder / "data"
        return PROPERTIES.format(host=HOST, plain=plain, sasl=sasl, controller=controller, data=data)

    def _format(self, program: list[str], properties: Path) -> None:
        cluster = "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).decode()[1:22]  # a leading dash would be an option
        scram = f"{self.sasl_mechanism}=[name={self.sasl_username},password={self.sasl_password}]"
        done = subprocess.run(
            [
                *program,
                *java.SHORT_LIVED,
                "kafka.tools.StorageTool",
                "format",
                "-t",
                cluster,
                "-c",
                str(properties),
                "--add-scram",
                scram,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=self.start_seconds,
        )
        if done.returncode != 0:
            raise StackError(f"Kafka's storage can't be formatted:\n{done.stdout.decode(errors='replace')[-3000:]}")

    def _is_ready(self) -> bool:
        client = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, "reconnect.backoff.max.ms": 100})
        try:
            return bool(client.list_topics(timeout=1.0).brokers)
        except KafkaException:  # nothing listens there yet
            return False
