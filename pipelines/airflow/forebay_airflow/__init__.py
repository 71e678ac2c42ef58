"""Forebay pipelines as Airflow tasks.

This file imports nothing of Airflow: the keeper of a run starts from here too, and has to start fast.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

#: The fields of a connection: the label, the type in the words of JSON Schema, and what the form says of it.
CONNECTION_FIELDS = {
    "forebay": ("Program", "string", "A path, or a name on PATH of the worker; `forebay` if empty."),
    "state": ("State directory", "string", "A path or an s3://, gs:// or az:// URL."),
    "memory": ("Memory", "string", "What a run may use, such as 4GiB."),
    "threads": ("Threads", "integer", "How many threads a run may use."),
    "env": ("Environment", "object", "Variables for the process, such as the credentials of S3."),
    "browse_url": (
        "URL of links",
        "string",
        "Where the links of tasks lead; {path} is the path of the artifact or report.",
    ),
}


def get_provider_info() -> dict[str, Any]:
    """What Airflow asks of a provider package."""
    name = "Forebay"
    integration = {"integration-name": name}
    return {
        "package-name": "forebay-airflow",
        "name": name,
        "description": "Runs Forebay pipelines as Airflow tasks.",
        "integrations": [
            {**integration, "external-doc-url": "https://github.com/forebay/forebay", "tags": ["software"]}
        ],
        "operators": [{**integration, "python-modules": ["forebay_airflow.operators"]}],
        "sensors": [{**integration, "python-modules": ["forebay_airflow.sensor"]}],
        "hooks": [{**integration, "python-modules": ["forebay_airflow.hook"]}],
        "triggers": [{**integration, "python-modules": ["forebay_airflow.trigger"]}],
        "extra-links": ["forebay_airflow.links.ForebayArtifactLink", "forebay_airflow.links.ForebayReportLink"],
        "connection-types": [
            {
                "connection-type": "forebay",
                "hook-name": name,
                "hook-class-name": "forebay_airflow.hook.ForebayHook",
                "ui-field-behaviour": {"hidden-fields": ["host", "schema", "login", "password", "port"]},
                "conn-fields": {
                    field: {"label": label, "description": text, "schema": {"type": [kind, "null"]}}
                    for field, (label, kind, text) in CONNECTION_FIELDS.items()
                },
            }
        ],
    }
