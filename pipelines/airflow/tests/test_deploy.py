"""The recipes for Kubernetes, as far as they can be checked without a cluster."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest
import yaml
from conftest import PACKAGE

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


def test_the_cron_job_has_known_fields_only() -> None:
    job = yaml.safe_load((PACKAGE / "kubernetes" / "cronjob.yaml").read_text())
    assert unknown(job, "V1CronJob", "") == []
    assert unknown({"spec": {"schedul": "0 1 * * *"}}, "V1CronJob", "") == [".spec.schedul"]


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
