"""`python -m writers` is `writer`."""

from writers.cli import main

main(prog_name="writer")
