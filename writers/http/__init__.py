"""Rows over HTTP into tables, acknowledged once they are published or committed."""
