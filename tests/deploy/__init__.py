"""What config/ and the Dockerfile promise to whoever runs it: compose, Kubernetes, systemd, the image."""
