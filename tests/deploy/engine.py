"""
Builds and runs the image with buildah and podman, in a storage of its own: no other images are seen or touched.

Where no registry is reachable, the base images are stand-ins made of Debian's packages, under the same names.
"""

import fcntl
import hashlib
import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from spark_jobs.java import SYSTEM_TRUST
from tests.packaging.project import ROOT
from tests.servers.installed import cache, containers
from tests.servers.process import Unavailable

PYTHON = "docker.io/library/python:3.11-slim-bookworm"
JRE = "docker.io/library/eclipse-temurin:17-jre-jammy"
PACKAGES = {
    PYTHON: "python3,python3-venv,python3-pip,python-is-python3,ca-certificates",
    JRE: "openjdk-17-jre-headless",
}
#: podman takes no runroot of more than 50 characters, and a cache below a long HOME is longer
RUN = Path("/run/containers")
#: this user may be kept from raising limits
CONF = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
#: the stand-ins trust what this machine trusts
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
MINUTES = 60
#: as Docker mounts it unless it is told otherwise
TMPFS = "/tmp:noexec,nosuid,nodev"


@dataclass
class Engine:
    """buildah and podman with their storage in `folder`."""

    folder: Path
    environ: Mapping[str, str]

    @classmethod
    @contextmanager
    def here(cls, environ: Mapping[str, str]) -> Iterator["Engine"]:
        """Ready to build and run, alone in its folder; raises Unavailable with what is missing."""
        if os.geteuid() != 0:
            raise Unavailable("images are built as root here, and this is not root")
        containers(environ)
        folder = cache(environ) / "containers"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "containers.conf").write_text(CONF)
        more = {"CONTAINERS_CONF": str(folder / "containers.conf"), "BUILDAH_ISOLATION": "chroot"}
        with (folder / "lock").open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            try:
                yield cls(folder, {**environ, **more})
            finally:
                _unmount(folder)

    def have(self, *bases: str) -> None:
        """Base images, or stand-ins for them, that run here; raises Unavailable where none can be made or run."""
        for base in bases:
            try:
                self._have(base)
                self.run(base, "true")
            except (AssertionError, OSError, subprocess.TimeoutExpired) as exc:
                why = str(exc).strip().splitlines()[-1]
                raise Unavailable(f"no {base} can be made or run on this machine: {why}") from exc

    def build(self, target: str, tag: str) -> None:
        """The image of one target of the Dockerfile, from base images that are there."""
        how = ("--pull-never", "--network", "host", "--format", "docker", "--layers")
        self.buildah("bud", *how, "--target", target, "--tag", tag, str(ROOT), minutes=20)

    def _have(self, base: str) -> None:
        if self._call("podman", "image", "exists", base, minutes=1).returncode == 0:
            return
        if self._call("buildah", "pull", base, minutes=3).returncode == 0:
            return
        archive = self.folder / "base.tar"
        self._run(["mmdebstrap", "--variant=minbase", f"--include={PACKAGES[base]}", "bookworm", str(archive)], 10)
        self.podman("import", str(archive), base, minutes=5)
        archive.unlink()
        self._stand_in(base)

    def _stand_in(self, base: str) -> None:
        made = self.buildah("from", "--pull-never", base).strip()
        pip = self.folder / "pip.conf"
        pip.write_text(f"[global]\ncert = {CERTIFICATES}\ntimeout = 180\n")
        self.buildah("copy", made, str(CERTIFICATES), str(CERTIFICATES))
        self.buildah("copy", made, str(pip), "/etc/pip.conf")
        if base == JRE:
            self.buildah("run", made, "sh", "-c", "mkdir /opt/java && cp -rL /usr/lib/jvm/java-17-* /opt/java/openjdk")
            if SYSTEM_TRUST.is_file():
                self.buildah("copy", made, str(SYSTEM_TRUST), "/opt/java/openjdk/lib/security/cacerts")
        self.buildah("commit", "--rm", made, base)

    def buildah(self, *words: str, minutes: int = 2) -> str:
        """What one command of buildah printed."""
        return self._checked(self._call("buildah", *words, minutes=minutes))

    def podman(self, *words: str, minutes: int = 2) -> str:
        """What one command of podman printed."""
        return self._checked(self._call("podman", *words, minutes=minutes))

    def logs(self, container: str) -> str:
        """What a container said, on both channels."""
        done = self._call("podman", "logs", container, minutes=1)
        return done.stdout + done.stderr

    def run(
        self, image: str, *command: str, options: tuple[str, ...] = (), tmpfs: str = TMPFS, minutes: int = 2
    ) -> str:
        """What a container printed that ran to its end, confined."""
        given = (*CONFINED, "--tmpfs", tmpfs, *options)
        return self.podman("run", "--rm", *given, image, *command, minutes=minutes)

    def _call(self, tool: str, *words: str, minutes: int) -> subprocess.CompletedProcess[str]:
        running = RUN / f"bookkeeper-{hashlib.sha256(bytes(self.folder)).hexdigest()[:8]}"
        storage = ("--root", str(self.folder / "storage"), "--runroot", str(running))
        return subprocess.run(
            [tool, *storage, *words], env=dict(self.environ), capture_output=True, text=True, timeout=minutes * MINUTES
        )

    def _run(self, command: list[str], minutes: int) -> None:
        self._checked(subprocess.run(command, capture_output=True, text=True, timeout=minutes * MINUTES))

    def _checked(self, done: subprocess.CompletedProcess[str]) -> str:
        assert done.returncode == 0, f"{done.args}\n{done.stdout[-1000:]}\n{done.stderr[-3000:]}"
        return done.stdout


def _unmount(folder: Path) -> None:
    """What a build that was cut off has left mounted: nothing could remove the folder."""
    places = [line.split()[1] for line in Path("/proc/mounts").read_text("utf-8").splitlines()]
    for place in reversed(places):
        if Path(place).is_relative_to(folder):
            subprocess.run(["umount", "--lazy", place], check=False)


#: a disk that is read-only, no network, no rights; no systemd here that podman could ask to call health checks
CONFINED = (
    "--read-only",
    "--network",
    "none",
    "--no-healthcheck",
    "--cap-drop",
    "all",
    "--security-opt",
    "no-new-privileges",
)
