"""config/kubernetes: valid against Kubernetes' own schemas, and consistent in itself and with the image."""

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from bookkeeper.config.load import parse
from tests.cli.commands import commands
from tests.docs.commands import check
from tests.packaging.project import ROOT

FOLDER = ROOT / "config" / "kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text("utf-8"))
#: in place of the reaper's Deployment; where topics of Kafka are copied, rows come over HTTP, objects are dropped
CHOSEN = ["reaper-cronjob.yaml", "kafka-writer.yaml", "http-writer.yaml", "watch-writer.yaml"]
RESOURCES: list[dict[str, Any]] = [
    resource
    for name in [*KUSTOMIZATION["resources"], *CHOSEN]
    for resource in yaml.safe_load_all((FOLDER / name).read_text("utf-8"))
]
#: the oldest that is still looked after, and the newest whose schemas are known here
VERSIONS = ("1.31", "1.37")


def label(resource: dict[str, Any]) -> str:
    return f"{resource['kind']}/{resource['metadata']['name']}"


def pod(resource: dict[str, Any]) -> dict[str, Any]:
    spec = resource["spec"]
    spec = spec["jobTemplate"]["spec"] if resource["kind"] == "CronJob" else spec
    return dict(spec["template"])


PODS = {label(item): pod(item) for item in RESOURCES if item["kind"] in ("Deployment", "StatefulSet", "CronJob")}
CONTAINERS = {name: found["spec"]["containers"][0] for name, found in PODS.items()}


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = [item for item in RESOURCES if label(item) == f"{kind}/{name}"]
    return found


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("resource", RESOURCES, ids=label)
def test_a_resource_is_valid(resource: dict[str, Any], version: str) -> None:
    kubernetes_validate.validate(resource, version, strict=True)


def test_a_misspelled_key_is_not_valid() -> None:
    wrong = one("Deployment", "bookkeeper") | {"specs": {}}

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


