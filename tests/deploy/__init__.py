"""What config/ and the Dockerfile promise to their users: compose, Kubernetes, systemd, the image."""
