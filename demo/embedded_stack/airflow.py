"""Airflow standalone: scheduler, DAG processor, API server with the UI, and triggerer."""
