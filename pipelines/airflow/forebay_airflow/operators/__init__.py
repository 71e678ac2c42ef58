"""Operators: one command of forebay each, as one task."""

from forebay_airflow.operators.apply import ForebayApplyOperator
from forebay_airflow.operators.backfill import ForebayBackfillOperator
from forebay_airflow.operators.base import ForebayBaseOperator
from forebay_airflow.operators.predict import ForebayPredictOperator
from forebay_airflow.operators.run import ForebayRunOperator

__all__ = [
    "ForebayApplyOperator",
    "ForebayBackfillOperator",
    "ForebayBaseOperator",
    "ForebayPredictOperator",
    "ForebayRunOperator",
]
