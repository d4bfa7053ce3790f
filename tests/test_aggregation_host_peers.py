"""Peers of the chip host: tokens, and whoever does not speak its language."""

import json
import socket
import struct
import zlib

import numpy as np
import pytest
from chip_hosts import (
    TOKEN,
    BareClient,
    CountingExecutor,
    codes_of,
    in_thread,
    name_of,
)

from optinc_hw.aggregation import (
    ChipHost,
    ChipHostError,
    RemoteExecutor,
)
from optinc_hw.aggregation import _host_messages as messages
from optinc_hw.aggregation._host_frames import codes_to_wire, write_head
from optinc_hw.errors import AggregationError
from optinc_hw.onn import quantised_mean


def test_the_right_token_opens_the_host_and_never_travels():
    sent = []

    def recording(where, timeout):
        link = socket.create_connection(where, timeout)

        class Recorded:
            close, settimeout, recv_into = link.close, link.settimeout, link.recv_into

            def sendall(self, data):
                sent.append(bytes(data))
                link.sendall(data)

        return Recorded()

    with (
        ChipHost(CountingExecutor(), token=TOKEN) as host,
        RemoteExecutor(host.address, TOKEN, connect=recording) as remote,
    ):
        assert np.array_equal(remote.run(codes_of(1)), quantised_mean(codes_of(1)))
    assert sent
    assert TOKEN.encode() not in b"".join(sent)


@pytest.mark.parametrize(
    ("of_host", "of_client", "reason"),
    [
        (TOKEN, "another token of enough characters", "not that of this chip host"),
        (TOKEN, None, "needs a token; give it"),
        (None, TOKEN, "has no token; give none"),
    ],
)
def test_other_tokens_are_turned_away_at_once(of_host, of_client, reason):
    executor = CountingExecutor()
    with ChipHost(executor, token=of_host) as host:
        with pytest.raises(ChipHostError, match=reason) as caught:
            RemoteExecutor(host.address, of_client)
        assert caught.value.outcome == "not_done"
        assert host.address in str(caught.value)
    assert executor.runs == []


def test_a_proof_is_good_for_its_own_link_only():
    with ChipHost(CountingExecutor(), token=TOKEN) as host, BareClient(host.address, log_in=False) as first:
        greeting = first.expect(messages.Greeting)
        proof = messages.proof(TOKEN, "client", greeting, name_of(7), name_of(1))
        with BareClient(host.address, log_in=False) as second:
            second.expect(messages.Greeting)
            second.send(messages.Login(nonce=name_of(7), session=name_of(1), proof=proof))
            assert "not that of this chip host" in second.expect(messages.Goodbye).reason


def test_a_client_tells_an_impostor_without_the_token():
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def impostor():
            link, _ = listener.accept()
            with link:
                link.sendall(write_head(messages.Greeting(instance=name_of(1), nonce=name_of(2), token_needed=True)))
                link.recv(1 << 16)
                welcome = messages.Welcome(
                    proof="0" * 64, servers=4, bits=8, inputs=4, executor="E", most_elements=9, accepted=0
                )
                link.sendall(write_head(welcome))

        finished = in_thread(impostor)
        with pytest.raises(ChipHostError, match="does not know the token"):
            RemoteExecutor(f"127.0.0.1:{listener.getsockname()[1]}", TOKEN)
        finished()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.20", "", "lab-host"])
def test_other_addresses_than_the_machines_own_need_a_token(address):
    with pytest.raises(AggregationError, match="give a token, or serve on 127"):
        ChipHost(CountingExecutor(), address=address)
    ChipHost(CountingExecutor(), address=address, token=TOKEN)


def test_a_short_token_is_refused_on_both_sides():
    with pytest.raises(AggregationError, match="has 15 characters; it must have at least 16"):
        ChipHost(CountingExecutor(), token="x" * 15)
    with pytest.raises(AggregationError, match="has 15 characters"):
        RemoteExecutor("127.0.0.1:5600", "x" * 15)


