"""`python -m reaper`."""

from reaper.cli import main

main(prog_name="reaper")
