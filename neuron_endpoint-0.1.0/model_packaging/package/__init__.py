"""Packages: the content of `/opt/ml/model` of an endpoint. Assembles, checks, writes, uploads and verifies them."""
