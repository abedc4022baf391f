//! Packets in and out: AF_XDP ports, the XDP filter, the frame pool, the host TUN, routes and neighbours, workers.
