"""config/systemd: systemd takes the units, finds them hardened, and what they start is a command of ours."""

import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from pathlib import Path

import pytest

from tests.docs.commands import check
from tests.packaging.project import ROOT

UNITS = sorted((ROOT / "config" / "systemd").glob("*.service"))
#: of 10.0; what is left is that it talks to servers over the network
EXPOSURE = 15
HOME = "/opt/bookkeeper/bin/"


def analyze(*words: str) -> subprocess.CompletedProcess[str]:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not here")
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=60)


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """
    The units, with programs that are here in place of those in /opt.
    """
    copies = []
    for unit in UNITS:
        copies.append(tmp_path / unit.name)
        copies[-1].write_text(unit.read_text("utf-8").replace(HOME, f"{Path(sys.executable).parent}/"))
    return copies


def test_systemd_takes_them(installed: list[Path]) -> None:
    said = analyze("verify", "--recursive-errors=no", *map(str, installed))

    assert (said.returncode, said.stderr) == (0, "")


def test_systemd_would_say_what_is_wrong(installed: list[Path]) -> None:
    installed[0].write_text(installed[0].read_text("utf-8").replace("PrivateTmp=yes", "PrivateTemp=yes"))

    assert "PrivateTemp" in analyze("verify", "--recursive-errors=no", str(installed[0])).stderr


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_a_unit_is_hardened(unit: Path) -> None:
    said = analyze("security", "--offline=true", f"--threshold={EXPOSURE}", str(unit))

    assert said.returncode == 0, said.stdout[-2000:]


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_what_a_unit_starts_is_a_command_of_ours(unit: Path) -> None:
    lines = unit.read_text("utf-8").splitlines()
    (start,) = [line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart=")]

    check(shlex.split(start.removeprefix(HOME)))


def test_both_units_have_the_same_files_and_the_same_limits() -> None:
    # The reaper sorts rows when it compacts.
    own = {"execstart", "execreload", "memoryhigh", "memorymax"}
    services = []
    for unit in UNITS:
        parsed = ConfigParser(interpolation=None, strict=False, delimiters=("=",))
        parsed.read(unit)
        services.append({key: value for key, value in parsed["Service"].items() if key not in own})

    assert services[0] == services[1]
