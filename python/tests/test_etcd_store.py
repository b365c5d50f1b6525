"""The record store in etcd (cpp/src/coordinator) against a real one."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import etcd_server
import pytest
from etcd_server import Etcd

ROOT = Path(__file__).resolve().parents[2]
BUILT = [
    ROOT / "build" / preset / "cpp/src/coordinator/coordinator_test"
    for preset in ("release", "dev")
]
# Longer than a lease.
SILENCE_S = 6
# These call the store alone, and no etcd beside it.
OF_CALLS = (
    "Etcd/RecordStoreSuite.TheFirstOneLeadsAndIsNamed/*",
    "Etcd/RecordStoreSuite.EverybodyReadsWhatTheLeaderWroteLast/*",
    "Etcd/RecordStoreSuite.ARecordHasALimit/*",
    "Etcd/RecordStoreSuite.AfterAResignationTheNextOneLeadsAtOnce/*",
)

pytestmark = [pytest.mark.faults, pytest.mark.beside]


@pytest.fixture
def program() -> Path:
    """The gtest program."""
    built = [path for path in BUILT if path.exists()]
    if not built:
        pytest.skip("coordinator_test was not built")
    if reason := etcd_server.find_program()[1]:
        pytest.skip(reason)
    return built[0]


@pytest.fixture
def etcd(program: Path, tmp_path: Path) -> Iterator[Etcd]:
    del program  # Skipped without it.
    server = Etcd(tmp_path)
    server.start()
    yield server
    server.kill()


def start(
    program: Path, address: str, cases: str, variables: Mapping[str, str] = {}
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [program, f"--gtest_filter={cases}"],
        # The report that the caller may have been told to write is its own.
        env={name: value for name, value in os.environ.items() if name != "GTEST_OUTPUT"}
        | {"CORRO_TEST_ETCD": address, **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def check(process: subprocess.Popen[str], before: str = "") -> None:
    """Waits for its end: everything has run, and has passed."""
    try:
        output, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 0, before + output
    assert "[  PASSED  ]" in output
    assert "[  SKIPPED ]" not in output, output
    assert " 0 tests " not in output, output


def wait_until_it_leads(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    seen = ""
    for line in process.stdout:
        seen += line
        if line == "leads\n":
            return seen
    process.wait()
    raise AssertionError(seen)


def test_the_store_does_what_every_record_store_does(program: Path, etcd: Etcd) -> None:
    check(start(program, etcd.address, "Etcd/RecordStoreSuite.*:RealEtcd.*"))


def test_a_lead_is_lost_while_etcd_is_stopped(program: Path, etcd: Etcd) -> None:
    faults = {"CORRO_TEST_ETCD_FAULTS": "1"}
    process = start(program, etcd.address, "EtcdFaults.ALeadIsLostWhileEtcdIsStopped", faults)
    before = wait_until_it_leads(process)
    etcd.send(signal.SIGSTOP)
    time.sleep(SILENCE_S)
    etcd.send(signal.SIGCONT)
    check(process, before)


def test_lead_and_record_outlive_a_killed_etcd(program: Path, etcd: Etcd) -> None:
    faults = {"CORRO_TEST_ETCD_FAULTS": "1"}
    process = start(program, etcd.address, "EtcdFaults.LeadAndRecordOutliveAKilledEtcd", faults)
    before = wait_until_it_leads(process)
    etcd.kill()
    time.sleep(1)  # For a renewal that finds nobody.
    etcd.start()
    check(process, before)


def test_an_endpoint_that_is_silent_costs_a_share_of_the_time(program: Path, etcd: Etcd) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # Connects, and never answers.
        endpoints = f"127.0.0.1:{silent.getsockname()[1]},{etcd.address}"
        check(
            start(
                program, endpoints, "Etcd/RecordStoreSuite.EverybodyReadsWhatTheLeaderWroteLast/*"
            )
        )
    # Nobody listens there any more.
    check(start(program, endpoints, ":".join(OF_CALLS)))


def make_certificates(folder: Path) -> None:
    """An authority, and certificates of it for the server and for a client."""

    def make(name: str, *options: str) -> None:
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "1"]
        command += ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", f"/CN={name}"]
        command += ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt", *options]
        subprocess.run(command, check=True, capture_output=True)

    make("ca")
    signed = ["-CA", f"{folder}/ca.crt", "-CAkey", f"{folder}/ca.key"]
    signed += ["-addext", "basicConstraints=critical,CA:FALSE"]
    make("server", *signed, "-addext", "subjectAltName=IP:127.0.0.1")
    make("client", *signed)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl: install openssl")
def test_it_shows_its_certificate_to_an_etcd_with_tls(program: Path, tmp_path: Path) -> None:
    make_certificates(tmp_path)
    server = ["--cert-file", f"{tmp_path}/server.crt", "--key-file", f"{tmp_path}/server.key"]
    server += ["--client-cert-auth", "--trusted-ca-file", f"{tmp_path}/ca.crt"]
    etcd = Etcd(tmp_path, server)
    etcd.start()
    authority = {"ETCDCTL_CACERT": f"{tmp_path}/ca.crt"}
    mine = {"ETCDCTL_CERT": f"{tmp_path}/client.crt", "ETCDCTL_KEY": f"{tmp_path}/client.key"}
    cases = ":".join(OF_CALLS)
    try:
        check(start(program, etcd.address, cases, authority | mine))
        stranger = start(program, etcd.address, cases, authority)
        output, _ = stranger.communicate(timeout=120)
        assert stranger.returncode == 1
        assert f"UNAUTHENTICATED: https://{etcd.address}: " in output
    finally:
        etcd.kill()
