# One image for all roles: Airflow, Spark's master and workers, a Spark Connect server, drivers and executors on Kubernetes, jobs
# without Spark, and the sample. Driver and executors then have the same Python, the same native wheels and the same library.

FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d AS build

WORKDIR /build
COPY requirements/bootstrap.txt requirements/
RUN pip install --no-cache-dir --disable-pip-version-check --require-hashes -r requirements/bootstrap.txt \
    && uv venv /opt/venv

# Packages change seldom: this layer is rebuilt only when the lock file changes. Packages that come as source are built with the
# locked setuptools.
COPY requirements/runtime.txt requirements/
RUN --mount=type=cache,target=/root/.cache/uv \
    UV_LINK_MODE=copy uv pip install --python /opt/venv/bin/python --compile-bytecode \
        --require-hashes --build-constraints requirements/runtime.txt -r requirements/runtime.txt

# The jars of lake tables are beside Spark's own, so that no job has to bring them. `make setup` checks the same checksums.
# Apache Ivy, which comes with PySpark, knows where they are.
ARG SPARK_JARS=/opt/venv/lib/python3.11/site-packages/pyspark/jars
COPY demo/embedded_stack/lake-*.sha256 lake-jars.sha256
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/* \
    && fetch() { java -jar $SPARK_JARS/ivy-*.jar -warn -cache /tmp/ivy -notransitive -types jar bundle \
        -retrieve "$SPARK_JARS/[artifact]-[revision].[ext]" -dependency "$@"; } \
    && fetch org.apache.iceberg iceberg-spark-runtime-4.1_2.13 1.12.0 \
    && fetch io.delta delta-spark_4.1_2.13 4.4.0 \
    && fetch io.delta delta-storage 4.4.0 \
    && fetch org.xerial sqlite-jdbc 3.53.4.0 \
    && rm -rf /tmp/ivy \
    && cd $SPARK_JARS && sha256sum --check --strict /build/lake-jars.sha256

# The wheels of this repository, as `make package` builds them: the library, and the native decoder in Rust.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
COPY --from=rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 /usr/local/rustup /usr/local/rustup
COPY --from=rust:1.95.0-slim-bookworm@sha256:d7482085ff5b415f84dba5647ae71606650bdef00db7aeb69f4b3d170c3e4082 /usr/local/cargo /usr/local/cargo
ENV PATH=/opt/build/bin:/usr/local/cargo/bin:$PATH \
    RUSTUP_HOME=/usr/local/rustup
COPY requirements/build.txt requirements/
RUN uv venv /opt/build \
    && uv pip install --python /opt/build/bin/python --no-cache --require-hashes -r requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY native native
COPY scripts/package-executors scripts/third-party scripts/
COPY requirements/licences.toml requirements/
COPY include/ticdc_replay include/ticdc_replay
RUN python scripts/package-executors --wheels-only --out /wheels \
    && uv pip install --python /opt/venv/bin/python --compile-bytecode --no-cache --no-deps /wheels/*.whl \
    && python scripts/third-party notices /opt/venv/lib/python3.11/site-packages --out /opt/venv/THIRD-PARTY-NOTICES.txt \
    && python scripts/third-party sbom /opt/venv/lib/python3.11/site-packages --name ticdc-replay-image --out /opt/venv/sbom.cdx.json


FROM python:3.11.14-slim-bookworm@sha256:65a93d69fa75478d554f4ad27c85c1e69fa184956261b4301ebaf6dbb0a3543d

# haproxy ends TLS before a Spark Connect server, tini reaps processes where the container engine does not.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless haproxy tini \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --gid 50000 replay \
    && useradd --uid 50000 --gid replay --home-dir /opt/airflow --create-home replay \
    && install --directory --owner=replay --group=replay /opt/airflow/logs /opt/airflow/lineage /opt/spark-work /opt/lakehouse

COPY --from=build /opt/venv /opt/venv
WORKDIR /opt/ticdc-replay
COPY scripts/third-party scripts/
RUN python3 scripts/third-party sbom --debian --name ticdc-replay-image-debian --out /opt/sbom-debian.cdx.json
COPY docker/*.py docker/spark-defaults.conf docker/
# Where probes of Airflow's Helm chart call it.
RUN ln -s /opt/ticdc-replay/docker/entrypoint.py /entrypoint
COPY dags/*.py dags/
COPY plugins plugins
COPY demo/__init__.py demo/
COPY demo/sample demo/sample

# The Spark provider finds spark-submit by PATH; executors are started with the driver's PYSPARK_PYTHON.
ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYSPARK_PYTHON=/opt/venv/bin/python \
    SPARK_HOME=/opt/venv/lib/python3.11/site-packages/pyspark \
    SPARK_CONF_DIR=/run/ticdc-replay/spark \
    AIRFLOW_HOME=/opt/airflow \
    AIRFLOW__CORE__DAGS_FOLDER=/opt/ticdc-replay/dags \
    AIRFLOW__CORE__PLUGINS_FOLDER=/opt/ticdc-replay/plugins \
    AIRFLOW__CORE__LOAD_EXAMPLES=False

USER replay
ENTRYPOINT ["tini", "-s", "--", "python", "/opt/ticdc-replay/docker/entrypoint.py"]
