"""The manifests of this repository, as far as they can be checked without a cluster.

The client of Kubernetes, which Airflow brings, knows the fields of its version and those that have to be there. Strict
schemas of Kubernetes 1.29 to 1.37 and of KEDA, and Helm as a library, are packages of their own.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import re
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml
from conftest import PACKAGE, REPOSITORY

client = pytest.importorskip("kubernetes.client", reason="the client of Kubernetes is not installed")
models = pytest.importorskip("kubernetes.client.models", reason="the client of Kubernetes is not installed")


def unknown(value: Any, kind: str, at: str) -> list[str]:
    """The fields of a manifest that Kubernetes does not know, by the client's own models."""
    if kind.startswith("list["):
        return [field for i, item in enumerate(value) for field in unknown(item, kind[5:-1], f"{at}[{i}]")]
    model = getattr(models, kind, None)
    if model is None:
        return []
    names = {wire: name for name, wire in model.attribute_map.items()}
    lost = [f"{at}.{name}" for name in value if name not in names]
    for name, item in value.items():
        if name in names:
            lost += unknown(item, model.openapi_types[names[name]], f"{at}.{name}")
    return lost


FILES = [
    *sorted((REPOSITORY / "pipelines" / "workers" / "kubernetes").glob("*.yaml")),
    PACKAGE / "kubernetes" / "cronjob.yaml",
    REPOSITORY / "pipelines" / "serving" / "kubernetes.yaml",
]
CHART = REPOSITORY / "pipelines" / "workers" / "kubernetes" / "chart"
MANIFESTS = [(path.stem, manifest) for path in FILES for manifest in yaml.safe_load_all(path.read_text())]
KEDA = "keda.sh/v1alpha1"
#: The oldest version whose servers have all fields of a kind; `successPolicy` came with 1.30.
VERSIONS = [f"1.{minor}" for minor in range(29, 38)]
FIRST_VERSIONS = {"Job": "1.30"}


def name_of(value: Any) -> str:
    """A manifest in the names of tests."""
    return value if isinstance(value, str) else f"{value['kind']}-{value['metadata']['name']}"


def pods(value: Any) -> Iterator[dict[str, Any]]:
    """The specs of all pods of a manifest."""
    if isinstance(value, dict):
        if "containers" in value:
            yield value
        for inner in value.values():
            yield from pods(inner)


def refusal(manifest: dict[str, Any]) -> str | None:
    """Why the client of Kubernetes refuses a manifest: an unknown field, or one that is missing."""
    kind = f"V1{manifest['kind']}"
    fields = unknown(manifest, kind, "")
    try:
        client.ApiClient().deserialize(SimpleNamespace(data=json.dumps(manifest)), kind)
    except ValueError as error:
        fields.append(str(error))
    return "; ".join(fields) or None


@pytest.mark.parametrize(("file", "manifest"), MANIFESTS, ids=name_of)
def test_a_manifest_has_known_fields_only(file: str, manifest: dict[str, Any]) -> None:
    if manifest["apiVersion"] != KEDA:
        assert refusal(manifest) is None


def test_what_the_client_of_kubernetes_refuses() -> None:
    job = {"kind": "CronJob", "spec": {"schedule": "0 1 * * *", "jobTemplate": {}}}
    assert refusal(job) is None
    job["spec"] = {"schedul": "0 1 * * *", "jobTemplate": {}}
    assert refusal(job) == ".spec.schedul; Invalid value for `schedule`, must not be `None`"


@pytest.mark.parametrize(("file", "manifest"), MANIFESTS, ids=name_of)
def test_pods_have_few_rights_and_limits(file: str, manifest: dict[str, Any]) -> None:
    for pod in pods(manifest):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert "memory" in container["resources"]["limits"]
            # What a program writes goes to a volume.
            assert "/tmp" in [mount["mountPath"] for mount in container["volumeMounts"]]
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert {mount["name"] for container in pod["containers"] for mount in container["volumeMounts"]} == volumes


@pytest.mark.parametrize(("file", "manifest"), MANIFESTS, ids=name_of)
def test_older_servers_know_the_policies(file: str, manifest: dict[str, Any]) -> None:
    """Until 1.34 the schema demands `status` of each condition, which has a default since."""
    text = json.dumps(manifest)
    for conditions in re.findall(r'"onPodConditions": (\[.*?\])', text):
        assert all({"type", "status"} == condition.keys() for condition in json.loads(conditions))


def validate(manifests: list[dict[str, Any]], versions: list[str]) -> None:
    """Validates manifests strictly; a kind without a schema is a failure."""
    schemas = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is not installed")
    for version in versions:
        for manifest in manifests:
            first = FIRST_VERSIONS.get(manifest["kind"], version)
            if manifest["apiVersion"] != KEDA and VERSIONS.index(version) >= VERSIONS.index(first):
                schemas.validate(manifest, version, strict=True)


