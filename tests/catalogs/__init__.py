"""The catalogs a queue can live in: the contract of `core.catalog`, and the tick under lost, late, double replies."""
