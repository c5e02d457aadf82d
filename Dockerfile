# One image for writer, bookkeeper and reaper; `--target spark` adds a Java and Spark for the jobs of spark_jobs.
#   docker build -t iceberg-bookkeeper .
#   docker build -t iceberg-bookkeeper-spark --target spark .
#   docker run --rm iceberg-bookkeeper writer --help
# How it is run, with compose, on Kubernetes or by systemd: docs/deploy.md.

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
# No pip in there: the last stages hold nothing that installs or compiles.
RUN python -m venv --without-pip /opt/venv
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
COPY bookkeeper bookkeeper
COPY writers writers
COPY reaper reaper
COPY spark_jobs spark_jobs
RUN pip --python /opt/venv/bin/python install --constraint constraints.txt '.[daemon,reaper,http,kafka,azure,s3,postgres]'

FROM build AS build-spark
RUN pip --python /opt/venv/bin/python install --constraint constraints.txt '.[daemon,spark,azure,s3,postgres]'

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/venv/bin:$PATH HOME=/home/bookkeeper PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    BOOKKEEPER_CONFIG=/etc/bookkeeper/bookkeeper.toml
# A volume that is mounted at /var/lib/bookkeeper for the first time belongs to whom that folder belongs here.
RUN useradd --uid 10001 --create-home --home-dir /home/bookkeeper bookkeeper \
 && install --directory --owner 10001 --group 10001 /var/lib/bookkeeper
WORKDIR /home/bookkeeper

FROM eclipse-temurin:17-jre-jammy AS jre

FROM base AS spark
COPY --from=jre /opt/java/openjdk /opt/java
COPY --from=build-spark /opt/venv /opt/venv
ENV JAVA_HOME=/opt/java
USER 10001:10001
# The jars are part of the image, so that a job starts without Maven, and on a read-only disk.
RUN python -m spark_jobs.prepare --all
CMD ["python", "-m", "spark_jobs.read_stream", "--help"]

FROM base AS bookkeeper
COPY --from=build /opt/venv /opt/venv
USER 10001:10001
# For the daemon; whoever runs a writer or the reaper switches it off. No curl, no shell.
HEALTHCHECK --interval=15s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9464/healthz', timeout=4)"]
CMD ["bookkeeper", "run", "--log-format", "json"]