def launched() -> list[dict[str, Any]]:
    """What `forebay run --on kubernetes` makes; its module needs nothing of the compiled package."""
    root = REPOSITORY / "pipelines" / "python" / "forebay"
    with pytest.MonkeyPatch.context() as patch:
        for name, path in (("forebay", root), ("forebay._launch", root / "_launch")):
            package = ModuleType(name)
            package.__path__ = [str(path)]
            patch.setitem(sys.modules, name, package)
        module = importlib.import_module("forebay._launch.on_kubernetes")
        options = dict(image="forebay:0.1.0", memory=None, namespace=None, context=None, secrets=["lake-credentials"])
        options |= dict(volumes={"/lake": "lake-claim"}, pod=None, hours=24, program=None)
        launcher = module.KubernetesLauncher(4, 2, **options)
        launcher.name = "forebay-1f2e3d4c"
        made = [launcher.job(), launcher.secret("{}\n", "7c9e6679-7425-40de-944b-e07fc1f90ae7")]
        for name in [name for name in sys.modules if name.startswith("forebay.")]:
            sys.modules.pop(name)
    return made


def test_what_a_launcher_makes() -> None:
    manifests = launched()
    assert [manifest["kind"] for manifest in manifests] == ["Job", "Secret"]
    for manifest in manifests:
        assert refusal(manifest) is None
        test_pods_have_few_rights_and_limits("launcher", manifest)
        test_older_servers_know_the_policies("launcher", manifest)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_manifests_pass_strictly(version: str) -> None:
    validate([*(manifest for _, manifest in MANIFESTS), *launched()], [version])


def closed(schema: Any) -> Any:
    """A schema without room for unknown fields."""
    if isinstance(schema, dict):
        rules = {name: closed(rule) for name, rule in schema.items()}
        return {"additionalProperties": False} | rules if "properties" in schema else rules
    return [closed(rule) for rule in schema] if isinstance(schema, list) else schema


def test_the_objects_of_keda() -> None:
    keda = pytest.importorskip("cloudcoil.models.keda.v1alpha1", reason="cloudcoil-models-keda is not installed")
    jsonschema = importlib.import_module("jsonschema")
    objects = [manifest for _, manifest in MANIFESTS if manifest["apiVersion"] == KEDA]
    assert {manifest["kind"] for manifest in objects} == {"ScaledObject", "TriggerAuthentication"}
    for manifest in objects:
        schema = closed(getattr(keda, manifest["kind"]).model_json_schema(by_alias=True))
        jsonschema.validate(manifest, schema)
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(manifest | {"spec": manifest["spec"] | {"surplus": 1}}, schema)


def test_the_chart_has_a_default_for_each_value() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    used = set()
    for path in (CHART / "templates").iterdir():
        text = path.read_text()
        assert text.count("{{") == text.count("}}"), path.name
        used |= set(re.findall(r"\.Values\.([a-zA-Z.]+)", text))
    for name in used:
        value = values
        for part in name.split("."):
            value = value[part]
    assert {name.partition(".")[0] for name in used} == values.keys()


def rendered_chart(values: dict[str, Any]) -> str:
    """What Helm makes of the chart, which it finds no fault with."""
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    findings = helm.lint(str(CHART), values=values, strict=True)
    assert not findings["errors"], findings
    with helm.Chart.load(str(CHART)) as chart:
        manifests = chart.render(values, name="demand")
    return "\n---\n".join(text for name, text in manifests.items() if name.endswith(".yaml"))


@pytest.mark.parametrize("mode", ["run", "workers"])
def test_the_chart(mode: str) -> None:
    spec = REPOSITORY / "pipelines" / "specs" / "demand.yaml"
    run = {"spec": spec.read_text(), "state": "s3://lake/forebay", "params": {"out": "s3://lake/features"}}
    rendered = rendered_chart({"mode": mode, "run": run, "nodeSelector": {"pool": "big"}})
    manifests = [manifest for manifest in yaml.safe_load_all(rendered) if manifest]
    kinds = {"run": {"Service", "ConfigMap", "Job"}, "workers": {"Service", "StatefulSet"}}
    assert {manifest["kind"] for manifest in manifests} == kinds[mode]
    for manifest in manifests:
        assert refusal(manifest) is None
        test_pods_have_few_rights_and_limits("chart", manifest)
        test_older_servers_know_the_policies("chart", manifest)
        if manifest["kind"] == "ConfigMap":
            assert yaml.safe_load(manifest["data"]["spec.yaml"]) == yaml.safe_load(spec.read_text())
    validate(manifests, VERSIONS[VERSIONS.index("1.31") :])


def test_the_pod_of_the_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    hooks = "airflow.providers.cncf.kubernetes.hooks.kubernetes"
    hook = pytest.importorskip(hooks, reason="the Kubernetes provider is not installed").KubernetesHook
    monkeypatch.setattr(hook, "is_in_cluster", False)
    spec = importlib.util.spec_from_file_location("recipes", PACKAGE / "examples" / "recipes.py")
    assert spec is not None and spec.loader is not None
    recipes = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(recipes)
    (operator,) = recipes.pod_dag.tasks
    pod = operator.build_pod_request_obj()
    words = pod.spec.containers[0].args
    assert words[words.index("--interval") :] == [
        "--interval",
        "{{data_interval_start|ts}}",
        "{{data_interval_end|ts}}",
        "--signal-nothing-new",
    ]
    assert pod.spec.termination_grace_period_seconds == 20
