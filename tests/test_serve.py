"""Rows of a job that another process runs, over Arrow Flight.

Owns: what a reader in another process sees, which readers are admitted, and the error after the job
has ended. Not here: jobs of the same process (test_jobs).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import ipaddress
import json
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pytest
from pyarrow import flight

import lancemem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import MakeTable

ROWS = flight.FlightDescriptor.for_path("rows")
# What pyarrow raises depends on the call.
UNAUTHENTICATED = (flight.FlightUnauthenticatedError, OSError)


def write(client: flight.FlightClient, options: Any) -> None:  # noqa: ANN401
    writer, _ = client.do_put(ROWS, rows(range(3), "theirs").schema, options)
    with writer:
        writer.write_table(rows(range(3), "theirs"))


def exchange(client: flight.FlightClient, options: Any) -> pa.Table:  # noqa: ANN401
    writer, reader = client.do_exchange(ROWS, options)
    with writer:
        writer.done_writing()
        return reader.read_all()


Call: TypeAlias = "Callable[[flight.FlightClient, Any], object]"
# These and NOT_OFFERED are all calls of pyarrow's client; it has no PollFlightInfo.
CALLS: list[Call] = [
    lambda client, options: client.do_get(flight.Ticket(b"rows"), options).read_all(),
    lambda client, options: client.get_flight_info(ROWS, options),
    lambda client, options: client.get_schema(ROWS, options),
    lambda client, options: list(client.list_flights(b"", options)),
    lambda client, options: list(client.list_actions(options)),
]
NOT_OFFERED: list[Call] = [
    write,
    exchange,
    lambda client, options: list(client.do_action("rows", options)),
    # A handshake: in many servers it needs no token, and returns one for a name and a password.
    lambda client, options: client.authenticate_basic_token("name", "password", options),
]

# A process that runs one job and obeys standard input, a JSON line at a time.
CHILD = """
import json, sys
from datetime import timedelta
import pyarrow as pa
import lancemem

def say(value):
    print(json.dumps(value), flush=True)

told = json.loads(sys.stdin.readline())
config = lancemem.WriterConfig(
    max_wal_flush_interval=timedelta(minutes=10), idle_flush_interval="never"
)
job = lancemem.open_table(told["uri"]).start_job(shard=told["shard"], config=config)
tls = tuple(told["tls"]) if told["tls"] else None
endpoint = job.serve(tls=tls)
say([endpoint.location, endpoint.token])
for line in sys.stdin:
    verb, *arguments = json.loads(line)
    if verb == "put":
        job.put(pa.table(arguments[0]), durable=False)
    elif verb == "delete":
        job.delete(pa.table({"id": arguments[0]}), durable=False)
    elif verb == "flush":
        job.flush()
    elif verb == "close":
        job.close()
    elif verb == "close_endpoint":
        endpoint.close()
    say("done")
