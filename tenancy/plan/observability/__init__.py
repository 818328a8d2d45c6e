"""Metrics, alerts and dashboards."""
