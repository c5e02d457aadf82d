"""compose.yaml: a real compose takes it, and every command, file and name in it is right."""

import os
import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from bookkeeper.config.load import load
from tests.docs.commands import check
from tests.packaging.project import ROOT, run
from tests.servers.installed import promtool
from tests.servers.kafka import kafka
from tests.servers.needed import needed
from writers.kafka.client import Cluster

FILE = ROOT / "compose.yaml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(FILE.read_text("utf-8"))["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("iceberg-bookkeeper")}
BINDS = {volume.split(":")[0] for one in SERVICES.values() for volume in one.get("volumes", []) if volume[0] == "."}


def tool() -> list[str]:
    """
    The compose of this machine, or skips.
    """
    for words in (["docker-compose"], ["docker", "compose"]):
        if shutil.which(words[0]) and subprocess.run([*words, "version"], capture_output=True).returncode == 0:
            return words
    pytest.skip("neither docker-compose nor docker compose is here: apt install docker-compose")


def test_compose_takes_it() -> None:
    checked = run(*tool(), "-f", str(FILE), "config", "--quiet")

    assert (checked.returncode, checked.stderr) == (0, "")


def test_it_has_all_parts_and_five_writers_with_names_of_their_own() -> None:
    names = [service["command"][3] for name, service in SERVICES.items() if name.startswith("writer-")]

    assert names == [f"writer-{number}" for number in range(1, 6)]
    parts = {"storage", "catalog", "init", "bookkeeper", "reaper", "consumer", "prometheus", "grafana"}
    assert parts <= set(SERVICES)


def test_what_not_all_want_is_in_profiles_that_nothing_else_needs() -> None:
    profiles = {name: service.get("profiles", []) for name, service in SERVICES.items()}

    assert {name: found for name, found in profiles.items() if found} == {
        "broker": ["kafka"],
        "topic": ["kafka"],
        "kafka-writer": ["kafka"],
        "http-writer": ["http"],
    }
    for name, service in SERVICES.items():
        needed_here = {*service.get("depends_on", [])}
        assert all(profiles[other] in ([], profiles[name]) for other in needed_here)


def test_what_copies_kafka_reads_the_topic_that_is_made_at_the_address_that_the_broker_gives() -> None:
    copy, made, told = (SERVICES[name] for name in ("kafka-writer", "topic", "broker"))
    settings = told["environment"]

    def after(words: list[str], option: str) -> str:
        return words[words.index(option) + 1]

    assert after(copy["command"], "--topic") == after(made["command"], "--topic")
    brokers = {after(copy["command"], "--brokers"), after(made["command"], "--bootstrap-server")}
    assert {f"PLAINTEXT://{broker}" for broker in brokers} == {settings["KAFKA_ADVERTISED_LISTENERS"]}
    assert made["image"] == told["image"]
    assert told["volumes"] == [f"broker:{settings['KAFKA_LOG_DIRS']}"]


def test_a_real_broker_starts_with_the_settings_of_the_one_in_it() -> None:
    given = SERVICES["broker"]["environment"]
    settings = {
        key.removeprefix("KAFKA_").lower().replace("_", "."): value
        for key, value in given.items()
        if key != "KAFKA_HEAP_OPTS"
    }
    with needed("Kafka"), kafka(settings=settings) as server:
        assert Cluster(server.properties["bootstrap.servers"], {}, "x").names() == []


@pytest.mark.parametrize("name", OURS)
def test_a_command_of_ours_is_spelled_right(name: str) -> None:
    command = OURS[name].get("command", ["bookkeeper", "run"])
    if command[0] == "sh":
        command = command[2].split("exec ")[1].split()

    check(command)


@pytest.mark.parametrize("name", SERVICES)
def test_each_service_has_limits_a_read_only_disk_and_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]

    assert service["read_only"] is True and service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert {"mem_limit", "cpus", "pids_limit"} <= set(service)
    assert "cap_add" not in service or name == "catalog"


@pytest.mark.parametrize("name", [name for name in SERVICES if name not in OURS])
def test_an_image_that_is_not_ours_has_an_exact_tag(name: str) -> None:
    assert re.search(r":v?\d+\.\d+(\.\d+)?(-bookworm)?$", SERVICES[name]["image"])


def test_a_container_has_the_memory_that_a_pod_has() -> None:
    pods = {
        kind: (ROOT / "config" / "kubernetes" / f"{kind}.yaml").read_text("utf-8")
        for kind in ("bookkeeper", "reaper", "writer", "kafka-writer", "http-writer")
    }
    limits = {kind: re.findall(r"limits: \{memory: (\w+)i\}", text) for kind, text in pods.items()}

    assert limits["bookkeeper"] == [SERVICES["bookkeeper"]["mem_limit"].upper()]
    assert limits["reaper"] == [SERVICES["reaper"]["mem_limit"].upper()]
    assert limits["writer"] == [SERVICES["writer-1"]["mem_limit"].upper()]
    assert limits["kafka-writer"] == [SERVICES["kafka-writer"]["mem_limit"].upper()]
    assert limits["http-writer"] == [SERVICES["http-writer"]["mem_limit"].upper()]


@pytest.mark.parametrize("path", sorted(BINDS))
def test_a_file_that_is_mounted_is_there(path: str) -> None:
    assert (ROOT / path).is_file()


def test_the_configuration_loads_with_what_the_services_are_given() -> None:
    given = dict.fromkeys(OURS["bookkeeper"]["environment"], "x")

    settings = load(str(ROOT / "config" / "compose" / "bookkeeper.toml"), given)

    assert settings.tables["events"].folder in settings.catalog.properties["warehouse"].replace(
        "warehouse", "queue/events"
    )


def test_the_daemon_is_where_prometheus_asks() -> None:
    jobs = yaml.safe_load((ROOT / "config" / "prometheus.yml").read_text("utf-8"))["scrape_configs"]
    targets = [target for job in jobs for static in job["static_configs"] for target in static["targets"]]

    parts = {"bookkeeper", "reaper", "kafka-writer", "http-writer", *(f"writer-{number}" for number in range(1, 6))}
    assert {target.split(":")[0] for target in targets} == parts <= set(SERVICES)
    for name, _, port in (target.partition(":") for target in targets):
        assert name == "bookkeeper" or f"0.0.0.0:{port}" in SERVICES[name]["command"]
        assert name in _allowed(name)


def _allowed(name: str) -> list[str]:
    """By which names the service is served, beside localhost and its address."""
    if name == "bookkeeper":
        given = dict.fromkeys(OURS["bookkeeper"]["environment"], "x")
        return [*load(str(ROOT / "config" / "compose" / "bookkeeper.toml"), given).bookkeeper.allowed_hosts]
    words = SERVICES[name]["command"]
    return [words[words.index("--allowed-host") + 1]]


def test_prometheus_takes_its_configuration_and_the_rules() -> None:
    with needed("promtool"):
        program = promtool(os.environ)

    checked = run(program, "check", "config", str(ROOT / "config" / "prometheus.yml"))

    assert checked.returncode == 0 and "rules found" in checked.stdout, checked.stderr
