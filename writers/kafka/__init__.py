"""Topics of Kafka into a table, each message once: `writer kafka`."""
