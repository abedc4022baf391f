"""Drives testudod through strongSwan's Python client, as monitoring and automation do.

Arguments: the VICI socket, our outer address, the peer's, and our and the peer's protected network.
"""

import socket
import sys
import threading
import time
from collections import OrderedDict

import vici

PATH, LOCAL, REMOTE, LOCAL_NET, REMOTE_NET = sys.argv[1:]
EVENTS = ["ike-updown", "child-updown", "ike-rekey", "child-rekey"]


def connect():
    sock = socket.socket(socket.AF_UNIX)
    sock.connect(PATH)
    sock.settimeout(30)
    return vici.Session(sock)


def connection(**more):
    child = {
        "local_ts": [LOCAL_NET],
        "remote_ts": [REMOTE_NET],
        "esp_proposals": ["aes128gcm16"],
    }
    content = {
        "version": "2",
        "local_addrs": [LOCAL],
        "remote_addrs": [REMOTE],
        "proposals": ["aes128gcm16-prfsha256-x25519"],
        "local": {"auth": "psk", "id": "gw1.lab.example"},
        "remote": {"auth": "psk", "id": "gw2.lab.example"},
        "children": {"lab": child},
    }
    content.update(more)
    return OrderedDict(lab=content)


def refused(what, command, *arguments):
    try:
        result = command(*arguments)
        # The streaming commands do nothing before their result is looked at.
        list(result or [])
    except vici.exception.CommandException as error:
        assert what in str(error), (what, error)
    else:
        raise AssertionError("not refused: " + what)


def listen(seen, ready, enough):
    """Notes events until both kinds of SAs have gone down."""
    for name, message in connect().listen(EVENTS, timeout=0.5):
        if name is None:
            ready.set()
            continue
        name = name.decode() if isinstance(name, bytes) else name
        seen.append((name, message))
        if sum(name.endswith("updown") and "up" not in message for name, message in seen) == 2:
            enough.set()
            return


def children():
    (sa,) = session.list_sas()
    return [child["uniqueid"] for child in sa["lab"]["child-sas"].values() if child["state"] == b"INSTALLED"]


def renewed(what, number):
    """New keys for the SA of that kind, waited for."""
    before = number()
    assert session.rekey({what: "lab"})["success"] == b"yes"
    until = time.monotonic() + 30
    while time.monotonic() < until:
        after = number()
        if len(after) == 1 and after != before:
            return before, after
        time.sleep(0.1)
    raise AssertionError("not renewed: " + what)


session = connect()
assert session.version()["daemon"] == b"testudod"
assert "uptime" in session.stats()
assert "encryption" in session.get_algorithms()

session.load_shared(
    {"id": "lab", "type": "IKE", "data": "a key that only the lab knows", "owners": ["gw1.lab.example", "gw2.lab.example"]}
)
assert session.get_shared()["keys"] == [b"lab"]
refused("connections.lab.colour", session.load_conn, connection(colour="blue"))
assert list(session.get_conns()["conns"]) == []
session.load_conn(connection())
assert session.get_conns()["conns"] == [b"lab"]
(listed,) = session.list_conns()
assert list(listed["lab"]["children"]) == ["lab"]

events, ready, enough = [], threading.Event(), threading.Event()
listener = threading.Thread(target=listen, args=(events, ready, enough), daemon=True)
listener.start()
assert ready.wait(30)

lines = [entry["msg"].decode() for entry in session.initiate({"child": "lab", "timeout": 15000})]
assert any("established" in line for line in lines), lines
(sa,) = session.list_sas()
assert sa["lab"]["state"] == b"ESTABLISHED"
(child,) = sa["lab"]["child-sas"].values()
assert child["state"] == b"INSTALLED" and child["local-ts"] == [LOCAL_NET.encode()]
assert session.get_counters({"all": "yes"})["counters"]["lab"]["ike-init-out-req"] == b"1"
refused("no-such-child", session.initiate, {"child": "no-such-child"})
refused("not supported yet", session.redirect, {"ike": "lab", "gateway": REMOTE})

child_numbers = renewed("child", children)
ike_numbers = renewed("ike", lambda: [sa["lab"]["uniqueid"] for sa in session.list_sas()])

list(session.terminate({"ike": "lab"}))
assert list(session.list_sas()) == []
assert enough.wait(30), events
kinds = sorted((name, "up" in message) for name, message in events)
assert kinds == [
    ("child-rekey", False),
    ("child-updown", False),
    ("child-updown", True),
    ("ike-rekey", False),
    ("ike-updown", False),
    ("ike-updown", True),
], events
(ikes,) = [message["lab"] for name, message in events if name == "ike-rekey"]
assert ([ikes["old"]["uniqueid"]], [ikes["new"]["uniqueid"]]) == ike_numbers, (ikes, ike_numbers)
(both,) = [child for name, message in events if name == "child-rekey" for child in message["lab"]["child-sas"].values()]
assert ([both["old"]["uniqueid"]], [both["new"]["uniqueid"]]) == child_numbers, (both, child_numbers)

session.unload_conn({"name": "lab"})
session.clear_creds()
assert list(session.get_conns()["conns"]) == []
print("everything answered")
