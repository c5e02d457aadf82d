# One image for writer, bookkeeper and reaper; `--target spark` adds a Java and Spark for the jobs of spark_jobs.
#   docker build -t iceberg-bookkeeper .
#   docker run --rm iceberg-bookkeeper writer --help

FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /opt/venv
ENV PATH=/opt/venv/bin:$PATH
COPY setup.cfg pyproject.toml constraints.txt README.md LICENSE ./
COPY bookkeeper bookkeeper
COPY writers writers
COPY reaper reaper
COPY spark_jobs spark_jobs
RUN pip install --constraint constraints.txt '.[daemon,reaper,azure,s3]'

FROM build AS build-spark
RUN pip install --constraint constraints.txt '.[daemon,spark]'

FROM python:3.11-slim-bookworm AS base
ENV PATH=/opt/venv/bin:$PATH HOME=/home/bookkeeper PYTHONUNBUFFERED=1
RUN useradd --uid 10001 --create-home --home-dir /home/bookkeeper bookkeeper
WORKDIR /home/bookkeeper
COPY config config

FROM eclipse-temurin:17-jre-jammy AS jre

FROM base AS spark
COPY --from=jre /opt/java/openjdk /opt/java
COPY --from=build-spark /opt/venv /opt/venv
ENV JAVA_HOME=/opt/java
USER 10001:10001
# The jars are part of the image, so that a job starts without Maven.
RUN python -m spark_jobs.prepare
CMD ["python", "-m", "spark_jobs.read_stream", "--help"]

FROM base AS bookkeeper
COPY --from=build /opt/venv /opt/venv
USER 10001:10001
CMD ["bookkeeper", "--help"]
