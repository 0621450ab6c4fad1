"""Reads what an hour of a training instance costs, on demand, from AWS's Price List.

Source: AWS Billing documentation, "Price List Query API"; the attributes are those of the service AmazonSageMaker.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from model_packaging.deployment.aws import Aws

SERVICE = "AmazonSageMaker"


def price_line(aws: Aws, on: str, neuron: str) -> str:
    """Returns the prices of the instance that compiles and of the one that it replaces, as one sentence.

    A price that cannot be read keeps no compile from starting: the sentence says why.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        region = str(aws.sagemaker.meta.region_name)
        shown = [f"{name} {_text(_price(aws, name, region))}" for name in (on, neuron)]
    except ClientError as error:
        code = error.response["Error"]["Code"]
        return f"prices of {on} and {neuron}: not known ({code}; pricing:GetProducts is the permission)"
    except BotoCoreError as error:
        return f"prices of {on} and {neuron}: not known ({error})"
    return f"an hour on demand in {region}: {' beside '.join(shown)}"


def _text(price: float | None) -> str:
    return "has no listed price" if price is None else f"costs {price:.2f} USD"


def _price(aws: Aws, name: str, region: str) -> float | None:
    """The price of an hour in USD; None if the list has none, as for instances that are only reserved."""
    terms = {"instanceName": name, "regionCode": region, "component": "Training"}
    filters = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in terms.items()]
    reply = aws.pricing.get_products(ServiceCode=SERVICE, Filters=filters, MaxResults=20)
    prices = [price for text in reply["PriceList"] for price in _on_demand(json.loads(text))]
    return max(prices, default=None)


def _on_demand(product: Mapping[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            price = float(dimension.get("pricePerUnit", {}).get("USD", 0))
            if price and dimension.get("unit", "").lower().startswith(("hr", "hour")):
                yield price
