package process

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"syscall"
)

// Network is a loopback subnet 127.x.y.0/24 that one region holds. The
// region's own endpoints belong on Gateway, its machines get the addresses
// from .10 up.
type Network struct {
	prefix string // 127.x.y
	hold   net.Listener
}

// reservationPort is the port that holds a subnet for its region: whoever
// listens on it at the gateway's address has the subnet.
const reservationPort = 1337

// Reserve takes a free subnet, so that regions of several processes can run at
// once on one machine. Close gives it back, as does the end of the process.
func Reserve() (*Network, error) {
	const tries = 100
	for range tries {
		// 127.0.y.z is where other software likes to listen.
		prefix := fmt.Sprintf("127.%d.%d", 16+rand.IntN(239), rand.IntN(256))
		hold, err := net.Listen("tcp4", fmt.Sprintf("%s.1:%d", prefix, reservationPort))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("reserve a loopback subnet: %w", err)
		}
		return &Network{prefix: prefix, hold: hold}, nil
	}
	return nil, fmt.Errorf("reserve a loopback subnet: %d tries found none free", tries)
}

// Subnet is the CIDR block.
func (n *Network) Subnet() string { return n.prefix + ".0/24" }

// Gateway is the address for the region's own endpoints.
func (n *Network) Gateway() string { return n.prefix + ".1" }

// Close gives the subnet back.
func (n *Network) Close() error { return n.hold.Close() }
