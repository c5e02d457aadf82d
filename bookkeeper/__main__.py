"""`python -m bookkeeper`."""

from bookkeeper.cli import main

main(prog_name="bookkeeper")
