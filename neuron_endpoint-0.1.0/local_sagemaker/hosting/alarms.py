"""Reads the CloudWatch alarms that roll an update back. moto serves CloudWatch beside S3."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import cached_property
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from local_sagemaker.local_client import local_client

log = logging.getLogger(__name__)


class Alarms:
    """The alarms of CloudWatch. moto measures nothing: an alarm's state is what SetAlarmState set."""

    def __init__(self, endpoint_url: str, region: str) -> None:
        self._url = endpoint_url
        self._region = region

    @cached_property
    def _client(self) -> Any:
        return local_client("cloudwatch", self._url, self._region, retries={"max_attempts": 2})

    def missing(self, names: Iterable[str]) -> list[str]:
        states = self._states(names)
        return [name for name in names if name not in states]

    def ringing(self, names: Iterable[str]) -> list[str]:
        """Returns the alarms in state ALARM. If CloudWatch cannot be reached, none; the next call comes soon."""
        try:
            states = self._states(names)
        except (BotoCoreError, ClientError) as error:
            log.warning("the alarms can't be looked at: %s", error)
            return []
        return [name for name, state in states.items() if state == "ALARM"]

    def _states(self, names: Iterable[str]) -> dict[str, str]:
        """Returns the states of alarms.

        :raises botocore.exceptions.BotoCoreError: CloudWatch does not answer.
        """
        found = self._client.describe_alarms(AlarmNames=list(names), AlarmTypes=["MetricAlarm", "CompositeAlarm"])
        alarms = [*found.get("MetricAlarms", []), *found.get("CompositeAlarms", [])]
        return {alarm["AlarmName"]: alarm["StateValue"] for alarm in alarms}
