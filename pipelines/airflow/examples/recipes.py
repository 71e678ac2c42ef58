"""The same run without the operator of this package: in a shell of the worker, and in a pod.

Both skip on exit code 99 and give the summary as XCom. Neither can tell a failure that lasts (64, 65, 78)
from one that passes (75): Airflow retries both.
"""

from __future__ import annotations

import json
import os
from datetime import datetime, timezone

from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG, CronDataIntervalTimetable

try:
    from airflow.providers.cncf.kubernetes.operators.pod import KubernetesPodOperator
    from kubernetes.client import models as k8s
except ImportError:  # pip install apache-airflow-providers-cncf-kubernetes
    KubernetesPodOperator = None

FOREBAY = os.environ.get("FOREBAY_BIN", "forebay")
SPEC = os.environ.get("DEMAND_SPEC", "/etc/forebay/demand.yaml")
HISTORY = os.environ.get("DEMAND_HISTORY", "/srv/demand")
OUT = os.environ.get("DEMAND_OUT", "/srv/features/demand")
STATE = os.environ.get("DEMAND_STATE", "/var/lib/forebay/demand")
NIGHTLY = CronDataIntervalTimetable("0 0 * * *", timezone="UTC")
START = datetime(2016, 5, 1, tzinfo=timezone.utc)
#: Options that the installed forebay is too old for.
WITHOUT = os.environ.get("DEMAND_WITHOUT", "").split()
NEW = [] if "--interval" in WITHOUT else ["--interval", "{{data_interval_start|ts}}", "{{data_interval_end|ts}}"]
NEW += [] if "--signal-nothing-new" in WITHOUT else ["--signal-nothing-new"]

with DAG("demand_bash", schedule=NIGHTLY, start_date=START, catchup=False, max_active_runs=1):
    BashOperator(
        task_id="features",
        # `exec`: the shell becomes forebay, so that the signal of a killed task reaches it.
        bash_command=f"exec {FOREBAY} run {SPEC} --json --state {STATE} --param history={HISTORY} --param out={OUT} "
        "--param as_of={{ data_interval_start | ds }} --run-id {{ run_id }} " + " ".join(NEW),
        skip_on_exit_code=99,
        output_processor=json.loads,
    )

if KubernetesPodOperator is not None:
    with DAG("demand_pod", schedule=NIGHTLY, start_date=START, catchup=False, max_active_runs=1) as pod_dag:
        KubernetesPodOperator(
            task_id="features",
            image="forebay:0.1.0",
            # The image's entry point is tini, which passes signals on to all of this.
            arguments=[
                "bash",
                "-c",
                "set -o pipefail; mkdir -p /airflow/xcom; "
                'forebay "$@" | tee /dev/stderr | tail -n 1 > /airflow/xcom/return.json',
                "forebay",
                *("run", "/specs/demand.yaml", "--json", "--state", "s3://lake/forebay"),
                *("--param", "history=s3://lake/demand", "--param", "out=s3://lake/features"),
                *("--param", "as_of={{ data_interval_start | ds }}", "--run-id", "{{ run_id }}"),
                *NEW,
            ],
            do_xcom_push=True,
            skip_on_exit_code=99,
            termination_grace_period=20,
            deferrable=True,
            env_from=[k8s.V1EnvFromSource(secret_ref=k8s.V1SecretEnvSource(name="lake-credentials"))],
            volumes=[k8s.V1Volume(name="specs", config_map=k8s.V1ConfigMapVolumeSource(name="forebay-specs"))],
            volume_mounts=[k8s.V1VolumeMount(name="specs", mount_path="/specs", read_only=True)],
            container_resources=k8s.V1ResourceRequirements(
                requests={"cpu": "2", "memory": "5Gi"}, limits={"memory": "5Gi"}
            ),
        )
