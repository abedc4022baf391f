"""Another implementation of ESP and AH, scapy's, line by line: what to do on standard input, the packet that comes of it, in hex, back."""

import copy
import gc
import struct
import sys

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import AH, ESP, SecurityAssociation


def packet(octets):
    return (IP if octets[0] >> 4 == 4 else IPv6)(octets)


def tunnel_header(mode, src, dst):
    if mode == "transport":
        return None
    return IPv6(src=src, dst=dst) if ":" in src else IP(src=src, dst=dst)


class WithHigh:
    """A MAC that has the upper half of the sequence number behind what it is over (RFC 4303 2.2.1): Debian's scapy leaves it out in ESP."""

    def __init__(self, mac, high):
        self.mac, self.high = mac, high

    def update(self, octets):
        self.mac.update(octets)

    def finalize(self):
        self.mac.update(struct.pack("!L", self.high))
        return self.mac.finalize()


def with_high(algo, high):
    changed = copy.copy(algo)
    changed.new_mac = lambda key: WithHigh(algo.new_mac(key), high)
    return changed


# What packets leave behind has no cycles.
gc.disable()
for line in sys.stdin:
    what, mode, src, dst, spi, cipher, key, mac, mac_key, esn, number, octets = line.split()
    icv_size = None
    if cipher.startswith("AES-CCM-"):
        cipher, icv_size = "AES-CCM", int(cipher.removeprefix("AES-CCM-"))
    sa = SecurityAssociation(
        AH if cipher == "AH" else ESP,
        spi=int(spi, 16),
        crypt_algo="NULL" if cipher == "AH" else cipher,
        crypt_key=bytes.fromhex(key.rstrip("-")),
        crypt_icv_size=icv_size,
        auth_algo=mac,
        auth_key=bytes.fromhex(mac_key.rstrip("-")),
        tunnel_header=tunnel_header(mode, src, dst),
    )
    high, low = divmod(int(number), 1 << 32)
    if esn == "esn" and cipher != "AH":
        sa.auth_algo = with_high(sa.auth_algo, high)
    numbers = {"esn_en": esn == "esn", "esn": high}
    given = packet(bytes.fromhex(octets))
    if what == "protect":
        result = sa.encrypt(given, seq_num=low, **numbers)
    else:
        result = sa.decrypt(given, **numbers)
    print(bytes(result).hex(), flush=True)
