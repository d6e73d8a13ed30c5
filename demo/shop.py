"""The shop as a user writes it: `slipstream run demo/shop.py` runs it. Input and store are in the folder $SHOP."""

from __future__ import annotations

import os
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import slipstream as sl

ORDERS = "oid long, cid long, product string, cents long"
CUSTOMERS = "op string, cid long, name string, country string, version long"
TOP_TEN = "SELECT cid, SUM(cents) AS spend FROM orders GROUP BY cid ORDER BY spend DESC, cid LIMIT 10"

folder = Path(os.environ.get("SHOP", "shop"))
app = sl.App("shop", store=folder / "store")
app.source("orders", sl.files(folder / "orders", format="json", schema=ORDERS))
app.source("customers", sl.files(folder / "customers", format="csv", schema=CUSTOMERS, op="op", key=["cid"]))


def products(orders: DataFrame) -> DataFrame:
    return orders.groupBy("product").agg(F.count("*").alias("orders"), F.sum("cents").alias("cents"))


def revenue(orders: DataFrame, customers: DataFrame) -> DataFrame:
    return orders.join(customers, "cid").groupBy("country").agg(F.sum("cents").alias("cents"))


app.view(products)
app.view(revenue)
app.view("top_ten", TOP_TEN)

app.sink("products", sl.to_folder(folder / "delivered" / "products"))
app.sink("revenue", sl.to_delta(folder / "delivered" / "revenue", mode="upsert", key="country"))
