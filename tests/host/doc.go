// Package host makes a region's instances out of systemd machines: each boots a
// Debian disk of its own with systemd-nspawn, in a network namespace of its
// own, and runs its user data with cloud-init, as an EC2 instance does. Nothing
// in such a machine's environment says that it is not on EC2: it finds the
// metadata service at its link-local address and the AWS APIs by their names,
// over TLS. What differs from Amazon Linux 2023 is listed in README.md.
//
// It needs root, and everything happens in namespaces that [Enter] makes: the
// bridge between the machines, every mount and every process end with them,
// however the program ends, and never meet the host's own network.
package host