"""


class Elsewhere:
    """A job in a process of its own."""

    def __init__(self, table: lancemem.Table, shard: int, tls: list[str] | None = None) -> None:
        places = [str(Path(lancemem.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        self.child = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))},
            text=True,
        )
        self.tell({"uri": table.uri, "shard": shard, "tls": tls})
        self.location, self.token = self.answer()

    def tell(self, value: object) -> None:
        """Send one line."""
        assert self.child.stdin is not None
        self.child.stdin.write(json.dumps(value) + "\n")
        self.child.stdin.flush()

    def answer(self) -> Any:  # noqa: ANN401 - whatever it says
        """Read one line."""
        assert self.child.stdout is not None
        return json.loads(self.child.stdout.readline())

    def do(self, *verb: object) -> None:
        """Let it do something, and wait until that is done."""
        self.tell(verb)
        assert self.answer() == "done"

    def put(self, ids: range, name: str) -> None:
        """Put rows that are not durable."""
        self.do("put", {"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)})

    def connect(self) -> lancemem.RemoteJob:
        """Connect to it without TLS."""
        return lancemem.connect_job(self.location, self.token)

    def kill(self) -> None:
        """End it at once."""
        self.child.kill()
        self.child.wait(30)
        for pipe in (self.child.stdin, self.child.stdout):
            assert pipe is not None
            pipe.close()


class Cutter:
    """A proxy between a reader and a job that drops connections in the middle of a request."""

    def __init__(self, location: str) -> None:
        host, port = location.rpartition("/")[2].rsplit(":", 1)
        self.job = (host, int(port))
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.location = f"grpc://127.0.0.1:{self.listener.getsockname()[1]}"
        self.cuts = 0
        self.threads = [threading.Thread(target=self.accept, daemon=True)]
        self.threads[0].start()

    def accept(self) -> None:
        """Pass both directions of every connection."""
        while True:
            try:
                reader, _ = self.listener.accept()
            except OSError:
                return
            job = socket.create_connection(self.job, timeout=30)
            for pair in ((reader, job), (job, reader)):
                to_job = pair[0] is reader
                thread = threading.Thread(target=self.carry, args=(*pair, to_job), daemon=True)
                self.threads.append(thread)
                thread.start()

    def carry(self, source: socket.socket, target: socket.socket, to_job: bool) -> None:
        """Pass one direction until either side ends, or a request is to be dropped."""
        try:
            while data := source.recv(1 << 16):
                if to_job and self.cuts:
                    self.cuts -= 1
                    break
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self) -> None:
        """Take no more connections."""
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()


@pytest.fixture
def elsewhere() -> Iterator[Callable[..., Elsewhere]]:
    """Give a function that starts a job in another process; all end with the test."""
    started: list[Elsewhere] = []

    def start(table: lancemem.Table, shard: int = 0, tls: list[str] | None = None) -> Elsewhere:
        started.append(Elsewhere(table, shard, tls))
        return started[-1]

    yield start
    for job in started:
        job.kill()


def named(ids: range, name: str) -> dict[int, str]:
    return dict.fromkeys(ids, name)


def found(rows: pa.Table) -> dict[int, str]:
    return dict(zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True))


def rows(ids: range, name: str) -> pa.Table:
    columns = {"id": list(ids), "name": [name] * len(ids), "value": [0.5] * len(ids)}
    return pa.table(columns)


def live(table: lancemem.Table, *jobs: lancemem.Job | lancemem.RemoteJob) -> dict[int, str]:
    return found(table.scan(consistency="live", jobs=jobs).to_table())


def live_once_there_is_room(table: lancemem.Table, remote: lancemem.RemoteJob) -> dict[int, str]:
    """Read again while the endpoint serves as many reads as it may."""
    while True:
        with contextlib.suppress(lancemem.RetryableError):
            return live(table, remote)


def plain(location: str, token: str | None, **options: Any) -> tuple[flight.FlightClient, Any]:  # noqa: ANN401
    """Connect with a plain Flight client, without lancemem."""
    headers = [] if token is None else [(b"authorization", f"Bearer {token}".encode())]
    return flight.connect(location, **options), flight.FlightCallOptions(
        headers=headers, timeout=30
    )


def test_rows_that_are_not_durable_are_seen_from_another_process(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    table.upsert(rows(range(10), "stored"))
    job = elsewhere(table)
    job.put(range(5, 15), "in memory")
    job.do("delete", [0, 14])
    remote = job.connect()
    expected = {**named(range(1, 5), "stored"), **named(range(5, 14), "in memory")}
    assert live(table, remote) == expected
    assert found(table.scan().to_table()) == named(range(10), "stored")
    keys = pa.table({"id": [14, 13, 0, 1]})
    assert table.get(keys, consistency="live", jobs=[remote])["id"].to_pylist() == [13, 1]
    scan = table.scan(consistency="live", jobs=[remote])
    assert scan.count_rows() == len(expected)


def test_a_reader_that_polls_sees_every_put_while_the_job_flushes(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    job = elsewhere(table)
    remote = job.connect()
    expected: dict[int, str] = {}
    for turn in range(12):
        ids = range(turn * 3, turn * 3 + 10)
        job.put(ids, f"turn {turn}")
        expected |= named(ids, f"turn {turn}")
        assert live(table, remote) == expected, turn
        if turn % 4 == 2:
            job.do("flush")
            assert live(table, remote) == expected, turn
        if turn == 8:
            table.compact()
            assert live(table, remote) == expected, turn


def test_jobs_of_two_processes_are_one_snapshot_of_two_shards(
    make_table: MakeTable, elsewhere: Callable[..., Elsewhere]
) -> None:
    table = make_table(sharding=lancemem.bucket("id", 2))
    data = rows(range(100), "new")
    ordinals = pa.array(table.shard_ordinals(data)).to_pylist()
    remotes = []
    for shard in (0, 1):
        job = elsewhere(table, shard)
        for i in range(100):
            if ordinals[i] == shard:
                job.put(range(i, i + 1), "new")
        remotes.append(job.connect())
    assert live(table, *remotes) == named(range(100), "new")
    of_one = {i for i in range(100) if ordinals[i] == 1}
    assert set(live(table, remotes[1])) == of_one
    assert [remote.shard_id for remote in remotes] == [s.shard_id for s in table.shards()]


def test_a_call_without_the_token_is_refused(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    job = elsewhere(table)
    job.put(range(3), "secret")
    wrong = "0" * len(job.token)
    with pytest.raises(lancemem.InvalidInputError, match="refuses the token") as refused:
        lancemem.connect_job(job.location, wrong)
    assert wrong not in str(refused.value)
    for token in (None, wrong, job.token[:-1], ""):
        client, options = plain(job.location, token)
        with client:
            for call in [*CALLS, *NOT_OFFERED]:
                with pytest.raises(UNAUTHENTICATED, match=r"(?i)unauthenticated") as error:
                    call(client, options)
                assert job.token not in str(error.value)


def test_a_call_that_a_job_does_not_offer_writes_and_gives_nothing_with_the_token_either(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    job = elsewhere(table)
    job.put(range(3), "ours")
    client, options = plain(job.location, job.token)
    with client:
        for call in CALLS:
            call(client, options)
        for call in NOT_OFFERED:
            with pytest.raises(NotImplementedError, match="a job offers DoGet"):
                call(client, options)
        assert found(client.do_get(flight.Ticket(b"rows"), options).read_all()) == named(
            range(3), "ours"
        )


def test_any_flight_client_with_the_token_reads_the_newest_rows(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    job = elsewhere(table)
    job.put(range(10), "first")
    job.put(range(5, 15), "second")
    job.do("delete", [3, 12])
    client, options = plain(job.location, job.token)
    with client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path("rows"), options)
        data = client.do_get(info.endpoints[0].ticket, options).read_all()
        expected = {**named(range(5), "first"), **named(range(5, 15), "second")}
        expected = {i: name for i, name in expected.items() if i not in {3, 12}}
        assert found(data) == expected
        assert data.column_names == ["id", "name", "value"]
        assert info.schema.names == data.column_names
        assert [f.descriptor.path for f in client.list_flights(b"", options)] == [[b"rows"]]
        job.do("flush")
        assert client.do_get(flight.Ticket(b"rows"), options).read_all().num_rows == 0


def test_served_rows_have_no_field_ids_and_can_be_written_to_another_table(
    make_table: MakeTable,
) -> None:
    point = pa.struct([("x", pa.float64()), ("tags", pa.list_(pa.string()))])
    key, vector = pa.field("id", pa.int64(), nullable=False), pa.list_(pa.float32(), 2)
    columns = [key, ("m", pa.map_(pa.string(), point)), ("v", vector), ("p", point)]
    plain_schema = pa.schema(columns)
    inside = {"x": None, "tags": ["b"]}
    row = {"id": 1, "m": [("a", inside)], "v": [1.0, 2.0], "p": inside}
    table = make_table(plain_schema)
    with table.start_job(shard=0) as job, job.serve() as endpoint:
        job.put(pa.Table.from_pylist([row], schema=plain_schema))
        client, options = plain(endpoint.location, endpoint.token)
        with client:
            data = client.do_get(flight.Ticket(b"rows"), options).read_all()
            assert b"field_id" not in data.schema.serialize().to_pybytes()
            assert client.get_schema(ROWS, options).schema == data.schema
        remote = lancemem.connect_job(endpoint.location, endpoint.token)
        assert table.scan(consistency="live", jobs=[remote]).to_table().to_pylist() == [row]
    assert data.to_pylist() == [row]
    other = make_table(plain_schema)
    other.upsert(data)
    assert other.scan().to_table().to_pylist() == [row]


def test_a_bad_ticket_is_an_error_and_nothing_else(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    job = elsewhere(table)
    job.put(range(3), "here")
    client, options = plain(job.location, job.token)
    with client:
        for ticket in (
            b"",
            b"row",
            b"rows ",
            b"snapshot 1",
            b"snapshot x 1:1",
            b"\xff\x00",
            b"9" * 100_000,
        ):
            with pytest.raises(pa.ArrowInvalid, match="ticket"):
                client.do_get(flight.Ticket(ticket), options).read_all()
        absurd = b"snapshot 1 1:18446744073709551615"
        assert client.do_get(flight.Ticket(absurd), options).read_all().num_rows == 3
        with pytest.raises(pa.ArrowNotImplementedError):
            list(client.do_action(flight.Action("drop", b""), options))
    assert live(table, job.connect()) == named(range(3), "here")


def test_a_job_that_ended_is_an_error_and_never_old_rows(
    make_table: MakeTable, elsewhere: Callable[..., Elsewhere]
) -> None:
    def stopped(table: lancemem.Table, remote: lancemem.RemoteJob) -> None:
        for _ in range(2):
            with pytest.raises(lancemem.JobStoppedError):
                live(table, remote)

    for end in ("close", "close_endpoint"):
        table = make_table()
        job = elsewhere(table)
        job.put(range(3), "old")
        remote = job.connect()
        assert live(table, remote) == named(range(3), "old")
        job.do(end)
        stopped(table, remote)
    table = make_table()
    job = elsewhere(table)
    job.put(range(3), "old")
    remote = job.connect()
    assert live(table, remote) == named(range(3), "old")
    job.kill()
    stopped(table, remote)


def test_a_question_whose_connection_is_cut_is_asked_again(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    job = elsewhere(table)
    job.put(range(3), "old")
    between = Cutter(job.location)
    try:
        remote = lancemem.connect_job(between.location, job.token)
        for cuts in (0, 1, 1):
            between.cuts = cuts
            assert live(table, remote) == named(range(3), "old")
            assert between.cuts == 0
        between.cuts = 1_000_000
        with pytest.raises(lancemem.RetryableError, match="reading the job"):
            live(table, remote)
        between.cuts = 0
        job.put(range(3), "new")
        assert live(table, remote) == named(range(3), "new")
    finally:
        between.close()


def test_a_fenced_job_that_does_not_know_it_shows_no_rows(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere]
) -> None:
    job = elsewhere(table)
    job.put(range(3), "old")
    remote = job.connect()
    assert live(table, remote) == named(range(3), "old")
    with table.start_job(shard=0) as successor:
        successor.put(rows(range(3), "new"))
        with pytest.raises(lancemem.JobStoppedError, match="fenced"):
            live(table, remote)
        client, options = plain(job.location, job.token)
        with client, pytest.raises(pa.ArrowException, match="fenced"):
            client.do_get(flight.Ticket(b"rows"), options).read_all()
    assert found(table.scan().to_table()) == named(range(3), "new")


def test_large_lists_are_not_served(make_table: MakeTable) -> None:
    """arrow-flight would send other values."""
    inside = pa.struct([("l", pa.large_list(pa.int64()))])
    table = make_table(pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", inside)]))
    with (
        table.start_job(shard=0) as job,
        pytest.raises(lancemem.InvalidInputError, match="column 's' has large lists"),
    ):
        job.serve()


def test_a_job_of_another_table_is_refused(
    make_table: MakeTable, elsewhere: Callable[..., Elsewhere]
) -> None:
    table, other = make_table(), make_table()
    remote = elsewhere(other).connect()
    with pytest.raises(lancemem.InvalidInputError, match="writes to table"):
        live(table, remote)


def test_a_job_of_a_table_of_the_same_name_in_another_place_is_refused(
    tmp_path: Path, schema: pa.Schema, elsewhere: Callable[..., Elsewhere]
) -> None:
    prod, staging = (
        lancemem.create_table(str(tmp_path / place / "board.lance"), schema, primary_key="id")
        for place in ("prod", "staging")
    )
    remote = elsewhere(staging).connect()
    assert live(staging, remote) == {}
    for _ in range(2):
        with pytest.raises(
            lancemem.InvalidInputError, match=r"another table of the name 'board\.lance'"
        ):
            live(prod, remote)
        prod.upsert(rows(range(3), "prod"))
        with prod.start_job(shard=0) as job:
            job.flush()
        prod.compact()
    assert live(staging, remote) == {}


def self_signed(folder: Path) -> list[str]:
    """Make a certificate for 127.0.0.1 and its key."""
    from cryptography import x509  # noqa: PLC0415 - this test alone needs it
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "a job")])
    now = dt.datetime.now(dt.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    paths = [folder / "certificate.pem", folder / "key.pem"]
    paths[0].write_bytes(certificate.public_bytes(pem))
    paths[1].write_bytes(private)
    return [str(path) for path in paths]


def test_with_tls_only_who_trusts_the_certificate_reads(
    table: lancemem.Table, elsewhere: Callable[..., Elsewhere], tmp_path: Path
) -> None:
    certificate, key = self_signed(tmp_path)
    job = elsewhere(table, tls=[certificate, key])
    assert job.location.startswith("grpc+tls://127.0.0.1:")
    job.put(range(4), "over TLS")
    remote = lancemem.connect_job(job.location, job.token, tls_root_certificates=certificate)
    assert live(table, remote) == named(range(4), "over TLS")
    roots = Path(certificate).read_bytes()
    client, options = plain(job.location, job.token, tls_root_certs=roots)
    with client:
        assert client.do_get(flight.Ticket(b"rows"), options).read_all().num_rows == 4
    with pytest.raises(lancemem.InvalidInputError, match="tls_root_certificates"):
        lancemem.connect_job(job.location, job.token)
    without = job.location.replace("+tls", "")
    with pytest.raises(lancemem.LancememError):
        lancemem.connect_job(without, job.token)
    with pytest.raises(lancemem.InvalidInputError, match="is without TLS"):
        lancemem.connect_job(without, job.token, tls_root_certificates=certificate)
    (tmp_path / "other").mkdir()
    foreign = self_signed(tmp_path / "other")[0]
    with pytest.raises(lancemem.LancememError):
        lancemem.connect_job(job.location, job.token, tls_root_certificates=foreign)


def test_an_endpoint_that_cannot_be_is_refused_by_name(
    table: lancemem.Table, tmp_path: Path
) -> None:
    with table.start_job(shard=0) as job:
        for address in ("127.0.0.1:0", "http://127.0.0.1:0", "grpc://127.0.0.1"):
            with pytest.raises(lancemem.InvalidInputError, match="Flight location"):
                job.serve(address)
        with pytest.raises(lancemem.InvalidInputError, match="certificate"):
            job.serve("grpc+tls://127.0.0.1:0")
        with pytest.raises(lancemem.InvalidInputError, match="nowhere"):
            job.serve(tls=(tmp_path / "nowhere.pem", tmp_path / "nowhere.key"))
        with pytest.raises(lancemem.InvalidInputError, match="16 characters") as refused:
            job.serve(token="hunter2hunter2")  # noqa: S106 - it opens nothing
        assert "hunter2" not in str(refused.value)
        for number in (0, 1 << 62):
            with pytest.raises(lancemem.InvalidInputError, match="max_streams must be between 1"):
                job.serve(max_streams=number)
        with pytest.raises(lancemem.InvalidInputError, match="stall_timeout must be at least 1 ms"):
            job.serve(stall_timeout=timedelta(0))
        with job.serve() as endpoint:
            busy = endpoint.location
            with pytest.raises(lancemem.InvalidInputError, match="cannot be bound"):
                job.serve(busy)


def test_a_job_that_was_stopped_is_not_served(table: lancemem.Table) -> None:
    fenced = table.start_job(shard=0)
    table.start_job(shard=0).close()
    with pytest.raises(lancemem.WriterFencedError):
        fenced.put(rows(range(1), "late"))
    with pytest.raises(lancemem.WriterFencedError):
        fenced.serve()


def test_an_endpoint_shows_its_token_only_by_its_attribute(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job, job.serve() as endpoint:
        assert len(endpoint.token) == 64
        assert endpoint.location.startswith("grpc://127.0.0.1:")
        remote = lancemem.connect_job(endpoint.location, endpoint.token)
        for thing in (endpoint, remote, job):
            assert endpoint.token not in repr(thing)
        with job.serve() as other:
            assert other.token != endpoint.token
        own = "a token of my own"
        with pytest.raises(lancemem.InvalidInputError):
            job.serve(token=own)
        own = own.replace(" ", "-")
        with job.serve(token=own) as third:
            assert third.token == own
            job.put(rows(range(2), "here"), durable=False)
            assert live(table, lancemem.connect_job(third.location, own)) == named(range(2), "here")


# The first bytes of every HTTP/2 client: its preface, and settings that change nothing.
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])


def is_closed(connection: socket.socket) -> bool:
    """Read to the end, which comes by itself within the time-out of the connection."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1 << 16):
            pass
    return True


