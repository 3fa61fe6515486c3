package rootfs_test

import (
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/etcfs/pulumi-etcfs/tests/region/standin/rootfs"
)

func TestArgument(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ argument, want string }{
		{"/var/lib/etcd", "/m/var/lib/etcd"},
		{"--data-dir=/var/lib/etcd", "/m/var/lib/etcd"},
		{"--config-files=/etc/a,/etc/b", "/m/etc/a,/m/etc/b"},
		{"--listen-client-urls=http://127.0.0.1:2379", "http://127.0.0.1:2379"},
		{"/m/already/there", "/m/already/there"},
		{"//host/share", "//host/share"},
		{"relative/path", "relative/path"},
		{"/dev/null", "/dev/null"},
		{"/dev/nvme1n1", "/m/dev/nvme1n1"},
		{"--log-outputs=stderr", "stderr"},
		{"name=/not/a/flag", "name=/not/a/flag"},
	} {
		want := test.want
		if flag, _, ok := strings.Cut(test.argument, "="); ok && strings.HasPrefix(flag, "-") {
			want = flag + "=" + want
		}
		if got := rootfs.Argument("/m", test.argument); got != want {
			t.Errorf("Argument(%q) = %q, want %q", test.argument, got, want)
		}
		if got := rootfs.Argument("", test.argument); got != test.argument {
			t.Errorf("Argument(%q) without a root = %q, want it unchanged", test.argument, got)
		}
	}
}

func TestStripUndoesPath(t *testing.T) {
	t.Parallel()
	for _, path := range []string{"/", "/etc/fstab", "/m", "/dev/null"} {
		if got := rootfs.Strip("/m", rootfs.Path("/m", path)); path != "/m" && got != path {
			t.Errorf("Strip(Path(%q)) = %q, want %q", path, got, path)
		}
	}
}

// A machine's root can be nested so deep that no socket path fits.
func TestSocketPathLongerThanTheKernelAllows(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), strings.Repeat("long/", 40), "a.sock")
	listener, err := rootfs.ListenUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("hello"))
		_ = conn.Close()
	}()
	conn, err := rootfs.DialUnix(path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := io.ReadAll(conn)
	if err != nil || string(got) != "hello" {
		t.Errorf("read %q, %v, want %q", got, err, "hello")
	}
}