def test_every_file_is_part_of_the_kustomization() -> None:
    assert {path.name for path in FOLDER.glob("*.yaml")} == {
        *KUSTOMIZATION["resources"],
        *CHOSEN,
        "kustomization.yaml",
    }


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_command_is_spelled_right(name: str, tmp_path: Path) -> None:
    client = tmp_path / "client.properties"
    client.write_text("")
    (tokens := tmp_path / "tokens").write_text("* 0123456789abcdef")
    given = {"$(POD_NAME)": "ingest-0", "$(SHARE)": "1", "/etc/kafka-client/client.properties": str(client)}
    given |= {"$(POD_IP)": "10.0.0.1", "/etc/http-tokens/tokens": str(tokens)}
    words: list[str] = CONTAINERS[name]["args"]
    for written, instead in given.items():
        words = [word.replace(written, instead) for word in words]
    check(words)


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_the_images_user_a_read_only_disk_no_rights_and_bounds(name: str) -> None:
    spec, container = PODS[name]["spec"], CONTAINERS[name]

    assert f"USER {spec['securityContext']['runAsUser']}:" in (ROOT / "Dockerfile").read_text("utf-8")
    assert spec["securityContext"]["runAsNonRoot"] and container["securityContext"]["readOnlyRootFilesystem"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert {"requests", "limits"} == set(container["resources"])
    assert spec["terminationGracePeriodSeconds"] >= 30


@pytest.mark.parametrize("name", PODS)
def test_what_a_pod_refers_to_is_there(name: str) -> None:
    spec, container = PODS[name]["spec"], CONTAINERS[name]
    volumes = {volume["name"]: volume for volume in spec["volumes"]}

    assert one("ServiceAccount", spec["serviceAccountName"])
    assert {mount["name"] for mount in container["volumeMounts"]} == set(volumes)
    assert all(one("ConfigMap", it["configMap"]["name"]) for it in volumes.values() if "configMap" in it)
    assert {image["name"] for image in KUSTOMIZATION["images"]} == {container["image"].rpartition(":")[0]}


def test_the_configuration_loads_with_what_the_pods_are_given() -> None:
    text = one("ConfigMap", "bookkeeper")["data"]["bookkeeper.toml"]
    for name in ("Deployment/bookkeeper", "Deployment/reaper", "CronJob/reaper", "CronJob/reaper-orphans"):
        given = {variable["name"]: "x" for variable in CONTAINERS[name]["env"]}
        assert parse(text, given).tables["events"].folder in CONTAINERS["StatefulSet/ingest"]["args"]


def test_secrets_come_by_reference_only() -> None:
    texts = [path.read_text("utf-8") for path in FOLDER.glob("*.yaml")]

    assert not any("kind: Secret\n" in text or "password =" in text for text in texts)
    references = [it["valueFrom"] for it in CONTAINERS["Deployment/bookkeeper"]["env"]]
    assert references == [{"secretKeyRef": {"name": "bookkeeper-catalog", "key": "password"}}]


def test_two_bookkeepers_share_by_lease_and_are_never_both_taken_away() -> None:
    deployment, budget = one("Deployment", "bookkeeper")["spec"], one("PodDisruptionBudget", "bookkeeper")["spec"]

    assert deployment["replicas"] == 2 and budget["maxUnavailable"] == 1
    assert budget["selector"] == deployment["selector"]
    text = one("ConfigMap", "bookkeeper")["data"]["bookkeeper.toml"]
    assert parse(text, {"CATALOG_PASSWORD": "x"}).bookkeeper.lease


def test_probes_ask_for_life_and_readiness_on_the_port_that_is_open() -> None:
    container = CONTAINERS["Deployment/bookkeeper"]
    paths = {kind: container[f"{kind}Probe"]["httpGet"]["path"] for kind in ("liveness", "startup", "readiness")}

    assert paths == {"liveness": "/healthz", "startup": "/healthz", "readiness": "/readyz"}
    (port,) = container["ports"]
    assert {container[f"{kind}Probe"]["httpGet"]["port"] for kind in paths} == {port["name"]}
    assert (
        str(port["containerPort"])
        == pod(one("Deployment", "bookkeeper"))["metadata"]["annotations"]["prometheus.io/port"]
    )


def test_prometheus_is_told_the_port_that_each_pod_opens_and_may_ask_there() -> None:
    scraped = {name: found["metadata"].get("annotations", {}).get("prometheus.io/port") for name, found in PODS.items()}
    policies = [item["spec"] for item in RESOURCES if item["kind"] == "NetworkPolicy"]
    monitoring = {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}
    open_ports = {
        str(port["port"])
        for policy in policies
        for rule in policy["ingress"]
        if {"namespaceSelector": monitoring} in rule["from"]
        for port in rule["ports"]
    }

    listening = ("StatefulSet/ingest", "StatefulSet/kafka-writer", "Deployment/http-writer", "Deployment/watch-writer")
    for name in ("Deployment/bookkeeper", "Deployment/reaper", *listening):
        assert scraped[name] == str(CONTAINERS[name]["ports"][0]["containerPort"])
        assert name == "Deployment/bookkeeper" or f"0.0.0.0:{scraped[name]}" in CONTAINERS[name]["args"]
    assert open_ports == {port for port in scraped.values() if port}


def test_reapers_never_overlap_and_writers_keep_their_names() -> None:
    jobs = [item["spec"] for item in RESOURCES if item["kind"] == "CronJob"]

    assert {job["concurrencyPolicy"] for job in jobs} == {"Forbid"}
    assert one("Deployment", "reaper")["spec"]["strategy"] == {"type": "Recreate"}
    args = CONTAINERS["StatefulSet/ingest"]["args"]
    assert args[args.index("--name") + 1] == "$(POD_NAME)"


@pytest.mark.parametrize(
    ("policy", "name", "reached"),
    [
        ("writer", "StatefulSet/ingest", {53, 443}),
        ("kafka-writer", "StatefulSet/kafka-writer", {53, 443, 9093}),
        ("http-writer", "Deployment/http-writer", {53, 443, 8080}),
        ("watch-writer", "Deployment/watch-writer", {53, 443}),
    ],
)
def test_writers_reach_no_catalog(policy: str, name: str, reached: set[int]) -> None:
    spec = one("NetworkPolicy", policy)["spec"]
    ports = {port["port"] for rule in spec["egress"] for port in rule["ports"]}

    assert ports == reached
    assert spec["podSelector"]["matchLabels"].items() <= PODS[name]["metadata"]["labels"].items()


def test_rows_over_http_reach_each_instance_and_are_passed_on_between_them() -> None:
    container, service = CONTAINERS["Deployment/http-writer"], one("Service", "http-writer")["spec"]
    args, ports = container["args"], {port["name"]: port["containerPort"] for port in container["ports"]}
    rows = str(ports[service["ports"][0]["targetPort"]])

    assert args[args.index("--http") + 1] == f"0.0.0.0:{rows}"
    assert args[args.index("--advertise") + 1] == f"http://$(POD_IP):{rows}"
    assert container["env"] == [{"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
    instances = {"podSelector": {"matchLabels": service["selector"]}}
    (own,) = [rule for rule in one("NetworkPolicy", "http-writer")["spec"]["ingress"] if instances in rule["from"]]
    assert [str(port["port"]) for port in own["ports"]] == [rows]


def test_instances_of_a_copy_divide_its_slots_under_one_name() -> None:
    spec, args = one("StatefulSet", "kafka-writer")["spec"], CONTAINERS["StatefulSet/kafka-writer"]["args"]

    assert spec["ordinals"] == {"start": 1}
    assert args[args.index("--share") + 1] == f"$(SHARE)/{spec['replicas']}"
    assert "$" not in args[args.index("--name") + 1]
    (number,) = CONTAINERS["StatefulSet/kafka-writer"]["env"]
    assert number["valueFrom"]["fieldRef"]["fieldPath"].endswith("['apps.kubernetes.io/pod-index']")
    budget = one("PodDisruptionBudget", "kafka-writer")["spec"]
    assert budget["maxUnavailable"] == 1 and budget["selector"] == spec["selector"]


def test_a_copy_reads_its_client_settings_from_a_secret_and_is_asked_where_it_listens() -> None:
    container, spec = CONTAINERS["StatefulSet/kafka-writer"], PODS["StatefulSet/kafka-writer"]["spec"]
    (mount,) = [item for item in container["volumeMounts"] if item["name"] == "client"]
    (volume,) = [item for item in spec["volumes"] if item["name"] == "client"]

    assert container["args"][container["args"].index("--client") + 1].startswith(f"{mount['mountPath']}/")
    assert mount["readOnly"] and volume["secret"] == {"secretName": "kafka-client", "defaultMode": 0o440}
    assert spec["securityContext"]["fsGroup"] == spec["securityContext"]["runAsGroup"]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert probes == [{"path": "/metrics", "port": container["ports"][0]["name"]}] * 2


def test_of_two_instances_that_watch_one_prefix_one_works_and_has_rights_of_its_own() -> None:
    deployment, container = one("Deployment", "watch-writer")["spec"], CONTAINERS["Deployment/watch-writer"]
    budget = one("PodDisruptionBudget", "watch-writer")["spec"]
    args, account = container["args"], deployment["template"]["spec"]["serviceAccountName"]

    assert deployment["replicas"] == 2 and "$" not in args[args.index("--name") + 1]
    assert budget["maxUnavailable"] == 1 and budget["selector"] == deployment["selector"]
    assert [name for name, found in PODS.items() if found["spec"]["serviceAccountName"] == account] == [
        "Deployment/watch-writer"
    ]
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")]
    assert probes == [{"path": "/metrics", "port": container["ports"][0]["name"]}] * 2


def test_the_disk_of_what_watches_has_room_for_the_object_that_it_reads() -> None:
    command = dict(commands())["writer", "watch"]
    largest = command.make_context("watch", CONTAINERS["Deployment/watch-writer"]["args"][2:]).params["max_object"]
    (tmp,) = PODS["Deployment/watch-writer"]["spec"]["volumes"]

    assert int(tmp["emptyDir"]["sizeLimit"].removesuffix("Mi")) * 2**20 > largest


def test_annotations_of_the_accounts_are_examples() -> None:
    text = Path(FOLDER / "config.yaml").read_text("utf-8")

    assert text.count("arn:aws:iam::123456789012:role/") == 3