def test_a_connection_that_shows_no_token_is_closed(table: lancemem.Table) -> None:
    wide = pa.table({"id": range(40_000), "name": ["x" * 1_000] * 40_000, "value": [0.5] * 40_000})
    with contextlib.ExitStack() as scope:
        job = scope.enter_context(table.start_job(shard=0))
        endpoint = scope.enter_context(job.serve())
        job.put(wide, durable=False)
        client, options = plain(endpoint.location, endpoint.token)
        known = scope.enter_context(client).do_get(flight.Ticket(b"rows"), options)
        read = len(known.read_chunk().data)
        host, _, port = endpoint.location.removeprefix("grpc://").rpartition(":")
        strangers = []
        for said in (b"", b"P", HTTP2):
            stranger = socket.create_connection((host, int(port)), timeout=30)
            scope.enter_context(stranger).sendall(said)
            strangers.append(stranger)
        wrong, _ = plain(endpoint.location, "x" * 64)
        with scope.enter_context(wrong), pytest.raises(UNAUTHENTICATED):
            wrong.get_flight_info(ROWS)
        assert all(is_closed(stranger) for stranger in strangers)
        # A connection that has shown the token has no such time limit.
        assert read + len(known.read_all()) == 40_000
        assert len(live(table, lancemem.connect_job(endpoint.location, endpoint.token))) == 40_000


