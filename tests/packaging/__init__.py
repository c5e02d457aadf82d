"""The promises of setup.cfg, constraints.txt, the Makefile and the Dockerfile."""