@pytest.mark.parametrize("address", ["127.0.0.1", ":5600", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:99999", "h:0"])
def test_addresses_without_name_or_port_are_refused(address):
    with pytest.raises(AggregationError, match="no address of a chip host"):
        RemoteExecutor(address)


# -- hostile peers --


def frame(header, kind, payload=b"", version=1, magic=b"OPTI", size=None):
    first = struct.pack("!4sBBHI", magic, version, kind, len(header), len(payload) if size is None else size)
    return first + struct.pack("!I", zlib.crc32(first + header + payload)) + header + payload


SUBMIT = json.dumps({"request": name_of(1), "elements": 8}).encode()
LOGIN = json.dumps({"nonce": name_of(1), "session": name_of(1), "proof": ""}).encode()
BEFORE_LOGIN = {
    "a web browser": (b"GET / HTTP/1.1\r\nHost: chip\r\n\r\n", "no frame of a chip host"),
    "another version": (frame(LOGIN, 2, version=9), "version 9"),
    "no login": (frame(SUBMIT, 4, b"0" * 32), "limit is 0"),
    "an ask before the login": (frame(json.dumps({"request": name_of(1), "since": 0}).encode(), 5), "must be Login"),
    "half a login": (frame(LOGIN, 2)[:30], "closed after 14 bytes of a frame"),
    "a proof where no token is": (frame(LOGIN.replace(b'""', b'"' + b"0" * 64 + b'"'), 2), "has no token"),
    "nothing": (b"", None),
}
AFTER_LOGIN = {
    "half a prefix": (frame(SUBMIT, 4)[:7], "closed after 7 bytes of a frame"),
    "half a payload": (frame(SUBMIT, 4, b"0" * 32)[:-5], "bytes of a frame"),
    "too few codes": (frame(SUBMIT, 4, b"0" * 24), "8 elements take 32 bytes, but 24 came"),
    "too many codes": (frame(SUBMIT, 4, b"0" * 40), "8 elements take 32 bytes, but 40 came"),
    "a huge payload": (frame(SUBMIT, 4, size=1 << 31), "too many; the limit is"),
    "a wrong checksum": (frame(SUBMIT, 4, b"0" * 32)[:-1] + b"1", "checksum"),
    "no elements": (frame(SUBMIT.replace(b"8", b"0"), 4), "elements of Submit"),
    "a message of the host": (frame(b'{"reason":"no","again":true}', 13), "must not send Goodbye"),
    "a second login": (frame(LOGIN, 2), "must not send Login"),
    "garbage": (bytes(range(256)) * 300, "no frame of a chip host"),
    "deep JSON": (frame(b'{"request":' + b"[" * 16000, 4), "header of Submit"),
}


@pytest.mark.parametrize("name", [*BEFORE_LOGIN, *AFTER_LOGIN])
def test_hostile_peers_are_sent_away_with_a_reason_and_nothing_runs(name):
    data, reason = {**BEFORE_LOGIN, **AFTER_LOGIN}[name]
    executor = CountingExecutor()
    with ChipHost(executor) as host, RemoteExecutor(host.address) as remote:
        with BareClient(host.address, log_in=name in AFTER_LOGIN) as hostile:
            if name in BEFORE_LOGIN:
                hostile.expect(messages.Greeting)
            hostile.socket.sendall(data)
            hostile.socket.shutdown(socket.SHUT_WR)
            if reason is not None:
                assert reason in hostile.expect(messages.Goodbye, again=False).reason
            assert hostile.ended()
        assert executor.runs == []
        assert np.array_equal(remote.run(codes_of(1)), quantised_mean(codes_of(1)))


@pytest.mark.parametrize("token", [TOKEN, None])
def test_links_that_never_log_in_keep_nobody_out(token):
    strangers = []
    with ChipHost(CountingExecutor(), token=token) as host, RemoteExecutor(host.address, token) as first:
        try:
            strangers += [BareClient(host.address, log_in=False) for _ in range(100)]
            for one in strangers:
                one.expect(messages.Greeting)
            with RemoteExecutor(host.address, token) as second:
                assert np.array_equal(second.run(codes_of(1)), quantised_mean(codes_of(1)))
                assert second.health().clients == 2
            assert 0 < first.health().logging_in <= 64
            goodbye = strangers[0].expect(messages.Goodbye, again=True)
            assert "64 newer links wait for their login, which is the chip host's limit" in goodbye.reason
            assert strangers[0].ended()
            assert np.array_equal(first.run(codes_of(2)), quantised_mean(codes_of(2)))
        finally:
            for one in strangers:
                one.socket.close()


def test_links_with_another_token_keep_nobody_out_while_they_linger():
    strangers = []
    with ChipHost(CountingExecutor(), token=TOKEN) as host:
        try:
            strangers += [BareClient(host.address, token="another token of enough characters") for _ in range(100)]
            with RemoteExecutor(host.address, TOKEN) as remote:
                health = remote.health()
                assert (health.clients, health.logging_in <= 64) == (1, True)
        finally:
            for one in strangers:
                one.socket.close()


def test_a_request_that_comes_twice_runs_once():
    executor = CountingExecutor()
    with ChipHost(executor) as host, BareClient(host.address) as client, BareClient(host.address) as other:
        for one in (client, client, other):
            one.submit(1, 1)
            result = one.expect(messages.Result, request=name_of(1))
            assert result.accepted == 1
    assert executor.runs == [1]


def test_a_frame_in_single_bytes_is_read():
    with ChipHost(CountingExecutor()) as host, BareClient(host.address) as client:
        payload = codes_to_wire(codes_of(1, elements=8).T, 8)
        data = write_head(messages.Submit(request=name_of(1), elements=8), payload) + bytes(payload)
        client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in data:
            client.socket.sendall(bytes([byte]))
        client.expect(messages.Result, request=name_of(1))