def test_a_stranger_that_never_reads_is_closed_like_others(table: lancemem.Table) -> None:
    ping = bytes([0, 0, 8, 6, 0, 0, 0, 0, 0]) + bytes(8)
    with table.start_job(shard=0) as job, job.serve() as endpoint:
        host, _, port = endpoint.location.removeprefix("grpc://").rpartition(":")
        with socket.socket() as stranger:
            # The answers fill the socket's buffer, and the server cannot write any more.
            stranger.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stranger.settimeout(30)
            stranger.connect((host, int(port)))
            with pytest.raises(ConnectionError):
                stranger.sendall(HTTP2 + ping * (1 << 21))


def test_a_new_connection_closes_the_oldest_that_has_shown_no_token(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job, job.serve() as endpoint, contextlib.ExitStack() as scope:
        host, _, port = endpoint.location.removeprefix("grpc://").rpartition(":")
        strangers = [socket.create_connection((host, int(port)), timeout=5) for _ in range(100)]
        for stranger in strangers:
            scope.enter_context(stranger)
        # Well before the time limit of any of them.
        remote = lancemem.connect_job(endpoint.location, endpoint.token)
        assert live(table, remote) == {}
        assert all(is_closed(stranger) for stranger in strangers[:30])


def handles() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="counts handles by /proc")
def test_strangers_take_few_handles_of_the_writer(table: lancemem.Table) -> None:
    with table.start_job(shard=0) as job, job.serve() as endpoint:
        host, _, port = endpoint.location.removeprefix("grpc://").rpartition(":")
        remote = lancemem.connect_job(endpoint.location, endpoint.token)
        before = handles()
        with contextlib.ExitStack() as scope:
            for _ in range(100):
                stranger = socket.create_connection((host, int(port)), timeout=30)
                scope.enter_context(stranger).sendall(HTTP2)
            job.put(rows(range(3), "beside"))
            assert live(table, remote) == named(range(3), "beside")
            assert stranger.recv(1 << 16), "the last one is answered"
            assert handles() - before <= 100 + 64 + 8


