"""`python -m reaper`."""

from reaper.cli import main

main()
