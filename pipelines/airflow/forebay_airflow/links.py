"""Links on the page of a task: to the artifact of its run, and to the page that the run wrote."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

#: Where the owners of stores show their objects.
CONSOLES = {
    "s3": "https://console.aws.amazon.com/s3/buckets/{bucket}?prefix={key}",
    "gs": "https://console.cloud.google.com/storage/browser/{bucket}/{key}",
}


def browsable(place: str, template: str | None = None) -> str:
    """The URL at which a browser shows a place: an absolute path or a URL.

    :param template: a URL with `{path}`, which the place replaces, percent-encoded and without a leading slash;
        `https://files.example/{path}` for instance
    """
    parts = urlsplit(place)
    if template:
        return template.replace("{path}", quote(place.lstrip("/")))
    if parts.scheme in CONSOLES:
        return CONSOLES[parts.scheme].format(bucket=parts.netloc, key=quote(parts.path.strip("/") + "/"))
    return place if parts.scheme else f"file://{quote(place)}"


class _ForebayLink(BaseOperatorLink):
    """A link that the operator made when its run ended; empty until then."""

    kind = ""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        """The URL, which Airflow keeps as an XCom of the task."""
        links: dict[str, str] = getattr(operator, "links", {})
        return links.get(self.kind, "")


class ForebayArtifactLink(_ForebayLink):
    """To the artifact that the run committed."""

    name = "Forebay artifact"
    kind = "artifact"


class ForebayReportLink(_ForebayLink):
    """To the page that the run wrote (`report=`)."""

    name = "Forebay report"
    kind = "report"