def test_reads_at_a_time_are_bounded(table: lancemem.Table) -> None:
    wide = pa.table({"id": range(40_000), "name": ["x" * 1_000] * 40_000, "value": [0.5] * 40_000})
    with table.start_job(shard=0) as job, job.serve(max_streams=1) as endpoint:
        job.put(wide, durable=False)
        remote = lancemem.connect_job(endpoint.location, endpoint.token)
        client, options = plain(endpoint.location, endpoint.token)
        with client:
            slow = client.do_get(flight.Ticket(b"rows"), options)
            slow.read_chunk()
            with pytest.raises(lancemem.RetryableError, match="as many reads"):
                live(table, remote)
            slow.cancel()
            assert len(live_once_there_is_room(table, remote)) == 40_000


def test_a_reader_that_stops_reading_gives_its_place_back_and_is_told(
    table: lancemem.Table,
) -> None:
    """Its rows were flushed long ago, and would stay in the writer's memory until it reads on."""
    wide = pa.table({"id": range(40_000), "name": ["x" * 1_000] * 40_000, "value": [0.5] * 40_000})
    with (
        table.start_job(shard=0) as job,
        job.serve(max_streams=1, stall_timeout=timedelta(milliseconds=50)) as endpoint,
    ):
        job.put(wide, durable=False)
        client, options = plain(endpoint.location, endpoint.token)
        with client:
            stalled = client.do_get(flight.Ticket(b"snapshot"), options)
            stalled.read_chunk()
            remote = lancemem.connect_job(endpoint.location, endpoint.token)
            assert len(live_once_there_is_room(table, remote)) == 40_000
            with pytest.raises(flight.FlightTimedOutError, match="took no message for 50 ms"):
                stalled.read_all()


def test_a_slow_reader_does_not_hold_up_the_end_of_an_endpoint(table: lancemem.Table) -> None:
    wide = pa.table({"id": range(40_000), "name": ["x" * 1_000] * 40_000, "value": [0.5] * 40_000})
    with table.start_job(shard=0) as job:
        endpoint = job.serve()
        job.put(wide, durable=False)
        client, options = plain(endpoint.location, endpoint.token)
        with client:
            slow = client.do_get(flight.Ticket(b"rows"), options)
            slow.read_chunk()
            endpoint.close()
            with pytest.raises(pa.ArrowException):
                slow.read_all()
        endpoint.close()
