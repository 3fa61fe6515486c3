package bootstrap

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/bootstrap/aws"
)

// disk makes an NVMe device on the node.
func disk(t *testing.T, b *Bootstrap, name, model, serial string) {
	t.Helper()
	put(t, b, "/dev/"+name, "", 0o600)
	// As the kernel pads them.
	put(t, b, "/sys/block/"+name+"/device/model", model+strings.Repeat(" ", 40-len(model))+"\n", 0o444)
	put(t, b, "/sys/block/"+name+"/device/serial", serial+"\n", 0o444)
}

func byID(t *testing.T, b *Bootstrap, link, device string) {
	t.Helper()
	dir := b.path("/dev/disk/by-id")
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink("../../"+device, filepath.Join(dir, link))); err != nil {
		t.Fatal(err)
	}
}

const ebsLink = "nvme-Amazon_Elastic_Block_Store_" + testSerial

func TestFindDevice(t *testing.T) {
	t.Parallel()
	const instanceStore = "Amazon EC2 NVMe Instance Storage"
	for name, test := range map[string]struct {
		prepare func(*testing.T, *Bootstrap)
		want    string
		err     string
	}{
		"through the link": {
			func(t *testing.T, b *Bootstrap) {
				disk(t, b, "nvme0n1", ebsModel, "vol0000000000000root")
				disk(t, b, "nvme1n1", instanceStore, "AWS1234")
				disk(t, b, "nvme2n1", ebsModel, testSerial)
				byID(t, b, ebsLink, "nvme2n1")
			}, "/dev/disk/by-id/" + ebsLink, "",
		},
		"without a link": {
			func(t *testing.T, b *Bootstrap) {
				disk(t, b, "nvme1n1", instanceStore, "AWS1234")
				disk(t, b, "nvme3n1", ebsModel, testSerial)
			}, "/dev/nvme3n1", "",
		},
		"not there": {
			func(t *testing.T, b *Bootstrap) { disk(t, b, "nvme0n1", ebsModel, "vol0000000000000root") },
			"", "no such device",
		},
		"nothing there": {func(*testing.T, *Bootstrap) {}, "", "no such device"},
		"an instance-store disk under the volume's serial": {
			func(t *testing.T, b *Bootstrap) { disk(t, b, "nvme1n1", instanceStore, testSerial) },
			"", "no such device",
		},
		"a stale link to an instance-store disk": {
			func(t *testing.T, b *Bootstrap) {
				disk(t, b, "nvme1n1", instanceStore, "AWS1234")
				byID(t, b, ebsLink, "nvme1n1")
			}, "", `its model is "Amazon EC2 NVMe Instance Storage"`,
		},
		"a stale link to another volume": {
			func(t *testing.T, b *Bootstrap) {
				disk(t, b, "nvme1n1", ebsModel, "vol0fffffffffffffff1")
				byID(t, b, ebsLink, "nvme1n1")
			}, "", `its serial is "vol0fffffffffffffff1"`,
		},
		"a link to a device that has gone": {
			func(t *testing.T, b *Bootstrap) { byID(t, b, ebsLink, "nvme1n1") }, "", "no such device",
		},
		"a device without its node": {
			func(t *testing.T, b *Bootstrap) {
				disk(t, b, "nvme1n1", ebsModel, testSerial)
				if err := os.Remove(b.path("/dev/nvme1n1")); err != nil {
					t.Fatal(err)
				}
			}, "", "no such device",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b, _ := newNode(t)
			test.prepare(t, b)
			got, err := findDevice(b.Root, testVolume)
			if got != test.want {
				t.Errorf("got device %q, want %q", got, test.want)
			}
			if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
				t.Errorf("got error %v, want %q", err, test.err)
			}
		})
	}
}

// steps is a volume that takes some steps to attach.
type steps struct {
	errs     []error
	attached bool
	arrive   func() // the device appears
	calls    int
}

func (s *steps) Attached(context.Context, string) (bool, error) { return s.attached, nil }

func (s *steps) Attach(_ context.Context, instanceID, zone string) error {
	s.calls++
	if instanceID != testInstance || zone != "eu-west-1a" {
		return &aws.RefusedError{Reason: "wrong arguments " + instanceID + " " + zone}
	}
	if len(s.errs) > 0 {
		err := s.errs[0]
		s.errs = s.errs[1:]
		return err
	}
	if !s.attached {
		s.attached = true
		s.arrive()
	}
	return nil
}

func TestAttach(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	v := &steps{errs: []error{aws.ErrAttaching, errors.New("the answer was lost")}}
	v.arrive = func() { disk(t, b, "nvme1n1", ebsModel, testSerial) }
	b.Volume = v
	twice(t, b, b.attach())

	// After a reboot both are still there.
	v.calls = 0
	if err := runPhase(t, b, b.attach()); err != nil || v.calls != 0 {
		t.Errorf("got %v after %d calls, want no call", err, v.calls)
	}
	// Fenced: the volume was detached, and the device may linger.
	v.attached = false
	if isDone(t, b.attach()) {
		t.Error("a lingering device passes for an attachment")
	}
}

func TestAttachStopsWhenRefused(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	v := &steps{errs: []error{&aws.RefusedError{Reason: "no Multi-Attach"}}}
	b.Volume = v
	err := runPhase(t, b, b.attach())
	if err == nil || err.Error() != "attach: attach the shared volume "+testVolume+": no Multi-Attach" || v.calls != 1 {
		t.Errorf("got error %v after %d calls", err, v.calls)
	}
}

// who is a metadata service that needs some tries.
type who struct {
	failures int
	identity aws.Identity
}

func (w *who) Identity(context.Context) (aws.Identity, error) {
	if w.failures--; w.failures >= 0 {
		return aws.Identity{}, errors.New("no route to host")
	}
	return w.identity, nil
}

func TestIdentify(t *testing.T) {
	t.Parallel()
	b, _ := newNode(t)
	b.Node = Node{}
	b.Metadata = &who{failures: 2, identity: testIdentity}
	twice(t, b, b.identify())
	if b.Node != Node(testIdentity) {
		t.Errorf("got %+v", b.Node)
	}
	if got, want := b.Node.ID("demo"), "demo-"+testInstance; got != want {
		t.Errorf("got node ID %s, want %s", got, want)
	}

	b.Node, b.Settings.Region = Node{}, "us-east-1"
	err := runPhase(t, b, b.identify())
	if err == nil || !strings.Contains(err.Error(), "is in eu-west-1") || !strings.Contains(err.Error(), "ETCFS_REGION") {
		t.Errorf("got error %v, want one that names both Regions and the setting", err)
	}
	if b.Node.InstanceID != "" {
		t.Error("a node of another Region was accepted")
	}
}
