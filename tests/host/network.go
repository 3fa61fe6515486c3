package host

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
)

// The machines' network. It exists in the suite's own network namespace only,
// so it cannot meet another of the same addresses.
const (
	subnet          = "10.77.0.0/24"
	gatewayAddress  = "10.77.0.1"
	metadataAddress = "169.254.169.254"
	bridge          = "br-etcfs"
	device          = "eth0" // of a machine
)

// makeBridge makes the bridge that machines are plugged into, with the
// region's addresses.
func makeBridge(ctx context.Context) error {
	// A fixed hardware address: otherwise it is the lowest of those that are
	// plugged in, and changes as machines come and go.
	return ip(ctx, "",
		"link add "+bridge+" address 02:00:0a:4d:00:01 type bridge forward_delay 0",
		"addr add "+gatewayAddress+"/24 dev "+bridge,
		"addr add "+metadataAddress+"/32 dev "+bridge,
		"link set "+bridge+" up",
	)
}

// wire is a machine's connection to the bridge. The machine's end, with its
// address and routes, is in a network namespace of its own and outlives
// reboots.
type wire struct{ namespace, port string }

// newWire makes a network namespace that is reached at an address.
func newWire(ctx context.Context, name, address string) (wire, error) {
	addr, err := netip.ParseAddr(address)
	if err != nil {
		return wire{}, fmt.Errorf("read the machine's address: %w", err)
	}
	four := addr.As4()
	// The kernel limits a device's name to 15 bytes, an instance ID has 19.
	w := wire{namespace: name, port: fmt.Sprintf("port%d", four[3])}
	if err := run(ctx, "ip", "netns", "add", w.namespace); err != nil {
		return wire{}, err
	}
	if err := ip(ctx, "",
		"link add "+w.port+" type veth peer name "+device+" netns "+w.namespace,
		"link set "+w.port+" master "+bridge+" up",
	); err != nil {
		return w, err
	}
	return w, ip(ctx, w.namespace,
		"link set lo up",
		fmt.Sprintf("link set %s address 02:00:%02x:%02x:%02x:%02x up", device, four[0], four[1], four[2], four[3]),
		fmt.Sprintf("addr add %s/24 dev %s", address, device),
		"route add default via "+gatewayAddress,
		"route add "+metadataAddress+"/32 dev "+device,
	)
}

// path is the namespace as a file.
func (w wire) path() string { return "/run/netns/" + w.namespace }

// cut and heal pull the plug and put it back.
func (w wire) cut(ctx context.Context) error  { return ip(ctx, "", "link set "+w.port+" down") }
func (w wire) heal(ctx context.Context) error { return ip(ctx, "", "link set "+w.port+" up") }

// remove takes the namespace away, and with it both ends of the wire.
func (w wire) remove(ctx context.Context) error {
	if _, err := os.Stat(w.path()); err != nil {
		return nil //nolint:nilerr // there is none
	}
	return run(ctx, "ip", "netns", "delete", w.namespace)
}

// ip runs commands of ip(8) in a network namespace, "" for the suite's own, up
// to the first that fails.
func ip(ctx context.Context, namespace string, commands ...string) error {
	arguments := []string{"-batch", "-"}
	if namespace != "" {
		arguments = append([]string{"-n", namespace}, arguments...)
	}
	command := exec.CommandContext(ctx, "ip", arguments...)
	command.Stdin = strings.NewReader(strings.Join(commands, "\n") + "\n")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("set up the network: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
