"""Another implementation of ESP, scapy's, line by line: what to do on standard input, the packet that comes of it, in hex, back."""

import sys

from scapy.layers.inet import IP
from scapy.layers.inet6 import IPv6
from scapy.layers.ipsec import ESP, SecurityAssociation


def packet(octets):
    return (IP if octets[0] >> 4 == 4 else IPv6)(octets)


def tunnel_header(mode, src, dst):
    if mode == "transport":
        return None
    return IPv6(src=src, dst=dst) if ":" in src else IP(src=src, dst=dst)


for line in sys.stdin:
    what, mode, src, dst, spi, key, esn, number, octets = line.split()
    sa = SecurityAssociation(
        ESP,
        spi=int(spi, 16),
        crypt_algo="AES-GCM",
        crypt_key=bytes.fromhex(key),
        tunnel_header=tunnel_header(mode, src, dst),
    )
    high, low = divmod(int(number), 1 << 32)
    numbers = {"esn_en": esn == "esn", "esn": high}
    given = packet(bytes.fromhex(octets))
    if what == "protect":
        result = sa.encrypt(given, seq_num=low, **numbers)
    else:
        result = sa.decrypt(given, **numbers)
    print(bytes(result).hex(), flush=True)
