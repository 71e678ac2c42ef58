"""Forebay pipelines as Airflow tasks.

This file imports nothing of Airflow: the keeper of a run starts from here too, and has to start fast.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"


def get_provider_info() -> dict[str, Any]:
    """What Airflow asks of a provider package."""
    name = "Forebay"
    return {
        "package-name": "forebay-airflow",
        "name": name,
        "description": "Runs Forebay pipelines as Airflow tasks.",
        "integrations": [
            {"integration-name": name, "external-doc-url": "https://github.com/forebay/forebay", "tags": ["software"]}
        ],
        "operators": [{"integration-name": name, "python-modules": ["forebay_airflow.operator"]}],
        "sensors": [{"integration-name": name, "python-modules": ["forebay_airflow.sensor"]}],
        "hooks": [{"integration-name": name, "python-modules": ["forebay_airflow.hook"]}],
        "triggers": [{"integration-name": name, "python-modules": ["forebay_airflow.trigger"]}],
        "connection-types": [
            {"connection-type": "forebay", "hook-name": name, "hook-class-name": "forebay_airflow.hook.ForebayHook"}
        ],
    }
